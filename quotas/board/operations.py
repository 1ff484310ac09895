"""Operational figures of pools for operators: reclaim times, queue lengths, last planning passes."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Count, Min
from django.utils import timezone

from quotas.models import Claim, ClaimState, Decision, Pool, PoolGroup

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


def queues(pools: Mapping[int, Pool]) -> list[Queue]:
    """The queue of each of these pools (given by id), the one with the oldest claim first. One query."""
    rows = Claim.objects.filter(pool__in=pools, state=ClaimState.PENDING, pods__gt=0).order_by().values_list("pool")
    waiting = {pk: (length, oldest) for pk, length, oldest in rows.annotate(Count("pk"), Min("queued_at"))}
    by_pool = [Queue(pool, *waiting.get(pk, (0, None))) for pk, pool in pools.items()]
    return sorted(by_pool, key=lambda queue: (queue.oldest is None, queue.oldest or timezone.now()))


def last_passes() -> list[PoolGroup]:
    """Pool groups, the one whose last planning pass is longest ago first."""
    return list(PoolGroup.objects.select_related("cluster").order_by("planned_at", "name"))
