"""Delete working directories some time after the end of their workloads."""

from __future__ import annotations

import datetime as dt

import structlog

from portal.infra.locks import durable
from portal.notify.events import emit
from quotas.models import Cluster
from workloads.clusters.drivers import driver_for
from workloads.files import volumes
from workloads.lifecycle import FINAL
from workloads.models import Workload
from workloads.runtime.base import ClusterError

KEPT = dt.timedelta(days=14)
AT_ONCE = 200
log = structlog.get_logger(__name__)


def discard_left_files(*, now: dt.datetime) -> int:
    """Delete working directories without a workload in the database, or whose files are recorded as deleted. They are left by
    a submission that was cut off, or belong to a newer database than this one, so they too are kept for KEPT. Returns how
    many were deleted."""
    removed = 0
    for cluster in Cluster.objects.filter(active=True):
        try:
            driver = driver_for(cluster)
            old = [each.volume for each in driver.volumes() if each.created_at < now - KEPT]
            rows = Workload.objects.filter(public_id__in=[volume.workload_id for volume in old], files_removed_at=None)
            known = set(rows.values_list("public_id", flat=True))
            for volume in old:
                if volume.workload_id not in known:
                    log.warning("files.left", cluster=cluster.name, volume=volume.name, namespace=volume.namespace)
                    driver.discard(volume)
                    removed += 1
        except ClusterError as error:
            log.warning("files.stay", cluster=cluster.name, error=str(error))
    return removed


def discard_old_files(*, now: dt.datetime) -> int:
    """Delete the working directories of workloads that ended KEPT ago; returns how many. Deletes first and records afterwards:
    if the process is killed in between, deleting again is harmless."""
    over = Workload.objects.filter(state__in=FINAL, finished_at__lt=now - KEPT, files_removed_at=None)
    removed = 0
    for workload in over.select_related("department", "author", "pool__group__cluster")[:AT_ONCE]:
        cluster = workload.pool.group.cluster
        try:
            volumes.discard(workload)
        except ClusterError as error:
            log.warning("files.stay", workload=workload.public_id, cluster=cluster.name, error=str(error))
            continue
        with durable():
            Workload.objects.filter(pk=workload.pk, files_removed_at=None).update(files_removed_at=now)
            emit("workload.files_removed", department=workload.department, workload=workload.public_id)
        removed += 1
    return removed
