"""What must always hold between claims, ledger, cards and promises; and how quickly called-back capacity came."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from django.utils import timezone

from portal.errors import N_
from quotas.board.card_map import cards_of
from quotas.board.usage_now import Live
from quotas.models import OCCUPYING, Card, ClaimState, Decision, Pool, PoolGroup

DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Fault:
    """A broken invariant; `message` is an English sentence whose places `numbers` fill."""

    message: str
    numbers: dict[str, object]


def faults(live: Live) -> Iterator[Fault]:
    """Nothing, on a sound database."""
    cards = cards_of(live)
    for pk, pool in live.pools.items():
        yield from _promises(live, pool)
        yield from _cards(live, pk, cards[pk])
    yield from _ledger(live)


def _promises(live: Live, pool: Pool) -> Iterator[Fault]:
    promised = sum(quota.guaranteed for (_, pk), quota in live.quotas.items() if pk == pool.pk)
    if promised > pool.nominal:
        message = N_("%(pool)s: %(promised)s guaranteed, but only %(nominal)s of capacity")
        yield Fault(message, {"pool": pool.name, "promised": promised, "nominal": pool.nominal})


def _cards(live: Live, pool: int, cards: list[Card]) -> Iterator[Fault]:
    sizes = {(card.node.name, card.index): card.units for card in cards}
    used = Counter[tuple[str, int]]()
    for claim in live.claims_of(pool):
        for place in (claim.placement or ()) if claim.state in OCCUPYING else ():
            for card in place.get("cards") or ():
                used[place["node"], card] += claim.on_card // len(place["cards"])
    for (node, card), units in used.items():
        size = sizes.get((node, card), 0)
        if units > size:
            message = N_("%(node)s, card %(card)s: %(units)s in use of %(size)s")
            yield Fault(message, {"node": node, "card": card, "units": units, "size": size})


def _ledger(live: Live) -> Iterator[Fault]:
    """What a claim holds stands in the ledger, own and borrowed together."""
    written = Counter[int]()
    for entries in live.entries.values():
        for entry in entries:
            written[entry.claim_id] += entry.units
    for claim in live.all_claims():
        held = claim.units if claim.state in OCCUPYING and not claim.is_recall else 0
        if held != written[claim.pk]:
            message = N_("claim %(claim)s holds %(held)s, but the ledger records %(written)s")
            yield Fault(message, {"claim": claim.public_id, "held": held, "written": written[claim.pk]})


@dataclass(frozen=True, slots=True)
class Reclaims:
    """Of one pool in the last 24 hours: seconds from calling back to having it, and how many came after the promise."""

    count: int
    median: float
    longest: float
    late: int


def reclaims(*, now: dt.datetime | None = None) -> dict[int, Reclaims]:
    """Pool id → how its reclaims went, from the decision log. One query."""
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
    """By pool, the one with the oldest claim first."""
    found = []
    for pk, pool in live.pools.items():
        since = [c.queued_at for c in live.claims_of(pk) if c.state == ClaimState.PENDING and not c.is_recall]
        found.append(Queue(pool, len(since), min(since, default=None)))
    return sorted(found, key=lambda queue: (queue.oldest is None, queue.oldest or timezone.now()))


def last_passes() -> list[PoolGroup]:
    """Pool groups, the one that was planned longest ago first."""
    return list(PoolGroup.objects.select_related("cluster").order_by("planned_at", "name"))
