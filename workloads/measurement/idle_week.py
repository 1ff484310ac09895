"""What an idle policy would have stopped in the last week, computed from the stored buckets."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db.models import Count, QuerySet

from quotas.models import LedgerEntry, Pool
from workloads.idle.rule import BUCKET, Action, Rule, stopped_at
from workloads.measurement.rank_activity import buckets_of
from workloads.models import Attempt, Kind, MeasuredBucket

WEEK = dt.timedelta(days=7)
MOST = 1000
"""Most attempts that are examined, the newest first."""


@dataclass(frozen=True, slots=True)
class WouldStop:
    """An attempt that would have been stopped (or, if the policy only warns, warned) at `at`. `seconds`: how long it held its
    units after that."""

    attempt: Attempt
    action: Action
    at: dt.datetime
    seconds: float

    @property
    def gpu_hours(self) -> float:
        workload = self.attempt.workload
        return workload.pool.gpu_hours(workload.units * self.seconds)


@dataclass(frozen=True, slots=True)
class Week:
    """`ran`: number of attempts that ran in the week; `measured`: those with measurements; `left_out`: candidates beyond MOST;
    `has_notebooks`: some are notebooks, whose servers might have reported activity then."""

    stops: tuple[WouldStop, ...]
    ran: int
    measured: int
    left_out: int
    has_notebooks: bool

    @property
    def gpu_hours(self) -> float:
        return sum(each.gpu_hours for each in self.stops if each.action is not Action.WARN)

    @property
    def stopped(self) -> int:
        return sum(each.action is not Action.WARN for each in self.stops)

    @property
    def warned(self) -> int:
        return len(self.stops) - self.stopped


def last_week(
    pool: Pool, departments: Collection[int] | None, rules: Mapping[str, Rule], *, now: dt.datetime
) -> Week:  # fmt: skip
    """`departments`: ids; None: all departments. `rules`: kind → the rule that would have been in force."""
    begin = now - WEEK
    ran = Attempt.objects.filter(workload__pool=pool, started_at__lt=now).exclude(finished_at__lte=begin)
    if departments is not None:
        ran = ran.filter(workload__department__in=departments)
    acting = {kind: rule for kind, rule in rules.items() if rule.action is not Action.NOTHING}
    picked: list[Attempt] = []
    for kind, rule in acting.items():
        picked += _candidates(ran.filter(workload__kind=kind), rule, begin)
    picked.sort(key=lambda row: row.pk, reverse=True)
    looked_at = picked[:MOST]
    buckets = buckets_of({row.pk: row.workload.pods for row in looked_at}, begin, now)
    borrowed = _borrowed([row for row in looked_at if acting[row.workload.kind].action is Action.BORROWED])
    stops = []
    for row in looked_at:
        rule = acting[row.workload.kind]
        at = stopped_at(buckets.get(row.pk, ()), rule, floor=max(begin, row.started_at or begin))
        end = min(row.finished_at or now, now)
        borrows = rule.action is not Action.BORROWED or any(
            since <= at < (until or now) for since, until in borrowed.get(row.claim_id, ()) if at is not None
        )
        if at is not None and at < end and borrows:
            stops.append(WouldStop(row, rule.action, at, (end - at).total_seconds()))
    stops.sort(key=lambda each: each.gpu_hours, reverse=True)
    notebooks = any(each.attempt.workload.kind == Kind.NOTEBOOK for each in stops)
    measured = MeasuredBucket.objects.filter(attempt__in=ran.values("pk"), at__gte=begin, gpu__isnull=False)
    return Week(
        tuple(stops),
        ran.count(),
        measured.values("attempt").distinct().count(),
        len(picked) - len(looked_at),
        notebooks,
    )


def _candidates(ran: QuerySet[Attempt], rule: Rule, begin: dt.datetime) -> list[Attempt]:
    """Attempts with enough quiet buckets to have been idle for the rule's length, counted by the database."""
    quiet = MeasuredBucket.objects.filter(attempt__in=ran.values("pk"), at__gte=begin, gpu__lt=rule.below * 10)
    enough = quiet.values("attempt").annotate(count=Count("at")).filter(count__gte=int(rule.length / BUCKET)).order_by()
    rows = Attempt.objects.filter(pk__in=enough.values("attempt")).order_by("-pk")
    return list(rows.select_related("workload__pool", "workload__department", "workload__author")[: MOST + 1])


def _borrowed(attempts: Collection[Attempt]) -> dict[int, list[tuple[dt.datetime, dt.datetime | None]]]:
    """Claim → (start, end) of the times in which it used borrowed units; the end is None while it does."""
    times: dict[int, list[tuple[dt.datetime, dt.datetime | None]]] = defaultdict(list)
    rows = LedgerEntry.objects.filter(claim__in=[row.claim_id for row in attempts], own=False)
    for claim, since, until in rows.values_list("claim", "started_at", "ended_at"):
        times[claim].append((since, until))
    return times
