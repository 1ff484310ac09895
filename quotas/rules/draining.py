"""Emptying a node or a card within each claim's contract: notice, grace, and back into the queue.

It must be out of use first, so that nothing new starts there. Called under the locks of its pools' groups.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping

from portal.background.hints import wake
from quotas.board.usage_now import available, read
from quotas.models import OCCUPYING, Card, Claim, ClaimState, Node


def groups_of(node: Node) -> list[int]:
    """Groups of pools that lose capacity with the node, in the order in which they are locked."""
    return sorted(set(Card.objects.filter(node=node, pool__isnull=False).values_list("pool__group", flat=True)))


def on_node(node: Node, card: int | None = None) -> list[Claim]:
    """Claims on the node, or on that card of it, holding or leaving."""
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
    """The same without the minimum runtime, which is no reason to stay on faulty hardware."""
    return now + dt.timedelta(seconds=claim.notice)


def announce_drain(node: Node, deadlines: dict[str, str], *, now: dt.datetime) -> dict[str, str]:
    """Begins the notice of every preemptible claim on the node; returns {public id: deadline} of all so far."""
    return announce(on_node(node), deadlines, now=now)


def announce(
    claims: Iterable[Claim],
    deadlines: Mapping[str, str],
    *,
    now: dt.datetime,
    ends: Callable[..., dt.datetime] = leaves_by,
) -> dict[str, str]:
    """Begins the notice of these claims where they are preemptible; `ends` says when it is over.

    A claim whose recall was withdrawn by a plan in between keeps its first deadline.
    """
    all_deadlines = dict(deadlines)
    for claim in claims:
        if claim.state != ClaimState.HOLDING or not claim.preemptible:
            continue
        first = all_deadlines.get(claim.public_id)
        leave_by = max(now, dt.datetime.fromisoformat(first)) if first else ends(claim, now=now)
        if Claim.objects.filter(pk=claim.pk, state=ClaimState.HOLDING).update(
            state=ClaimState.LEAVING, leave_by=leave_by, held_for=None
        ):
            all_deadlines[claim.public_id] = leave_by.isoformat()
            wake("workloads.converge", claim=claim.public_id)
    return all_deadlines


def withdraw_drain(node: Node, deadlines: Mapping[str, str], *, now: dt.datetime) -> int:
    """Withdraws the notices on the node; returns how many claims continue."""
    return len(withdraw(on_node(node), deadlines, now=now))


def withdraw(claims: Iterable[Claim], deadlines: Mapping[str, str], *, now: dt.datetime) -> list[str]:
    """Withdraws the notices: claims without SIGTERM continue unless their units are no longer their department's to
    use.

    Returns the public ids of those that continue.
    """
    stay = []
    for claim in claims:
        if (
            claim.public_id not in deadlines
            or claim.held_for_id
            or claim.term_at
            or (claim.leave_by and claim.leave_by <= now)
        ):
            continue
        if available(read([claim.pool]), claim.department_id, claim.pool_id) < claim.units:
            continue
        if Claim.objects.filter(pk=claim.pk, state=ClaimState.LEAVING, term_at=None, held_for=None).update(
            state=ClaimState.HOLDING, leave_by=None
        ):
            stay.append(claim.public_id)
            wake("workloads.converge", claim=claim.public_id)
    return stay
