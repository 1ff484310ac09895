"""PORTAL_READY_FILE of services. For a job the readiness probe of its container checks it (manifests.pods); that of a service
checks whether it answers, so the portal itself looks into the container, and only during its notice."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from workloads.kubernetes.api import Api
from workloads.kubernetes.exec import Exec
from workloads.kubernetes.job_status import SERVICE
from workloads.kubernetes.manifests import CONTAINER, KIND, RECLAIM_AT, SUBMISSION, Options
from workloads.kubernetes.manifests.pods import IS_READY, READY_FILE
from workloads.kubernetes.pod_commands import path_of
from workloads.runtime.base import Unreachable

Json = dict[str, Any]
AT_ONCE, WITHIN = (
    8,
    3.0,
)  # s; a container's `test` may be any program: one that does not answer in time is run again with the next listing


def reported_ready(api: Api, listed: Iterable[Json], options: Options) -> frozenset[str]:
    """Submission ids whose pod has the file. A pod where the command cannot be run counts as not ready."""
    asked = {_submission(pod): pod for pod in listed if _has_notice(pod)} if options.ready_probe_seconds else {}
    if not asked:
        return frozenset()
    threads = ThreadPoolExecutor(min(AT_ONCE, len(asked)))
    looks = {threads.submit(_has_file, api, pod): submission for submission, pod in asked.items()}
    done, _late = wait(looks, WITHIN)
    threads.shutdown(wait=False, cancel_futures=True)
    return frozenset(looks[look] for look in done if look.result())


def _submission(pod: Json) -> str:
    return str(pod["metadata"]["annotations"][SUBMISSION])


def _has_notice(pod: Json) -> bool:
    meta = pod["metadata"]
    return meta["labels"].get(KIND) == SERVICE and bool(meta["annotations"].get(RECLAIM_AT)) and _runs(pod)


def _runs(pod: Json) -> bool:
    statuses = pod["status"].get("containerStatuses") or ()
    running = any("running" in (status.get("state") or {}) for status in statuses)
    return running and not pod["metadata"].get("deletionTimestamp")


def _has_file(api: Api, pod: Json) -> bool:
    return _succeeds(api, pod, IS_READY)


def delete_ready_file(api: Api, pod: Json) -> None:
    """Delete the file after a notice was withdrawn, so that it does not count for the next one. Needs `rm` in the image."""
    if _runs(pod):
        _succeeds(api, pod, ("rm", "-f", READY_FILE))


def _succeeds(api: Api, pod: Json, command: tuple[str, ...]) -> bool:
    try:
        call = Exec(api, path_of(pod), CONTAINER, command, timeout=WITHIN)
        try:
            return [*call.output()] == []
        finally:
            call.close()
    except Unreachable:  # the command failed or could not be executed
        return False
