"""Demand from the installation's own tables: what was asked for in a pool group, and how long it ran."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from itertools import groupby

from django.db.models import Q

from quotas.engine import types as e
from quotas.models import ClaimState, PoolGroup
from quotas.planning.snapshot import claim_of, load_snapshot, seconds
from workloads.models import Attempt
from workloads.replay.demand import Demand, Job

SINCE = (
    "started_at",
    "checkpointed_at",
    "checkpoint_every",
    "idle_since",
    "backoff_until",
    "leave_by",
    "held_for",
    "reserved",
    "placement",
)
"""What a claim learns after it was submitted."""


def rules_of(group: PoolGroup, *, now: dt.datetime) -> e.Snapshot:
    """The pools, nodes, quotas and settings of the group as they are now. Pauses and used-up budgets are left out: they
    are of today."""
    rules = load_snapshot(group, now=now, claims=False)
    departments = tuple(replace(each, paused=False, budgets=()) for each in rules.departments)
    return replace(rules, departments=departments)


def most_recalls_of(group: PoolGroup) -> dict[e.PoolId, int]:
    return {e.PoolId(slug): most for slug, most in group.pools.values_list("slug", "max_reclaims")}


def demand_of(group: PoolGroup, begin: dt.datetime, end: dt.datetime) -> tuple[Demand, int]:
    """The workloads of the group that waited or ran between `begin` and `end`, and how many more never ran, so that nobody knows
    how long they would have."""
    attempts = (
        Attempt.objects.filter(workload__pool__group=group, queued_at__lt=end)
        .filter(Q(finished_at=None) | Q(finished_at__gt=begin))
        .select_related("workload", "claim__department", "claim__pool")
        .order_by("workload", "number")
    )
    jobs: list[Job] = []
    unknown = 0
    for _, made in groupby(attempts, key=lambda attempt: attempt.workload_id):
        job = _job([*made], begin, end)
        if job is None:
            unknown += 1
        else:
            jobs.append(job)
    jobs.sort(key=lambda job: (job.request.submitted_at, job.request.id))
    return Demand(seconds(begin), seconds(end), tuple(jobs)), unknown


def _job(attempts: list[Attempt], begin: dt.datetime, end: dt.datetime) -> Job | None:
    workload = attempts[0].workload
    work = sum(_kept(attempt, begin, end) for attempt in attempts)
    if not work:
        return None
    request = attempts[0].claim  # as it was when it was submitted; never written back
    request.state, request.submitted_at = ClaimState.PENDING, max(begin, workload.submitted_at)
    for name in SINCE:
        setattr(request, name, None)
    claim = replace(claim_of(request), id=e.ClaimId(workload.public_id), queued_at=None)
    saves = any(attempt.ready_at for attempt in attempts)
    checkpoints = any(attempt.checkpointed_at for attempt in attempts)
    return Job(claim, work, None if checkpoints else 0, saves)


def _kept(attempt: Attempt, begin: dt.datetime, end: dt.datetime) -> int:
    """Seconds of work of an attempt that its workload did not have to do again."""
    if attempt.started_at is None:
        return 0
    start, stop = max(attempt.started_at, begin), min(attempt.finished_at or end, end)
    if attempt.outcome in ("recalled", "lost"):
        saved = attempt.ready_at or attempt.checkpointed_at or start
        stop = min(stop, saved)
    return max(0, round((stop - start).total_seconds()))
