"""Runs as pods of a Kubernetes cluster. The only module that imports the client library.

How the contract is met:

- create: GET first, POST on 404. A second POST of one name charges a ResourceQuota again, and at full quota answers 403
  instead of 409; so after either answer the object is read again.
- stop: the pod's `activeDeadlineSeconds` becomes 1. The kubelet then sends SIGTERM, waits for the pod's own grace and
  kills, as after a delete, but pod, exit code and log stay. A pod that is on no node yet, a grace shorter than the
  pod's own, and a deadline that had no effect need a delete (with the uid as precondition); the finalizer keeps the
  exit code, but the log is lost.
  - remove: removes the finalizer and deletes the pod.
- logs: Kubernetes cannot address bytes, so the log is read from its start to the end of the part, and the part is cut
out. The kubelet keeps about the newest 10 MiB; after a rotation the log is shorter than `offset` and is returned from
its start again.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import yaml
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException

from workloads import sharing
from workloads.kubernetes import informer, job_status, manifests, pod_status, ready_files, resource_claims, volume_pods
from workloads.kubernetes.api import Answer, Api, status_message
from workloads.kubernetes.externals import Externals
from workloads.kubernetes.informer import Reflector
from workloads.kubernetes.jobs import COLLECTIONS, Owners, is_ours
from workloads.kubernetes.manifests import MANAGED_BY, PREFIX, SUBMISSION, Options, admission
from workloads.kubernetes.namespaces import Homes
from workloads.kubernetes.node_changes import NodeKeeper
from workloads.kubernetes.pod_commands import Orders, path_of
from workloads.runtime.base import (
    EXCEEDED,
    ExternalRef,
    ExternalRun,
    Home,
    KeptVolume,
    LogChunk,
    Look,
    NodeInfo,
    NoSuchRun,
    Observed,
    OutsidePod,
    Phase,
    Refused,
    RunRef,
    RunSpec,
    Unreachable,
    VolumeRef,
    last_lines,
    volume_of,
)
from workloads.sharing import outside
from workloads.sharing.nodes import Facts

Json = dict[str, Any]
NOT_OVER = "status.phase!=Succeeded,status.phase!=Failed"
NO_LOG = b"unable to retrieve container logs for "  # the kubelet's answer, with status 200, when the container is gone


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach one cluster: the text of a kubeconfig, or "" for the service account of the portal's own pod; and
    the options that the operator set for it, as manifests.Options.from_json reads them."""

    kubeconfig_text: str = field(default="", repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    def client(self) -> Any:
        """Raises Unreachable if the portal's pod has no service account, Refused if the kubeconfig cannot be used."""
        configuration = kubernetes_client.Configuration()
        try:
            if self.kubeconfig_text:
                kubernetes_config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
                    parsed(self.kubeconfig_text), client_configuration=configuration
                )
            else:
                kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except ConfigException as error:
            if self.kubeconfig_text:
                raise Refused(f"kubeconfig: {error}", code="bad_kubeconfig") from error
            raise Unreachable(f"there is no service account: {error}") from error
        configuration.retries = False  # the caller knows what may be repeated, and when
        configuration.connection_pool_maxsize = 48  # more than create runs at once (workloads/reconciler/workers.py)
        return kubernetes_client.ApiClient(configuration)


def parsed(kubeconfig: str) -> Json:
    """A kubeconfig without commands and file names: those would be run and read on the portal's machine.
    Raises Refused with what to change.
    """
    try:
        config = yaml.safe_load(kubeconfig)
        clusters = [entry["cluster"] for entry in config["clusters"]]
        users = [entry["user"] for entry in config["users"]]
    except (yaml.YAMLError, TypeError, KeyError) as error:
        raise Refused(f"this is not a kubeconfig: {error}", code="bad_kubeconfig") from error
    forbidden = {"exec", "auth-provider", "client-certificate", "client-key", "tokenFile", "certificate-authority"}
    for key in sorted(forbidden & {key for entry in (*clusters, *users) for key in entry or ()}):
        advice = "give a token, and certificates inline (certificate-authority-data, client-certificate-data, …)"
        raise Refused(f"kubeconfig: {key} is not allowed here; {advice}", code="bad_kubeconfig")
    return dict(config)


class KubernetesCluster:
    """The Kubernetes driver. Raises Refused for a connection that can never work."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        try:
            self.options = Options.from_json({"instance": name} | dict(connection.options))
        except ValueError as error:
            raise Refused(str(error), code="bad_options") from error
        if connection.kubeconfig_text:
            parsed(connection.kubeconfig_text)
        self.api = Api(connection.client, (ApiException,))
        self.orders = Orders(self.api)
        self.owners = Owners(self.api, self.options, self._create)
        self.homes = Homes(self.api, self.options)
        self.externals = Externals(self.api, self.options)

    # the desired state

    def ensure(self, spec: RunSpec) -> None:
        if spec.ref.external is not None:
            self.externals.ensure(spec)
            return
        try:
            wanted = manifests.pod(spec, self.options)
        except manifests.Unsupported as error:
            raise Refused(error.detail, code="unsupported") from error
        if spec.kind in COLLECTIONS:
            self._ensure_home(spec)
            self.owners.ensure(spec)
            return
        pod = None if spec.untried else self.api.get(_pod(spec.ref))
        if pod is None:
            self._ensure_home(spec)
            pod = self._create(f"/api/v1/namespaces/{spec.ref.namespace}/pods", wanted, known_absent=True)
        if not is_ours(pod, spec.ref):
            raise Refused(f"a pod {spec.ref.name} that is not this run is already there", code="name_taken")
        if not pod_status.is_over(pod):
            self._ensure_beside(spec, pod)

    def _ensure_beside(self, spec: RunSpec, pod: Json) -> None:
        owner = manifests.owner_of({"apiVersion": "v1", "kind": "Pod"} | pod)
        self.orders.create_secret(manifests.secret(spec, owner, self.options))
        for wanted in manifests.beside(spec, self.options):
            resource_claims.ensure(self.api, wanted, owner)
        if spec.port is not None:
            service = manifests.service(spec, owner, self.options)
            self._create(f"/api/v1/namespaces/{spec.ref.namespace}/services", service)

    def _ensure_home(self, spec: RunSpec) -> None:
        if self._ensure_volume(volume_of(spec)) and spec.placement:
            volume_pods.make_way(self.api, self.options, volume_of(spec), spec.placement[0].node)
        for shared in spec.shared_volumes:
            collection = f"/api/v1/namespaces/{spec.ref.namespace}/persistentvolumeclaims"
            self._create(collection, manifests.shared_claim(shared, spec, self.options))

    def _ensure_volume(self, volume: VolumeRef) -> bool:
        """Creates namespace and claim if needed; True if the claim existed."""
        self.homes.open(volume.namespace, volume.department, unrestricted=volume.unrestricted)
        if self.options.volume != "pvc":
            return False
        collection = f"/api/v1/namespaces/{volume.namespace}/persistentvolumeclaims"
        known = self._found(f"{collection}/{volume.name}")
        if known is None:
            self._create(collection, manifests.claim(volume, self.options), known_absent=True)
        return known is not None

    def _found(self, path: str) -> Json | None:
        existing = self.api.get(path)
        if existing is not None and existing["metadata"].get("deletionTimestamp"):
            raise Unreachable(f"{path} is being deleted")  # a pod that uses it would wait for ever
        return existing

    def _create(self, collection: str, wanted: Json, known_absent: bool = False) -> Json:
        """The object with that name, created if it does not exist."""
        path = f"{collection}/{wanted['metadata']['name']}"
        existing = None if known_absent else self._found(path)
        if existing is not None:
            return existing
        answer = self.api.call("POST", collection, wanted)
        if answer.ok:
            return answer.body
        if answer.status in (403, 409) and (existing := self.api.get(path)) is not None:
            return existing
        raise self._refusal(answer, wanted)

    def _refusal(self, answer: Answer, wanted: Json) -> Refused | Unreachable:
        causes = [cause.get("reason") for cause in (answer.body.get("details") or {}).get("causes") or ()]
        if answer.status in (404, 409) or "NamespaceTerminating" in causes:
            self.homes.forget(wanted["metadata"].get("namespace", ""))
            return Unreachable(answer.message)  # something is being deleted just now: the next try may succeed
        quota = answer.status == 403 and "exceeded quota" in answer.message
        return Refused(answer.message, code=EXCEEDED if quota else "refused")

    def keep_home(self, home: Home, *, fresh: bool = False) -> None:
        self.homes.keep(home, fresh=fresh)

    def announce(self, ref: RunRef, reclaim_at: dt.datetime | None) -> None:
        if ref.external is not None:
            self.externals.announce(ref.external, reclaim_at)
            return
        pod = None if ref.kind in COLLECTIONS else self._find(ref)
        for own_pod in self.owners.pods(ref) if ref.kind in COLLECTIONS else filter(None, (pod,)):
            self.orders.announce(own_pod, reclaim_at)
            if reclaim_at is None and self.options.ready_probe_seconds:
                ready_files.delete_ready_file(self.api, own_pod)

    def stop(self, ref: RunRef, grace: int) -> None:
        if ref.external is not None:
            self.externals.stop(ref.external, grace)
        elif ref.kind in COLLECTIONS:
            self.owners.stop(ref, grace)
        elif (pod := self._find(ref)) is not None:
            self.orders.stop(pod, grace)

    def remove(self, ref: RunRef) -> None:
        if ref.external is not None:
            return  # it belongs to its submitters, who delete it
        if ref.kind in COLLECTIONS:
            self.owners.remove(ref)
        elif ref.ended:
            self.orders.remove(_named(ref))
        elif (pod := self._find(ref)) is not None and pod_status.is_over(pod):
            self.orders.remove(pod)

    def _find(self, ref: RunRef) -> Json | None:
        """The run's own pod; None if there is none or the name belongs to another object."""
        pod = self.api.get(_pod(ref))
        return pod if pod is not None and is_ours(pod, ref) else None

    # the observed state

    def observe(self) -> tuple[Observed, ...]:
        owners = self.owners.listed()  # before their pods: an owner created between the two is listed next time
        listed, _ = self.api.list("/api/v1/pods", labelSelector=manifests.selector(self.options))
        listed = resource_claims.with_claims(self.api, listed)
        listed = [pod for pod in listed if SUBMISSION in (pod["metadata"].get("annotations") or {})]
        plain = tuple(pod_status.observed(pod) for pod in listed if not job_status.is_owned(pod))
        ready = ready_files.reported_ready(self.api, listed, self.options)
        return plain + job_status.runs(owners, filter(job_status.is_owned, listed), ready)

    def nodes(self) -> tuple[NodeInfo, ...]:
        listed, _ = self.api.list("/api/v1/nodes")
        objects = resource_claims.with_slices(self.api, listed)
        infos = map(self._node, objects)
        return tuple(node for node in infos if node is not None)

    @property
    def admits(self) -> bool:
        """Whether the portal admits what others submit to this cluster."""
        return self.options.admission

    def external(self, known: Collection[ExternalRef] = ()) -> tuple[ExternalRun, ...]:
        return self.externals.listed(known)

    def notify_external(self, ref: ExternalRef, text: str, *, event: bool) -> None:
        self.externals.notify(ref, text, event=event)

    def recreate_external(self, manifest: Mapping[str, Any]) -> str | None:
        return self.externals.make_again(manifest)

    def outside(self) -> tuple[OutsidePod, ...]:
        listed, _ = self.api.list("/api/v1/pods", fieldSelector=NOT_OVER)
        foreign = [pod for pod in listed if outside.occupies_node(pod) and not self._started(pod)]
        return tuple(map(_outside_pod, resource_claims.with_claims(self.api, foreign)))

    def _started(self, pod: Json) -> bool:
        """Whether the pod is a run of this portal, which its claim counts already."""
        meta = pod["metadata"]
        return SUBMISSION in (meta.get("annotations") or {}) and manifests.is_selected(meta, self.options)

    def keeper(self) -> NodeKeeper:
        return NodeKeeper(self.api, self.options)

    def logs(
        self, ref: RunRef, *, offset: int = 0, tail: int | None = None, rank: int = 0, limit: int = 1 << 20,
        previous: bool = False,
    ) -> LogChunk:  # fmt: skip
        pod = self._pod_with_log(ref, rank)
        ended = previous or bool(ref.ended) or pod_status.is_over(pod)
        external = ref.external is not None
        query: Json = {"container": pod["spec"]["containers"][0]["name"] if external else manifests.CONTAINER}
        if tail is None:
            query["limitBytes"] = offset + limit + 1  # one byte more shows whether the log goes on
        if previous:
            query["previous"] = "true"
        status, data, size = self.api.text(f"{path_of(pod)}/log", limit + (tail is None), **query)
        if status == 403:
            raise Unreachable(f"the log may not be read: {status_message(data)}")
        if status != 200 or (data.startswith(NO_LOG) and b"\n" not in data):
            # not started yet, never started again, or its container is gone
            return LogChunk(b"", offset, end=ended)
        if tail is not None:
            part = last_lines(data, tail)
            offset = size - len(part)
        elif offset > size:  # the log was rotated
            return self.logs(ref, rank=rank, limit=limit, previous=previous)
        else:
            part = data[offset - size + len(data) :][:limit]
        return LogChunk(part, offset, end=ended and offset + len(part) == size)

    def _pod_with_log(self, ref: RunRef, rank: int) -> Json:
        """The pod whose log is wanted. Raises NoSuchRun."""
        if ref.external is not None:
            return self.externals.pod(ref.external, rank)
        pod = _named(ref) if ref.ended else self.owners.pod(ref, rank) if ref.kind in COLLECTIONS else self._find(ref)
        if pod is None:
            raise NoSuchRun(f"no pod {ref.name}")
        return pod

    def endpoint(self, ref: RunRef) -> tuple[str, int] | None:
        """The pod's own address: the portal must be able to reach the pod network."""
        if ref.external is not None:
            return None
        if ref.kind in COLLECTIONS:
            return self.owners.endpoint(ref)
        pod = self._find(ref)
        if pod is None or pod["status"].get("phase") != "Running":
            return None
        ports = pod["spec"]["containers"][0].get("ports") or ()
        address = pod["status"].get("podIP")
        return (address, int(ports[0]["containerPort"])) if address and ports else None

    def files(self, volume: VolumeRef) -> volume_pods.PodFiles | None:
        if self.options.volume != "pvc":
            return None
        return volume_pods.PodFiles(self.api, self.options, volume, lambda: self._ensure_volume(volume))

    def volumes(self) -> tuple[KeptVolume, ...]:
        volume_pods.clear_away(self.api, self.options)
        path = "/api/v1/persistentvolumeclaims"
        listed, _ = self.api.list(path, labelSelector=f"{manifests.selector(self.options)},{manifests.WORKLOAD}")
        return tuple(volume_pods.kept_volume(claim) for claim in listed)

    def discard(self, volume: VolumeRef) -> None:
        """Deletes the claim once no pod uses it; the storage class decides what happens to the disk."""
        volume_pods.put_away(self.api, self.options, volume)
        path = f"/api/v1/namespaces/{volume.namespace}/persistentvolumeclaims/{volume.name}"
        claim = self.api.get(path)
        if claim is None or (claim["metadata"].get("labels") or {}).get(MANAGED_BY) != PREFIX:
            return
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": claim["metadata"]["uid"]}}
        answer = self.api.call("DELETE", path, body)
        if not answer.ok and answer.status not in (404, 409):
            raise Unreachable(answer.message)

    def watch(self, on_change: Callable[[Observed | Look], None], stop: threading.Event) -> None:
        """Report every run that is new, changed or gone (LOST, unless it had ended), or the listing that is due: Look.RUNS
        where one pod does not show the state of its run, Look.NODES when a node or the pods of others on it changed.
        Blocks until `stop`. These are only hints: observe() and nodes() alone give the right state."""
        gpu_nodes: set[str] = set()

        def node_seen(node: Json) -> NodeInfo | None:
            info = self._node(node)
            (gpu_nodes.discard if info is None else gpu_nodes.add)(node["metadata"]["name"])
            return info

        def foreign_moved(seen: Foreign | None, deleted: bool) -> None:
            if seen is not None and (seen.wants_a_gpu or seen.node in gpu_nodes):
                on_change(Look.NODES)

        tied = Reflector(
            self.api, "/api/v1/pods", admission.ADMIT_TO, _external, partial(_report_runs_due, on_change), stop
        )
        informer.follow(
            Reflector(
                self.api, "/api/v1/pods", manifests.selector(self.options), _seen, partial(_report, on_change), stop
            ),
            Reflector(self.api, "/api/v1/nodes", "", node_seen, lambda node, deleted: on_change(Look.NODES), stop),
            Reflector(self.api, "/api/v1/pods", "", self._foreign, foreign_moved, stop),
            *([tied] if self.admits else []),
        )
        stop.wait()

    def _foreign(self, pod: Json) -> Foreign | None:
        """What to compare of a pod that the portal did not start; None for one of its own."""
        if self._started(pod):
            return None
        return Foreign(pod["spec"].get("nodeName", ""), outside.occupies_node(pod), outside.wants_a_gpu(pod))

    def _node(self, node: Json) -> NodeInfo | None:
        info, device = sharing.discover(node, self.options.sharing), self.options.rdma_resource
        if info is None:
            return None
        facts = Facts(node)
        has = facts.allocatable(device) if device else 0
        held = info.held(*manifests.not_tolerated(facts, self.options))
        faults = tuple(manifests.faults(facts, self.options))
        return replace(held, devices={device: has} if has else {}, faults=faults)


@dataclass(frozen=True, slots=True)
class Foreign:
    """The parts of an outside pod that show, when compared, whether it changed."""

    node: str
    standing: bool
    wants_a_gpu: bool


def _outside_pod(pod: Json) -> OutsidePod:
    meta = pod["metadata"]
    owners: list[Json] = sorted(meta.get("ownerReferences") or (), key=lambda one: not one.get("controller"))
    owner = owners[0] if owners else {}
    admitted = (meta.get("annotations") or {}).get(admission.ADMITTED, "")
    kind = str(owner.get("kind", ""))[:63]
    return OutsidePod(meta["uid"], pod["spec"]["nodeName"], meta["namespace"], meta["name"], kind, pod, admitted)


def _seen(pod: Json) -> Observed | None:
    """The run of this pod; None if one pod does not show its state (it has siblings, or resource claims to read)."""
    ours = SUBMISSION in (pod["metadata"].get("annotations") or {})
    alone = not job_status.is_owned(pod) and not pod["spec"].get("resourceClaims")
    return pod_status.observed(pod) if ours and alone else None


def _external(pod: Json) -> tuple[object, ...]:
    """The parts of an external run's pod that show, when compared, whether it changed."""
    status = pod["status"]
    states = tuple(repr(container.get("state")) for container in status.get("containerStatuses") or ())
    gates, leaves = repr(pod["spec"].get("schedulingGates")), pod["metadata"].get("deletionTimestamp")
    return status.get("phase"), pod["spec"].get("nodeName"), gates, leaves, states


def _report_runs_due(on_change: Callable[[Observed | Look], None], seen: object, deleted: bool) -> None:
    on_change(Look.RUNS)


def _report(on_change: Callable[[Observed | Look], None], run: Observed | None, deleted: bool) -> None:
    if run is not None and deleted and run.phase not in (Phase.SUCCEEDED, Phase.FAILED):
        run = replace(run, phase=Phase.LOST)
    on_change(run or Look.RUNS)


def _named(ref: RunRef) -> Json:
    """The parts of an ended pod that its log and its removal need."""
    return {"metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.ended}}


def _pod(ref: RunRef) -> str:
    return f"/api/v1/namespaces/{ref.namespace}/pods/{ref.name}"
