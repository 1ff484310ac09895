"""Simulates demand: a clock, and the state of each job. Deterministic, in whole seconds.

A way of sharing (ways.py) returns plans as the portal's planner does, and they are carried out as in the portal: admitted jobs
run; preempted ones get their notice, then SIGTERM and their grace, and are queued again with their original time and a backoff,
unless the preemption is withdrawn. Each event causes a planning pass, but no sooner than `between_passes` after the last one.

A job makes one second of progress a second while it runs, after `restart` seconds of starting up in every attempt but the first.
When it is stopped, it continues later from its last checkpoint. A job that saves on notice writes a checkpoint and leaves
`saving` seconds after it is preempted.

A recall holds units without running anything, as in the portal: what its department starts later draws from it. A calendar
changes the departments over time (lending windows), and returns the recalls that become due by that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, Protocol

from quotas.engine.queue import queue_order
from quotas.engine.quota_tree import Ledger, Loan, loans_in_use, standing_of
from quotas.engine.types import (
    UNASSIGNED,
    Claim,
    ClaimId,
    ClaimState,
    Decision,
    DecisionKind,
    Department,
    DepartmentId,
    Plan,
    Pool,
    PoolId,
    Reservation,
    Snapshot,
)
from quotas.engine.units import card_units, grace_of, notice_of, stranded_units
from quotas.spending.decay import Decaying, Lately
from workloads.lifecycle import backoff, is_exhausted
from workloads.replay.accounting import Line, Outcome, Record
from workloads.replay.demand import Demand, Job
from workloads.replay.ways import Way


@dataclass(frozen=True, slots=True)
class Assumed:
    """Assumptions of a simulation, durations in seconds. By pool: `most_recalls` after which a job is ended (default: never),
    `half_lives` of balances (default: no balances), and `lately`, what was borrowed and lent before the begin (default: nothing).
    With `coarseness`, passes become rarer over time: the pause between them is at least this part of the time since the begin."""

    checkpoint_every: int = 1800
    restart: int = 60
    saving: int = 60
    between_passes: int = 60
    coarseness: float = 0
    most_recalls: Mapping[PoolId, int] = field(default_factory=dict)
    half_lives: Mapping[PoolId, int] = field(default_factory=dict)
    lately: Mapping[PoolId, Mapping[DepartmentId, Lately]] = field(default_factory=dict)


class Calendar(Protocol):
    """Rules that change with time, such as lending windows."""

    def turns(self) -> Iterable[int]:
        """The times at which `departments` change."""

    def departments(self, now: int) -> tuple[Department, ...]: ...

    def due(self, snapshot: Snapshot) -> Iterable[tuple[Claim, int]]:
        """The pending recalls that are due now, each with the seconds that it lasts."""


class Work:
    """The state of a job. `saved` are the seconds of its work in checkpoints. `version` increases with each change of its state,
    so that outdated events are ignored. `goes_at` is when a preempted job gets SIGTERM: at its deadline, or once it has saved."""

    __slots__ = (
        "assumed",
        "checkpoint_every",
        "claim",
        "entitled_since",
        "goes_at",
        "promised",
        "record",
        "saved",
        "version",
    )

    def __init__(self, job: Job, assumed: Assumed) -> None:
        self.assumed, self.claim, self.record = assumed, job.request, Record(job)
        self.checkpoint_every = assumed.checkpoint_every if job.checkpoint_every is None else job.checkpoint_every
        self.saved = self.version = 0
        self.entitled_since: int | None = None
        self.promised: int | None = None
        self.goes_at: int | None = None

    @property
    def id(self) -> ClaimId:
        return self.claim.id

    @property
    def started_at(self) -> int:
        return self.claim.started_at or 0

    @property
    def makes_progress_at(self) -> int:
        """When the present attempt has started up and makes progress."""
        return self.started_at + (self.assumed.restart if self.record.attempts > 1 else 0)

    @property
    def finishes_at(self) -> int:
        if self.claim.is_recall:  # it ends at its time, whenever it began
            return self.claim.submitted_at + self.record.job.work
        return self.makes_progress_at + self.record.job.work - self.saved

    def progress(self, now: int) -> int:
        """Seconds of work that the present attempt has done."""
        return max(0, now - self.makes_progress_at)

    def in_checkpoints(self, now: int) -> int:
        """The part of `progress` that its checkpoints have."""
        made = self.progress(now)
        return made - made % self.checkpoint_every if self.checkpoint_every else 0


class Event(NamedTuple):
    """Something that happens to a job at a time; ignored if the job's version has changed by then."""

    at: int
    turn: int
    kind: str
    work: Work | None
    version: int


class Idle(NamedTuple):
    """Units of a pool that are free although a department waits, and the rule that is the reason."""

    pool: PoolId
    rule: str
    department: DepartmentId
    units: int


class Simulation:
    """One replay of `demand` under `rules`, a snapshot without claims. The requests of jobs `under_way` at the begin have their
    present state, times and placement; their `work` counts from their start. What they hold on drained or lost cards is no part
    of the capacity: it becomes free for nobody. `counts_lent`: count what each department lends also in pools without balances,
    which about doubles the time of a replay."""

    def __init__(
        self, rules: Snapshot, demand: Demand, way: Way, assumed: Assumed, under_way: Sequence[Job] = (),
        calendar: Calendar | None = None, *, counts_lent: bool = False,
    ) -> None:  # fmt: skip
        self._rules, self._way, self._assumed, self._calendar = rules, way, assumed, calendar
        self._now, self._begin, self._end = demand.begin, demand.begin, demand.end
        self._pools = {pool.id: pool for pool in rules.pools}
        self._ledgers = {id: Ledger(pool, rules.departments) for id, pool in self._pools.items()}
        self._free = {id: ledger.capacity for id, ledger in self._ledgers.items()}
        self._lately = {
            id: Decaying(half_life, demand.begin // 3600, assumed.lately.get(id, {}))
            for id, half_life in assumed.half_lives.items()
        }
        self._counted = tuple(self._pools) if counts_lent else tuple(self._lately)
        self._stranded = _stranded(self._pools.values(), under_way)
        self._loans: dict[PoolId, tuple[Loan, ...]] = {}  # cached until units of the pool change
        self._recalls: dict[PoolId, int] = dict.fromkeys(self._pools, 0)  # number of recalls that hold units
        self._cards = {id: 1 / (card_units(pool) or 1) for id, pool in self._pools.items()}
        self._lines = {
            (id, pool): Line(id, pool, account.guaranteed, self._cards[pool])
            for pool, ledger in self._ledgers.items()
            for id, account in ledger.accounts.items()
        }
        self._works = [Work(job, assumed) for job in demand.jobs]
        self._min_runtime = max((job.request.min_runtime for job in demand.jobs), default=0)
        self._live: dict[ClaimId, Work] = {}
        self._idle: list[Idle] = []
        self._events: list[Event] = []
        self._turn = count()
        self._changed = self._planned = False
        self._last_pass = demand.begin - assumed.between_passes
        records = [work.record for work in self._works]
        cards = sum(ledger.capacity * self._cards[id] for id, ledger in self._ledgers.items())
        self._outcome = Outcome(demand.begin, demand.end, cards, records, [*self._lines.values()])
        for work in self._works:
            self._expect(work.claim.submitted_at, "arrive", work)
        for at in calendar.turns() if calendar else ():
            self._expect(max(at, demand.begin), "turn", None)
        for job in under_way:
            self._take_over(Work(job, assumed))

    @property
    def records(self) -> list[Record]:
        """The outcome of each job so far."""
        return self._outcome.records

    # The clock ----------------------------------------------------------------------------------------------------------

    def play(
        self, progress: Callable[[float], None] = lambda part: None, enough: Callable[[], bool] = lambda: False
    ) -> Outcome:
        """Simulates to the end, or until `enough`. Calls `progress` at every percent with the part of the time that is over."""
        percent = 0
        while self._events and self._events[0].at < self._end and not enough():
            at = self._events[0].at
            self._pass_time(at)
            while self._events and self._events[0].at == at:
                self._happen(heappop(self._events))
            if self._changed and not self._planned and self._live:
                self._planned = True
                pause = max(self._assumed.between_passes, int(self._assumed.coarseness * (at - self._begin)))
                self._expect(max(at, self._last_pass + pause), "plan", None)
            over = (at - self._begin) * 100 // (self._end - self._begin)
            if over > percent:
                percent = over
                progress(percent / 100)
        self._pass_time(self._end)
        for work in self._live.values():
            self._end_entitlement(work)
            if work.claim.state is not ClaimState.PENDING:  # its work so far is not lost
                self._lose(work, min(self._now, work.makes_progress_at) - work.started_at)
        return self._outcome

    def _expect(self, at: int, kind: str, work: Work | None) -> None:
        heappush(self._events, Event(at, next(self._turn), kind, work, work.version if work else 0))

    def _pass_time(self, until: int) -> None:
        seconds, self._now = until - self._now, until
        if not seconds:
            return
        self._outcome.pass_time(until - seconds, until)
        for pool in self._counted:
            self._count_loans(pool, until - seconds, until)
        waiting: dict[PoolId, int] = dict.fromkeys(self._pools, 0)
        for line in self._outcome.lines:
            waiting[line.pool] += line.waiting_now
        left = {pool: min(self._free[pool], units) for pool, units in waiting.items()}
        idle = (
            [Idle(pool, "no_pass_yet", DepartmentId(""), left[pool]) for pool in left] if self._changed else self._idle
        )
        for pool, rule, department, units in idle:
            part = min(left[pool], units)
            left[pool] -= part
            if part:
                self._outcome.idle[rule, department] += round(part * seconds * self._cards[pool])

    def _count_loans(self, pool: PoolId, since: int, until: int) -> None:
        """Counts what departments borrow and lend from `since` until `until`, as the portal does from its ledger."""
        if pool not in self._loans:
            self._loans[pool] = loans_in_use(self._present(), pool)
        for loan in self._loans[pool]:
            if loan.lender != UNASSIGNED:
                self._lines[loan.lender, pool].lent += loan.units * (until - since)
        lately = self._lately.get(pool)
        if lately is None:
            return
        for hour, seconds in Decaying.by_hours(since, until):
            lately.pass_to(hour)
            for loan in self._loans[pool]:
                lately.count(loan.borrower, borrowed=loan.units * seconds)
                if loan.lender != UNASSIGNED:
                    lately.count(loan.lender, lent=loan.units * seconds)

    def _happen(self, event: Event) -> None:
        work = event.work
        if work is None and event.kind == "turn":
            self._change_departments()
        elif work is None:
            self._plan()
        elif event.version == work.version:
            HAPPENS[event.kind](self, work)
            self._changed = True

    def _take_over(self, work: Work) -> None:
        """Adds a job that waits, runs or leaves already at the begin."""
        record, pool, settings = work.record, self._pools[work.claim.pool], self._rules.settings
        claim = work.claim
        notice, grace = notice_of(claim, pool, settings), grace_of(claim, pool, settings)
        work.claim = claim = replace(claim, notice=notice, grace=grace)
        self._outcome.records.append(record)
        self._changed = True
        record.job = replace(record.job, request=_requeued(claim))
        if claim.state is ClaimState.PENDING:
            self._expect(self._now, "arrive", work)
            return
        record.attempts, record.first_start = 1, claim.started_at
        self._live[claim.id] = work
        self._use(work)
        if claim.state is ClaimState.HOLDING:
            self._recalls[claim.pool] += claim.is_recall
            self._charge(work, claim.units)
            self._expect(max(self._now, work.finishes_at), "finish", work)
            return
        if claim.leave_by is not None and claim.leave_by > self._now:
            work.goes_at = claim.leave_by
            self._expect(claim.leave_by, "go", work)
        else:  # it has had SIGTERM
            self._expect(self._now + (claim.grace or 0), "leave", work)

    # What happens to a job ----------------------------------------------------------------------------------------------

    def _arrive(self, work: Work) -> None:
        """Queues the job, for the first time or again."""
        self._live[work.id] = work
        self._wait(work, work.claim.units)
        if work.claim.backoff_until is not None:
            self._expect(work.claim.backoff_until, "look", work)
        self._expect(work.claim.waiting_since + self._rules.settings.starvation_after + 1, "look", work)

    def _look(self, work: Work) -> None:
        """Only causes a pass: the plan may change although only time has passed."""

    def _start(self, work: Work, decision: Decision) -> None:
        claim, pool, settings = work.claim, self._pools[work.claim.pool], self._rules.settings
        self._end_entitlement(work)
        work.record.broken |= work.promised is not None and self._now > work.promised + self._assumed.between_passes
        work.promised = None
        work.version += 1
        work.record.attempts += 1
        if work.record.first_start is None:
            work.record.first_start = self._now
        work.claim = replace(
            claim, state=ClaimState.HOLDING, started_at=self._now, reserved=None, placement=decision.placement,
            notice=notice_of(claim, pool, settings), grace=grace_of(claim, pool, settings),
            checkpoint_every=work.checkpoint_every or None,
        )  # fmt: skip
        self._wait(work, -claim.units)
        self._use(work)
        self._recalls[claim.pool] += claim.is_recall
        self._charge(work, claim.units)
        if self._free[claim.pool] < 0:
            raise ValueError(f"{claim.id} starts where nothing is free")
        self._expect(work.finishes_at, "finish", work)
        if claim.max_runtime is not None:
            self._expect(self._now + claim.max_runtime, "finish", work)
        if claim.min_runtime:
            self._expect(self._now + claim.min_runtime, "look", work)

    def _finish(self, work: Work) -> None:
        if work.claim.state is ClaimState.PENDING:  # a recall that ends before it has got its units
            self._refuse(work)
            return
        self._lose(work, min(self._now, work.makes_progress_at) - work.started_at)
        self._end_attempt(work)
        work.record.finished_at = self._now

    def _end_attempt(self, work: Work) -> None:
        claim = work.claim
        del self._live[claim.id]
        work.version += 1
        work.goes_at = None
        self._use(work, ends=True)
        self._stranded.pop(claim.id, None)
        if claim.state is ClaimState.HOLDING:
            self._recalls[claim.pool] -= claim.is_recall
            self._charge(work, -claim.units, once_more=claim.is_recall)

    def _preempt(self, work: Work, preemptor: ClaimId) -> None:
        """Its notice begins. From now on it is not charged, as if it had left already."""
        claim = work.claim
        leave_by = self._now + notice_of(claim, self._pools[claim.pool], self._rules.settings)
        work.claim = replace(claim, state=ClaimState.LEAVING, leave_by=leave_by, preempted_for=preemptor)
        self._charge(work, -claim.units)
        saves = work.record.job.saves_on_notice
        work.goes_at = min(leave_by, self._now + self._assumed.saving) if saves else leave_by
        self._expect(work.goes_at, "go", work)

    def _withdraw(self, work: Work) -> None:
        """Withdraws the preemption: the job goes on."""
        claim = work.claim
        work.claim, work.goes_at = replace(claim, state=ClaimState.HOLDING, leave_by=None, preempted_for=None), None
        self._charge(work, claim.units)

    def _go(self, work: Work) -> None:
        """SIGTERM: this cannot be withdrawn. A job that has saved leaves at once, others use all of their grace."""
        if work.goes_at != self._now:
            return  # the preemption was withdrawn meanwhile
        job, claim = work.record.job, work.claim
        made = work.progress(self._now)
        has_saved = job.saves_on_notice and (claim.notice or 0) >= self._assumed.saving
        stays = 0 if has_saved else claim.grace or 0
        kept_work = made if has_saved else work.in_checkpoints(self._now)
        self._lose(work, self._now - work.started_at - kept_work + stays)
        work.saved += kept_work
        work.version += 1  # it does not finish any more
        work.claim = replace(claim, leave_by=self._now)
        self._expect(self._now + stays, "leave", work)

    def _leave(self, work: Work) -> None:
        """The attempt has ended; the job is queued again with its original time, or refused after too many recalls."""
        record, request = work.record, work.record.job.request
        self._end_attempt(work)
        record.recalls += 1
        if is_exhausted(record.recalls, self._assumed.most_recalls.get(request.pool, record.recalls)):
            record.refused = True
            return
        wait = backoff(record.recalls)
        work.claim = replace(request, queued_at=self._now, backoff_until=self._now + wait)
        self._arrive(work)

    def _refuse(self, work: Work) -> None:
        """Removes a pending job that can never run, or a pending recall that is over."""
        del self._live[work.id]
        self._wait(work, -work.claim.units)
        work.version += 1
        work.record.refused = True

    def _lose(self, work: Work, seconds: int) -> None:
        work.record.lost += seconds
        self._line(work).lost += seconds * work.claim.units

    # Units ------------------------------------------------------------------------------------------------------------

    def _wait(self, work: Work, units: int) -> None:
        self._line(work).waiting_now += 0 if work.claim.is_recall else units

    def _use(self, work: Work, ends: bool = False) -> None:
        """Takes the job's units from the free ones, or returns them when it `ends`. Units that a recall holds are in nobody's
        use."""
        claim, sign = work.claim, -1 if ends else 1
        self._free[claim.pool] -= sign * self._present_units(claim)
        self._loans.pop(claim.pool, None)
        self._line(work).used_now += 0 if claim.is_recall else sign * claim.units

    def _present_units(self, claim: Claim) -> int:
        """What a claim that is not pending takes of the present capacity."""
        return claim.units - self._stranded.get(claim.id, 0)

    def _charge(self, work: Work, units: int, once_more: bool = False) -> None:
        """Charges its department. While recalls hold units, jobs draw from them, so the whole pool is recounted; `once_more`
        when a recall has just ended."""
        pool = work.claim.pool
        if self._recalls[pool] or once_more:
            self._recount(pool)
        else:
            self._ledgers[pool].add(work.claim.department, units)

    def _recount(self, pool: PoolId) -> None:
        claims = [work.claim for work in self._live.values() if work.claim.pool == pool]
        holding = [claim for claim in claims if claim.state is ClaimState.HOLDING]
        charges = standing_of(holding, self._now, self._rules.departments).charges
        ledger = self._ledgers[pool] = Ledger(self._pools[pool], self._rules.departments)
        ledger.fill((claim.department, charges[claim.id]) for claim in holding)
        leaving = sum(claim.units for claim in claims if claim.state is ClaimState.LEAVING)
        stranded = sum(self._stranded.get(claim.id, 0) for claim in claims)
        self._free[pool] = ledger.capacity - sum(charges.values()) - leaving + stranded

    def _change_departments(self) -> None:
        """Replaces the departments by those of the calendar at this time."""
        if self._calendar is None:
            return
        self._rules = replace(self._rules, departments=self._calendar.departments(self._now))
        self._loans.clear()
        for pool in self._pools:
            self._recount(pool)
        self._changed = True

    def _line(self, work: Work) -> Line:
        return self._lines[work.claim.department, work.claim.pool]

    # A pass -------------------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        self._changed = self._planned = False
        self._last_pass = self._now
        self._outcome.passes += 1
        self._note_entitled()
        for work in self._live.values():
            if work.claim.state is not ClaimState.PENDING:
                self._note_checkpoint(work)
        plan = self._way(self._snapshot())
        for id in plan.withdrawn:
            self._withdraw(self._live[id])
        for decision in plan.decisions:
            self._carry_out(decision)
        self._idle = [*self._idle_by_rule(plan)]

    def _present(self) -> Snapshot:
        return replace(self._rules, now=self._now, claims=tuple(work.claim for work in self._live.values()))

    def _snapshot(self) -> Snapshot:
        """The present snapshot with balances; queues the recalls that are due and includes them."""
        snapshot = self._present()
        if self._lately:
            for lately in self._lately.values():
                lately.pass_to(self._now // 3600)
            balances = {pool: lately.balances() for pool, lately in self._lately.items()}
            pools = [replace(pool, balances=balances.get(pool.id, pool.balances)) for pool in snapshot.pools]
            snapshot = replace(snapshot, pools=tuple(pools))
        due = (
            [Work(Job(claim, lasts), self._assumed) for claim, lasts in self._calendar.due(snapshot)]
            if self._calendar
            else []
        )
        for work in due:
            self._arrive(work)
            self._expect(work.finishes_at, "finish", work)
        return replace(snapshot, claims=(*snapshot.claims, *(work.claim for work in due))) if due else snapshot

    def _note_checkpoint(self, work: Work) -> None:
        saved = work.in_checkpoints(self._now)
        at = work.makes_progress_at + saved if saved else None
        if at != work.claim.checkpointed_at:
            work.claim = replace(work.claim, checkpointed_at=at)

    def _carry_out(self, decision: Decision) -> None:
        work = self._live[decision.claim]
        match decision.decision:
            case DecisionKind.ADMIT:
                self._start(work, decision)
            case DecisionKind.RECLAIM:
                reserved = Reservation(decision.own + decision.borrowed, decision.placement or ())
                if work.claim.reserved != reserved:
                    work.claim = replace(work.claim, reserved=reserved)
                work.promised = decision.by if work.promised is None else work.promised
                for victim in decision.victims:
                    self._preempt(self._live[victim], work.id)
            case DecisionKind.WAIT:
                if work.claim.reserved is not None:
                    work.claim = replace(work.claim, reserved=None)
            case DecisionKind.IMPOSSIBLE:
                self._refuse(work)

    def _note_entitled(self) -> None:
        """Notes since when each waiting job is inside its department's guaranteed quota, assuming that the jobs before it in the
        queue that are inside had started."""
        own_left = {key: self._ledgers[line.pool][line.department].own_left for key, line in self._lines.items()}
        may_be: list[Work] = []
        for work in self._live.values():
            claim = work.claim
            if claim.state is ClaimState.PENDING and not claim.is_recall:
                if claim.units <= own_left[claim.department, claim.pool]:
                    may_be.append(work)
                else:
                    self._not_entitled(work)
        inside: list[Work] = []
        for work in sorted(may_be, key=lambda work: queue_order(work.claim)):
            claim, ledger = work.claim, self._ledgers[work.claim.pool]
            if not ledger.inside(claim.department, claim.units):
                self._not_entitled(work)
                continue
            ledger.add(claim.department, claim.units)
            inside.append(work)
            if work.entitled_since is None:
                work.entitled_since = claim.submitted_at if work.record.inside is None else self._now
            if work.record.inside is None:
                work.record.inside = True
        for work in inside:
            self._ledgers[work.claim.pool].remove(work.claim.department, work.claim.units)

    def _not_entitled(self, work: Work) -> None:
        if work.record.inside is None:
            work.record.inside = False
        self._end_entitlement(work)

    def _end_entitlement(self, work: Work) -> None:
        """Ends its wait inside the guaranteed quota: it starts, or is not inside any more."""
        if work.entitled_since is None:
            return
        claim, settings, pool = work.claim, self._rules.settings, self._pools[work.claim.pool]
        back_within = notice_of(claim, pool, settings) + grace_of(claim, pool, settings) + self._min_runtime
        beyond = self._now - work.entitled_since - back_within - 2 * self._assumed.between_passes
        work.record.late = max(0, work.record.late or 0, beyond)
        work.entitled_since = None

    def _idle_by_rule(self, plan: Plan) -> Iterator[Idle]:
        """The free units although jobs wait, by rule: kept for reservations until leavers have left; refused to a job that would
        fit, by the first reason of its decision; or too few for any waiting job."""
        left = dict(self._free)
        coming = dict.fromkeys(left, 0)
        for leaver in self._live.values():
            if leaver.claim.state is ClaimState.LEAVING:
                coming[leaver.claim.pool] += self._present_units(leaver.claim)
        waiting: list[tuple[Decision, Work]] = []
        for decision in sorted(plan.decisions, key=lambda decision: decision.position):
            work = self._live.get(decision.claim)
            if work is None or decision.decision is DecisionKind.ADMIT:
                continue
            pool, units = work.claim.pool, work.claim.units
            if decision.decision is DecisionKind.WAIT:
                waiting.append((decision, work))
                continue
            by_leavers = min(units, coming[pool])
            coming[pool] -= by_leavers
            part = min(left[pool], units - by_leavers)
            left[pool] -= part
            yield Idle(pool, "reserved", work.claim.department, part)
        for decision, waits in waiting:
            pool, units = waits.claim.pool, waits.claim.units
            if 0 < units <= left[pool] and decision.reasons:
                left[pool] -= units
                yield Idle(pool, decision.reasons[0].code, waits.claim.department, units)
        for pool, units in left.items():
            yield Idle(pool, "too_little_for_anybody", DepartmentId(""), units)


def _stranded(pools: Iterable[Pool], under_way: Sequence[Job]) -> dict[ClaimId, int]:
    """Claim → units that it holds on drained or lost cards: they are no part of the capacity, and free nothing when it ends."""
    started = [job.request for job in under_way if job.request.state is not ClaimState.PENDING]
    return {
        id: units
        for pool in pools
        for id, units in stranded_units(pool, (claim for claim in started if claim.pool == pool.id)).items()
    }


def _requeued(claim: Claim) -> Claim:
    """The claim as it is queued again after it was stopped."""
    return replace(
        claim, state=ClaimState.PENDING, started_at=None, leave_by=None, preempted_for=None, reserved=None, placement=None,
        notice=None, grace=None,
    )  # fmt: skip


HAPPENS: dict[str, Callable[[Simulation, Work], None]] = {
    "arrive": Simulation._arrive,
    "look": Simulation._look,
    "finish": Simulation._finish,
    "go": Simulation._go,
    "leave": Simulation._leave,
}
