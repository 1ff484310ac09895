"""Gangs and services on Kubernetes: the driver creates, stops and removes their Job or Deployment; the pods follow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workloads.kubernetes import manifests, pod_status, resource_claims
from workloads.kubernetes.api import Api
from workloads.kubernetes.job_status import GANG, SERVICE, is_gated, observed
from workloads.kubernetes.manifests import INDEX, STOPPED_AT, SUBMISSION, Options, label
from workloads.kubernetes.pod_commands import Orders, now
from workloads.runtime.base import NoSuchRun, Refused, RunRef, RunSpec

Json = dict[str, Any]
COLLECTIONS = {GANG: ("/apis/batch/v1", "jobs"), SERVICE: ("/apis/apps/v1", "deployments")}
ROUTES = {
    "Ingress": ("/apis/networking.k8s.io/v1", "ingresses"),
    "HTTPRoute": ("/apis/gateway.networking.k8s.io/v1", "httproutes"),
}


def collection(kind: str, namespace: str = "") -> str:
    base, plural = COLLECTIONS.get(kind) or ROUTES[kind]
    return f"{base}/namespaces/{namespace}/{plural}" if namespace else f"{base}/{plural}"


@dataclass(frozen=True, slots=True)
class Owners:
    """`create(collection, wanted)` returns the object with that name, created if it does not exist."""

    api: Api
    options: Options
    create: Callable[[str, Json], Json]

    @property
    def orders(self) -> Orders:
        return Orders(self.api)

    def listed(self) -> list[Json]:
        owners = []
        for kind in COLLECTIONS:
            items, _version = self.api.list(collection(kind), labelSelector=manifests.selector(self.options))
            owners += items
        return owners

    def find(self, ref: RunRef) -> Json | None:
        """The run's own object; None if there is none or the name belongs to another one."""
        owner = self.api.get(f"{collection(ref.kind, ref.namespace)}/{ref.name}")
        return owner if owner is not None and is_ours(owner, ref) else None

    def pods(self, ref: RunRef, rank: int | None = None) -> list[Json]:
        selector = f"{SUBMISSION}={label(ref.submission_id)}"
        selector += "" if rank is None else f",{INDEX}={rank}"
        pods, _version = self.api.list(f"/api/v1/namespaces/{ref.namespace}/pods", labelSelector=selector)
        return [pod for pod in pods if is_ours(pod, ref)]

    def pod(self, ref: RunRef, rank: int = 0) -> Json:
        """The pod of the rank; for a service, its newest pod. Raises NoSuchRun."""
        pods = self.pods(ref, rank if ref.kind == GANG else None)
        if not pods:
            raise NoSuchRun(f"no pod of rank {rank} of {ref.name}")
        return max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))

    def ensure(self, spec: RunSpec) -> None:
        """Create the owner; namespace and volume must exist. Called again once all pods of a gang exist, it lets them start."""
        make = manifests.job if spec.kind == GANG else manifests.deployment
        made = self.create(collection(spec.kind, spec.ref.namespace), make(spec, self.options))
        if not is_ours(made, spec.ref):
            raise Refused(f"a {made['kind']} {spec.ref.name} that is not this run is already there", code="name_taken")
        if STOPPED_AT in made["metadata"]["annotations"]:
            return
        self._ensure_beside(spec, manifests.owner_of(made))
        if spec.kind == GANG:
            self._open_gates(spec)

    def _ensure_beside(self, spec: RunSpec, owner: Json) -> None:
        self.orders.create_secret(manifests.secret(spec, owner, self.options))
        for wanted in manifests.beside(spec, self.options):
            resource_claims.ensure(self.api, wanted, owner)
        services = f"/api/v1/namespaces/{spec.ref.namespace}/services"
        self.create(services, manifests.service(spec, owner, self.options))
        if spec.kind != GANG and (route := manifests.route(spec, owner, self.options)) is not None:
            self.create(collection(route["kind"], spec.ref.namespace), route)

    def _open_gates(self, spec: RunSpec) -> None:
        pods_by_rank = {pod["metadata"]["labels"].get(INDEX): pod for pod in self.pods(spec.ref)}
        if len(pods_by_rank) < spec.pods:
            return
        for rank, pod in pods_by_rank.items():
            if is_gated(pod) and not pod["metadata"].get("deletionTimestamp"):
                patch = manifests.pin(spec, int(rank), self.options)
                patch["metadata"]["uid"] = pod["metadata"]["uid"]
                self.orders.patch(f"/api/v1/namespaces/{spec.ref.namespace}/pods/{pod['metadata']['name']}", patch)

    def stop(self, ref: RunRef, grace: int) -> None:
        """Stop the owner first, so that its controller creates no new pod."""
        owner = self.find(ref)
        if owner is None:
            return
        own_pods = self.pods(ref)
        meta = owner["metadata"]
        stopped_at = meta["annotations"].get(STOPPED_AT) or now()
        patch: Json = {"metadata": {"uid": meta["uid"], "annotations": {STOPPED_AT: stopped_at}}}
        if ref.kind == SERVICE:
            patch["spec"] = {"replicas": 0}
        elif not any(pod["spec"].get("nodeName") for pod in own_pods):
            patch["spec"] = {"suspend": True}  # no pod runs: suspending deletes pods with their logs
        self.orders.patch(f"{collection(ref.kind, ref.namespace)}/{ref.name}", patch)
        for pod in own_pods:
            if ref.kind == GANG:
                self.orders.stop(pod, grace)
            elif grace < pod["spec"]["terminationGracePeriodSeconds"]:
                path = f"/api/v1/namespaces/{ref.namespace}/pods/{pod['metadata']['name']}"
                self.orders.delete(path, pod["metadata"]["uid"], max(1, grace))

    def remove(self, ref: RunRef) -> None:
        owner, own_pods = self.find(ref), self.pods(ref)
        seen = observed(owner, own_pods) if owner or own_pods else None
        if seen is not None and seen.phase in ("pending", "running"):
            return
        if owner is not None:
            path = f"{collection(ref.kind, ref.namespace)}/{ref.name}"
            self.orders.delete(path, owner["metadata"]["uid"], propagationPolicy="Background")
        for pod in own_pods:
            self.orders.remove(pod)

    def endpoint(self, ref: RunRef) -> tuple[str, int] | None:
        """(address, port) of a ready pod of the service; None if there is none."""
        for pod in self.pods(ref):
            ready = any(status.get("ready") for status in pod["status"].get("containerStatuses") or ())
            ports = pod["spec"]["containers"][0].get("ports") or ()
            if ready and ports and not pod_status.is_over(pod) and pod["status"].get("podIP"):
                return pod["status"]["podIP"], int(ports[0]["containerPort"])
        return None


def is_ours(obj: Json, ref: RunRef) -> bool:
    return bool((obj["metadata"].get("annotations") or {}).get(SUBMISSION) == ref.submission_id)
