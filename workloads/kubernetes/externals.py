"""External runs, submitted by others and admitted by the portal: list, admit, warn and stop them.
Only pods are ever deleted, and only those that the portal admitted or holds back; their owners stay. An owner with a field
`suspend` is stopped and resumed by that field, so that its controller counts no failure.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workloads.kubernetes import external_runs, pod_status
from workloads.kubernetes.api import Api, NotServed
from workloads.kubernetes.external_runs import Chain, is_gated
from workloads.kubernetes.manifests import PREFIX, RECLAIM_AT, WORKLOAD, Options, admission
from workloads.kubernetes.manifests.admission import OwnerKind
from workloads.kubernetes.manifests.tolerations import tolerations
from workloads.kubernetes.pod_commands import STRATEGIC_PATCH, Orders, now, path_of, written
from workloads.runtime.base import NoSuchRun, Refused, RunSpec, Unreachable
from workloads.runtime.external import ExternalRef, ExternalRun
from workloads.sharing.outside import asked

Json = dict[str, Any]
SUSPENDING = dt.timedelta(seconds=30)  # by then the controller of a suspended object has deleted its pods
DEPTH = 4  # owners above a pod: Job, JobSet, TrainJob
ONE_BY_ONE = 20  # owners of a kind that are read one by one; more are listed


def path(api: str, plural: str, namespace: str = "", name: str = "") -> str:
    base = f"/apis/{api}" if "/" in api else f"/api/{api}"
    return base + (f"/namespaces/{namespace}" if namespace else "") + f"/{plural}" + (f"/{name}" if name else "")


@dataclass(frozen=True, slots=True)
class Externals:
    api: Api
    options: Options

    @property
    def orders(self) -> Orders:
        return Orders(self.api)

    # observed state ---------------------------------------------------------------------------------------------------

    def listed(self, known: Collection[ExternalRef] = ()) -> tuple[ExternalRun, ...]:
        """Every external run that has pods, and those in `known` without pods whose object still exists."""
        listed, _version = self.api.list("/api/v1/pods", labelSelector=admission.ADMIT_TO)
        pods = [pod for pod in listed if external_runs.is_concerned(pod)]
        owners = _Owners(self.api)
        named = [{"apiVersion": ref.api, "kind": ref.kind, "uid": ref.uid} for ref in known]
        owners.expect([*filter(None, map(external_runs.controller_of, pods)), *named])
        chained = owners.with_chains(pods)
        present = {external_runs.ref_of(pod, chain).key for pod, chain in chained}
        also = [(ref, owner) for ref in known if ref.key not in present and (owner := owners.of(ref)) is not None]
        return external_runs.runs(chained, also)

    def _run(self, ref: ExternalRef, own: list[Json], owners: _Owners) -> ExternalRun | None:
        """The run of `ref`, whose pods are `own`; None if there is nothing left of it."""
        pods = owners.with_chains(own)
        owner = owners.of(ref)
        runs = external_runs.runs(pods, [(ref, owner)] if owner is not None else ())
        return next((run for run in runs if run.ref.key == ref.key), None)

    def pods(self, ref: ExternalRef, owners: _Owners | None = None) -> list[Json]:
        owners = owners or _Owners(self.api)
        name = ref.pod or (ref.name if ref.kind == "Pod" else "")
        listed = self._named(ref.namespace, name) if name else self._tied(ref.namespace)
        concerned = [pod for pod in listed if external_runs.is_concerned(pod)]
        own = [pod for pod, chain in owners.with_chains(concerned) if external_runs.ref_of(pod, chain).key == ref.key]
        return sorted(own, key=lambda pod: str(pod["metadata"]["name"]))

    def _tied(self, namespace: str) -> list[Json]:
        return self.api.list(path("v1", "pods", namespace), labelSelector=admission.ADMIT_TO)[0]

    def _named(self, namespace: str, name: str) -> list[Json]:
        pod = self.api.get(path("v1", "pods", namespace, name))
        return [pod] if pod is not None else []

    def pod(self, ref: ExternalRef, rank: int = 0) -> Json:
        """The pod with this place in the order of their names. Raises NoSuchRun."""
        pods = self.pods(ref)
        if rank >= len(pods):
            raise NoSuchRun(f"no pod {rank} of {ref.kind} {ref.namespace}/{ref.name}")
        return pods[rank]

    # desired state ----------------------------------------------------------------------------------------------------

    def ensure(self, spec: RunSpec) -> None:
        """Admit the pods that request what was planned, on the nodes of the plan: all at once when all exist, and later those
        that their controller created to replace others. Raises Refused if the API server rejects the change."""
        ref = spec.ref.external
        if ref is None:
            return
        owners = _Owners(self.api)
        own = self.pods(ref, owners)
        run = self._run(ref, own, owners)
        if run is None:
            return
        if run.suspended_by_portal:
            self._resume(ref, suspended=run.suspended)
        if run.suspended:
            return
        by_uid = {pod["metadata"]["uid"]: pod for pod in own}
        waiting = [pod for pod in run.live if pod.gated and pod.leaving is None and pod.asked == ref.asked]
        gated = [by_uid[pod.uid] for pod in waiting if pod.uid in by_uid]
        inside = [by_uid[pod.uid] for pod in run.live if not pod.gated and pod.uid in by_uid]
        if not inside and len(gated) < spec.pods:
            return
        free = Counter(place.node for place in spec.placement) - Counter(map(pod_status.node_of, inside))
        for pod, node in zip(gated, sorted(free.elements()), strict=False):
            self._let_in(pod, node, spec)

    def _let_in(self, pod: Json, node: str, spec: RunSpec) -> None:
        meta = pod["metadata"]
        marks = {admission.ADMITTED: spec.ref.submission_id, WORKLOAD: spec.workload_id, admission.STATUS: "admitted"}
        own = [dict(each) for each in pod["spec"].get("tolerations") or ()]
        more = [each for each in tolerations(self.options) if each not in own]
        patch: Json = {
            "metadata": {"uid": meta["uid"], "annotations": marks},
            "spec": {
                "schedulingGates": [{"$patch": "delete", "name": admission.ADMISSION}],
                "affinity": {"nodeAffinity": _pinned(pod, node)},
                "tolerations": own + more,
            },
        }
        answer = self.api.call("PATCH", path_of(pod), patch, STRATEGIC_PATCH)
        if answer.ok or answer.status in (404, 409):
            return
        again = self.api.get(path_of(pod))
        if again is not None and again["metadata"]["uid"] == meta["uid"] and is_gated(again):
            raise Refused(answer.message, code="refused")

    def announce(self, ref: ExternalRef, reclaim_at: dt.datetime | None) -> None:
        text = written(reclaim_at)
        sentence = f"preempted: the cards go back at {text}; save your work" if text else "admitted"
        pods = self._noted(ref, {RECLAIM_AT: text, admission.STATUS: sentence})
        if text:
            self._event(ref, pods, "Preempted", sentence[0].upper() + sentence[1:], warning=True)

    def stop(self, ref: ExternalRef, grace: int) -> None:
        """Stop by the owner's field `suspend` if it has one, else by deleting pods; none gets more than `grace` seconds. If the
        suspension has no effect within SUSPENDING, the pods are deleted too."""
        kind = admission.kind_of(ref.api, ref.kind)
        obeys = kind is not None and bool(kind.suspend)
        if kind is not None and obeys:
            owner = _Owners(self.api).of(ref)
            since = (external_runs.notes(owner).get(admission.SUSPENDED) if owner is not None else None) or now()
            self._patch_owner(ref, kind, True, since)
            obeys = not _is_over(since, SUSPENDING)
        for pod in self.pods(ref):
            meta, own = pod["metadata"], int(pod["spec"].get("terminationGracePeriodSeconds") or 0)
            left = meta.get("deletionGracePeriodSeconds") if meta.get("deletionTimestamp") else None
            if pod_status.is_over(pod) or (obeys and left is None) or (left is not None and left <= max(1, grace)):
                continue
            self.orders.delete(path_of(pod), meta["uid"], max(1, min(own, grace)))

    def _resume(self, ref: ExternalRef, *, suspended: bool) -> None:
        """Remove the portal's mark and resume the owner. If its submitters have already resumed it, only the mark is removed:
        otherwise their next suspension would be taken for the portal's."""
        kind = admission.kind_of(ref.api, ref.kind)
        if kind is not None and kind.suspend:
            self._patch_owner(ref, kind, False if suspended else None, None)

    def _patch_owner(self, ref: ExternalRef, kind: OwnerKind, suspend: bool | None, at: str | None) -> None:
        """`suspend`: None leaves the field as it is."""
        value: Any = suspend
        for name in reversed(kind.suspend):
            value = {name: value}
        patch = (value if suspend is not None else {}) | {
            "metadata": {"uid": ref.uid, "annotations": {admission.SUSPENDED: at}}
        }
        self.orders.patch(path(ref.api, kind.plural, ref.namespace, ref.name), patch)

    def make_again(self, manifest: Mapping[str, Any]) -> str | None:
        """Recreate a pod without an owner, behind the gate; returns its uid, or None while the previous one still exists. Raises
        Refused if its submitters created another pod of this name that requests something else."""
        meta = manifest["metadata"]
        collection = path("v1", "pods", meta["namespace"])
        existing = self.api.get(f"{collection}/{meta['name']}")
        if existing is not None and is_gated(existing) and asked(existing) != asked(manifest):
            raise Refused("another pod of this name asks for something else", code="replaced")
        if existing is not None and is_gated(existing):
            return str(existing["metadata"]["uid"])
        if existing is not None:
            if pod_status.is_over(existing) and not existing["metadata"].get("deletionTimestamp"):
                self.orders.delete(path_of(existing), existing["metadata"]["uid"])
            return None
        answer = self.api.call("POST", collection, dict(manifest))
        if not answer.ok:
            raise Unreachable(answer.message)
        return str(answer.body["metadata"]["uid"])

    def notify(self, ref: ExternalRef, text: str, *, event: bool) -> None:
        """Write the portal's sentence about the run where kubectl shows it: as an annotation, and as an event if wanted."""
        pods = self._noted(ref, {admission.STATUS: text[:900]})
        if event:
            self._event(ref, pods, "WaitsForQuota", text)

    def _noted(self, ref: ExternalRef, notes: Json) -> list[Json]:
        """Write these annotations on the pods of the run; returns the pods."""
        pods = self.pods(ref)
        for pod in pods:
            self.orders.patch(path_of(pod), {"metadata": {"uid": pod["metadata"]["uid"], "annotations": notes}})
        return pods

    def _event(self, ref: ExternalRef, pods: list[Json], reason: str, text: str, *, warning: bool = False) -> None:
        """Create an event for the object and one for its first pod, which is where people look."""
        seen = [{"apiVersion": ref.api, "kind": ref.kind, "namespace": ref.namespace, "name": ref.name, "uid": ref.uid}]
        for pod in pods[:1] if ref.kind != "Pod" else ():
            meta = pod["metadata"]
            named = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
            seen.append({"apiVersion": "v1", "kind": "Pod", **named})
        at = written(dt.datetime.now(dt.UTC))
        for involved in seen:
            event = {
                "metadata": {"generateName": f"{involved['name'][:200]}.", "namespace": ref.namespace},
                "involvedObject": involved,
                "reason": reason,
                "message": text[:1000],
                "type": "Warning" if warning else "Normal",
                "source": {"component": PREFIX},
                "firstTimestamp": at,
                "lastTimestamp": at,
                "count": 1,
            }
            self.api.call("POST", path("v1", "events", ref.namespace), event)  # may fail: nothing depends on it


def _is_over(since: str, wait: dt.timedelta) -> bool:
    """Whether `wait` has passed since `since`; True if that is not a time in the past, because people may write there too."""
    try:
        left = dt.datetime.fromisoformat(since) + wait - dt.datetime.now(dt.UTC)
    except (ValueError, TypeError, OverflowError):
        return True
    return not dt.timedelta() <= left <= wait + dt.timedelta(seconds=5)


def _pinned(pod: Json, node: str) -> Json:
    """The pod's own node affinity, narrowed down to this node: Kubernetes allows nothing else for a gated pod."""
    own = ((pod["spec"].get("affinity") or {}).get("nodeAffinity")) or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [dict(term) for term in (own.get(required) or {}).get("nodeSelectorTerms") or ()] or [{}]
    rule = {"key": "metadata.name", "operator": "In", "values": [node]}
    narrowed = [term | {"matchFields": [*(term.get("matchFields") or ()), rule]} for term in terms]
    return {required: {"nodeSelectorTerms": narrowed}}


class _Owners:
    """Owners of pods, each read once for one listing: a few of a kind one by one, many as a list."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._known: dict[str, Json | None] = {}

    def expect(self, references: Iterable[Mapping[str, Any]]) -> None:
        uids: dict[tuple[str, str], set[str]] = defaultdict(set)
        for reference in references:
            uids[reference["apiVersion"], reference["kind"]].add(reference["uid"])
        for (api, name), several in uids.items():
            kind = admission.kind_of(api, name)
            if kind is None or len(several) <= ONE_BY_ONE:
                continue
            try:
                listed, _version = self.api.list(path(api, kind.plural))
            except NotServed:
                continue
            self._known |= dict.fromkeys(several)  # an owner that is not in the list is gone
            for item in listed:
                self._known[item["metadata"]["uid"]] = {"apiVersion": api, "kind": name} | item

    def with_chains(self, pods: Iterable[Json]) -> list[tuple[Json, Chain]]:
        """Pods with their owners. Pods whose owner is gone are left out: they are being deleted, and are no runs of their own."""
        return [(pod, chain) for pod in pods if (chain := self.above(pod)) is not None]

    def above(self, pod: Json) -> Chain | None:
        """The pod's owners of known kinds, the nearest first, up to one whose version the server does not serve; None if one
        of them no longer exists."""
        chain: list[Json] = []
        obj: Mapping[str, Any] = pod
        while len(chain) < DEPTH and (reference := external_runs.controller_of(obj)) is not None:
            api, kind = reference["apiVersion"], reference["kind"]
            if admission.kind_of(api, kind) is None:
                break
            try:
                owner = self._read(api, kind, pod["metadata"]["namespace"], reference["name"], reference["uid"])
            except NotServed:
                break
            if owner is None:
                return None
            chain.append(owner)
            obj = owner
        return chain

    def of(self, ref: ExternalRef) -> Json | None:
        """The object, None if it is gone. If the server does not serve its version, only its name: it may still exist."""
        try:
            return self._read(ref.api, ref.kind, ref.namespace, ref.name, ref.uid)
        except NotServed:
            meta = {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}
            return {"apiVersion": ref.api, "kind": ref.kind, "metadata": meta}

    def _read(self, api: str, name_of_kind: str, namespace: str, name: str, uid: str) -> Json | None:
        kind = admission.kind_of(api, name_of_kind)
        if kind is None:
            return None
        if uid not in self._known:
            owner = self.api.get(path(api, kind.plural, namespace, name))
            same = owner is not None and owner["metadata"]["uid"] == uid
            self._known[uid] = {"apiVersion": api, "kind": name_of_kind} | owner if owner is not None and same else None
        return self._known[uid]
