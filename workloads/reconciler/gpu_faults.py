"""Quarantine nodes whose GPUs have a fault according to their cluster's Prometheus.
On Kubernetes the device plugin chooses the card of a pod, so a fault of one GPU concerns its whole node. If Prometheus does not
answer, or no longer has series of a node or GPU, nothing changes: a GPU that fell off the bus is not well.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import structlog

from portal.errors import Problem
from quotas.health.quarantines import Answer, Reason, judge
from quotas.health.signs import Sign
from quotas.models import Cluster, ClusterKind, Node, Quarantine
from workloads.kubernetes.manifests import Options
from workloads.measurement.gpu_faults import SOURCE, GpuFaults, faults_of, queries_of
from workloads.measurement.prometheus import ask_texts, server_of
from workloads.models import MetricsSource
from workloads.runtime.base import as_json

log = structlog.get_logger(__name__)


def judge_all(*, now: dt.datetime) -> int:
    """Judge the nodes of all clusters; returns how many changed. A failure in one cluster does not affect the others."""
    changed = 0
    sources = MetricsSource.objects.filter(cluster__active=True, cluster__kind=ClusterKind.KUBERNETES).exclude(url="")
    for source in sources.select_related("cluster"):
        if "dcgm" not in (source.exporters or ["dcgm"]):
            continue
        try:
            xids = Options.from_json({"instance": source.cluster.name} | source.cluster.options).health_xids
            server = server_of(source)
            xid_samples, health_samples = ask_texts(server, queries_of(server.selector), at=now)
        except (Problem, ValueError) as error:  # the measuring job and the cluster's page report it
            log.info("gpu_faults.not_asked", cluster=source.cluster.name, error=str(error)[:300])
            continue
        changed += judge_cluster(source.cluster, faults_of(xid_samples, health_samples, xids), now=now)
    return changed


def judge_cluster(cluster: Cluster, faults: Mapping[str, GpuFaults], *, now: dt.datetime) -> int:
    live = Quarantine.objects.filter(node__cluster=cluster, sign__startswith=f"{SOURCE}/", sign_over_at=None)
    reasons: dict[int, dict[str, Reason]] = {}
    for node, sign, reason in live.values_list("node", "sign", "reason"):
        reasons.setdefault(node, {})[sign] = reason
    answers: dict[int, Answer] = {}
    for pk, name in Node.objects.filter(cluster=cluster, present=True).values_list("pk", "name"):
        own = faults.get(name) or faults.get(name.split(".")[0])
        if own is None:
            continue
        lasting = {sign: reason for sign, reason in reasons.get(pk, {}).items() if sign not in own.well}
        seen = lasting | {sign: as_json(note) for sign, note in own.faults.items()}
        answers[pk] = Answer({Sign(sign): reason for sign, reason in seen.items()}, {None})
    return judge(cluster, SOURCE, answers, now=now)
