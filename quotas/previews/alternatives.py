"""Alternatives to a decision, in words for one reader: which other victims were possible, and why they were not chosen."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.access import Actor
from portal.text.words import amount, duration
from quotas.engine import types as e
from quotas.engine.what_if import Alternative, Criterion, alternatives
from quotas.models import Claim, Decision, Pool
from quotas.planning.replay import snapshot_of
from quotas.wording import Sentences

MOST = 5
PLANNED = 10_000
"""The most claims that are planned for one page, in all its alternatives: about three seconds. One is always planned."""


@dataclass(frozen=True, slots=True)
class Instead:
    """An alternative, as this reader may see it: if the `spared` had been spared, the `others` (if any) would have been preempted
    instead; `why` this was not chosen."""

    spared: tuple[str, ...]
    others: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Why these victims were chosen: sentences about those that were `idle`, and the alternatives."""

    idle: tuple[str, ...] = ()
    rows: tuple[Instead, ...] = ()


def choice_of(actor: Actor, row: Decision, seen: Collection[int]) -> Choice:
    """Why this decision's victims were chosen. Raises the errors of `replay.snapshot_of`."""
    victims = list(row.victims.all())
    if not victims:
        return Choice()
    snapshot = snapshot_of(row.plan_pass)
    return Choice(tuple(_idle(victims, snapshot, seen)), tuple(_alternatives_to(actor, row, victims, snapshot, seen)))


def _idle(victims: list[Claim], snapshot: e.Snapshot, seen: Collection[int]) -> Iterator[str]:
    """Sentences about the idle victims that the reader may see."""
    since = {claim.id: claim.idle_since for claim in snapshot.claims if claim.idle_since is not None}
    for victim in victims:
        began = since.get(e.ClaimId(victim.public_id))
        if began is not None and victim.department_id in seen:
            text = _("%(name)s: idle for %(time)s by measurement, so stopping it loses only its restart.")
            yield text % {"name": victim.name, "time": duration(max(0, snapshot.now - began))}


def _alternatives_to(
    actor: Actor, row: Decision, rows: list[Claim], snapshot: e.Snapshot, seen: Collection[int]
) -> list[Instead]:
    victims = [e.ClaimId(victim.public_id) for victim in rows]
    most = max(1, min(MOST, PLANNED // max(1, len(snapshot.claims))))
    options = alternatives(snapshot, e.ClaimId(row.claim.public_id), victims, most)
    others = {victim for each in options for victim in each.answer.victims}
    sentences = Sentences(actor, {*victims, *others})
    hidden = Claim.objects.filter(public_id__in={*victims, *others}).exclude(department__in=seen)
    unseen = set(hidden.values_list("public_id", flat=True))
    return [
        Instead(
            tuple(sentences.ahead(each.spared)),
            tuple(sentences.ahead(each.answer.victims)),
            _reason_against(each, row.pool, numbers=unseen.isdisjoint({*victims, *each.answer.victims})),
        )
        for each in options
    ]


def _reason_against(alternative: Alternative, pool: Pool, *, numbers: bool) -> str:
    """Why the alternative was not chosen. `numbers`: the reader may know the runtime and priority of all its claims."""
    if not alternative.answer.victims:
        return _unless_others_go(alternative.answer)
    if alternative.worse_in is None:
        return _("On its own it costs no more, but other decisions of the same planning pass use that capacity.")
    if alternative.worse_in is Criterion.SHARES:
        return _("The department that borrows most for its weight would release less.")
    if alternative.worse_in is Criterion.ORDER:
        return _("Equally good: between equals, the freed places decide, then the IDs.")
    chosen, instead = alternative.chosen or 0, alternative.instead or 0
    if alternative.worse_in is Criterion.PRIORITY:
        text = _("It would preempt workloads of higher priority: %(instead)s instead of %(chosen)s.")
        return (
            text % {"instead": instead, "chosen": chosen}
            if numbers
            else _("It would preempt workloads of higher priority.")
        )
    if alternative.worse_in is Criterion.LOST_WORK:
        text = _("More computing time would be lost: %(instead)s instead of %(chosen)s.")
        hours = {"instead": _gpu_hours(instead, pool), "chosen": _gpu_hours(chosen, pool)}
        return text % hours if numbers else _("More computing time would be lost.")
    if alternative.worse_in is Criterion.COUNT:
        text = ngettext(
            "It would preempt %(instead)s workload instead of %(chosen)s.",
            "It would preempt %(instead)s workloads instead of %(chosen)s.", instead,
        )  # fmt: skip
        return text % {"instead": instead, "chosen": chosen}
    text = {
        Criterion.OWN: _(
            "It would preempt more workloads of the requesting department itself: %(instead)s instead of %(chosen)s."
        ),
        Criterion.OTHERS: _("It would take more from other departments: %(instead)s instead of %(chosen)s."),
        Criterion.BELOW_GUARANTEE: _(
            "Departments would fall further below their guaranteed quota: by %(instead)s instead of %(chosen)s."
        ),
        Criterion.UNITS: _("It would free more than is needed: %(instead)s instead of %(chosen)s."),
    }[alternative.worse_in]
    return text % {"instead": amount(instead, pool), "chosen": amount(chosen, pool)}


def _unless_others_go(answer: e.Decision) -> str:
    if answer.decision is e.DecisionKind.WAIT:
        return _("No other workload can make room: the request would wait.")
    return _("No other workload has to be preempted: free and departing capacity would be enough.")


def _gpu_hours(unit_seconds: int, pool: Pool) -> str:
    return _("%(hours)s GPU-hours") % {"hours": f"{pool.gpu_hours(unit_seconds):,.1f}"}
