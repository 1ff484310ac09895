"""How busy each card of a pool is now, of those whose occupants the reader may see."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from quotas.models import OCCUPYING, Card, Pool
from workloads.measurement.buckets import BUCKET
from workloads.models import Attempt, MeasuredBucket

RECENT = 3 * BUCKET
"""What was measured longer ago says nothing of now."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """One rank's part of a card. `gpu` None: not measured lately."""

    attempt: int
    rank: int
    share: float  # of the card, 0 to 1
    gpu: float | None


@dataclass(frozen=True, slots=True)
class Heat:
    """A card with those of its occupants that the reader may know."""

    card: Card
    occupants: tuple[Occupant, ...]

    @property
    def activity(self) -> float | None:
        """The share of time in which it computed for them; None if that of one is not known, or nobody is there."""
        values = [occupant.gpu for occupant in self.occupants]
        if not values or any(value is None for value in values):
            return None
        return min(1.0, sum((value or 0.0) * each.share for value, each in zip(values, self.occupants, strict=True)))

    @property
    def width(self) -> str:
        """Of the bar on its drawing, which is 96 wide."""
        return f"{(self.activity or 0) * 96:.1f}"


def heat_of(pool: Pool, departments: Collection[int] | None, *, now: dt.datetime) -> list[Heat]:
    """Every card of the pool, node by node. `departments`: whose work may be told of; None: everybody's."""
    rows = Attempt.objects.filter(workload__pool=pool, claim__state__in=OCCUPYING).select_related("workload", "claim")
    if departments is not None:
        rows = rows.filter(workload__department__in=departments)
    attempts = {row.pk: row for row in rows}
    recent: dict[tuple[int, int], float] = {}
    buckets = MeasuredBucket.objects.filter(attempt__in=attempts, at__gte=now - RECENT, gpu__isnull=False)
    for attempt, rank, gpu in buckets.order_by("at").values_list("attempt", "rank", "gpu"):
        recent[attempt, rank] = (gpu or 0) / 1000
    by_card: dict[tuple[str, int], list[Occupant]] = defaultdict(list)
    for row in attempts.values():
        for place in row.claim.placement or ():
            _place(by_card, row, place, recent.get((row.pk, place["pod"])), pool)
    cards = Card.objects.filter(pool=pool).select_related("node").order_by("node__name", "index")
    return [Heat(card, tuple(by_card.get((card.node.name, card.index), ()))) for card in cards]


def _place(
    by_card: dict[tuple[str, int], list[Occupant]], attempt: Attempt, place: dict[str, Any], gpu: float | None, pool: Pool
) -> None:  # fmt: skip
    cards = place.get("cards") or []
    of_each = attempt.claim.on_card / max(1, len(cards)) / pool.units_per_card
    for card in cards:
        by_card[place["node"], card].append(Occupant(attempt.pk, place["pod"], min(1.0, of_each), gpu))
