"""Idle spells: warned, kept once, stopped or withdrawn. All state is in the rows, and each change is a compare-and-set in its
own transaction. So a round may be killed anywhere or run twice, and a person may choose *Keep it* at the same time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Any

from django.db.models import F, Max, QuerySet
from django.utils import timezone

from portal import audit
from portal.access import Actor
from portal.errors import N_, Problem
from portal.infra.locks import durable
from portal.notify import notices
from portal.notify.events import emit
from workloads.idle.rule import GAP, Action, Rule
from workloads.models import Attempt, IdleSpell, SpellEnd, State, Workload

LEFT = dt.timedelta(minutes=15)
"""At least so much of a countdown is left when measurements resume, or all of it if it is shorter."""


class CannotKeep(Problem):
    code = "cannot_keep"
    message = N_("It is not about to be stopped for being idle.")


def live() -> QuerySet[IdleSpell]:
    return IdleSpell.objects.filter(ended_at=None)


def live_spells(attempts: Collection[int]) -> dict[int, IdleSpell]:
    """Primary key of an attempt → its live spell."""
    return {row.attempt_id: row for row in live().filter(attempt__in=attempts).select_related("kept_by")}


def last_busy(attempts: Collection[int]) -> dict[int, dt.datetime]:
    """Primary key of an attempt → when its last spell ended because it became active."""
    rows = IdleSpell.objects.filter(attempt__in=attempts, end=SpellEnd.BUSY).order_by()
    return dict(rows.values_list("attempt").annotate(last=Max("ended_at")))


def rule_of(spell: IdleSpell) -> Rule:
    """The rule as it was when the workload was warned."""
    return Rule.from_json(spell.rule)


def warn(attempt: Attempt, rule: Rule, since: dt.datetime, *, now: dt.datetime) -> bool:
    """Begins a spell and notifies the author. False if the attempt no longer runs, or a spell has already begun."""
    workload = attempt.workload
    stops_at = None if rule.action is Action.WARN else now + dt.timedelta(minutes=rule.countdown)
    with durable():
        rows = Workload.objects.select_for_update(no_key=True, of=("self",))
        locked = rows.filter(pk=workload.pk, state=State.RUNNING, attempts_made=attempt.number).first()
        if locked is None or live().filter(attempt=attempt).exists():
            return False
        spell = IdleSpell.objects.create(
            attempt=attempt, since=since, warned_at=now, stops_at=stops_at, rule=rule.as_json()
        )
        _notify(
            spell, "workload.idle_warned" if stops_at else "workload.idle_noticed", below=rule.below, since_at=since
        )
    return True


def end(spell: IdleSpell, why: SpellEnd, *, now: dt.datetime) -> bool:
    """Ends a spell whose stop is not decided yet, and notifies the author that the warning is withdrawn."""
    with durable():
        return _end(spell, why, now=now)


def end_exempt(workloads: QuerySet[Workload], *, now: dt.datetime) -> None:
    """Ends the spells of workloads that are being exempted, in the same transaction, so that no countdown goes on."""
    for spell in live().filter(attempt__workload__in=workloads).select_related("attempt__workload__department"):
        _end(spell, SpellEnd.EXEMPT, now=now)


def _end(spell: IdleSpell, why: SpellEnd, *, now: dt.datetime) -> bool:
    rows = live().filter(pk=spell.pk, stop_decided_at=None)
    if not rows.update(ended_at=now, end=why):
        return False
    if why is not SpellEnd.GONE:
        _notify(spell, "workload.idle_withdrawn", end=why.value)
    return True


def is_given_up(spell: IdleSpell, now: dt.datetime) -> bool:
    """Whether the activity has been unknown for so long after the time of the stop that the warning is no longer valid."""
    rule = rule_of(spell)
    due = spell.kept_at + dt.timedelta(minutes=rule.keep) if spell.kept_at else None
    due = due or spell.warned_at + dt.timedelta(minutes=rule.countdown)
    return spell.stops_at is not None and now > due + GAP


def hold(spell: IdleSpell, *, now: dt.datetime) -> bool:
    """Postpones the stop while the activity is unknown, so that some of the countdown is left when measurements resume."""
    left = min(dt.timedelta(minutes=rule_of(spell).countdown), LEFT)
    if spell.stops_at is None or spell.stops_at > now + left / 2:
        return False
    rows = live().filter(pk=spell.pk, stop_decided_at=None, stops_at=spell.stops_at)
    if not rows.update(stops_at=now + left):
        return False
    Workload.objects.filter(pk=spell.attempt.workload_id).update(version=F("version") + 1)
    return True


def remind(spell: IdleSpell, *, now: dt.datetime) -> bool:
    """Warns once more after *Keep it*, as long before the stop as the first time."""
    if spell.stops_at is None or spell.kept_at is None or spell.reminded_at is not None:
        return False
    rule = rule_of(spell)
    if spell.stops_at > now + dt.timedelta(minutes=rule.countdown):
        return False
    with durable():
        if not live().filter(pk=spell.pk, reminded_at=None, stop_decided_at=None).update(reminded_at=now):
            return False
        _notify(spell, "workload.idle_warned", below=rule.below, since_at=spell.since)
    return True


def decide_stop(spell: IdleSpell, *, now: dt.datetime) -> bool:
    """Decides to stop the workload if the time is over. This cannot be undone."""
    due = live().filter(pk=spell.pk, stop_decided_at=None, stops_at__lte=now, kept_at=spell.kept_at)
    return bool(due.update(stop_decided_at=now))


def may_keep(spell: IdleSpell | None) -> bool:
    return spell is not None and spell.stops_at is not None and spell.kept_at is None and spell.stop_decided_at is None


def keep(*, actor: Actor, workload: Workload, now: dt.datetime | None = None) -> dt.datetime:
    """*Keep it*: postpones the stop, once in a spell; returns until when. Raises CannotKeep, NotVisible, Forbidden."""
    actor.require_own_or_steer(workload.department, workload.author)
    now = now or timezone.now()
    with durable():
        rows = live().select_for_update(no_key=True, of=("self",)).select_related("attempt__workload__department")
        spell = rows.filter(attempt__workload=workload, attempt__finished_at=None).first()
        if spell is None or spell.stops_at is None:
            raise CannotKeep
        if spell.stop_decided_at is not None:
            raise CannotKeep(N_("It is already being stopped."), code="too_late")
        if spell.kept_at is not None:
            text = N_("It was already kept once, until %(until)s. It continues only if it becomes active before.")
            raise CannotKeep(text, code="kept_already", until=notices.fact_text("until_at", spell.stops_at.isoformat()))
        before, minutes = spell.stops_at, rule_of(spell).keep
        spell.kept_at, spell.kept_by = now, actor.user
        spell.stops_at = until = max(before, now + dt.timedelta(minutes=minutes))
        spell.save(update_fields=["kept_at", "kept_by", "stops_at"])
        _changed(spell, "workload.idle_kept", stops_at=until.isoformat())
        audit.record(
            actor, "workload.idle_kept", workload.public_id, department=workload.department,
            before={"stops_at": before.isoformat()}, after={"stops_at": until.isoformat()},
        )  # fmt: skip
    return until


def _changed(spell: IdleSpell, kind: str, **facts: Any) -> None:
    """Updates the open pages of the workload: a new version and an event."""
    workload = spell.attempt.workload
    Workload.objects.filter(pk=workload.pk).update(version=F("version") + 1)
    emit(kind, department=workload.department, workload=workload.public_id, attempt=spell.attempt.number, **facts)


def _notify(spell: IdleSpell, kind: str, **facts: Any) -> None:
    workload = spell.attempt.workload
    facts = {name: value.isoformat() if isinstance(value, dt.datetime) else value for name, value in facts.items()}
    if spell.stops_at is not None:
        facts["stops_at"] = spell.stops_at.isoformat()
    _changed(spell, kind, **facts)
    notices.send(
        kind, to=[workload.author] if workload.author else [], department=workload.department,
        workload=workload.public_id, name=workload.name, **facts,
    )  # fmt: skip
