"""The Job of a gang or the Deployment of a service, with its pods → Observed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from workloads.kubernetes import pod_status
from workloads.kubernetes.manifests import (
    ATTEMPT,
    FINALIZER,
    GATE,
    INDEX,
    KIND,
    LEADER,
    RANKS,
    STOPPED_AT,
    SUBMISSION,
    WORKLOAD,
)
from workloads.runtime.base import Observed, Phase, Rank, RunRef
from workloads.runtime.gangs import LIVE, gathered

Json = Mapping[str, Any]
GANG, SERVICE = "distributed", "service"


def is_owned(obj: Json) -> bool:
    return (obj["metadata"].get("labels") or {}).get(KIND) in (GANG, SERVICE)


def runs(
    owners: Iterable[Json], listed: Iterable[Json], reported_ready: Set[str] = frozenset()
) -> tuple[Observed, ...]:
    """One Observed for each submission, from its owner, its pods, or what is left of both. `reported_ready`: submission ids of
    services whose pod has PORTAL_READY_FILE."""
    owner: dict[str, Json] = {}
    pods_of: dict[str, list[Json]] = {}
    for obj in owners:
        if SUBMISSION in (obj["metadata"].get("annotations") or {}):
            owner[obj["metadata"]["annotations"][SUBMISSION]] = obj
    for pod in listed:
        if SUBMISSION in (pod["metadata"].get("annotations") or {}):
            pods_of.setdefault(pod["metadata"]["annotations"][SUBMISSION], []).append(pod)
    seen = (observed(owner.get(submission), pods_of.get(submission, [])) for submission in {**owner, **pods_of})
    return tuple(
        replace(run, ready=run.ready or run.ref.submission_id in reported_ready) for run in seen if run is not None
    )


def observed(owner: Json | None, own_pods: Sequence[Json]) -> Observed | None:
    """The run as its owner and pods show it; None if it is already being removed."""
    meta = (owner or own_pods[0])["metadata"]
    notes, kind = meta["annotations"], meta["labels"][KIND]
    name = meta["name"] if owner else (meta.get("ownerReferences") or [meta])[0]["name"]
    if kind == GANG:
        return _gang(owner, [pod for pod in own_pods if not _forgotten(pod)], _ref(name, meta, GANG), notes)
    return _service(owner, own_pods, _ref(_without_hash(name, owner), meta, SERVICE), notes)


def _ref(name: str, meta: Json, kind: str) -> RunRef:
    return RunRef(name, meta["namespace"], meta["annotations"][SUBMISSION], kind=kind)


def _without_hash(name: str, owner: Json | None) -> str:
    """A Deployment's pods belong to its ReplicaSet, named after it with a hash."""
    return name if owner else name.rpartition("-")[0]


def _forgotten(pod: Json) -> bool:
    """Whether the driver has removed its finalizer from the pod; other finalizers may keep the object a moment longer."""
    meta = pod["metadata"]
    return bool(meta.get("deletionTimestamp")) and FINALIZER not in (meta.get("finalizers") or ())


def _gang(job: Json | None, own_pods: Sequence[Json], ref: RunRef, notes: Json) -> Observed | None:
    if job is None and not own_pods:
        return None
    by_rank = {int(pod["metadata"]["labels"].get(INDEX, -1)): pod for pod in sorted(own_pods, key=_age)}
    asked = job is not None and STOPPED_AT in job["metadata"]["annotations"]
    ranks = tuple(_rank(number, by_rank.get(number), job, asked) for number in range(int(notes[RANKS])))
    gang = gathered(ranks, leader_decides=notes[LEADER] == "true")
    waiting = [pod for pod in by_rank.values() if is_gated(pod)]
    return Observed(
        ref=ref,
        workload_id=notes[WORKLOAD],
        attempt=int((job or own_pods[0])["metadata"]["labels"][ATTEMPT]),
        phase=gang.phase,
        stopping=asked and all(rank.stop_requested for rank in ranks if rank.phase in LIVE),
        exit_code=gang.exit_code,
        reason=gang.reason,
        message=gang.message[:500],
        node=gang.node,
        cards=gang.cards,
        started_at=gang.started_at,
        finished_at=gang.finished_at,
        ranks=ranks,
        over=gang.over,
        ready=any(pod_status.observed(pod).ready for pod in by_rank.values()),
        gated=bool(waiting) and len(by_rank) == len(ranks),
    )


def is_gated(pod: Json) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def _age(pod: Json) -> str:
    return str(pod["metadata"].get("creationTimestamp", ""))


def _rank(number: int, pod: Json | None, job: Json | None, asked: bool) -> Rank:
    if pod is None:
        if job is not None and not asked:
            return Rank(number, Phase.PENDING, reason=_unmade(job))
        return Rank(number, Phase.LOST, stop_requested=asked, reason="Stopped" if asked else "Deleted")
    run = pod_status.observed(pod)
    return Rank(
        number,
        run.phase,
        stop_requested=STOPPED_AT in pod["metadata"]["annotations"],
        node=run.node,
        cards=run.cards,
        exit_code=run.exit_code,
        reason=run.reason,
        message=run.message,
        started_at=run.started_at,
        finished_at=run.finished_at,
    )


def _unmade(job: Json) -> str:
    """The reason that the Job's controller gives for not creating pods; "" if there is none."""
    failed = (c for c in job["status"].get("conditions") or () if c["type"] == "Failed" and c["status"] == "True")
    return next((str(condition.get("reason", "")) for condition in failed), "")


def _service(deployment: Json | None, own_pods: Sequence[Json], ref: RunRef, notes: Json) -> Observed:
    """A service never ends by itself. Once stopped, it has ended when no pod is left; if others delete its Deployment, it
    stops with its pods."""
    asked = deployment is not None and STOPPED_AT in deployment["metadata"]["annotations"]
    newest = max(own_pods, key=lambda pod: (not pod["metadata"].get("deletionTimestamp"), _age(pod)), default=None)
    rank = Rank(0, Phase.PENDING) if newest is None else _instance(newest)
    if newest is None and asked:
        rank = Rank(0, Phase.FAILED, stop_requested=True, reason="Stopped")
    return Observed(
        ref=ref,
        workload_id=notes[WORKLOAD],
        attempt=int((deployment or own_pods[0])["metadata"]["labels"][ATTEMPT]),
        phase=rank.phase,
        stopping=asked or deployment is None,
        reason=rank.reason,
        message=rank.message,
        node=rank.node,
        cards=rank.cards,
        started_at=rank.started_at,
        ranks=(rank,),
        displaced_at=pod_status.unschedulable_since(newest) if newest else None,
    )


def _instance(pod: Json) -> Rank:
    """The pod of a service. Between two starts of its container it counts as running, because its Deployment restarts it."""
    run = pod_status.observed(pod)
    container: Json = next(iter(pod["status"].get("containerStatuses") or ()), {})
    alive = pod["spec"].get("nodeName") and run.phase is not Phase.PENDING
    return Rank(
        0,
        Phase.RUNNING if alive else Phase.PENDING,
        node=run.node,
        cards=run.cards,
        reason=run.reason,
        message=run.message[:300],
        started_at=pod_status.time(pod["status"].get("startTime")),
        ready=bool(container.get("ready")),
        restarts=int(container.get("restartCount", 0)),
    )
