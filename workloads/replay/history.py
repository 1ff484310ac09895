"""Demand and rules from the database: the workloads of a pool group, how long they ran, and the rules for their replay."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby

from django.db.models import Q, QuerySet

from quotas.engine import types as e
from quotas.lending import windows
from quotas.models import ClaimState, Pool, PoolGroup, Quota, UserCap
from quotas.planning.snapshot import Rules, claim_of, moment, rules_of, seconds, snapshot_of
from quotas.spending.balances import lately
from quotas.spending.decay import Decaying, Lately
from workloads.models import Attempt
from workloads.replay.demand import Demand, Job
from workloads.replay.simulation import Assumed

ASSUMED = Assumed()
SINCE = (
    "started_at",
    "checkpointed_at",
    "checkpoint_every",
    "idle_since",
    "backoff_until",
    "leave_by",
    "preempted_for",
    "reserved",
    "placement",
)
"""Fields of a claim that are set after its submission."""


@dataclass(frozen=True)
class Terms:
    """The rows with the rules of a pool group: as they are stored, or copies with other values. Temporary conditions are left
    out: pauses, used-up budgets, an unreachable cluster."""

    group: PoolGroup
    rows: Rules

    @staticmethod
    def of(group: PoolGroup) -> Terms:
        """The present rules, as copies that may be changed."""
        rows = rules_of(group)
        departments = {row.pk: copy(row) for row in rows.departments}
        pools = {row.pk: copy(row) for row in rows.pools}
        quotas, caps = [copy(row) for row in rows.quotas], [copy(row) for row in rows.caps]
        of_both: list[Quota | UserCap] = [*quotas, *caps]
        for row in of_both:
            row.department, row.pool = departments[row.department_id], pools[row.pool_id]
        for department in departments.values():
            department.paused = False
        return Terms(
            copy(group),
            replace(
                rows, pools=(*pools.values(),), departments=(*departments.values(),), quotas=(*quotas,), caps=(*caps,)
            ),
        )

    @property
    def pools(self) -> dict[int, Pool]:
        return {pool.pk: pool for pool in self.rows.pools}

    def assumed(self, begin: dt.datetime, but: Assumed = ASSUMED) -> Assumed:
        """The assumptions `but` with these terms' settings of pools, and with what departments had borrowed and lent before
        `begin`, from the ledger."""
        pools = self.rows.pools
        return replace(
            but,
            most_recalls={e.PoolId(pool.slug): pool.max_reclaims for pool in pools},
            half_lives=self.half_lives,
            lately={
                e.PoolId(self.pools[pk].slug): self._by_slug(sums) for pk, sums in lately(pools, now=begin).items()
            },
        )

    def _by_slug(self, sums: Decaying[int]) -> dict[e.DepartmentId, Lately]:
        slugs = {row.pk: e.DepartmentId(row.slug) for row in self.rows.departments}
        return {slugs[pk]: each for pk, each in sums.sums.items() if pk in slugs}

    @property
    def half_lives(self) -> dict[e.PoolId, int]:
        """Half-lives, in seconds, of the balances of pools with fairness over time."""
        pools = self.rows.pools
        return {e.PoolId(pool.slug): pool.balance_half_life for pool in pools if pool.balance_half_life is not None}

    def snapshot(self, now: dt.datetime) -> e.Snapshot:
        """Pools, nodes, quotas and settings, without claims; lend limits are those of `now`."""
        return snapshot_of(self.group, self.rows, {}, None, {}, now=now)

    def calendar(self, begin: dt.datetime, end: dt.datetime) -> Windows | None:
        """The lending windows from `begin` until `end`; None if no quota has any."""
        with_windows = tuple(quota for quota in self.rows.quotas if quota.windows)
        return Windows(self, with_windows, begin, end) if with_windows else None


@dataclass
class Windows:
    """Lending windows between `begin` and `end`, as a simulation's calendar."""

    terms: Terms
    quotas: tuple[Quota, ...]
    begin: dt.datetime
    end: dt.datetime
    changed: Callable[[e.Snapshot], e.Snapshot] = lambda snapshot: snapshot
    """Applied to each snapshot before its departments are used."""
    recalls: int = 0

    def turns(self) -> list[int]:
        """Edges of windows, and the times before them from which less is lent or lent capacity is recalled."""
        turns: set[dt.datetime] = set()
        for quota in self.quotas:
            back = dt.timedelta(seconds=quota.pool.back_within) + windows.SLACK
            leads = (dt.timedelta(0), back, back + dt.timedelta(seconds=quota.pool.min_runtime))
            edges = windows.schedule_of(quota).turns(self.begin, self.end + max(leads))
            turns |= {edge - lead for edge in edges for lead in leads}
        return sorted({seconds(at) for at in turns if self.begin <= at < self.end})

    def departments(self, now: int) -> tuple[e.Department, ...]:
        return self.changed(self.terms.snapshot(moment(now))).departments

    def due(self, snapshot: e.Snapshot) -> Iterable[tuple[e.Claim, int]]:
        for each in windows.due(snapshot, self.quotas, now=moment(snapshot.now)):
            self.recalls += 1
            id = e.ClaimId(f"window-{self.recalls}")
            claim = e.Claim(
                id, each.department, each.pool, each.units, e.ClaimState.PENDING, snapshot.now, pods=0,
                preemptible=False, own_only=True,
            )  # fmt: skip
            until = self.end if each.until is None else each.until
            yield claim, max(1, seconds(until) - snapshot.now)


def attempts_of(group: PoolGroup, begin: dt.datetime, end: dt.datetime) -> QuerySet[Attempt]:
    """The attempts that waited or ran between `begin` and `end`."""
    rows = Attempt.objects.filter(workload__pool__group=group, queued_at__lt=end)
    return rows.filter(Q(finished_at=None) | Q(finished_at__gt=begin))


def demand_of(
    group: PoolGroup, begin: dt.datetime, end: dt.datetime, pools: Mapping[int, Pool] | None = None
) -> tuple[Demand, int]:
    """The workloads of the group that waited or ran between `begin` and `end`, and the number of those left out because they
    never ran, so that their runtime is unknown. `pools` (by primary key) replace the stored ones, for their minimum runtimes."""
    attempts = (
        attempts_of(group, begin, end)
        .select_related("workload", "claim__department", "claim__pool")
        .order_by("workload", "number")
    )
    jobs: list[Job] = []
    unknown = 0
    for _, made in groupby(attempts.iterator(), key=lambda attempt: attempt.workload_id):
        job = _job([*made], begin, end, pools or {})
        if job is None:
            unknown += 1
        else:
            jobs.append(job)
    jobs.sort(key=lambda job: (job.request.submitted_at, job.request.id))
    return Demand(seconds(begin), seconds(end), tuple(jobs)), unknown


def _job(attempts: list[Attempt], begin: dt.datetime, end: dt.datetime, pools: Mapping[int, Pool]) -> Job | None:
    workload = attempts[0].workload
    work = sum(_kept(attempt, begin, end) for attempt in attempts)
    if not work:
        return None
    request = attempts[0].claim  # as it was when it was submitted; never written back
    request.pool = pools.get(request.pool_id, request.pool)
    request.state, request.submitted_at = ClaimState.PENDING, max(begin, workload.submitted_at)
    for name in SINCE:
        setattr(request, name, None)
    claim = replace(claim_of(request), id=e.ClaimId(workload.public_id), queued_at=None)
    saves = any(attempt.ready_at for attempt in attempts)
    checkpoints = any(attempt.checkpointed_at for attempt in attempts)
    return Job(claim, work, None if checkpoints else 0, saves)


def _kept(attempt: Attempt, begin: dt.datetime, end: dt.datetime) -> int:
    """Seconds of an attempt's work that were kept and did not have to be repeated."""
    if attempt.started_at is None:
        return 0
    start, stop = max(attempt.started_at, begin), min(attempt.finished_at or end, end)
    if attempt.outcome in ("recalled", "lost"):
        saved = attempt.ready_at or attempt.checkpointed_at or start
        stop = min(stop, saved)
    return max(0, round((stop - start).total_seconds()))
