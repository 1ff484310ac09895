"""The thirty days before the demo began: made-up requests, simulated with the real planner, and stored as past use.

It is the same on every machine, as the random numbers have a fixed seed. It has workloads, attempts, claims, ledger entries and
metered use, but no logs, files or decisions. Pages mark it as demo data (templates/_components/demo_history.html).
"""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from django.db import transaction

from portal.ids import new_id
from portal.models import Department, User
from quotas.engine import types as e
from quotas.models import Claim, ClaimState, LedgerEntry, Pool, PoolGroup, Quota, UsageHour, WorkHour
from quotas.planning.loan_entries import sources
from quotas.spending.metering import HOUR, hour_of, sum_hours
from workloads.demo.seed import GIB, PEOPLE, QUOTAS, TRAINING
from workloads.models import Attempt, Image, Kind, State, StopCause, Workload
from workloads.replay.demand import Demand, Job
from workloads.replay.history import Terms
from workloads.replay.simulation import Assumed, Simulation, Work
from workloads.replay.ways import planner

DAYS = 30
SEED = 27
AN_HOUR = 3600
BUSY = (9, 19)  # UTC hours with four fifths of the requests; at weekends there are a third as many
A_DAY = {"vision": 7.0, "translation": 5.0, "speech": 4.0, "robotics": 4.0, "biology": 6.0}  # requests in all pools
SIZES: dict[str, list[tuple[int, str, int | None]]] = {  # of a pod in each pool: units, MIG profile, percent of compute
    "a100": [(1, "", None), (1, "", None), (2, "", None), (2, "", None), (4, "", None)],
    "t4": [(6 * GIB, "", None), (10 * GIB, "", None), (15 * GIB, "", None)],
    "a100-mig": [(1, "1g.10gb", None), (2, "2g.20gb", None), (4, "3g.40gb", None)],
    "a100-hami": [(8 * GIB, "", 25), (10 * GIB, "", 50)],
}
HOURS = [0.5, 2, 4, 8, 12, 20, 30]  # how long they run
LAST = 8 * AN_HOUR  # before the end, in which the workloads that would run on have ended, too
CHECKPOINT = dt.timedelta(minutes=30)  # jobs save one so often
KINDS = [Kind.JOB, Kind.JOB, Kind.JOB, Kind.NOTEBOOK]
NAMES = {
    "vision": ["detector", "segmentation", "pose"], "translation": ["nmt-base", "nmt-large", "alignment"],
    "speech": ["recognition", "synthesis", "diarization"], "robotics": ["grasping", "simulation", "navigation"],
    "biology": ["folding", "docking", "cell-atlas"],
}  # fmt: skip


class Span(NamedTuple):
    """One attempt: begin and end in seconds since 1970."""

    claim: e.Claim
    begin: int
    end: int


class Share(NamedTuple):
    """Units of an attempt from one source, from `begin` until `end`: its department's guarantee, a lender, or unassigned
    capacity."""

    span: Span
    own: bool
    lender: str
    units: int
    begin: int
    end: int


class Recorder(Simulation):
    """A simulation that records every attempt."""

    def __init__(self, *args: object) -> None:
        self._chance = random.Random(SEED)  # noqa: S311
        self.spans: list[Span] = []
        super().__init__(*args)  # type: ignore[arg-type]

    def _end_attempt(self, work: Work) -> None:
        self._remember(work)
        super()._end_attempt(work)

    def _remember(self, work: Work, before: int = 0) -> None:
        claim = replace(work.claim, state=e.ClaimState.HOLDING)
        self.spans.append(Span(claim, work.started_at, max(work.started_at + 1, self._now - before)))

    def spans_of_all(self) -> list[Span]:
        """Simulates all, and returns the attempts. Those still running end at some time before the history does: the demo has
        its own workloads."""
        self.play()
        running = [work for work in self._live.values() if work.claim.state is not e.ClaimState.PENDING]
        for work in sorted(running, key=lambda work: work.started_at):
            self._remember(work, self._chance.randrange(LAST))
        return self.spans


def shares_of(spans: list[Span], rules: e.Snapshot) -> Iterator[Share]:
    """The ledger of these attempts: settled, as in the portal, whenever one begins or ends, for others may then use what is
    guaranteed to their department."""
    open_: dict[tuple[str, bool, str], Share] = {}
    for now in sorted({moment for span in spans for moment in (span.begin, span.end)}):
        running = {span.claim.id: span for span in spans if span.begin <= now < span.end}
        due = sources(replace(rules, now=now, claims=tuple(span.claim for span in running.values())))
        for source, share in list(open_.items()):
            if due.get(source) != share.units:
                yield open_.pop(source)._replace(end=now)
        for (claim, own, lender), units in due.items():
            open_.setdefault((claim, own, lender), Share(running[e.ClaimId(claim)], own, lender, units, now, now))


def fill(now: dt.datetime) -> int:
    """Writes the days before `now`, and returns the number of attempts. Does nothing if any use has been metered already."""
    if UsageHour.objects.exists():
        return 0
    end = hour_of(now)
    begin = end - dt.timedelta(days=DAYS)
    shares = [share for group in PoolGroup.objects.all() for share in _play(group, begin, end)]
    with transaction.atomic():
        attempts = _write(shares, begin, end)
    sum_hours(now=now)
    return attempts


def _play(group: PoolGroup, begin: dt.datetime, end: dt.datetime) -> list[Share]:
    slugs = [pool.slug for pool in group.pools.all() if pool.slug in SIZES]
    jobs = sorted((job for slug in slugs for job in _jobs(slug, begin)), key=lambda job: job.request.submitted_at)
    if not jobs:
        return []
    demand = Demand(int(begin.timestamp()), int(end.timestamp()), tuple(jobs))
    rules = Terms.of(group).snapshot(begin)
    spans = Recorder(rules, demand, planner, Assumed(between_passes=900)).spans_of_all()
    return list(shares_of(spans, rules))


def _jobs(slug: str, begin: dt.datetime) -> Iterator[Job]:
    chance = random.Random(f"{SEED} {slug}")  # noqa: S311 - made-up demand, the same every time
    people = {person.department: person.username for person in PEOPLE if person.department}
    people["vision"] = "alice"
    for department, (guaranteed, borrow_limit, _lend) in QUOTAS[slug].items():
        most = guaranteed + (borrow_limit if borrow_limit is not None else guaranteed)
        for number, at in enumerate(_times(chance, begin, A_DAY.get(department, 0.0) / len(SIZES) * 2.2)):
            units, profile, cores = chance.choice([size for size in SIZES[slug] if size[0] <= most] or [SIZES[slug][0]])
            yield Job(
                e.Claim(
                    id=e.ClaimId(f"{slug}-{department}-{number}"), department=e.DepartmentId(department), pool=e.PoolId(slug),
                    units_per_pod=units, state=e.ClaimState.PENDING, submitted_at=at, queued_at=at, user=people[department],
                    profile=profile or None, cores_per_pod=cores, cpu_milli=4000, memory_mib=16 * GIB,
                ),
                work=int(chance.choice(HOURS) * AN_HOUR * chance.uniform(0.7, 1.3)), saves_on_notice=True,
            )  # fmt: skip


def _times(chance: random.Random, begin: dt.datetime, a_day: float) -> Iterator[int]:
    """The times of requests in seconds since 1970, in order; `a_day` is their mean number a day."""
    for hour in range(DAYS * 24):
        at = begin + hour * HOUR
        share = 0.8 / (BUSY[1] - BUSY[0]) if BUSY[0] <= at.hour < BUSY[1] else 0.2 / (24 - BUSY[1] + BUSY[0])
        share *= 1 / 3 if at.weekday() >= 5 else 1
        for _ in range(int(a_day * share + chance.random())):
            yield int(at.timestamp()) + chance.randrange(AN_HOUR)


def _write(shares: list[Share], begin: dt.datetime, end: dt.datetime) -> int:
    """Stores the attempts with their shares, and returns their number."""
    chance = random.Random(SEED)  # noqa: S311
    at_start = dict.fromkeys((share.span for share in shares), 0)  # own units
    for share in shares:
        at_start[share.span] += share.units if share.own and share.begin == share.span.begin else 0
    runs: dict[e.ClaimId, list[Span]] = defaultdict(list)
    for span in sorted(at_start, key=lambda span: (span.claim.submitted_at, span.claim.id, span.begin)):
        runs[span.claim.id].append(span)
    known = Known()
    workloads = [known.workload(number, spans, chance) for number, spans in enumerate(runs.values(), start=1)]
    made = [
        (span, claim := known.claim(workload, span, at_start[span]), known.attempt(workload, number, span, claim))
        for workload, spans in zip(workloads, runs.values(), strict=True) for number, span in enumerate(spans, start=1)
    ]  # fmt: skip
    Workload.objects.bulk_create(workloads, batch_size=500)
    Claim.objects.bulk_create([claim for _span, claim, _attempt in made], batch_size=500)
    Attempt.objects.bulk_create([attempt for _span, _claim, attempt in made], batch_size=500)
    claims = {span: claim for span, claim, _attempt in made}
    entries = LedgerEntry.objects.bulk_create(
        [
            LedgerEntry(
                claim=claims[share.span], pool=claims[share.span].pool, department=claims[share.span].department,
                own=share.own, lender=known.departments[share.lender] if share.lender else None, units=share.units,
                started_at=_moment(share.begin), ended_at=_moment(share.end),
            )
            for share in shares
        ], batch_size=500,
    )  # fmt: skip
    _meter(entries, begin, end)
    return len(made)


class Known:
    """The rows that the past refers to, and new rows that refer to them."""

    def __init__(self) -> None:
        self.departments = {row.slug: row for row in Department.objects.all()}
        self.pools = {row.slug: row for row in Pool.objects.select_related("group__cluster")}
        self.users = {row.username: row for row in User.objects.all()}
        self.image = Image.objects.get(name=TRAINING)

    def workload(self, number: int, runs: list[Span], chance: random.Random) -> Workload:
        """The workload that ran in `runs`, which are in order: preempted after each of them but the last."""
        request, submitted, ended = runs[0].claim, _moment(runs[0].claim.submitted_at), _moment(runs[-1].end)
        return Workload(
            public_id=new_id(at=submitted), name=f"{chance.choice(NAMES[request.department])}-{number}",
            department=self.departments[request.department], pool=self.pools[request.pool], author=self.users[request.user],
            kind=chance.choice(KINDS), image=self.image, command=["train"], units_per_pod=request.units_per_pod,
            profile=request.profile or "", cores_per_pod=request.cores_per_pod, cpu_milli=request.cpu_milli,
            memory_mib=request.memory_mib, state=State.SUCCEEDED, attempts_made=len(runs), reclaims=len(runs) - 1, exit_code=0,
            submitted_at=submitted, state_since=ended, finished_at=ended, files_removed_at=ended,
        )  # fmt: skip

    def claim(self, workload: Workload, span: Span, own: int) -> Claim:
        return Claim(
            workload=workload.public_id, name=workload.name, kind=workload.kind, department=workload.department,
            pool=workload.pool, user=workload.author, person=span.claim.user, units_per_pod=workload.units_per_pod,
            profile=workload.profile, cores_per_pod=workload.cores_per_pod, state=ClaimState.RELEASED,
            submitted_at=workload.submitted_at, queued_at=_queued(span), started_at=_moment(span.begin),
            released_at=_moment(span.end), own=own, borrowed=span.claim.units - own,
        )  # fmt: skip

    def attempt(self, workload: Workload, number: int, span: Span, claim: Claim) -> Attempt:
        begin, end, last = _moment(span.begin), _moment(span.end), number == workload.attempts_made
        checkpoints = (end - begin) // CHECKPOINT if workload.kind == Kind.JOB else 0
        return Attempt(
            workload=workload, claim=claim, number=number, cluster=workload.pool.group.cluster,
            run_name=f"w-{workload.public_id}-{number}",
            submission_id=new_id(at=begin), queued_at=_queued(span), admitted_at=begin, created_at=begin, started_at=begin,
            checkpointed_at=begin + checkpoints * CHECKPOINT if checkpoints else None,
            ready_at=None if last else end, stop_cause="" if last else StopCause.RECALLED, finished_at=end, removed_at=end,
            outcome="succeeded" if last else "recalled", exit_code=0 if last else None,
        )  # fmt: skip


def _queued(span: Span) -> dt.datetime:
    return _moment(span.claim.submitted_at if span.claim.queued_at is None else span.claim.queued_at)


def _moment(seconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC)


def _meter(entries: list[LedgerEntry], begin: dt.datetime, end: dt.datetime) -> None:
    """Writes at once the hourly sums that metering would have written (quotas/spending/metering.py)."""
    used: dict[tuple[int, int, int, str, str, bool, int | None], int] = defaultdict(int)
    sums: dict[tuple[int, int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for entry in entries:
        claim, department, pool, lender = entry.claim, entry.department_id, entry.pool_id, entry.lender_id
        at, until = int(entry.started_at.timestamp()), int((entry.ended_at or end).timestamp())
        while at < until:
            hour = at - at % AN_HOUR
            spent = entry.units * (min(until, hour + AN_HOUR) - at)
            used[hour, department, pool, claim.person, claim.kind, entry.own, lender] += spent
            sums[hour, department, pool]["own" if entry.own else "borrowed"] += spent
            if lender is not None:
                sums[hour, lender, pool]["lent"] += spent
            at = hour + AN_HOUR
    quotas = list(Quota.objects.all())
    moments = {int((begin + number * HOUR).timestamp()): begin + number * HOUR for number in range(DAYS * 24)}
    for hour in moments:
        for quota in quotas:
            sums[hour, quota.department_id, quota.pool_id]["guaranteed"] = quota.guaranteed * AN_HOUR
    UsageHour.objects.bulk_create(
        [
            UsageHour(hour=moments[hour], department_id=d, pool_id=p, **columns)
            for (hour, d, p), columns in sums.items()
        ],
        batch_size=2_000,
    )
    WorkHour.objects.bulk_create(
        [
            WorkHour(
                hour=moments[hour], department_id=d, pool_id=p, person=person, kind=kind, own=own, lender_id=lender,
                unit_seconds=spent,
            )
            for (hour, d, p, person, kind, own, lender), spent in used.items()
        ], batch_size=2_000,
    )  # fmt: skip
