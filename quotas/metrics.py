"""Gauges and counters of pools and departments (portal.server.metrics). Units are the pool's own, named in the label `unit`."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Sequence

from django.db.models import Min, Sum
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from portal.models import Department
from quotas.board import usage_now
from quotas.board.usage import PoolUsage, pool_usage
from quotas.models import Card, Claim, ClaimState, Cluster, Node, OutsidePod, PlanPass, Pool, PoolGroup, Quota
from quotas.spending.source import used_ever

PASSES = dt.timedelta(hours=1)
QUANTILES = (0.5, 0.95, 1.0)


def quantile(sorted_values: Sequence[float], q: float) -> float:
    """Nearest rank; `sorted_values` is not empty."""
    return sorted_values[min(len(sorted_values) - 1, max(0, round(q * len(sorted_values) + 0.5) - 1))]


def collect() -> Iterator[Metric]:
    now = usage_now.read()
    yield from pools(now)
    yield from departments(now)
    yield from passes()
    yield from metered()


def pools(now: usage_now.Live) -> Iterator[Metric]:
    units = GaugeMetricFamily(
        "portal_pool_units", "Capacity of a pool: nominal, present on healthy cards, free for anyone, outside the quota.",
        labels=["pool", "unit", "kind"],
    )  # fmt: skip
    oldest = GaugeMetricFamily("portal_queue_oldest_seconds", "Wait of the oldest claim in a queue.", labels=["pool"])
    waiting = Claim.objects.filter(state=ClaimState.PENDING, pods__gt=0).values("pool")
    since = dict(waiting.annotate(since=Min("submitted_at")).values_list("pool", "since"))
    outside = dict(OutsidePod.objects.order_by().values("pool").annotate(all=Sum("units")).values_list("pool", "all"))
    for pk, pool in now.pools.items():
        for kind, amount in (
            ("nominal", pool.nominal),
            ("present", now.present(pk)),
            ("promised", sum(q.guaranteed for (_, its), q in now.quotas.items() if its == pk)),
            ("free", usage_now.free(now, pk)),
            ("outside", outside.get(pk, 0)),
        ):
            units.add_metric([pool.slug, pool.unit, kind], amount)
        waited = (timezone.now() - since[pk]).total_seconds() if pk in since else 0
        oldest.add_metric([pool.slug], max(0, waited))
    yield units
    yield oldest
    reachable = GaugeMetricFamily(
        "portal_cluster_reachable", "1 if the cluster answered last time.", labels=["cluster"]
    )
    for cluster in Cluster.objects.filter(active=True):
        reachable.add_metric([cluster.name], int(cluster.unreachable_since is None))
    yield reachable
    yield quarantined()


def quarantined() -> GaugeMetricFamily:
    """Quarantined nodes and quarantined cards of each cluster."""
    gauge = GaugeMetricFamily("portal_quarantined", "Nodes and cards that are quarantined.", labels=["cluster", "what"])
    for cluster in Cluster.objects.filter(active=True):
        nodes = Node.objects.filter(cluster=cluster, quarantined=True)
        cards = Card.objects.filter(node__cluster=cluster, quarantined=True)
        gauge.add_metric([cluster.name, "node"], nodes.count())
        gauge.add_metric([cluster.name, "card"], cards.count())
    return gauge


def departments(now: usage_now.Live) -> Iterator[Metric]:
    """Use by department. A department includes all teams below it, so sum only rows with leaf="true"."""
    labels = ["pool", "department", "leaf", "unit"]
    usage = GaugeMetricFamily(
        "portal_usage_units", "What a department uses of its own, borrows, lends, and what is held for it.",
        labels=[*labels, "share"],
    )  # fmt: skip
    promised = GaugeMetricFamily("portal_guaranteed_units", "What a department is promised.", labels=labels)
    queued = GaugeMetricFamily("portal_queue_units", "Units that wait in a department's queue.", labels=labels)
    length = GaugeMetricFamily("portal_queue_length", "Claims that wait in a department's queue.", labels=labels)
    oldest = GaugeMetricFamily(
        "portal_department_queue_oldest_seconds", "Wait of the oldest claim in a department's queue.", labels=labels
    )
    moment = timezone.now()
    for (department, pool), row in rows(now).items():
        leaf = "false" if now.children.get(department) else "true"
        values = [row.pool.slug, row.department.slug, leaf, now.pools[pool].unit]
        for share in ("own", "borrowed", "lent", "held", "leaving"):
            usage.add_metric([*values, share], getattr(row, share))
        promised.add_metric(values, row.guaranteed)
        queued.add_metric(values, row.queue_units)
        length.add_metric(values, row.queue_len)
        since = [claim.queued_at for pk in now.subtree(department) for claim in now.claims.get((pk, pool), ())
                 if claim.state == ClaimState.PENDING and not claim.is_recall]  # fmt: skip
        oldest.add_metric(values, max(0, (moment - min(since)).total_seconds()) if since else 0)
    yield from (usage, promised, queued, length, oldest)


def rows(now: usage_now.Live) -> dict[tuple[int, int], PoolUsage]:
    concerned = now.quotas.keys() | {key for key, claims in now.claims.items() if claims}
    return {(department, pool): pool_usage(now, department, pool) for department, pool in sorted(concerned)}


def passes() -> Iterator[Metric]:
    took = GaugeMetricFamily(
        "portal_plan_pass_seconds", "How long the last hour's planning passes that decided something took to read and to decide.",
        labels=["group", "quantile"],
    )  # fmt: skip
    last = GaugeMetricFamily("portal_plan_pass_timestamp_seconds", "End of a pool group's last pass.", labels=["group"])
    for group in PoolGroup.objects.all():
        recent = PlanPass.objects.filter(group=group, at__gte=timezone.now() - PASSES)
        times = sorted(recent.values_list("milliseconds", flat=True))
        for q in QUANTILES if times else ():
            took.add_metric([group.name, str(q)], quantile(times, q) / 1000)
        if group.planned_at:
            last.add_metric([group.name], group.planned_at.timestamp())
    yield took
    yield last


def metered() -> Iterator[Metric]:
    """Metered unit-seconds since the installation began."""
    of_departments = CounterMetricFamily(
        "portal_used_unit_seconds", "Unit-seconds used of one's own, borrowed, and lent to others.",
        labels=["pool", "department", "unit", "share"],
    )  # fmt: skip
    of_people = CounterMetricFamily(
        "portal_person_used_unit_seconds", "The same of a person's workloads: own and borrowed. Empty: unknown.",
        labels=["pool", "department", "person", "unit", "share"],
    )  # fmt: skip
    pools = {pk: (slug, unit) for pk, slug, unit in Pool.objects.values_list("pk", "slug", "unit")}
    slugs = dict(Department.objects.values_list("pk", "slug"))
    sums: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: dict.fromkeys(("own", "borrowed", "lent"), 0))
    people: dict[tuple[int, int, str], dict[str, int]] = defaultdict(lambda: dict.fromkeys(("own", "borrowed"), 0))
    for pool, department in Quota.objects.values_list("pool", "department"):
        sums[pool, department]  # a counter that begins at zero
    for use, spent in used_ever().items():
        share = "own" if use.own else "borrowed"
        sums[use.pool, use.department][share] += spent
        people[use.pool, use.department, use.person][share] += spent
        if use.lender is not None:
            sums[use.pool, use.lender]["lent"] += spent
    for (pool, department), shares in sorted(sums.items()):
        slug, unit = pools[pool]
        for share, spent in shares.items():
            of_departments.add_metric([slug, slugs[department], unit, share], spent)
    for (pool, department, person), shares in sorted(people.items()):
        slug, unit = pools[pool]
        for share, spent in shares.items():
            of_people.add_metric([slug, slugs[department], person, unit, share], spent)
    yield from (of_departments, of_people)
