"""Pods that others created, and the owners of these pods → ExternalRun. Pure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workloads.kubernetes import pod_status
from workloads.kubernetes.manifests import admission
from workloads.kubernetes.manifests.admission import ADMISSION, ADMIT_TO, ADMITTED, OwnerKind, kind_of
from workloads.kubernetes.manifests.labels import PREFIX
from workloads.runtime.external import ExternalPod, ExternalRef, ExternalRun
from workloads.runtime.phases import Phase
from workloads.sharing.nodes import listing, mapping, texts
from workloads.sharing.outside import asked, wants_a_gpu

Json = Mapping[str, Any]
NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
API = re.compile(r"([a-z0-9.-]{1,253}/)?v[0-9a-z]{1,62}")  # as in `apiVersion`
Chain = Sequence[Json]  # the owners of a pod, the nearest first

GOOD, BAD = frozenset({"Complete", "Completed", "Succeeded"}), frozenset({"Failed"})  # conditions of owners
RAY = {"SUCCEEDED": Phase.SUCCEEDED, "FAILED": Phase.FAILED, "STOPPED": Phase.FAILED}
CONTROLLERS = ("system:serviceaccount:kube-system:", "system:kube-controller-manager")  # no person is one of these
IDENTITY = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences", "selfLink")


def is_gated(pod: Json) -> bool:
    return any(gate.get("name") == ADMISSION for gate in pod["spec"].get("schedulingGates") or ())


def is_concerned(pod: Json) -> bool:
    """Whether the pod waits for the portal or was admitted by it. A pod with only the label was never gated."""
    return is_gated(pod) or bool(notes(pod).get(ADMITTED))


def notes(obj: Json) -> dict[str, str]:
    return {key: _text(value) for key, value in texts(obj["metadata"].get("annotations")).items()}


def _text(value: object) -> str:
    """Text that anybody may have written, without NUL, which the database does not store."""
    return str(value or "").replace("\0", "\ufffd")


def is_owned(obj: Json) -> bool:
    return any(mapping(owner).get("controller") for owner in listing(obj["metadata"].get("ownerReferences")))


def controller_of(obj: Json) -> Json | None:
    """The reference to the object's controller. Anybody may write one on a pod: None if it cannot name an object."""
    for owner in map(mapping, listing(obj["metadata"].get("ownerReferences"))):
        if owner.get("controller"):
            named = NAME.fullmatch(str(owner.get("name"))) and API.fullmatch(str(owner.get("apiVersion")))
            return owner if named and owner.get("kind") and owner.get("uid") else None
    return None


def top(chain: Chain) -> tuple[Json, OwnerKind] | None:
    """The object that is admitted: the topmost owner that is not there only to show who submitted it."""
    for owner in reversed(chain):
        kind = kind_of(owner["apiVersion"], owner["kind"])
        if kind is not None and not kind.above:
            return owner, kind
    return None


def ref_of(pod: Json, chain: Chain) -> ExternalRef:
    meta, topmost = pod["metadata"], top(chain)
    if topmost is None:
        return ExternalRef("v1", "Pod", meta["namespace"], meta["name"], meta["uid"])
    owner, kind = topmost
    own = owner["metadata"]
    alone = (meta["name"], meta["uid"]) if kind.each else ("", "")
    return ExternalRef(owner["apiVersion"], owner["kind"], own["namespace"], own["name"], own["uid"], *alone)


def runs(pods: Iterable[tuple[Json, Chain]], also: Iterable[tuple[ExternalRef, Json]] = ()) -> tuple[ExternalRun, ...]:
    """One run for each object that is admitted. `also`: known objects that may have no pods now, each with its JSON."""
    grouped: dict[str, tuple[ExternalRef, list[Json], Chain]] = {}
    for pod, chain in pods:
        ref = ref_of(pod, chain)
        grouped.setdefault(ref.key, (ref, [], chain))[1].append(pod)
    made = [_run(ref, own, chain) for ref, own, chain in grouped.values()]
    made += [_run(ref, [], (owner,)) for ref, owner in also if ref.key not in grouped]
    return tuple(made)


def _run(ref: ExternalRef, pods: list[Json], chain: Chain) -> ExternalRun:
    owner, kind = top(chain) or (None, None)
    sample = pods[0] if pods else {}
    own = notes(sample) if sample else {}
    single = kind is None or kind.each
    by, using = _submitter(sample, chain)
    finished, reason, message = (None, "", "") if single or owner is None else _end_of(owner)
    return ExternalRun(
        ref=ref,
        department=texts(sample["metadata"].get("labels")).get(ADMIT_TO, "") if sample else "",
        wanted=1 if single else max(1, _size(chain, pods)),
        pods=tuple(map(_pod, sorted(pods, key=lambda pod: str(pod["metadata"]["name"])))),
        by_namespace=own.get(admission.TIED_BY) == admission.NAMESPACE,
        alike=all(asked(pod) == asked(sample) for pod in pods),
        unstoppable=_unstoppable(owner) if owner is not None else "",
        submitted_by=by,
        submitted_with=using,
        settings=_settings(sample, owner),
        sample=sample,
        manifest=_manifest(sample) if sample and owner is None and not is_owned(sample) else None,
        status=own.get(admission.STATUS, ""),
        suspended=bool(owner is not None and kind is not None and kind.suspend and _at(owner, kind.suspend)),
        suspended_by_portal=owner is not None and admission.SUSPENDED in notes(owner),
        finished=finished,
        reason=reason,
        message=message,
    )


def _settings(sample: Json, owner: Json | None) -> dict[str, str]:
    """The admission settings in annotations and labels of the pod, else in those of its owner."""
    marks: dict[str, str] = {}
    for obj in (owner, sample):
        if obj:
            marks |= texts(obj["metadata"].get("labels")) | notes(obj)
    return {word: marks[f"{PREFIX}/{word}"] for word in admission.SETTINGS if f"{PREFIX}/{word}" in marks}


def _submitter(pod: Json, chain: Chain) -> tuple[str, str]:
    """(submitter, tool) of the topmost object that was not created by one of the cluster's own controllers. For a pod that no
    controller created, its own annotation counts, whatever owner it names."""
    own = notes(pod).get(admission.SUBMITTED_BY, "") if pod else ""
    above = [owner for owner in reversed(chain) if kind_of(owner["apiVersion"], owner["kind"]) in admission.REMEMBERED]
    objects = (pod,) if own and not own.startswith("system:") else (*above, *([pod] if pod else ()))
    for obj in objects:
        by = notes(obj).get(admission.SUBMITTED_BY, "")
        if by and not by.startswith(CONTROLLERS):
            return by, tool_of(notes(obj).get(admission.SUBMITTED_WITH, ""))
    return "", ""


def tool_of(manager: str) -> str:
    """The name of a field manager as people know it: kubectl-client-side-apply and kubectl-create are kubectl."""
    return "kubectl" if manager.startswith("kubectl") else manager.split("/")[0][:40]


def _manifest(pod: Json) -> dict[str, Any]:
    """The manifest that recreates the pod: without its identity and without what the API server or a scheduler wrote."""
    meta = {key: value for key, value in pod["metadata"].items() if key not in IDENTITY}
    meta["annotations"] = {
        key: value
        for key, value in notes(pod).items()
        if key not in (ADMITTED, admission.STATUS, f"{PREFIX}/reclaim-at")
    }
    meta.pop("deletionTimestamp", None)
    meta.pop("deletionGracePeriodSeconds", None)
    spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "schedulingGates")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


# How many start together ----------------------------------------------------------------------------------------------


def _size(chain: Chain, pods: Sequence[Json]) -> int:
    """The number of pods that start together: from the topmost object that states one, else the number of pods that exist."""
    for owner in reversed(chain):
        if (size := _stated_size(owner)) is not None:
            return size
    return len(pods)


def _stated_size(owner: Json) -> int | None:
    """How many pods with GPUs the object creates at once; None if it does not state that."""
    spec = mapping(owner.get("spec"))
    if owner["kind"] == "Job":
        return _parallel(spec)
    if owner["kind"] == "JobSet":
        jobs = [(mapping(job), mapping(mapping(job).get("template"))) for job in listing(spec.get("replicatedJobs"))]
        return sum(
            _number(job.get("replicas"), 1) * _parallel(inner)
            for job, template in jobs
            if _template_asks((inner := mapping(template.get("spec"))).get("template"))
        )
    if owner["kind"] == "RayCluster":
        workers = [mapping(group) for group in listing(spec.get("workerGroupSpecs"))]
        head = _template_asks(mapping(spec.get("headGroupSpec")).get("template"))
        return head + sum(
            _number(group.get("replicas"), 1) * _number(group.get("numOfHosts"), 1)
            for group in workers
            if _template_asks(group.get("template"))
        )
    roles = [mapping(roles) for name, roles in spec.items() if str(name).endswith("ReplicaSpecs")]
    if roles:
        each = [mapping(role) for by_name in roles for role in by_name.values()]
        return sum(_number(role.get("replicas"), 1) for role in each if _template_asks(role.get("template")))
    return None


def _parallel(job: Mapping[str, Any]) -> int:
    at_once = _number(job.get("parallelism"), 1)
    done = job.get("completions")
    return at_once if done is None else min(at_once, _number(done, 1))


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6 else default


def _template_asks(template: object) -> bool:
    pod = mapping(template)
    return wants_a_gpu({"metadata": mapping(pod.get("metadata")), "spec": mapping(pod.get("spec"))})


def _at(obj: Json, path: Sequence[str]) -> Any:
    value: Any = obj
    for name in path:
        value = mapping(value).get(name)
    return value


def _unstoppable(owner: Json) -> str:
    """Why the portal cannot stop the object; "" if it can. On such a RayJob KubeRay takes `suspend` as its final end (its
    ValidateRayJobSpec), or ignores it."""
    spec = mapping(owner.get("spec"))
    if owner["kind"] != "RayJob":
        return ""
    if not spec.get("shutdownAfterJobFinishes"):
        return "KubeRay stops and resumes only a RayJob with shutdownAfterJobFinishes: true"
    if mapping(spec.get("clusterSelector")) or spec.get("submissionMode") == "InteractiveMode":
        return "KubeRay stops and resumes no RayJob with a clusterSelector or in InteractiveMode: submit a RayCluster"
    return ""


# Its state ------------------------------------------------------------------------------------------------------------


def _end_of(owner: Json) -> tuple[Phase | None, str, str]:
    status = mapping(owner.get("status"))
    for condition in map(mapping, listing(status.get("conditions"))):
        if condition.get("status") == "True" and condition.get("type") in GOOD | BAD:
            phase = Phase.SUCCEEDED if condition["type"] in GOOD else Phase.FAILED
            return phase, _text(condition.get("reason")), _text(condition.get("message"))
    ray = RAY.get(str(status.get("jobStatus", "")))
    return ray, _text(status.get("reason")) if ray else "", _text(status.get("message")) if ray else ""


def _pod(pod: Json) -> ExternalPod:
    meta, status = pod["metadata"], pod["status"]
    containers = status.get("containerStatuses") or ()
    states = [mapping(container.get("state")) for container in containers]
    ends = [state["terminated"] for state in states if state.get("terminated")]
    bad = next((end for end in ends if end.get("exitCode")), ends[0] if ends else {})
    begun = [
        pod_status.time((state.get("running") or state.get("terminated") or {}).get("startedAt")) for state in states
    ]
    phase = _phase(pod)
    reason, message = pod_status.waiting_for(pod) if phase is Phase.PENDING else ("", "")
    if phase in (Phase.FAILED, Phase.LOST):
        reason = _taken_by(status) or str(status.get("reason") or bad.get("reason") or "")
        message = str(status.get("message") or bad.get("message") or "")
    leaving = (
        dt.timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0) if meta.get("deletionTimestamp") else None
    )
    return ExternalPod(
        name=meta["name"],
        uid=meta["uid"],
        node=pod["spec"].get("nodeName", ""),
        phase=phase,
        gated=is_gated(pod),
        asked=asked(pod),
        leaving=leaving,
        exit_code=bad.get("exitCode") if phase in (Phase.SUCCEEDED, Phase.FAILED) else None,
        reason=_text(reason)[:60],
        message=_text(message)[:500],
        started_at=min((at for at in begun if at), default=None),
        finished_at=max((at for end in ends if (at := pod_status.time(end.get("finishedAt")))), default=None),
        displaced_at=pod_status.unschedulable_since(pod),
    )


def _phase(pod: Json) -> Phase:
    """A pod that is being deleted holds its cards until it is gone, whatever the exit codes of its containers."""
    if _taken_by(pod["status"]) or pod["status"].get("reason") in pod_status.TAKEN_AWAY:
        return Phase.LOST if pod_status.is_over(pod) else Phase.RUNNING
    if pod["metadata"].get("deletionTimestamp"):
        return Phase.RUNNING if pod["spec"].get("nodeName") else Phase.PENDING
    if pod_status.is_over(pod):
        return Phase.SUCCEEDED if pod["status"].get("phase") == "Succeeded" else Phase.FAILED
    return Phase.RUNNING if pod["status"].get("phase") == "Running" else Phase.PENDING


def _taken_by(status: Json) -> str:
    """What evicted the pod, by its condition DisruptionTarget; "" if nothing did."""
    return str((pod_status.disruption_of(status) or {}).get("reason", ""))
