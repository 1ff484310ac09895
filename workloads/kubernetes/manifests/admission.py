"""How pods that others create are made to wait for the portal: marks, kinds of owners, and the policies of the API server.
The policies are CEL that the API server evaluates itself (MutatingAdmissionPolicy, ValidatingAdmissionPolicy): pods can be
created while the portal is down, and the gate cannot be bypassed then. RBAC decides who may lift the gate (verb `admit` on
`admission` in the group `gpu-quota-portal`), so that no account is named here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from workloads.kubernetes.manifests.labels import MANAGED_BY, PREFIX
from workloads.sharing.outside import ASKING

Json = dict[str, Any]

ADMIT_TO = f"{PREFIX}/admit-to"  # label of a namespace, or of an object and its pods: the department's slug
ADMISSION = f"{PREFIX}/admission"  # the scheduling gate
SUBMITTED_BY, SUBMITTED_WITH = f"{PREFIX}/submitted-by", f"{PREFIX}/submitted-with"  # annotations: user, field manager
TIED_BY = f"{PREFIX}/tied-by"  # annotation: namespace, or label
ADMITTED = f"{PREFIX}/admitted"  # annotation: submission id of the attempt that admitted it
SUSPENDED = f"{PREFIX}/suspended-at"  # annotation of an owner that the portal has suspended
STATUS = f"{PREFIX}/status"  # annotation: the portal's sentence about it
NAMESPACE, LABEL = "namespace", "label"
SETTINGS = ("pool", "name", "priority", "max-runtime", "preemptible", "own-only")  # what a pod may set
OPTIONAL = tuple(f"{PREFIX}/{word}" for word in SETTINGS)


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """A kind of object that creates pods. `suspend`: path of the field that stops it without counting a failure; `each`: its
    pods are admitted one by one; `above`: it only shows who submitted the objects that it creates."""

    group: str
    kind: str
    plural: str
    suspend: tuple[str, ...] = ()
    each: bool = False
    above: bool = False


SPEC, POLICY = ("spec", "suspend"), ("spec", "runPolicy", "suspend")
KUBEFLOW = "kubeflow.org"
OWNERS = (
    OwnerKind("batch", "Job", "jobs", SPEC),
    OwnerKind("batch", "CronJob", "cronjobs", above=True),
    OwnerKind("apps", "ReplicaSet", "replicasets", each=True),
    OwnerKind("apps", "Deployment", "deployments", each=True),
    OwnerKind("apps", "StatefulSet", "statefulsets", each=True),
    OwnerKind("jobset.x-k8s.io", "JobSet", "jobsets", SPEC),
    OwnerKind("ray.io", "RayCluster", "rayclusters", SPEC),
    OwnerKind("ray.io", "RayJob", "rayjobs", SPEC),
    OwnerKind("trainer.kubeflow.org", "TrainJob", "trainjobs", SPEC),
    OwnerKind(KUBEFLOW, "PyTorchJob", "pytorchjobs", POLICY),
    OwnerKind(KUBEFLOW, "TFJob", "tfjobs", POLICY),
    OwnerKind(KUBEFLOW, "XGBoostJob", "xgboostjobs", POLICY),
    OwnerKind(KUBEFLOW, "PaddleJob", "paddlejobs", POLICY),
    OwnerKind(KUBEFLOW, "JAXJob", "jaxjobs", POLICY),
    OwnerKind(KUBEFLOW, "MPIJob", "mpijobs", POLICY),
    OwnerKind("argoproj.io", "Workflow", "workflows", above=True),
)
REMEMBERED = tuple(owner for owner in OWNERS if owner.kind != "ReplicaSet")
"""Kinds on which a policy writes the submitter; a ReplicaSet has the annotations that its Deployment's controller copies."""
BY_KIND = {(owner.group, owner.kind): owner for owner in OWNERS}


def kind_of(api: str, kind: str) -> OwnerKind | None:
    """`api`: group and version, as in `apiVersion`."""
    return BY_KIND.get((api.rpartition("/")[0], kind))


# The API server's policies --------------------------------------------------------------------------------------------

RESOURCES = (
    r"^(nvidia\\.com/|aliyun\\.com/gpu|tencent\\.com/vcuda|tke\\.cloud\\.tencent\\.com/qgpu|volcano\\.sh/v?gpu|"
    r"deviceclass\\.resource\\.kubernetes\\.io/)"
)
"""sharing.nodes.GPU_RESOURCE as a string of CEL; a test compares them."""
_AMOUNTS = (
    "has(c.resources.{0}) && c.resources.{0}.exists(name, name.matches('" + RESOURCES + "') && "
    "string(c.resources.{0}[name]) != '0')"
)
_CONTAINERS = "(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))"
ASKS_FOR_A_GPU = (
    f"{_CONTAINERS}.exists(c, has(c.resources) && (({_AMOUNTS.format('limits')}) || ({_AMOUNTS.format('requests')})))"
    " || (has(object.spec.resourceClaims) && size(object.spec.resourceClaims) > 0)"
    " || (has(object.metadata.annotations) && ['gpu-fraction', 'gpu-memory'].exists(name, name in object.metadata.annotations))"
    " || (has(object.metadata.labels) && 'sharedgpu/gpu_request' in object.metadata.labels)"
)
IS_PORTAL = f"authorizer.group('{PREFIX}').resource('admission').check('admit').allowed()"
API = "admissionregistration.k8s.io"


def _of(place: str, what: str, key: str) -> str:
    """CEL for the value of a label or annotation, '' where there is none."""
    marks = f"{place}.metadata.{what}"
    return f"(has({marks}) && '{key}' in {marks} ? {marks}['{key}'] : '')"


def _has(place: str, key: str) -> str:
    """CEL for whether the object has the annotation, even an empty one."""
    return f"(has({place}.metadata.annotations) && '{key}' in {place}.metadata.annotations)"


def _constraints(operations: list[str], rules: list[tuple[str, str]]) -> Json:
    """The requests that a policy applies to: none in the portal's own namespaces."""
    groups: dict[str, list[str]] = {}
    for group, plural in rules:
        groups.setdefault(group, []).append(plural)
    return {
        "namespaceSelector": {"matchExpressions": [{"key": MANAGED_BY, "operator": "NotIn", "values": [PREFIX]}]},
        "resourceRules": [
            {"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": plurals}
            for group, plurals in groups.items()
        ],
    }


_MANAGER = (
    "has(object.metadata.managedFields) && size(object.metadata.managedFields) > 0 && "
    "has(object.metadata.managedFields[0].manager) ? object.metadata.managedFields[0].manager : ''"
)
_TO = [
    {"name": "own", "expression": _of("object", "labels", ADMIT_TO)},
    {"name": "inherited", "expression": _of("namespaceObject", "labels", ADMIT_TO)},
    {"name": "to", "expression": "variables.own != '' ? variables.own : variables.inherited"},
]
_WHO = f"'{SUBMITTED_BY}': string(request.userInfo.username), '{SUBMITTED_WITH}': string(variables.manager)"


def _policy(kind: str, name: str, spec: Json) -> list[Json]:
    full = f"{PREFIX}-{name}"
    binding: Json = {"policyName": full} | ({"validationActions": ["Deny"]} if kind.startswith("Validating") else {})
    return [
        {"apiVersion": f"{API}/v1", "kind": kind, "metadata": {"name": full}, "spec": {"failurePolicy": "Fail", **spec}},
        {"apiVersion": f"{API}/v1", "kind": f"{kind}Binding", "metadata": {"name": full}, "spec": binding},
    ]  # fmt: skip


def _gate() -> list[Json]:
    """Pods that request a GPU and are tied to a department get the gate, the label, and the name of their submitter. A pod that
    the portal recreates keeps the name of its first submitter."""
    marks = (
        "Object{metadata: Object.metadata{"
        f"labels: {{'{ADMIT_TO}': string(variables.to)}}, "
        f"annotations: {{'{TIED_BY}': variables.to == variables.inherited ? '{NAMESPACE}' : '{LABEL}'}}}}, "
        f"spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: '{ADMISSION}'}}]}}}}"
    )
    who = f"Object{{metadata: Object.metadata{{annotations: {{{_WHO}}}}}}}"
    return _policy(
        "MutatingAdmissionPolicy",
        "pods",
        {
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": _constraints(["CREATE"], [("", "pods")]),
            "matchConditions": [{"name": "asks-for-a-gpu", "expression": ASKS_FOR_A_GPU}],
            "variables": [*_TO, {"name": "manager", "expression": _MANAGER}],
            "mutations": [
                _apply(f"variables.to == '' ? Object{{}} : {marks}"),
                _apply(f"variables.to == '' || {IS_PORTAL} ? Object{{}} : {who}"),
            ],
        },
    )


def _remember() -> list[Json]:
    """Objects that create pods get the name of their submitter, which an update does not change and nobody can set. If it cannot
    be written (a kind that has only just been installed), the object is created all the same."""
    old_by, old_with = (_of("oldObject", "annotations", key) for key in (SUBMITTED_BY, SUBMITTED_WITH))
    made = "request.operation == 'CREATE'"
    noted = _annotate("string(request.userInfo.username)", "string(variables.manager)")
    unchanged = _annotate(f"string({old_by})", f"string({old_with})")
    rules = [(owner.group, owner.plural) for owner in REMEMBERED]
    nobody = _without_notes()
    chosen = f"{made} ? (variables.to == '' ? {nobody} : {noted}) : ({old_by} == '' ? {nobody} : {unchanged})"
    return _policy(
        "MutatingAdmissionPolicy",
        "owners",
        {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "matchConstraints": _constraints(["CREATE", "UPDATE"], rules),
            "variables": [*_TO, {"name": "manager", "expression": _MANAGER}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": chosen}}],
        },
    )


AT = "'/metadata/annotations/' + jsonpatch.escapeKey('{}')"


def _without_notes() -> str:
    taken = (
        f"({_has('object', key)} ? [JSONPatch{{op: 'remove', path: {AT.format(key)}}}] : [])"
        for key in (SUBMITTED_BY, SUBMITTED_WITH)
    )
    return f"({' + '.join(taken)})"


def _annotate(by: str, using: str) -> str:
    """CEL that sets both annotations, as a JSON patch: it needs no schema, and those of custom resources reach policies late."""
    first = "JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}"
    ops = ", ".join(
        f"JSONPatch{{op: 'add', path: {AT.format(key)}, value: {value}}}"
        for key, value in ((SUBMITTED_BY, by), (SUBMITTED_WITH, using))
    )
    return f"((has(object.metadata.annotations) ? [] : [{first}]) + [{ops}])"


def _apply(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def _guard() -> list[Json]:
    """Only the portal lifts the gate, changes the department or the requests of a pod, or marks it as admitted; nobody can
    create a pod with the marks that the policies write."""

    def gated(place: str) -> str:
        gates = f"{place}.spec.schedulingGates"
        return f"(has({gates}) && {gates}.exists(gate, gate.name == '{ADMISSION}'))"

    marks = [("labels", ADMIT_TO), ("annotations", SUBMITTED_BY), ("annotations", TIED_BY), ("annotations", ADMITTED)]
    updated = "(request.operation == 'UPDATE')"
    forged = f"({gated('object')} || {_has('object', TIED_BY)} || {_has('object', SUBMITTED_BY)})"

    def same(marks: Iterable[tuple[str, str]]) -> str:
        return " && ".join(f"{_of('object', what, key)} == {_of('oldObject', what, key)}" for what, key in marks)

    old_label = _of("oldObject", "labels", ADMIT_TO)
    rules = [
        (
            f"{updated} || !{forged} || (variables.to != '' && ({ASKS_FOR_A_GPU}))",
            "The scheduling gate and the annotations tied-by and submitted-by are written by the portal's policies: "
            "leave them out.",
        ),
        (
            f"!({updated} && {gated('oldObject')} && !{gated('object')})",
            f"The scheduling gate {ADMISSION} is lifted by the portal when the department's quota allows it; "
            f"the pod's annotation {STATUS} says what it waits for.",
        ),
        (
            f"!{updated} || ({same(marks)})",
            f"The label {ADMIT_TO} and the annotations that the portal and its policies write cannot be added or changed: "
            "delete the pod and make it again.",
        ),
        (
            f"!{updated} || {old_label} == '' || ({same(ASKING)})",
            f"What a pod with the label {ADMIT_TO} asks for cannot be changed: delete the pod and make it again.",
        ),
        (
            f"{updated} || {_of('object', 'annotations', ADMITTED)} == ''",
            f"The annotation {ADMITTED} is written by the portal only: leave it out.",
        ),
    ]
    return _policy(
        "ValidatingAdmissionPolicy",
        "gate",
        {
            "matchConstraints": _constraints(["CREATE", "UPDATE"], [("", "pods")]),
            "variables": [*_TO, {"name": "portal", "expression": IS_PORTAL}],
            "validations": [
                {"expression": f"({rule}) || variables.portal", "message": message} for rule, message in rules
            ],
        },
    )


def _role() -> list[Json]:
    """The rights that the portal needs for admission, besides rights/cluster.yaml of deploy/helm."""
    by_rights: dict[tuple[str, bool], list[str]] = {}
    for owner in OWNERS:
        by_rights.setdefault((owner.group, bool(owner.suspend)), []).append(owner.plural)
    rules: list[Json] = [
        {"apiGroups": [PREFIX], "resources": ["admission"], "verbs": ["admit"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]
    rules += [
        {"apiGroups": [group], "resources": plurals, "verbs": ["get", "list", *(["patch"] if suspends else [])]}
        for (group, suspends), plurals in by_rights.items()
    ]
    name = f"{PREFIX}-admission"
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": PREFIX, "namespace": PREFIX}],
        },
    ]


def objects() -> list[Json]:
    """All objects that a cluster needs so that the portal admits what others submit there."""
    return [*_role(), *_gate(), *_remember(), *_guard()]
