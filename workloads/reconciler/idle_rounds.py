"""The round that looks for idle work, each minute after measuring.
Everything is decided from measurements and rows, and written with compare-and-set: a round that is killed or runs twice does no
harm, and the next one continues. Idleness is written on the claim, whatever the policy does about it: the plan counts what
stopping idle work would lose.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from portal.background.hints import wake
from quotas.models import Claim, LedgerEntry
from workloads.idle import spells
from workloads.idle.exemptions import Exempt
from workloads.idle.policies import Policies
from workloads.idle.rule import BUCKET, GAP, Action, Finding, Now, Rule, judge, with_activity
from workloads.lifecycle import Event
from workloads.measurement.rank_activity import buckets_of, lately_busiest
from workloads.models import Attempt, IdleSpell, Kind, SpellEnd, State, StopCause
from workloads.notebooks.activity import activity_of
from workloads.reconciler.transitions import record_event

log = structlog.get_logger(__name__)
BUSY = Finding(Now.BUSY)


@dataclass(frozen=True, slots=True)
class Case:
    """A running attempt, the rule for it, its live spell, and the finding of this round."""

    attempt: Attempt
    rule: Rule
    spell: IdleSpell | None
    finding: Finding = BUSY

    @property
    def is_idle(self) -> bool:
        return self.finding.is_idle(self.rule)


def review(*, now: dt.datetime) -> int:
    """One round; returns how many spells began or changed."""
    changed = _close_ended(now) + _carry_out(now)
    exempt, changed_here = Exempt.at(now), 0
    cases = find(now)
    borrowing = _borrowing([case.attempt for case in cases if case.is_idle])
    for case in cases:
        _mark(case, now)
        try:
            changed_here += _settle(case, exempt, case.attempt.claim_id in borrowing, now)
        except Exception:  # a failure of one workload must not affect others; the next round tries again
            log.exception("idle.failed", workload=case.attempt.workload.public_id)
    return changed + changed_here


def find(now: dt.datetime) -> list[Case]:
    """Every running attempt as a Case, in a constant number of queries, and one request to each notebook that is idle by its
    GPU activity."""
    running = Attempt.objects.filter(finished_at=None, started_at__isnull=False, workload__state=State.RUNNING)
    rows = list(
        running.select_related("workload__department", "workload__author", "claim", "cluster")
        .defer("workload__command", "workload__env", "workload__secret_env")
        .order_by("pk")
    )
    policies, keys = Policies(), [row.pk for row in rows]
    warned, busy_until = spells.live_spells(keys), spells.last_busy(keys)
    rules = {
        row.pk: policies.definition(row.workload.pool_id, row.workload.department_id, row.workload.kind) for row in rows
    }
    lately = lately_busiest(keys, now - 2 * BUCKET)
    quiet = [row for row in rows if row.pk in warned or lately.get(row.pk, 0) < rules[row.pk].below]
    window = max((2 * rules[row.pk].length for row in quiet), default=GAP) + GAP
    buckets = buckets_of({row.pk: row.workload.pods for row in quiet}, now - window)
    findings: dict[int, Finding] = {}
    for row in quiet:
        rule = rules[row.pk]
        floor = max(row.started_at or now, busy_until.get(row.pk, now - window), now - 2 * rule.length - GAP)
        findings[row.pk] = judge(buckets.get(row.pk, ()), rule.below, floor=floor, now=now)
    _ask_notebooks(quiet, findings, rules, now)
    cases = [Case(row, rules[row.pk], warned.get(row.pk), findings.get(row.pk, BUSY)) for row in rows]
    for case in cases:
        if case.spell is not None:
            case.spell.attempt = case.attempt
    return cases


def _ask_notebooks(
    attempts: Sequence[Attempt], findings: dict[int, Finding], rules: dict[int, Rule], now: dt.datetime
) -> None:
    asked = [row for row in attempts if row.workload.kind == Kind.NOTEBOOK and findings[row.pk].is_idle(rules[row.pk])]
    answers = activity_of(asked)
    for row in asked:
        findings[row.pk] = with_activity(findings[row.pk], answers.get(row.pk), now)


def _borrowing(attempts: Sequence[Attempt]) -> set[int]:
    """Ids of the claims that use borrowed units now."""
    rows = LedgerEntry.objects.filter(claim__in=[row.claim_id for row in attempts], own=False, ended_at=None)
    return set(rows.values_list("claim_id", flat=True))


def _mark(case: Case, now: dt.datetime) -> None:
    """Write on the claim since when it is idle. If it is idle in the whole window that was examined, an earlier stored start
    is kept."""
    claim, since = case.attempt.claim, case.finding.since if case.is_idle else None
    known = claim.idle_since
    if since is not None and known is not None and since <= now - 2 * case.rule.length - GAP + BUCKET:
        since = min(since, known)
    if since != known:
        Claim.objects.filter(pk=claim.pk, idle_since=known).update(idle_since=since)


def _settle(case: Case, exempt: Exempt, borrows: bool, now: dt.datetime) -> bool:
    workload, finding = case.attempt.workload, case.finding
    acts = case.rule.action in (Action.WARN, Action.STOP) or (case.rule.action is Action.BORROWED and borrows)
    is_exempt = exempt.until(workload.pk, workload.department_id) is not None
    if case.spell is None:
        return bool(
            acts and not is_exempt and case.is_idle and finding.since
            and spells.warn(case.attempt, case.rule, finding.since, now=now)
        )  # fmt: skip
    if is_exempt:
        return spells.end(case.spell, SpellEnd.EXEMPT, now=now)
    if finding.now is Now.UNKNOWN or (finding.now is Now.PAUSED and spells.is_given_up(case.spell, now)):
        return spells.end(case.spell, SpellEnd.UNKNOWN, now=now)
    if finding.now is Now.PAUSED:
        return spells.hold(case.spell, now=now)
    if not case.is_idle:
        loosened = finding.is_idle(spells.rule_of(case.spell))
        return spells.end(case.spell, SpellEnd.POLICY if loosened else SpellEnd.BUSY, now=now)
    if not acts:
        return spells.end(case.spell, SpellEnd.POLICY, now=now)
    is_due = case.spell.stops_at is not None and case.spell.stops_at <= now
    if is_due and case.rule.action is not Action.WARN and spells.decide_stop(case.spell, now=now):
        return _stop(case.spell, now)
    return spells.remind(case.spell, now=now)


def _carry_out(now: dt.datetime) -> int:
    """Carry out stops that an earlier round decided but was killed before it could carry them out."""
    decided = spells.live().exclude(stop_decided_at=None)
    related = (
        "attempt__workload__pool",
        "attempt__workload__department",
        "attempt__workload__author",
        "attempt__claim",
    )
    return sum(_stop(spell, now) for spell in decided.select_related(*related))


def _stop(spell: IdleSpell, now: dt.datetime) -> bool:
    """Stop the attempt in the ordinary, graceful way. False if it was no longer running."""
    moved = record_event(spell.attempt, Event.IDLE, now=now)
    stopped = moved or Attempt.objects.filter(pk=spell.attempt_id, stop_cause=StopCause.IDLE).exists()
    spells.live().filter(pk=spell.pk).update(ended_at=now, end=SpellEnd.STOPPED if stopped else SpellEnd.GONE)
    if stopped:
        wake("workloads.converge", workload=spell.attempt.workload.public_id)
    return stopped


def _close_ended(now: dt.datetime) -> int:
    """End the spells of attempts that no longer run, or are being recalled: no notice is due."""
    over = spells.live().exclude(attempt__finished_at=None, attempt__workload__state=State.RUNNING)
    return sum(spells.end(spell, SpellEnd.GONE, now=now) for spell in over)
