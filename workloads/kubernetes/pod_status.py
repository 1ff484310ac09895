"""Pod JSON → Observed. Pure; `reason` is Kubernetes' own word where it has one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from workloads import sharing
from workloads.kubernetes.manifests import ATTEMPT, SHARING, STOPPED_AT, SUBMISSION, WORKLOAD
from workloads.kubernetes.manifests.pods import READY_FILE
from workloads.runtime.base import Observed, Phase, RunRef

Json = Mapping[str, Any]

# Pod reasons that mean that the cluster itself ended the run: not a failure of the workload.
TAKEN_AWAY = frozenset({"Evicted", "NodeShutdown", "Terminated", "NodeLost", "Preempting", "Shutdown"})
REFUSED_BY_KUBELET = frozenset(
    {"UnexpectedAdmissionError", "NodeAffinity", "OutOfcpu", "OutOfmemory", "TopologyAffinityError"}
)
# As the last step of a deletion the kubelet sets a new time and a grace of 0; at most so long after the container's end.
LAST_STEP = dt.timedelta(seconds=10)


def time(text: str | None) -> dt.datetime | None:
    """The time; None for the epoch, which containerd reports for a container that never started."""
    moment = dt.datetime.fromisoformat(text) if text else None
    return moment if moment and moment.timestamp() > 0 else None


def is_over(pod: Json) -> bool:
    """Whether no container of the pod runs or will run: terminal, or deleted before it was scheduled."""
    unscheduled = not pod["spec"].get("nodeName")
    return pod["status"].get("phase") in ("Succeeded", "Failed") or (
        unscheduled and bool(pod["metadata"].get("deletionTimestamp"))
    )


def observed(pod: Json) -> Observed:
    """The state of one pod of the portal. Raises KeyError if it lacks the portal's annotations."""
    meta, status = pod["metadata"], pod["status"]
    notes = meta["annotations"]
    stopping = bool(meta.get("deletionTimestamp")) or STOPPED_AT in notes
    container: Json = next(iter(status.get("containerStatuses") or ()), {})
    ended = (container.get("state") or {}).get("terminated") or {}
    running = (container.get("state") or {}).get("running") or {}
    phase = _phase(pod, bool(ended))
    reason, message = _reason(pod, container, ended)
    system = sharing.SYSTEMS.get(notes.get(SHARING, ""))
    return Observed(
        ref=RunRef(meta["name"], meta["namespace"], notes[SUBMISSION], ended=meta["uid"] if is_over(pod) else ""),
        workload_id=notes[WORKLOAD],
        attempt=int(meta["labels"][ATTEMPT]),
        phase=phase,
        stopping=stopping,
        exit_code=ended.get("exitCode") if phase in (Phase.SUCCEEDED, Phase.FAILED) else None,
        reason=reason,
        message=message[:500],
        node=pod["spec"].get("nodeName", ""),
        cards=tuple(held.device for held in system.read_back(pod)) if system else (),
        started_at=time(ended.get("startedAt") or running.get("startedAt")),
        finished_at=time(ended.get("finishedAt")),
        ready=_reported_ready(pod, container),
    )


def _taken_by(pod: Json) -> str:
    """What evicted or deleted the pod: PreemptionByScheduler, EvictionByEvictionAPI, DeletionByTaintManager,
    NodeShutdown, Deleted, …
    "" if nothing did, the pod had ended before, or the portal did it.
    """
    status = pod["status"]
    if STOPPED_AT in pod["metadata"]["annotations"]:
        return ""
    if (disruption := disruption_of(status)) is not None:
        taken_at = time(disruption.get("lastTransitionTime"))
        return "" if taken_at is not None and _ended_before(pod, taken_at) else str(disruption.get("reason", ""))
    if (reason := str(status.get("reason", ""))) in TAKEN_AWAY | REFUSED_BY_KUBELET:
        return reason
    return "Deleted" if _deleted_by_others(pod) else ""


def disruption_of(status: Json) -> Json | None:
    """The condition that shows what evicted the pod, and why."""
    conditions = status.get("conditions") or ()
    return next((each for each in conditions if each["type"] == "DisruptionTarget" and each["status"] == "True"), None)


def _phase(pod: Json, ended: bool) -> Phase:
    match pod["status"].get("phase"):
        case "Succeeded":  # a program that handles SIGTERM and exits with 0 has not finished its work
            return Phase.LOST if _taken_by(pod) else Phase.SUCCEEDED
        case "Failed":
            if _taken_by(pod) or not (ended or pod["status"].get("reason")):
                return Phase.LOST
            # a busy kubelet may report the end of the pod a moment before that of its container, which has the exit code
            return Phase.RUNNING if _says_running(pod) else Phase.FAILED
        case "Running":
            return Phase.RUNNING
        case _:
            return Phase.LOST if is_over(pod) else Phase.PENDING


def _says_running(pod: Json) -> bool:
    states = [container.get("state") or {} for container in pod["status"].get("containerStatuses") or ()]
    return any("running" in state for state in states)


def _deleted_by_others(pod: Json) -> bool:
    """Whether the pod was deleted before it had ended by itself."""
    meta = pod["metadata"]
    due = time(meta.get("deletionTimestamp"))  # time of the request plus the grace
    if due is None:
        return False
    grace = meta.get("deletionGracePeriodSeconds") or 0
    return not _ended_before(pod, due - (dt.timedelta(seconds=grace) or LAST_STEP))


def _ended_before(pod: Json, moment: dt.datetime) -> bool:
    """Whether the pod had ended by itself before `moment`: containers ended by SIGTERM or SIGKILL did not end by
    themselves."""
    ends = [
        container["state"]["terminated"]
        for container in pod["status"].get("containerStatuses") or ()
        if (container.get("state") or {}).get("terminated")
    ]
    return bool(ends) and all(not _by_signal(end) and (time(end.get("finishedAt")) or moment) < moment for end in ends)


def _by_signal(end: Json) -> bool:
    return end.get("exitCode") in (137, 143) and end.get("reason") != "OOMKilled"


def _reported_ready(pod: Json, container: Json) -> bool:
    """Whether the container is ready by PORTAL_READY_FILE, which only the probe of a run checks."""
    probe = pod["spec"]["containers"][0].get("readinessProbe") or {}
    return READY_FILE in (probe.get("exec") or {}).get("command", ()) and bool(container.get("ready"))


def node_of(pod: Json) -> str:
    """The pod's node, or the node that the plan chose; "" if neither is known."""
    if node := pod["spec"].get("nodeName"):
        return str(node)
    node_affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""


def unschedulable_since(pod: Json) -> dt.datetime | None:
    """Since when the scheduler has found no place for the pod on its node; None if it is scheduled or was not tried yet."""
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return time(condition.get("lastTransitionTime")) if condition.get("reason") == "Unschedulable" else None
    return None


def waiting_for(pod: Json) -> tuple[str, str]:
    """(reason, message) why the pod does not start; ("", "") if it is starting."""
    container: Json = next(iter(pod["status"].get("containerStatuses") or ()), {})
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        return str(waiting["reason"]), str(waiting.get("message", ""))
    for condition in pod["status"].get("conditions") or ():
        if (
            condition["type"] == "PodScheduled"
            and condition["status"] == "False"
            and condition["reason"] != "SchedulingGated"
        ):
            return str(condition.get("reason", "")), str(condition.get("message", ""))
    return "", ""


def _reason(pod: Json, container: Json, ended: Json) -> tuple[str, str]:
    """(reason, message): the most specific of those the pod has; ("", "") if it runs or ran normally."""
    status, meta = pod["status"], pod["metadata"]
    if STOPPED_AT in meta["annotations"] and (is_over(pod) or status.get("reason") == "DeadlineExceeded"):
        return "Stopped", ""
    if ended.get("reason") == "OOMKilled":
        return "OOMKilled", str(ended.get("message", ""))
    if by := _taken_by(pod):
        return by, str(status.get("message", ""))
    if status.get("reason"):
        return str(status["reason"]), str(status.get("message", ""))
    if ended:
        return str(ended.get("reason", "")), str(ended.get("message", ""))
    return waiting_for(pod)
