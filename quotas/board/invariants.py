"""Invariants of claims, quotas and the ledger (docs/quota-rules-reference.md, "Invariants"), checked in the database.

Each check yields its violations. `manage.py check_invariants`, the operator's page and the tests run the same checks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Q, Sum
from django.utils.translation import gettext

from portal.errors import N_
from quotas.models import OCCUPYING, Card, Claim, ClaimState, LedgerEntry, Node, Pool, Quarantine

Place = tuple[int, str, int]  # pool, node, card
COLUMNS = (
    "public_id", "pool_id", "pods", "units_per_pod", "asked_per_pod", "cores_per_pod", "profile", "placement", "started_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant. `message` is an English sentence, marked for translation; `numbers` fill its placeholders."""

    message: str
    numbers: dict[str, object]

    def __str__(self) -> str:
        return self.message % self.numbers

    @property
    def detail(self) -> str:
        """The sentence in the reader's language."""
        return gettext(self.message) % self.numbers


def violations() -> Iterator[Violation]:
    occupying = list(Claim.objects.filter(state__in=OCCUPYING, pods__gt=0).only(*COLUMNS))
    yield from cards_hold_no_more_than_they_have(occupying)
    yield from instances_are_used_once(occupying)
    yield from pools_hold_no_more_than_they_have(occupying)
    yield from promises_fit()
    yield from fixed_work_is_guaranteed()
    yield from reservations_are_of_pending_claims()
    yield from ledger_matches_claims(occupying)
    yield from quarantines_are_marked()


def placed(claims: list[Claim]) -> Iterator[tuple[Claim, dict[str, object], Place]]:
    for claim in claims:
        for place in claim.placement or ():
            for card in place.get("cards", ()):
                yield claim, place, (claim.pool_id, place["node"], card)


def cards_hold_no_more_than_they_have(claims: list[Claim]) -> Iterator[Violation]:
    """A whole card belongs to one pod; on a shared card all pods fit, in memory and in compute."""
    rows = Card.objects.filter(pool__isnull=False).values_list("pool_id", "node__name", "index", "units", "cores")
    there = {(pool, node, index): (units, cores) for pool, node, index, units, cores in rows}
    used: dict[Place, int] = defaultdict(int)
    compute: dict[Place, int] = defaultdict(int)
    for claim, place, where in placed(claims):
        on = place.get("cards")
        count = len(on) if isinstance(on, list) else 1
        used[where] += claim.on_card // max(count, 1)
        compute[where] += claim.cores_per_pod or 0
    for (pool, node, index), taken in used.items():
        units, cores = there.get((pool, node, index), (0, None))
        if taken > units:
            message = N_("card %(card)s of %(node)s holds %(units)s units and has %(there)s")
            yield Violation(message, {"card": index, "node": node, "units": taken, "there": units})
        if cores and compute[pool, node, index] > cores:
            message = N_("card %(card)s of %(node)s gives %(percent)s percent of its compute and has %(there)s")
            numbers = {"card": index, "node": node, "percent": compute[pool, node, index], "there": cores}
            yield Violation(message, numbers)


def instances_are_used_once(claims: list[Claim]) -> Iterator[Violation]:
    used: dict[tuple[str, str], int] = defaultdict(int)
    for claim in claims:
        if claim.profile:
            for place in claim.placement or ():
                used[place["node"], claim.profile] += 1
    there = {node.name: node.instances for node in Node.objects.exclude(instances={})}
    for (node, profile), count in used.items():
        if node in there and count > there[node].get(profile, 0):
            message = N_("%(count)s pods use %(profile)s on %(node)s, which has %(there)s")
            numbers = {"count": count, "profile": profile, "node": node, "there": there[node].get(profile, 0)}
            yield Violation(message, numbers)


def pools_hold_no_more_than_they_have(claims: list[Claim]) -> Iterator[Violation]:
    held: dict[int, int] = defaultdict(int)
    for claim in claims:
        held[claim.pool_id] += claim.units
    for pool in Pool.objects.annotate(there=Sum("cards__units")):
        if held[pool.pk] > (pool.there or 0):
            message = N_("%(held)s %(unit)s of %(pool)s are held, and %(there)s are there")
            yield Violation(message, _of(pool) | {"held": held[pool.pk], "there": pool.there or 0})


def _of(pool: Pool) -> dict[str, object]:
    return {"unit": pool.unit, "pool": pool.slug}


def promises_fit() -> Iterator[Violation]:
    for pool in Pool.objects.annotate(promised=Sum("quotas__guaranteed")):
        if (pool.promised or 0) > pool.nominal:
            message = N_("%(promised)s %(unit)s of %(pool)s are promised, and it has %(nominal)s")
            yield Violation(message, _of(pool) | {"promised": pool.promised, "nominal": pool.nominal})


def fixed_work_is_guaranteed() -> Iterator[Violation]:
    """Non-preemptible work is inside the guarantee."""
    rows = Claim.objects.filter(preemptible=False, state=ClaimState.HOLDING, pods__gt=0)
    for claim in rows.filter(ledger__ended_at=None, ledger__own=False).distinct():
        yield Violation(N_("%(claim)s is non-preemptible, but uses borrowed capacity"), {"claim": claim.public_id})


def reservations_are_of_pending_claims() -> Iterator[Violation]:
    leaving = Claim.objects.filter(state=ClaimState.LEAVING, preempted_for__isnull=False).select_related(
        "preempted_for"
    )
    for claim in leaving:
        for_whom = claim.preempted_for
        if for_whom is not None and for_whom.state == ClaimState.RELEASED:
            message = N_("%(claim)s is leaving for %(other)s, which has ended")
            yield Violation(message, {"claim": claim.public_id, "other": for_whom.public_id})
    titled = Claim.objects.exclude(state=ClaimState.PENDING).filter(reserved__isnull=False, pods__gt=0)
    for claim in titled.filter(state=ClaimState.RELEASED):
        message = N_("%(claim)s has ended, but still holds a reservation: %(reserved)s")
        yield Violation(message, {"claim": claim.public_id, "reserved": claim.reserved})


def ledger_matches_claims(claims: list[Claim]) -> Iterator[Violation]:
    """A claim's own and borrowed units add up to what it holds, and no claim that is over has any."""
    open_entries = LedgerEntry.objects.filter(ended_at=None)
    entered = dict(open_entries.values_list("claim").annotate(units=Sum("units")))
    for claim in claims:
        if claim.started_at and entered.get(claim.pk, 0) != claim.units:
            message = N_("%(claim)s holds %(units)s units but the ledger has %(entered)s")
            yield Violation(
                message, {"claim": claim.public_id, "units": claim.units, "entered": entered.get(claim.pk, 0)}
            )
    for entry in open_entries.filter(Q(claim__state=ClaimState.RELEASED)).select_related("claim"):
        message = N_("the ledger still counts %(units)s units of %(claim)s, which has ended")
        yield Violation(message, {"units": entry.units, "claim": entry.claim.public_id})


def quarantines_are_marked() -> Iterator[Violation]:
    """The marks on nodes and cards agree with the open quarantines: planning reads the marks only."""
    quarantines = Quarantine.objects.filter(ended_at=None)
    nodes = Node.objects.filter(Q(quarantined=True) | Q(cards__quarantined=True) | Q(quarantines__in=quarantines))
    for node in nodes.distinct().prefetch_related("cards"):
        places = set(quarantines.filter(node=node).values_list("card", flat=True))
        marks = [(None, node.quarantined), *((card.index, card.quarantined) for card in node.cards.all())]
        for index, is_marked in marks:
            if is_marked != (index in places):
                message = N_("%(place)s is quarantined in one record and not in the other")
                yield Violation(message, {"place": node.name if index is None else f"{node.name}/{index}"})
