"""Empty a node or a card. Each claim gets its notice and grace, and goes back into the queue.

The node or card must be out of use already, so that nothing new starts there. Call these functions with its pools' groups locked.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping

from portal.background.hints import wake
from quotas.board.usage_now import available, read
from quotas.models import OCCUPYING, Card, Claim, ClaimState, Node


def groups_of(node: Node) -> list[int]:
    """Ids of the groups whose pools lose capacity with the node, in the order in which to lock them."""
    return sorted(set(Card.objects.filter(node=node, pool__isnull=False).values_list("pool__group", flat=True)))


def on_node(node: Node, card: int | None = None) -> list[Claim]:
    """Holding and leaving claims on the node, or on this card of it."""
    rows = Claim.objects.filter(state__in=OCCUPYING, pods__gt=0, pool__group__cluster=node.cluster_id)
    rows = rows.select_related("department", "pool", "user").order_by("public_id")

    def is_there(place: Mapping[str, object]) -> bool:
        cards = place.get("cards")
        return place["node"] == node.name and (card is None or (isinstance(cards, list) and card in cards))

    return [claim for claim in rows if any(map(is_there, claim.placement or ()))]


def leaves_by(claim: Claim, *, now: dt.datetime) -> dt.datetime:
    """When SIGTERM would be sent if notice began now: not before the pool's minimum runtime is over."""
    shortest = dt.timedelta(seconds=max(claim.min_runtime, claim.pool.min_runtime))
    return max(now, (claim.started_at or now) + shortest) + dt.timedelta(seconds=claim.notice)


def notice_ends(claim: Claim, *, now: dt.datetime) -> dt.datetime:
    """As leaves_by, but without the minimum runtime, which is no reason to stay on faulty hardware."""
    return now + dt.timedelta(seconds=claim.notice)


def announce_drain(node: Node, deadlines: dict[str, str], *, now: dt.datetime) -> dict[str, str]:
    """Begin the notice of every preemptible claim on the node. Returns `deadlines` (by public id) with the new ones."""
    return announce(on_node(node), deadlines, now=now)


def announce(
    claims: Iterable[Claim],
    deadlines: Mapping[str, str],
    *,
    now: dt.datetime,
    ends: Callable[..., dt.datetime] = leaves_by,
) -> dict[str, str]:
    """Begin the notice of those of these claims that are preemptible; `ends` gives its end. Returns all deadlines.

    A claim that has a deadline keeps it, even if a plan withdrew its recall meanwhile.
    """
    all_deadlines = dict(deadlines)
    for claim in claims:
        if claim.state != ClaimState.HOLDING or not claim.preemptible:
            continue
        first = all_deadlines.get(claim.public_id)
        leave_by = max(now, dt.datetime.fromisoformat(first)) if first else ends(claim, now=now)
        if Claim.objects.filter(pk=claim.pk, state=ClaimState.HOLDING).update(
            state=ClaimState.LEAVING, leave_by=leave_by, preempted_for=None
        ):
            all_deadlines[claim.public_id] = leave_by.isoformat()
            wake("workloads.converge", claim=claim.public_id)
    return all_deadlines


def withdraw_drain(node: Node, deadlines: Mapping[str, str], *, now: dt.datetime) -> int:
    """Withdraw the notices on the node. Returns the number of claims that continue."""
    return len(withdraw(on_node(node), deadlines, now=now))


def withdraw(claims: Iterable[Claim], deadlines: Mapping[str, str], *, now: dt.datetime) -> list[str]:
    """Withdraw the notices. Claims without SIGTERM continue, unless their department may no longer use as many units.

    Returns the public ids of those that continue.
    """
    stay = []
    for claim in claims:
        if (
            claim.public_id not in deadlines
            or claim.preempted_for_id
            or claim.term_at
            or (claim.leave_by and claim.leave_by <= now)
        ):
            continue
        if available(read([claim.pool]), claim.department_id, claim.pool_id) < claim.units:
            continue
        if Claim.objects.filter(pk=claim.pk, state=ClaimState.LEAVING, term_at=None, preempted_for=None).update(
            state=ClaimState.HOLDING, leave_by=None
        ):
            stay.append(claim.public_id)
            wake("workloads.converge", claim=claim.public_id)
    return stay
