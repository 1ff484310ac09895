"""What must always be true of claims, quotas and the ledger (docs/quota-rules.md, Invariants), asked of the database.

Each question yields one sentence for each violation. They are for operators and tests, in English.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from django.db.models import Q, Sum

from quotas.models import OCCUPYING, Card, Claim, ClaimState, LedgerEntry, Node, Pool

Place = tuple[int, str, int]  # pool, node, card


def violations() -> Iterator[str]:
    occupying = list(Claim.objects.filter(state__in=OCCUPYING, pods__gt=0).select_related("pool"))
    yield from cards_hold_no_more_than_they_have(occupying)
    yield from instances_are_used_once(occupying)
    yield from pools_hold_no_more_than_they_have(occupying)
    yield from promises_fit()
    yield from fixed_work_is_guaranteed()
    yield from reservations_belong_to_those_who_wait()
    yield from the_ledger_tells_what_is_held(occupying)


def placed(claims: list[Claim]) -> Iterator[tuple[Claim, dict[str, object], Place]]:
    for claim in claims:
        for place in claim.placement or ():
            for card in place.get("cards", ()):
                yield claim, place, (claim.pool_id, place["node"], card)


def cards_hold_no_more_than_they_have(claims: list[Claim]) -> Iterator[str]:
    """Whole cards belong to one pod; a shared card's pods fit together, in its memory and in its compute."""
    cards = Card.objects.filter(pool__isnull=False).select_related("node")
    there = {(card.pool_id, card.node.name, card.index): card for card in cards}
    used: dict[Place, int] = defaultdict(int)
    compute: dict[Place, int] = defaultdict(int)
    for claim, place, where in placed(claims):
        on = place.get("cards")
        count = len(on) if isinstance(on, list) else 1
        used[where] += claim.on_card // max(count, 1)
        compute[where] += claim.cores_per_pod or 0
    for where, units in used.items():
        (_pool, node, index), card = where, there.get(where)
        if units > (card.units if card else 0):
            yield f"card {index} of {node} holds {units} units and has {card.units if card else 0}"
        if card and card.cores and compute[where] > card.cores:
            yield f"card {index} of {node} gives {compute[where]} percent of its compute and has {card.cores}"


def instances_are_used_once(claims: list[Claim]) -> Iterator[str]:
    used: dict[tuple[str, str], int] = defaultdict(int)
    for claim in claims:
        if claim.profile:
            for place in claim.placement or ():
                used[place["node"], claim.profile] += 1
    there = {node.name: node.instances for node in Node.objects.exclude(instances={})}
    for (node, profile), count in used.items():
        if node in there and count > there[node].get(profile, 0):
            yield f"{count} pods use {profile} on {node}, which has {there[node].get(profile, 0)}"


def pools_hold_no_more_than_they_have(claims: list[Claim]) -> Iterator[str]:
    held: dict[int, int] = defaultdict(int)
    for claim in claims:
        held[claim.pool_id] += claim.units
    for pool in Pool.objects.annotate(there=Sum("cards__units")):
        if held[pool.pk] > (pool.there or 0):
            yield f"{held[pool.pk]} {pool.unit} of {pool.slug} are held, and {pool.there or 0} are there"


def promises_fit() -> Iterator[str]:
    for pool in Pool.objects.annotate(promised=Sum("quotas__guaranteed")):
        if (pool.promised or 0) > pool.nominal:
            yield f"{pool.promised} {pool.unit} of {pool.slug} are promised, and it has {pool.nominal}"


def fixed_work_is_guaranteed() -> Iterator[str]:
    """What may not be preempted was admitted inside its guarantee, and stays there."""
    rows = Claim.objects.filter(preemptible=False, state=ClaimState.HOLDING, pods__gt=0)
    for claim in rows.filter(ledger__ended_at=None, ledger__own=False).distinct():
        yield f"{claim.public_id} must not be stopped, and is on borrowed capacity"


def reservations_belong_to_those_who_wait() -> Iterator[str]:
    kept = Claim.objects.filter(state=ClaimState.LEAVING, held_for__isnull=False).select_related("held_for")
    for claim in kept:
        for_whom = claim.held_for
        if for_whom is not None and for_whom.state == ClaimState.RELEASED:
            yield f"{claim.public_id} is leaving for {for_whom.public_id}, which is over"
    titled = Claim.objects.exclude(state=ClaimState.PENDING).filter(reserved__isnull=False, pods__gt=0)
    for claim in titled.filter(state=ClaimState.RELEASED):
        yield f"{claim.public_id} is {claim.state} and still has a title to {claim.reserved}"


def the_ledger_tells_what_is_held(claims: list[Claim]) -> Iterator[str]:
    """Own and borrowed units of a claim add up to what it holds, and nobody pays who holds nothing."""
    open_entries = LedgerEntry.objects.filter(ended_at=None)
    told = dict(open_entries.values_list("claim").annotate(units=Sum("units")))
    for claim in claims:
        if claim.started_at and told.get(claim.pk, 0) != claim.units:
            yield f"{claim.public_id} holds {claim.units} units and the ledger tells of {told.get(claim.pk, 0)}"
    for entry in open_entries.filter(Q(claim__state=ClaimState.RELEASED)).select_related("claim"):
        yield f"the ledger still counts {entry.units} units of {entry.claim.public_id}, which is over"
