"""One planning pass over a pool group: lock, load, let the engine decide, record.

The plan is written by compare-and-set: a claim that was cancelled or released meanwhile stays so, and the next pass takes that
into account.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from django.db.models import Case, JSONField, Value, When
from django.utils import timezone

from portal.background.hints import wake
from portal.infra.locks import durable
from portal.models import Event
from portal.notify import notices
from portal.notify.events import QUEUE_MOVED, emit, emit_all
from portal.prepared import Prepared, write_each
from quotas.engine import types as e
from quotas.engine.planning_pass import decide
from quotas.engine.snapshot_json import decision_to_json
from quotas.lending import windows
from quotas.models import Claim, ClaimState, Decision, PlanPass, PoolGroup
from quotas.planning import loan_entries
from quotas.planning.lock import locked_group
from quotas.planning.replay import packed
from quotas.planning.snapshot import load_snapshot, moment

log = structlog.get_logger(__name__)
FEW = 4  # up to so many claims are read one by one, with a statement that is compiled already
MANY, AT_ONCE = 4, 100  # from so many admissions on they are written together; the most in one statement
TOGETHER = 1_000  # the most claims that one statement locks
SHOWN = ("decision", "own", "borrowed", "reasons", "position", "ahead", "waiting_on", "reserved", "promised_at")


def run_pass(*, group_id: int, now: dt.datetime | None = None) -> e.Plan:
    """Answer every pending claim of one pool group and record the answers. Raises Busy."""
    began = time.perf_counter()
    with durable():
        group = locked_group(group_id)
        now = now or timezone.now()
        snapshot = load_snapshot(group, now=now)  # after the lock, never before
        if windows.recall_due(group, snapshot, now=now):
            snapshot = load_snapshot(group, now=now)
        plan = decide(snapshot)
        took = round((time.perf_counter() - began) * 1000)
        changes = record(group, snapshot, plan, now=now, milliseconds=took)
        admitted = [row.claim for row in changes if row.kind == e.DecisionKind.ADMIT.value]
        loan_entries.settle_as(group, snapshot, admitted, now=now)
        PoolGroup.objects.filter(pk=group.pk).update(planned_at=now)
    if changes:
        log.info("plan.decided", group=group.name, decisions=len(changes), milliseconds=took)
    return plan


def record(
    group: PoolGroup,
    snapshot: e.Snapshot,
    plan: e.Plan,
    *,
    now: dt.datetime,
    milliseconds: int = 0,
) -> list[Decision]:
    """Write the plan's changes. Returns the new rows of the decision log."""
    ids = {d.claim for d in plan.decisions} | {v for d in plan.decisions for v in (*d.victims, *d.waiting_on)}
    rows = _claims(ids | {*plan.withdrawn})
    recorder = Recorder(group, snapshot, plan, {row.public_id: row for row in rows}, now)
    for claim_id in plan.withdrawn:
        recorder.withdraw(claim_id)
    answers = sorted(plan.decisions, key=lambda d: d.position)
    many = [d for d in answers if d.decision is e.DecisionKind.ADMIT and not recorder.claims[d.claim].is_recall]
    if len(many) < MANY:
        many = []
    for at in range(0, len(many), AT_ONCE):
        recorder.admit_all(many[at : at + AT_ONCE])
    for decision in answers:
        if decision.claim not in recorder.admitted:
            recorder.answer(decision)
    recorder.queue_all()
    return recorder.written(milliseconds)


BY_ID = Prepared(lambda id: Claim.objects.select_related("department", "pool").filter(public_id=id))


def _claims(ids: Collection[e.ClaimId]) -> Iterable[Claim]:
    if len(ids) <= FEW:
        return [claim for id in ids for claim in BY_ID.all(id)]
    return Claim.objects.prefetch_related("department", "pool").filter(public_id__in=ids)  # the same few for thousands


@dataclass(frozen=True, slots=True)
class Waiting:
    """A claim that keeps waiting, with its new answer."""

    claim: Claim
    decision: e.Decision
    values: dict[str, Any]  # the claim's fields of SHOWN
    news: bool  # whether the decision or reservation changed, not only the position or reasons


class Recorder:
    """Writes one plan, within one transaction."""

    def __init__(
        self, group: PoolGroup, snapshot: e.Snapshot, plan: e.Plan, claims: dict[str, Claim], now: dt.datetime
    ) -> None:
        self.group, self.snapshot, self.plan, self.claims, self.now = group, snapshot, plan, claims, now
        self.changes: list[tuple[Decision, list[Claim]]] = []
        self.admitted: set[e.ClaimId] = set()  # those that admit_all has handled
        self.waiting: list[Waiting] = []

    def admit_all(self, decisions: Sequence[e.Decision]) -> None:
        """Admit claims together: one statement locks them, and one updates all whose answers differ only in placement."""
        wanted = {self.claims[decision.claim].pk: decision for decision in decisions}
        rows = Claim.objects.select_for_update(no_key=True, of=("self",)).filter(state=ClaimState.PENDING)
        groups: dict[bytes, list[int]] = defaultdict(list)
        for pk in rows.filter(pk__in=wanted).order_by("pk").values_list("pk", flat=True):
            claim = self.claims[wanted[pk].claim]
            groups[orjson.dumps([claim.pool_id, self._answer_fields(wanted[pk])])].append(pk)
        for pks in groups.values():
            places = [When(pk=pk, then=Value(places_json(wanted[pk].placement), JSONField())) for pk in pks]
            first = wanted[pks[0]]
            values = self._holding(self.claims[first.claim], first)
            Claim.objects.filter(pk__in=pks).update(**values, placement=Case(*places))
            for pk in pks:
                claim = self.claims[wanted[pk].claim]
                wake("workloads.converge", claim=claim.public_id)
                self._log(claim, "admit", decision_to_json(wanted[pk]))
        self.admitted |= {decision.claim for decision in decisions}

    def answer(self, decision: e.Decision) -> None:
        claim = self.claims[decision.claim]
        if decision.decision is e.DecisionKind.ADMIT:
            self._admit(claim, decision)
        else:
            self._queue(claim, decision)

    def withdraw(self, claim_id: str) -> None:
        """Let the victim continue, unless SIGTERM is already being sent."""
        claim = self.claims[claim_id]
        if self._change(claim, {"state": ClaimState.LEAVING, "term_at": None}, state=ClaimState.HOLDING,
                        leave_by=None, preempted_for=None):  # fmt: skip
            self._log(claim, "withdraw", {"claim": claim_id})

    def _admit(self, claim: Claim, decision: e.Decision) -> None:
        values = self._holding(claim, decision) | {"placement": places_json(decision.placement)}
        if self._change(claim, {"state": ClaimState.PENDING}, **values):
            self._log(claim, "admit", decision_to_json(decision))
            if claim.is_recall and not claim.is_of_window:
                pool, department = claim.pool, claim.department
                people = notices.owners_of(department)
                notices.send(
                    "recall.done", to=people, department=department, pool=pool.name, units=claim.units, unit=pool.unit
                )

    def _holding(self, claim: Claim, decision: e.Decision) -> dict[str, Any]:
        return {
            "state": ClaimState.HOLDING, "started_at": self.now, "notice": claim.pool.notice, "grace": claim.pool.grace,
            "promised_at": None, "reserved": None, "answered_at": self.now,
        } | self._answer_fields(decision)  # fmt: skip

    def _queue(self, claim: Claim, decision: e.Decision) -> None:
        """Record that the claim stays pending (waiting, reserved or impossible for now), with its reasons."""
        kind, values = decision.decision.value, self._answer_fields(decision)
        reserved = self._reserved(decision)
        values |= {"reserved": reserved, "promised_at": moment(decision.by) if decision.by is not None else None}
        news = claim.decision != kind or claim.reserved != reserved or bool(decision.victims)
        if not news and all(getattr(claim, name) == value for name, value in values.items()):
            return
        if not decision.victims and not decision.waiting_on:
            self.waiting.append(Waiting(claim, decision, values, news))
            return
        if not self._change(claim, {"state": ClaimState.PENDING}, answered_at=self.now, **values):
            return
        victims = [self.claims[v] for v in decision.victims if self._begin_notice(self.claims[v], claim)]
        if news:
            self._log(claim, kind, decision_to_json(decision), victims)

    def queue_all(self) -> None:
        """Write all waiting claims without victims together: when one claim starts, thousands move up by one.

        A new answer is an event of its workload; changed positions are one event for each department.
        """
        pending = self._still_pending([each.claim.pk for each in self.waiting if each.news])
        rows = [(each.claim.pk, [*map(each.values.get, SHOWN), self.now]) for each in self.waiting]
        write_each(Claim, [*SHOWN, "answered_at"], rows, state=ClaimState.PENDING)
        for each in self.waiting:
            if each.claim.pk in pending:
                self._log(each.claim, each.values["decision"], decision_to_json(each.decision))
        moved = {each.claim.department_id for each in self.waiting if not each.news}
        events = [Event(kind=QUEUE_MOVED, department_id=department) for department in sorted(moved)] + [
            Event(
                kind="workload.queue", department_id=each.claim.department_id, workload=each.claim.workload,
                data={"decision": each.values["decision"]},
            )
            for each in self.waiting if each.claim.pk in pending
        ]  # fmt: skip
        if events:
            emit_all(events)

    def _still_pending(self, claims: Sequence[int]) -> set[int]:
        """Lock those of these claims that are still pending, and return their ids."""
        rows = (
            Claim.objects.select_for_update(no_key=True, of=("self",)).filter(state=ClaimState.PENDING).order_by("pk")
        )
        parts = (claims[at : at + TOGETHER] for at in range(0, len(claims), TOGETHER))
        return {pk for part in parts for pk in rows.filter(pk__in=part).values_list("pk", flat=True)}

    def _begin_notice(self, victim: Claim, beneficiary: Claim) -> bool:
        """Begin the victim's notice: it is leaving now, and what it frees is kept for the beneficiary."""
        leave_by = self.now + dt.timedelta(seconds=victim.notice)
        return self._change(
            victim,
            {"state": ClaimState.HOLDING},
            state=ClaimState.LEAVING,
            leave_by=leave_by,
            preempted_for=beneficiary,
        )

    def _change(self, claim: Claim, condition: dict[str, Any], **values: Any) -> bool:
        """Compare-and-set one claim. If its state changed, wake the reconciler (for a recall: emit an event)."""
        if not Claim.objects.filter(pk=claim.pk, **condition).update(**values):
            return False
        if "state" in values and claim.is_recall:
            emit(f"recall.{values['state']}", department=claim.department, recall=claim.public_id)
        elif "state" in values:
            wake("workloads.converge", claim=claim.public_id)
        else:
            emit("workload.queue", department=claim.department, workload=claim.workload, decision=values["decision"])
        return True

    def _reserved(self, decision: e.Decision) -> dict[str, Any] | None:
        if decision.decision is not e.DecisionKind.RECLAIM:
            return None
        return {"units": decision.own + decision.borrowed, "places": places_json(decision.placement) or []}

    def _answer_fields(self, decision: e.Decision) -> dict[str, Any]:
        data = decision_to_json(decision)
        return {
            "decision": decision.decision.value,
            "own": decision.own,
            "borrowed": decision.borrowed,
            "reasons": data["reasons"],
            "position": decision.position or None,
            "ahead": list(decision.ahead),
            "waiting_on": list(decision.waiting_on),
        }

    def _log(self, claim: Claim, kind: str, data: dict[str, Any], victims: list[Claim] | None = None) -> None:
        row = Decision(
            at=self.now, kind=kind, claim=claim, department=claim.department, pool=claim.pool, data=data
        )  # fmt: skip
        self.changes.append((row, victims or []))

    def written(self, milliseconds: int) -> list[Decision]:
        """Write the decision log and the pass. Returns the rows; none if nothing changed."""
        if not self.changes:
            return []
        plan_pass = PlanPass.objects.create(
            group=self.group,
            at=self.now,
            milliseconds=milliseconds,
            snapshot=packed(self.snapshot),
            plan=packed(self.plan),
        )
        for row, _victims in self.changes:
            row.plan_pass = plan_pass
        rows = Decision.objects.bulk_create(row for row, _victims in self.changes)
        victims = Decision.victims.through
        victims.objects.bulk_create(
            victims(decision=row, claim=victim) for row, victim_list in self.changes for victim in victim_list
        )
        return rows


def places_json(places: tuple[e.Placed, ...] | None) -> list[dict[str, Any]] | None:
    if places is None:
        return None
    return [
        {"pod": p.pod, "node": p.node, "cards": list(p.cards)} | ({"start": p.start} if p.start is not None else {})
        for p in places
    ]
