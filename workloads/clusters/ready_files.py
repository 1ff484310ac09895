"""Which services have created PORTAL_READY_FILE. The readiness probe of a job's container looks for it (manifests.pods);
a service's says whether it answers, so the portal itself looks into the container, and only while its notice runs."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from workloads.clusters.base import Unreachable
from workloads.clusters.kubeapi import Api
from workloads.clusters.kubernetes_exec import Exec
from workloads.clusters.owned import SERVICE
from workloads.clusters.pod_orders import path_of
from workloads.manifests import CONTAINER, KIND, RECLAIM_AT, SUBMISSION, Options
from workloads.manifests.pods import IS_READY

Json = dict[str, Any]
AT_ONCE, WITHIN = (
    8,
    3.0,
)  # s; a container's `test` may be anything: what does not answer in time is asked with the next listing


def said_ready(api: Api, listed: Iterable[Json], options: Options) -> frozenset[str]:
    """The submissions whose pod has it. Harmless: what cannot be asked has not said anything."""
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
    meta, statuses = pod["metadata"], pod["status"].get("containerStatuses") or ()
    runs = any("running" in (status.get("state") or {}) for status in statuses)
    told = meta["labels"].get(KIND) == SERVICE and bool(meta["annotations"].get(RECLAIM_AT))
    return told and runs and not meta.get("deletionTimestamp")


def _has_file(api: Api, pod: Json) -> bool:
    try:
        look = Exec(api, path_of(pod), CONTAINER, IS_READY, timeout=WITHIN)
        try:
            return [*look.output()] == []
        finally:
            look.close()
    except Unreachable:  # it is not there, or nobody can say
        return False
