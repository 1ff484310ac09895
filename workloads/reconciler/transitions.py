"""Record what happened to an attempt: a compare-and-set of the workload's state, with all its consequences.

Every function is safe to call twice; the second call returns False and changes nothing.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from django.db.models import F, OuterRef, Subquery
from django.utils import timezone

from portal import audit
from portal.access import Actor
from portal.background.hints import wake
from portal.ids import new_id
from portal.infra.locks import durable
from portal.models import Event as EventRow
from portal.notify import notices
from portal.notify.events import emit, emit_all
from portal.prepared import insert
from quotas.health.quarantines import that_stops
from quotas.models import Claim, ClaimState
from quotas.planning import claims
from workloads.clusters.run_spec import namespace_of, new_secrets
from workloads.lifecycle import BACKOFF, FINAL, TURNED_AWAY, Event, NotPossible, State, backoff, is_exhausted, step
from workloads.models import Attempt, Kind, StopCause, Workload
from workloads.requests.request import claim_fields
from workloads.runtime.base import Observed
from workloads.runtime.gangs import as_rows
from workloads.status.out_of_service import is_out_of_service

CAUSE = {Event.STOP: StopCause.RECALLED, Event.CANCEL: StopCause.CANCELLED, Event.EXPIRE: StopCause.EXPIRED,
         Event.IDLE: StopCause.IDLE, Event.STUCK: StopCause.STUCK}  # fmt: skip
OUTCOME = {
    Event.EXITED_OK: "succeeded",
    Event.EXITED_BAD: "failed",
    Event.RETRY: "failed",
    Event.REFUSED: "failed",
    Event.LOST: "lost",
    Event.GONE_RECALLED: "recalled",
    Event.GONE_EXHAUSTED: "recalled",
    Event.GONE_UNSTARTED: "recalled",
    Event.GONE_CANCELLED: "cancelled",
    Event.GONE_EXPIRED: "failed",
    Event.GONE_IDLE: "cancelled",
    Event.GONE_STUCK: "failed",
    Event.REJECT: "rejected",
}
OUT_OF_SERVICE = "out_of_service"  # reason of an attempt that ended because of its hardware: it counts as no reclaim
REASON = {Event.GONE_EXPIRED: "max_runtime", Event.GONE_EXHAUSTED: "max_reclaims", Event.STUCK: "not_started",
          Event.GONE_IDLE: "idle"}  # fmt: skip


def record_event(
    attempt: Attempt,
    event: Event,
    *,
    now: dt.datetime,
    run: Observed | None = None,
    reason: str = "",
    message: str = "",
) -> bool:
    """Move the workload along the state chart. False if it is no longer in the state that the caller saw, or if the state chart
    has no such transition."""
    workload = attempt.workload
    if event is Event.EXITED_BAD and that_stops(attempt.claim) is not None:
        event, reason = Event.LOST, OUT_OF_SERVICE  # because of a hardware fault, as far as is known
    elif event is Event.GONE_RECALLED and is_out_of_service(attempt.claim):
        reason = OUT_OF_SERVICE
    elif event is Event.GONE_RECALLED and is_exhausted(workload.reclaims + 1, workload.pool.max_reclaims):
        event = Event.GONE_EXHAUSTED
    if event is Event.EXITED_BAD and workload.restarts < workload.settings.max_restarts:
        event = Event.RETRY
    try:
        state = step(State(workload.state), event)
    except NotPossible:
        return False
    if event is Event.GONE_STUCK:  # the reason why it could not start, not that it was stopped
        reason, message = attempt.reason, attempt.message
    observed_reason = run.reason if run else ""
    reason = reason or (observed_reason if event is Event.STUCK else "") or REASON.get(event, "") or observed_reason
    message = message or (run.message if run else "")
    with durable():
        if not _move(workload, attempt, state, now):
            return False
        if event in CAUSE and state is State.STOPPING:
            _stopping(attempt, CAUSE[event], now)
            if event is Event.STUCK:
                Attempt.objects.filter(pk=attempt.pk).update(reason=reason, message=message[:500])
        elif event in OUTCOME or state in FINAL:
            _finish(attempt, event, state, run, reason, message, now)
        else:
            _note(attempt, event, run, now)
        emit(
            f"workload.{state.value}", department=workload.department, workload=workload.public_id,
            attempt=attempt.number, event=event.value, reason=reason,
        )  # fmt: skip
        _notify_author(workload, attempt, event, state, reason)
    return True


def _move(workload: Workload, attempt: Attempt, state: State, now: dt.datetime) -> bool:
    """The compare-and-set. It includes the attempt's number, so that an event of an old attempt changes nothing."""
    return bool(
        Workload.objects.filter(pk=workload.pk, state=workload.state, attempts_made=attempt.number).update(
            state=state, state_since=now, version=F("version") + 1
        )
    )


def _note(attempt: Attempt, event: Event, run: Observed | None, now: dt.datetime) -> None:
    """Record the facts of an event that neither stops nor ends the attempt."""
    claim = attempt.claim
    facts: dict[str, Any] = {}
    match event:
        case Event.ADMIT:
            facts = {"admitted_at": now, "placement": claim.placement, "notice": claim.notice, "grace": claim.grace}
        case Event.CREATED:
            facts = {"created_at": now}
        case Event.STARTED if run is not None:
            facts = observed_facts(run, now) | {"reason": "", "message": ""}
            Claim.objects.filter(pk=claim.pk, state__in=[ClaimState.HOLDING, ClaimState.LEAVING]).update(
                started_at=facts["started_at"]
            )
        case Event.RECALL:
            facts = {"recalled_at": now, "reclaim_at": claim.leave_by or now, "announced_at": None}
        case Event.WITHDRAW | Event.WITHDRAW_UNSTARTED:
            facts = {"recalled_at": None, "reclaim_at": None, "ready_at": None}
    Attempt.objects.filter(pk=attempt.pk).update(**facts)


def observed_facts(run: Observed, now: dt.datetime) -> dict[str, Any]:
    return {"started_at": run.started_at or now, "node": run.node, "cards": list(run.cards)}


def _stopping(attempt: Attempt, cause: StopCause, now: dt.datetime) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(stopping_at=now, stop_cause=cause)
    claims.mark_leaving(attempt.claim, now=now)


def _finish(
    attempt: Attempt, event: Event, state: State, run: Observed | None, reason: str, message: str, now: dt.datetime
) -> None:
    """Record that the attempt is over: its capacity is freed in the same transaction, and a recalled one is queued again."""
    workload = attempt.workload
    exit_code = run.exit_code if run and event is not Event.GONE_STUCK else None
    # Over before it was observed.
    unseen = run is not None and run.started_at is not None and attempt.started_at is None
    Attempt.objects.filter(pk=attempt.pk).update(
        **(observed_facts(run, now) if unseen and run else {}),
        finished_at=now,
        outcome=OUTCOME.get(event, state.value),
        exit_code=exit_code,
        reason=reason,
        message=message[:500],
        checkpointed_at=run.checkpointed_at if run else None,
    )
    claims.release(attempt.claim, now=now)
    if event is Event.RETRY:
        Workload.objects.filter(pk=workload.pk).update(restarts=F("restarts") + 1)
    if state is State.QUEUED:
        recalled = event is Event.GONE_RECALLED and reason != OUT_OF_SERVICE
        requeue(workload, attempt, recalled=recalled, now=now)
    else:
        Workload.objects.filter(pk=workload.pk).update(
            finished_at=now, exit_code=exit_code, reason=reason, message=message[:500]
        )


def requeue(workload: Workload, last: Attempt, *, recalled: bool, now: dt.datetime) -> Attempt:
    """Queue the next attempt of the same workload. Its claim keeps the original time of submission.
    It waits longer after each reclaim, and after each attempt that was lost before it ran, because a node that refuses pods
    would otherwise get it back at once.
    """
    reclaims = workload.reclaims + recalled
    turned_away = 0 if recalled else workload.attempts.filter(outcome="lost", started_at=None).count()
    base, times = (BACKOFF, reclaims) if recalled else (TURNED_AWAY, turned_away)
    wait = backoff(times, base)
    Workload.objects.filter(pk=workload.pk).update(reclaims=reclaims)
    fields = claim_fields(workload) | {
        "public_id": new_id(last.claim.public_id),  # it orders claims that were submitted in the same second
        "queued_at": now,
        "checkpoint_every": last.claim.checkpoint_every,
        "backoff_until": now + dt.timedelta(seconds=wait) if wait else None,
    }
    claim = claims.ask(**fields)
    return new_attempt(workload, claim, number=last.number + 1, now=now)


def new_attempt(workload: Workload, claim: Claim, *, number: int, now: dt.datetime) -> Attempt:
    """Create an attempt; called in the transaction that created its claim."""
    if workload.attempts_made != number:
        Workload.objects.filter(pk=workload.pk).update(attempts_made=number)
    cluster = workload.pool.group.cluster
    namespace = namespace_of(cluster, workload.department.slug, unrestricted=workload.settings.ipc_lock)
    secrets, token_digest = new_secrets()
    attempt = Attempt(
        workload=workload,
        number=number,
        claim=claim,
        cluster=cluster,
        run_name=f"w-{workload.public_id}-{number}",
        namespace=workload.external.namespace if workload.kind == Kind.EXTERNAL else namespace,
        submission_id=claim.public_id,  # so that the plan and the cluster use the same key
        secrets=secrets,
        token_digest=token_digest,
        notice=workload.pool.notice,  # the pool's present values; frozen at admission
        grace=workload.pool.grace,
        queued_at=now,
    )
    return insert(attempt)


def record_events(
    attempts: Sequence[Attempt], state: State, event: Event, runs: Mapping[int, Observed] | None = None
) -> list[Attempt]:
    """`record_event` for many attempts in one state in one transaction: ADMIT, CREATED or STARTED (`runs` by attempt
    id). Returns those that were still in that state."""
    if not attempts:
        return []
    now, after = timezone.now(), step(state, event)
    values = {"state": after, "state_since": now, "version": F("version") + 1}
    with durable():
        moved = _move_one(attempts[0], state, values) if len(attempts) == 1 else _move_many(attempts, state, values)
        _note_many(moved, event, now, runs or {})
        emit_all(
            EventRow(
                kind=f"workload.{after.value}", department_id=attempt.workload.department_id,
                workload=attempt.workload.public_id,
                data={"attempt": attempt.number, "event": event.value, "reason": ""},
            )
            for attempt in moved
        )  # fmt: skip
    for attempt in moved:
        attempt.workload.state = after
        if event is Event.ADMIT:
            attempt.placement, attempt.grace = attempt.claim.placement, attempt.claim.grace
    return moved


def _move_many(attempts: Sequence[Attempt], state: State, values: Mapping[str, object]) -> list[Attempt]:
    """Lock the rows in the order of keys, so that two batches never deadlock."""
    rows = Workload.objects.select_for_update(no_key=True, of=("self",)).order_by("pk")
    made = dict(rows.filter(pk__in=[a.workload_id for a in attempts], state=state).values_list("pk", "attempts_made"))
    moved = [attempt for attempt in attempts if made.get(attempt.workload_id) == attempt.number]
    Workload.objects.filter(pk__in=[a.workload_id for a in moved]).update(**values)
    return moved


def _move_one(attempt: Attempt, state: State, values: Mapping[str, object]) -> list[Attempt]:
    row = Workload.objects.filter(pk=attempt.workload_id, state=state, attempts_made=attempt.number)
    return [attempt] if row.update(**values) else []


def _note_many(attempts: list[Attempt], event: Event, now: dt.datetime, runs: Mapping[int, Observed]) -> None:
    rows = Attempt.objects.filter(pk__in=[attempt.pk for attempt in attempts])
    match event:
        case Event.CREATED:
            rows.update(created_at=now)
        case Event.STARTED:
            _note_started(attempts, now, runs)
        case _ if len(attempts) == 1:
            own = attempts[0].claim
            rows.update(admitted_at=now, placement=own.placement, notice=own.notice, grace=own.grace)
        case _:
            claim = Claim.objects.filter(pk=OuterRef("claim_id"))
            frozen = {name: Subquery(claim.values(name)[:1]) for name in ("placement", "notice", "grace")}
            rows.update(admitted_at=now, **frozen)


def _note_started(attempts: list[Attempt], now: dt.datetime, runs: Mapping[int, Observed]) -> None:
    """Record the facts of started attempts: one statement for all attempts with the same facts, because pods of a node start in
    the same second, and one for all claims with the same start."""
    facts_of = {attempt: observed_facts(runs[attempt.pk], now) for attempt in attempts}
    alike: dict[bytes, list[Attempt]] = defaultdict(list)
    since: dict[dt.datetime, list[int]] = defaultdict(list)
    for attempt, facts in facts_of.items():
        alike[orjson.dumps(facts)].append(attempt)
        since[facts["started_at"]].append(attempt.claim_id)
    for same in alike.values():
        Attempt.objects.filter(pk__in=[a.pk for a in same]).update(**facts_of[same[0]], reason="", message="")
    for at, keys in since.items():
        Claim.objects.filter(pk__in=keys).update(started_at=at)


def record_announced(attempt: Attempt, at: dt.datetime | None, *, now: dt.datetime) -> bool:
    """Record that the container can read the reclaim time, or, with `at` None, that there is none any more."""
    return bool(Attempt.objects.filter(pk=attempt.pk).update(announced_at=now if at else None))


def record_forgotten(attempt: Attempt, *, now: dt.datetime) -> None:
    Attempt.objects.filter(pk=attempt.pk, removed_at=None).update(removed_at=now)


def record_ranks(attempt: Attempt, run: Observed) -> None:
    """Records the state of each rank."""
    with durable():
        Attempt.objects.filter(pk=attempt.pk).update(ranks=as_rows(run.ranks))
        Workload.objects.filter(pk=attempt.workload_id).update(version=F("version") + 1)
        emit(
            "workload.ranks", department=attempt.workload.department, workload=attempt.workload.public_id,
            attempt=attempt.number, ranks=[rank.phase.value for rank in run.ranks],
        )  # fmt: skip


ONE_CHECKPOINT = dt.timedelta(seconds=60)
"""Files written within this time of each other are one checkpoint."""


def record_checkpoint(attempt: Attempt, at: dt.datetime) -> bool:
    """Record when the newest checkpoint was saved, and how long after the previous one: the plan expects the next one then."""
    values: dict[str, Any] = {"checkpointed_at": at}
    if attempt.checkpointed_at is not None and at - attempt.checkpointed_at >= ONE_CHECKPOINT:
        values["checkpoint_every"] = round((at - attempt.checkpointed_at).total_seconds())
    Claim.objects.filter(pk=attempt.claim_id).update(**values)
    return bool(Attempt.objects.filter(pk=attempt.pk).update(checkpointed_at=at))


def record_wait(attempt: Attempt, reason: str, message: str) -> bool:
    """Record why the cluster has not started the run, for the workload's page."""
    live = Attempt.objects.filter(pk=attempt.pk, started_at=None, finished_at=None)
    if not live.update(reason=reason[:60], message=message[:500]):
        return False
    return bool(Workload.objects.filter(pk=attempt.workload_id).update(version=F("version") + 1))


def record_ready(attempt: Attempt, *, now: dt.datetime, by: Actor | None = None) -> bool:
    """Record that the container (by file or API) or the author reports the work as saved. True the first time."""
    workload = attempt.workload
    with durable():
        if not Attempt.objects.filter(pk=attempt.pk, ready_at=None, finished_at=None).update(ready_at=now):
            return False
        if by is not None:
            audit.record(by, "workload.ready", workload.public_id, department=workload.department)
        emit("workload.ready", department=workload.department, workload=workload.public_id, attempt=attempt.number)
        wake("workloads.converge", workload=workload.public_id)
    return True


def _notify_author(workload: Workload, attempt: Attempt, event: Event, state: State, reason: str) -> None:
    """Notify the author and the department's webhooks."""
    kind = {
        Event.RECALL: "workload.recalled",
        Event.WITHDRAW: "workload.withdrawn",
        Event.GONE_RECALLED: "workload.requeued",
        Event.LOST: "workload.lost",
        Event.RETRY: "workload.retried",
        Event.REJECT: "workload.rejected",
        Event.GONE_IDLE: "workload.idle_stopped",
    }.get(event) or {State.SUCCEEDED: "workload.succeeded", State.FAILED: "workload.failed"}.get(state)
    if kind is None:
        return
    leave_by = attempt.claim.leave_by
    facts: dict[str, Any] = {"reclaim_at": leave_by.isoformat()} if leave_by else {}
    quarantine = that_stops(attempt.claim) if event is Event.RECALL else None
    if quarantine is not None:
        kind, facts = "workload.quarantined", facts | {"place": quarantine.place, "why": quarantine.sentence}
    notices.send(
        kind,
        to=[workload.author] if workload.author else [],
        department=workload.department,
        workload=workload.public_id,
        name=workload.name,
        attempt=attempt.number,
        reason=reason,
        **facts,
    )
