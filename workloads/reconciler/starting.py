"""Many workloads that the plan has just admitted, started together: two transactions for a batch instead of two for each.

Who admits here is the first who may ask the cluster, so the driver need not look whether the run is there already. Killed
anywhere, it leaves what converge.py finds: an admitted attempt is looked for, and created if it is not there.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

import orjson
import structlog
from django.db.models import F, OuterRef, Subquery
from django.utils import timezone

from portal.infra.locks import durable
from portal.models import Event as EventRow
from portal.notify.events import emit_all
from quotas.models import Claim, ClaimState
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import BY_CLAIM, ROWS, to_start
from workloads.lifecycle import Event, State, step
from workloads.models import Attempt, Kind, Workload
from workloads.reconciler import transitions
from workloads.runtime.base import EXCEEDED, ClusterError, Observed, Refused

log = structlog.get_logger(__name__)
BATCH, FEW = 64, 4


def start(claims: Iterable[str], creators: Executor) -> list[str]:
    """Admits and creates what the claims (public ids) were given capacity for. Returns the claims that need another look:
    they are in another state than just admitted."""
    fresh: list[Attempt] = []
    others: list[Attempt] = []
    for attempt in _live(set(claims)):
        workload = attempt.workload
        new = workload.state == State.QUEUED and attempt.claim.state == ClaimState.HOLDING
        alone = workload.kind in (Kind.JOB, Kind.NOTEBOOK)  # others need their department's namespace kept first
        (fresh if new and alone and workload.cancel_requested_at is None else others).append(attempt)
    creating: list[Creating] = []
    for batch in _batches(fresh):
        mine = _move(batch, State.QUEUED, Event.ADMIT)
        creating.append((mine, creators.map(_create, mine)))  # they begin at once
        if len(creating) > 1:  # while these are created, what became of those before is written down
            others += _created(*creating.pop(0))
    for each in creating:
        others += _created(*each)
    return [attempt.claim.public_id for attempt in others]


def _live(claims: set[str]) -> Iterable[Attempt]:
    if len(claims) <= FEW:
        return [attempt for claim in claims for attempt in BY_CLAIM.all(claim) if attempt.finished_at is None]
    rows = Attempt.objects.filter(claim__public_id__in=claims, finished_at=None)
    return rows.select_related(*ROWS).order_by("pk")


Creating = tuple[Sequence[Attempt], Iterator[ClusterError | None]]


def _created(mine: Sequence[Attempt], errors: Iterator[ClusterError | None]) -> list[Attempt]:
    """Waits for a batch and notes it. Returns those that the second lock turned away: it is behind, and brought up to date
    by a closer look."""
    created, refused, exceeded = [], [], []
    for attempt, error in zip(mine, errors, strict=True):
        if error is None:
            created.append(attempt)
        elif isinstance(error, Refused) and error.code != EXCEEDED:
            refused.append((attempt, error))
        elif isinstance(error, Refused):
            exceeded.append(attempt)
        else:  # the next reconcile tries again
            log.warning("cluster.unreachable", cluster=attempt.cluster.name, run=attempt.run_name, error=str(error))
    _move(created, State.ADMITTED, Event.CREATED)
    for attempt, error in refused:
        transitions.happened(attempt, Event.REFUSED, now=timezone.now(), reason=error.code, message=error.detail)
    return exceeded


def _batches(attempts: Sequence[Attempt]) -> Iterator[Sequence[Attempt]]:
    for at in range(0, len(attempts), BATCH):
        yield attempts[at : at + BATCH]


def _create(attempt: Attempt) -> ClusterError | None:
    """In a thread of its own, without the database."""
    try:
        driver_for(attempt.cluster).ensure(replace(to_start(attempt), untried=True))
    except ClusterError as error:
        return error
    return None


def begun(seen: Sequence[tuple[Attempt, Observed]]) -> None:
    """Starting attempts whose processes run, with what the cluster tells of each."""
    runs = {attempt.pk: run for attempt, run in seen}
    for batch in _batches([attempt for attempt, _ in seen]):
        _move(batch, State.STARTING, Event.STARTED, runs)


def _move(
    attempts: Sequence[Attempt], state: State, event: Event, runs: Mapping[int, Observed] | None = None
) -> list[Attempt]:
    """Those that still stand in `state`, moved on in one transaction, as transitions.happened does it for one."""
    if not attempts:
        return []
    now, after = timezone.now(), step(state, event)
    values = {"state": after, "state_since": now, "version": F("version") + 1}
    with durable():
        mine = _moved_one(attempts[0], state, values) if len(attempts) == 1 else _moved(attempts, state, values)
        _note(mine, event, now, runs or {})
        emit_all(
            EventRow(
                kind=f"workload.{after.value}", department_id=attempt.workload.department_id,
                workload=attempt.workload.public_id,
                data={"attempt": attempt.number, "event": event.value, "reason": ""},
            )
            for attempt in mine
        )  # fmt: skip
    for attempt in mine:
        attempt.workload.state = after
        if event is Event.ADMIT:
            attempt.placement, attempt.grace = attempt.claim.placement, attempt.claim.grace
    return mine


def _moved(attempts: Sequence[Attempt], state: State, values: Mapping[str, object]) -> list[Attempt]:
    """Locked in the order of their keys: two batches never wait for each other."""
    rows = Workload.objects.select_for_update(no_key=True, of=("self",)).order_by("pk")
    made = dict(rows.filter(pk__in=[a.workload_id for a in attempts], state=state).values_list("pk", "attempts_made"))
    mine = [attempt for attempt in attempts if made.get(attempt.workload_id) == attempt.number]
    Workload.objects.filter(pk__in=[a.workload_id for a in mine]).update(**values)
    return mine


def _moved_one(attempt: Attempt, state: State, values: Mapping[str, object]) -> list[Attempt]:
    row = Workload.objects.filter(pk=attempt.workload_id, state=state, attempts_made=attempt.number)
    return [attempt] if row.update(**values) else []


def _note(attempts: list[Attempt], event: Event, now: dt.datetime, runs: Mapping[int, Observed]) -> None:
    rows = Attempt.objects.filter(pk__in=[attempt.pk for attempt in attempts])
    match event:
        case Event.CREATED:
            rows.update(created_at=now)
        case Event.STARTED:
            _note_begun(attempts, now, runs)
        case _ if len(attempts) == 1:
            own = attempts[0].claim
            rows.update(admitted_at=now, placement=own.placement, notice=own.notice, grace=own.grace)
        case _:
            claim = Claim.objects.filter(pk=OuterRef("claim_id"))
            frozen = {name: Subquery(claim.values(name)[:1]) for name in ("placement", "notice", "grace")}
            rows.update(admitted_at=now, **frozen)


def _note_begun(attempts: list[Attempt], now: dt.datetime, runs: Mapping[int, Observed]) -> None:
    """A node's pods begin in the same second: one statement for all of whom the same is told, another for their claims."""
    told = {attempt: transitions.read_back(runs[attempt.pk], now) for attempt in attempts}
    alike: dict[bytes, list[Attempt]] = defaultdict(list)
    since: dict[dt.datetime, list[int]] = defaultdict(list)
    for attempt, facts in told.items():
        alike[orjson.dumps(facts)].append(attempt)
        since[facts["started_at"]].append(attempt.claim_id)
    for same in alike.values():
        Attempt.objects.filter(pk__in=[a.pk for a in same]).update(**told[same[0]], reason="", message="")
    for at, claims in since.items():
        Claim.objects.filter(pk__in=claims).update(started_at=at)
