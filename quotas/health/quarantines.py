"""Quarantine: take a faulty node or card out of use; workloads on it leave within their notice.

A rule begins it when a sign of a fault appears (`judge`), or an operator does (`quarantine`). The rule ends it when the sign has
been absent for long enough; an operator's quarantine ends at its set time (`keep`); an operator can end any (`put_back`). A
workload that it stops has neither been recalled nor failed.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from portal import audit, names
from portal.access import SYSTEM, Actor
from portal.background.hints import wake
from portal.errors import N_, Invalid, Problem
from portal.infra import versions
from portal.infra.locks import durable
from portal.models import User
from portal.notify import notices
from portal.notify.events import emit
from quotas.health.signs import AWAY, Sign, Step, steps
from quotas.models import Card, Claim, ClaimState, Cluster, ClusterKind, Node, Quarantine
from quotas.planning.lock import locked_group
from quotas.rules.draining import announce, groups_of, notice_ends, on_node, withdraw

Reason = Mapping[str, Any]  # {"message", "params"}, translated when it is shown


class AlreadyQuarantined(Problem):
    code = "already_quarantined"
    message = N_("%(place)s is already quarantined by an operator. End that quarantine first.")


class HasEnded(Problem):
    code = "has_ended"
    message = N_("This quarantine has already ended.")


# By rule --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """A source's report on one node: the signs it sees, the places it has checked (cards, or None for the node), and how long a
    sign must be absent before its quarantine ends."""

    seen: Mapping[Sign, Reason]
    looked_at: Collection[int | None]
    away: dt.timedelta = AWAY


def judge(cluster: Cluster, source: str, answers: Mapping[int, Answer], *, now: dt.datetime) -> int:
    """Begin and end the quarantines for signs of a source (named source/…). `answers`: by node id. Returns the number of nodes
    changed."""
    rows = _live(source).filter(node__cluster=cluster).values_list("node", "sign", "card", "away_since")
    known: dict[int, dict[Sign, dt.datetime | None]] = defaultdict(dict)
    for node, name, card, away_since in rows:
        known[node][Sign(name, card)] = away_since
    changed = 0
    for node, answer in answers.items():
        if steps(known.get(node, {}), answer.seen, answer.looked_at, now=now, away=answer.away):
            changed += _judge_node(node, source, answer, now=now)
    return changed


def _live(source: str) -> Any:
    return Quarantine.objects.filter(sign__startswith=f"{source}/", sign_over_at=None)


def _judge_node(pk: int, source: str, answer: Answer, *, now: dt.datetime) -> bool:
    with durable():
        node = _locked(pk)
        rows = {Sign(row.sign, row.card): row for row in _live(source).filter(node=node)}
        known = {sign: row.away_since for sign, row in rows.items()}
        began, ended = [], []
        for sign, step in sorted(
            steps(known, answer.seen, answer.looked_at, now=now, away=answer.away).items(), key=_in_order
        ):
            if step is Step.BEGIN:
                reason = dict(answer.seen[sign])
                began.append(
                    Quarantine.objects.create(node=node, card=sign.card, sign=sign.name, reason=reason, began_at=now)
                )
                continue
            row = rows[sign]
            row.away_since = {Step.LEFT: now, Step.BACK: None}.get(step, row.away_since)
            if step is Step.OVER:
                row.sign_over_at = now
                if row.is_in_force:
                    row.ended_at = now
                    ended.append(row)
            row.save(update_fields=["away_since", "sign_over_at", "ended_at"])
        _apply(node, began, ended, SYSTEM, now=now)
    return bool(began or ended)


def _in_order(item: tuple[Sign, Step]) -> tuple[str, int]:
    sign, _step = item
    return sign.name, -1 if sign.card is None else sign.card


# By an operator -------------------------------------------------------------------------------------------------------


def place(node: Node, card: int | None) -> str:
    return node.name if card is None else f"{node.name}/{card}"


def check(*, node: Node, card: int | None, why: str, until: dt.datetime | None) -> None:
    """Raise Invalid or AlreadyQuarantined if this quarantine cannot begin."""
    if not why.strip():
        raise Invalid(N_("Enter the reason: it is shown to everybody whose work is stopped."), field="why")
    names.checked_paragraph(why, "why")
    if len(why) > 500:
        raise Invalid(N_("The reason may have at most %(most)s characters, not %(length)s."), field="why", most=500,
                      length=len(why))  # fmt: skip
    if until is not None and until <= timezone.now():
        raise Invalid(N_("The end of the quarantine is in the past."), field="until")
    if card is not None:
        check_card(node, card)
    if Quarantine.objects.filter(node=node, card=card, sign="", ended_at=None).exists():
        raise AlreadyQuarantined(place=place(node, card))


def check_card(node: Node, card: int) -> None:
    """Raise Invalid unless the node has this card and the portal decides which card a workload gets."""
    if not Card.objects.filter(node=node, index=card).exists():
        raise Invalid(N_("%(node)s has no card %(card)s."), field="card", node=node.name, card=card)
    if not cards_are_assigned(node):
        raise Invalid(
            N_("On %(node)s the cluster chooses which card a workload gets, so a single card cannot be kept free. "
               "Quarantine the whole node, or have its device plugin report the card as unhealthy."),
            field="card", node=node.name,
        )  # fmt: skip


def cards_are_assigned(node: Node) -> bool:
    """Whether the portal decides which card a workload gets. In Kubernetes the device plugin does."""
    return node.cluster.kind == ClusterKind.EMBEDDED and not node.instances


def quarantine(
    *, actor: Actor, node: Node, card: int | None, why: str, until: dt.datetime | None = None, seen: str = ""
) -> Quarantine:
    """Take a node or card out of use. Raises NotVisible unless the actor is an operator; Invalid, AlreadyQuarantined,
    Conflict."""
    actor.require_operator()
    now = timezone.now()
    with durable():
        node = _locked(node.pk)
        check(node=node, card=card, why=why, until=until)
        versions.check(in_force(node), seen)
        row = Quarantine.objects.create(
            node=node, card=card, why=why.strip(), until=until, began_at=now, began_by=actor.user
        )
        _apply(node, [row], [], actor, now=now)
    row.refresh_from_db()
    return row


def put_back(*, actor: Actor, row: Quarantine) -> Quarantine:
    """End a quarantine. If a rule began it, its sign does not begin another one until it has been absent. Raises NotVisible
    unless the actor is an operator; HasEnded."""
    actor.require_operator()
    now = timezone.now()
    with durable():
        node = _locked(row.node_id)
        row = Quarantine.objects.get(pk=row.pk)
        if not row.is_in_force:
            raise HasEnded
        _end(node, row, actor, now=now)
    row.refresh_from_db()
    return row


def in_force(node: Node) -> dict[str, Any]:
    """The node's quarantines in force, by which `quarantine` detects that they changed since its form was shown."""
    rows = node.quarantines.filter(ended_at=None).order_by("public_id")
    return {"quarantined": [[row.card, row.sign or row.why] for row in rows]}


def _end(node: Node, row: Quarantine, actor: Actor, *, now: dt.datetime) -> None:
    row.ended_at, row.ended_by = now, actor.user
    if not row.sign:
        row.sign_over_at = now
    row.save(update_fields=["ended_at", "ended_by", "sign_over_at"])
    _apply(node, [], [row], actor, now=now)


# Consequences ---------------------------------------------------------------------------------------------------------


def keep(*, now: dt.datetime) -> int:
    """End operators' quarantines whose time is over, and give notice to claims that hold a quarantined place only since (such as
    after a withdrawn preemption). Returns the number of quarantines for which something was done."""
    rows = list(Quarantine.objects.filter(ended_at=None).select_related("node__cluster"))
    clusters = {row.node.cluster_id for row in rows}
    staying = Claim.objects.filter(state=ClaimState.HOLDING, pods__gt=0, pool__group__cluster__in=clusters)
    staying = staying.select_related("pool__group") if rows else Claim.objects.none()
    done = 0
    for row in rows:
        over = row.until is not None and row.until <= now
        if not over and not any(_lacks_notice(claim, row) for claim in staying):
            continue
        with durable():
            node = _locked(row.node_id)
            row = Quarantine.objects.get(pk=row.pk)
            row.node = node
            if not row.is_in_force:
                continue
            if over:
                _end(node, row, SYSTEM, now=now)
            else:
                _give_notice(row, now=now)
        done += 1
    return done


def _lacks_notice(claim: Claim, row: Quarantine) -> bool:
    covers = claim.pool.group.cluster_id == row.node.cluster_id and _covers(row, claim)
    known = row.card is None or cards_are_assigned(row.node)
    return covers and known and (claim.preemptible or claim.public_id not in row.deadlines)


def _locked(pk: int) -> Node:
    """The node, after locking its pools' groups and its row."""
    for group_id in groups_of(Node(pk=pk)):
        locked_group(group_id)
    return Node.objects.select_for_update(no_key=True, of=("self",)).select_related("cluster").get(pk=pk)


def mark(node: Node) -> None:
    """Write the marks of quarantines on the node and its cards, where planning and boards read them."""
    places = set(Quarantine.objects.filter(node=node, ended_at=None).values_list("card", flat=True))
    Node.objects.filter(pk=node.pk).exclude(quarantined=None in places).update(quarantined=None in places)
    cards, indexes = Card.objects.filter(node=node), [card for card in places if card is not None]
    cards.filter(quarantined=False, index__in=indexes).update(quarantined=True)
    cards.filter(quarantined=True).exclude(index__in=indexes).update(quarantined=False)


def _apply(
    node: Node, began: Collection[Quarantine], ended: Collection[Quarantine], actor: Actor, *, now: dt.datetime
) -> None:
    """Write all consequences, in the caller's transaction."""
    if not began and not ended:
        return
    mark(node)
    for row in began:
        row.node = node
        _record("node.quarantined", row, actor)
        _give_notice(row, now=now)
    for row in ended:
        row.node = node
        _record("node.quarantine_ended", row, actor)
        _withdraw(row, now=now)
    for group_id in groups_of(node):
        wake("quotas.plan", group_id=group_id)


def _record(what: str, row: Quarantine, actor: Actor) -> None:
    facts: dict[str, Any] = {
        "quarantine": row.public_id,
        "card": row.card,
        "sign": row.sign,
        "reason": english(row.sentence),
    }
    audit.record(actor, what, row.node.name, after=facts | {"until": row.until.isoformat() if row.until else None})
    emit(what, node=row.node.name, **facts)
    operators = User.operators().exclude(pk=actor.user.pk if actor.user else 0)
    notices.send(what, to=operators, place=row.place, node=row.node_id, why=row.sentence)


def _give_notice(row: Quarantine, *, now: dt.datetime) -> None:
    """Begin the notice of preemptible claims; the author of any other claim is notified and decides. If the cluster chooses the
    cards, it is unknown which claims a single card concerns."""
    if row.card is not None and not cards_are_assigned(row.node):
        return
    claims = on_node(row.node, row.card)
    deadlines = announce(claims, row.deadlines, now=now, ends=notice_ends)
    for claim in claims:
        if claim.preemptible or claim.public_id in deadlines or claim.state != ClaimState.HOLDING:
            continue
        deadlines[claim.public_id] = None  # type: ignore[assignment]
        notices.send(
            "workload.on_quarantined", to=[claim.user] if claim.user else [], department=claim.department,
            workload=claim.workload, name=claim.name, place=row.place, why=row.sentence,
        )  # fmt: skip
    if deadlines != row.deadlines:
        row.deadlines = deadlines
        Quarantine.objects.filter(pk=row.pk).update(deadlines=deadlines)


def _withdraw(row: Quarantine, *, now: dt.datetime) -> None:
    """Let claims that were not sent SIGTERM continue. If another quarantine in force covers a claim, that one takes it over."""
    others = list(Quarantine.objects.filter(node=row.node, ended_at=None))
    free = []
    for claim in on_node(row.node, row.card):
        other = next((each for each in others if _covers(each, claim)), None)
        if other is None:
            free.append(claim)
        elif row.deadlines.get(claim.public_id):
            other.deadlines = {**other.deadlines, claim.public_id: row.deadlines[claim.public_id]}
            Quarantine.objects.filter(pk=other.pk).update(deadlines=other.deadlines)
    deadlines = {claim: by for claim, by in row.deadlines.items() if by}
    stay = withdraw(free, deadlines, now=now)
    row.deadlines = {claim: by for claim, by in row.deadlines.items() if claim not in stay}
    Quarantine.objects.filter(pk=row.pk).update(deadlines=row.deadlines)


def _covers(row: Quarantine, claim: Claim) -> bool:
    return any(
        place["node"] == row.node.name and (row.card is None or row.card in place.get("cards", ()))
        for place in claim.placement or ()
    )


# Queries ------------------------------------------------------------------------------------------------------


def that_stops(claim: Claim) -> Quarantine | None:
    """The quarantine for which the claim has to leave; None if it leaves for another reason, or not at all."""
    if claim.state == ClaimState.HOLDING or claim.preempted_for_id is not None:
        return None
    nodes = {place["node"] for place in claim.placement or ()}
    rows = Quarantine.objects.filter(
        node__name__in=nodes, node__cluster=claim.pool.group.cluster_id, deadlines__has_key=claim.public_id
    )
    return next((row for row in rows.select_related("node") if row.deadlines[claim.public_id]), None)


def still_there(row: Quarantine) -> list[Claim]:
    """The claims that were given notice, or whose author was notified, and that have not left."""
    return [claim for claim in on_node(row.node, row.card) if claim.public_id in row.deadlines]


def of_nodes(nodes: Iterable[Node]) -> dict[int, list[Quarantine]]:
    """Node id → quarantines in force: one query for all."""
    by_node: dict[int, list[Quarantine]] = defaultdict(list)
    for row in Quarantine.objects.filter(node__in=list(nodes), ended_at=None).select_related("node", "began_by"):
        by_node[row.node_id].append(row)
    return by_node


def english(reason: Reason) -> str:
    params = reason.get("params", {})
    text: str = reason["message"] % {name: english(v) if isinstance(v, Mapping) else v for name, v in params.items()}
    return text
