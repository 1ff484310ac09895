"""Operational figures of pools for operators: reclaim times, queue lengths, last planning passes."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from dataclasses import dataclass

from django.utils import timezone

from quotas.board.usage_now import Live
from quotas.models import ClaimState, Decision, Pool, PoolGroup

DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Reclaims:
    """A pool's reclaims in the last 24 hours: seconds from announcement to availability, and how many were late."""

    count: int
    median: float
    longest: float
    late: int


def reclaims(*, now: dt.datetime | None = None) -> dict[int, Reclaims]:
    """Pool id → its reclaims, from the decision log. One query."""
    now = now or timezone.now()
    rows = Decision.objects.filter(at__gt=now - DAY, kind__in=["reclaim", "admit"]).order_by("pk")
    asked: dict[int, dt.datetime] = {}
    promised: dict[int, float] = {}
    took: dict[int, list[float]] = defaultdict(list)
    late = Counter[int]()
    for claim, pool, kind, at, by in rows.values_list("claim_id", "pool_id", "kind", "at", "data__by"):
        if kind == "reclaim":
            asked.setdefault(claim, at)
            if by is not None:
                promised.setdefault(claim, by)
        elif claim in asked:
            took[pool].append((at - asked.pop(claim)).total_seconds())
            late[pool] += at.timestamp() > promised.pop(claim, at.timestamp()) + 1
    return {pk: Reclaims(len(t), sorted(t)[(len(t) - 1) // 2], max(t), late[pk]) for pk, t in took.items()}


@dataclass(frozen=True, slots=True)
class Queue:
    pool: Pool
    length: int
    oldest: dt.datetime | None


def queues(live: Live) -> list[Queue]:
    """Queues by pool, the one with the oldest claim first."""
    by_pool = []
    for pk, pool in live.pools.items():
        since = [c.queued_at for c in live.claims_of(pk) if c.state == ClaimState.PENDING and not c.is_recall]
        by_pool.append(Queue(pool, len(since), min(since, default=None)))
    return sorted(by_pool, key=lambda queue: (queue.oldest is None, queue.oldest or timezone.now()))


def last_passes() -> list[PoolGroup]:
    """Pool groups, the one whose last planning pass is longest ago first."""
    return list(PoolGroup.objects.select_related("cluster").order_by("planned_at", "name"))
