"""Simulates the queue several times with the planner itself, each time with other runtimes, for a range of starts of each waiting
claim.

New workloads are assumed to be submitted as on earlier days; quotas, nodes and rules to stay as they are. Pure; times are in
seconds since 1970.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType

from quotas.engine.types import Claim, ClaimId, ClaimState, PoolId, Snapshot
from workloads.estimates.runtimes import Chances, Class, Runtimes, Traits
from workloads.replay.demand import Demand, Job
from workloads.replay.simulation import Assumed, Calendar, Simulation
from workloads.replay.ways import planner

DAY = 86400
HORIZON = 7 * DAY
DAYS_BACK = 14
"""How many days back the day may be whose submissions are repeated."""
FOR_EVER = 10 * HORIZON
PLAYS, FEWEST = 16, 8
LOW, HIGH = 0.1, 0.9
CONFIDENCE = round(HIGH - LOW, 2)  # an 80 % range


@dataclass(frozen=True, slots=True)
class Estimate:
    """A claim starts between `low` and `high` in 80 of 100 cases, in half of them by `median`. `high` is None if it may not start
    within HORIZON. `latest`: when it starts if everything runs to its maximum runtime and nothing is queued before it; None if it
    may start later even then. `basis`: the class from which runtimes of the workloads that hold cards in its pool were drawn (at
    least half of the units have this class or a narrower one); None if none hold any. `plays`: the number of simulations."""

    low: int
    median: int
    high: int | None
    plays: int
    latest: int | None = None
    basis: Class | None = None


@dataclass(frozen=True, slots=True)
class NoEstimate:
    """Why there is no estimate: runtimes_unknown (a claim that runs or waits has no maximum runtime, and too few similar
    workloads have ended), beyond_horizon (in most simulations it does not start within HORIZON) or too_many (no time for FEWEST
    simulations)."""

    why: str


Estimates = dict[ClaimId, Estimate | NoEstimate]


def estimates(
    snapshot: Snapshot,
    traits: Mapping[ClaimId, Traits],
    runtimes: Runtimes,
    past: Sequence[Job] = (),
    out_of_time: Callable[[], bool] = lambda: False,
    *,
    ends: Mapping[ClaimId, int] = MappingProxyType({}),
    calendar: Callable[[], Calendar | None] = lambda: None,
    only: Collection[ClaimId] | None = None,
) -> Estimates:
    """Estimates for every pending claim of `snapshot`, or only for those in `only`. `traits`: those of its claims; a claim
    without traits, such as a recall, holds its units until its time in `ends`, or for ever. `past`: the jobs of the last days
    with their runtimes. `calendar`: called before each simulation for rules that change with time. The same input gives the same
    estimates, unless `out_of_time` ends the simulations earlier."""
    waiting = {claim.id for claim in snapshot.claims if claim.state is ClaimState.PENDING and not claim.is_recall}
    waiting = waiting if only is None else waiting & {*only}
    random = Random(snapshot.now)  # noqa: S311 nothing is secret here
    starts = {id: list[float]() for id in sorted(waiting)}
    plays = 0
    while starts and plays < PLAYS and not (plays and out_of_time()):
        drawn, come = _jobs(snapshot, traits, runtimes, random, ends), _arrivals(past, snapshot.now, random)
        for id, at in _play(snapshot, waiting, drawn, come, calendar()).items():
            starts[id].append(at)
        plays += 1
    if plays < FEWEST:
        return {id: NoEstimate("too_many") for id in starts}
    unknown = any(
        claim.id in traits and claim.max_runtime is None and runtimes.like(traits[claim.id]) is None
        for claim in snapshot.claims
    )
    at_limits = _play(snapshot, waiting, _at_limits(snapshot, traits, ends), (), calendar())
    pools, basis = {claim.id: claim.pool for claim in snapshot.claims}, _basis(snapshot, traits, runtimes)
    return {id: _of(sorted(ats), unknown, at_limits[id], basis.get(pools[id])) for id, ats in starts.items()}


def _of(starts: list[float], unknown: bool, at_limits: float, basis: Class | None) -> Estimate | NoEstimate:
    low, median, high = (starts[math.ceil(part * len(starts)) - 1] for part in (LOW, 0.5, HIGH))
    if math.isinf(median):
        return NoEstimate("runtimes_unknown" if unknown else "beyond_horizon")
    latest = int(at_limits) if high <= at_limits < math.inf else None
    return Estimate(int(low), int(median), None if math.isinf(high) else int(high), len(starts), latest, basis)


def _basis(snapshot: Snapshot, traits: Mapping[ClaimId, Traits], runtimes: Runtimes) -> dict[PoolId, Class]:
    """Pool → the class of the workloads that hold cards, such that at least half of the units have this class or a narrower
    one."""
    order, widths = [*Class], dict[PoolId, list[int]]()
    for claim in snapshot.claims:
        if claim.state is not ClaimState.PENDING and claim.id in traits:
            alike = runtimes.like(traits[claim.id], _elapsed(claim, snapshot.now))
            width = order.index(alike[0] if alike else Class.LIMIT)
            widths.setdefault(claim.pool, []).extend([width] * max(1, claim.units))
    return {pool: order[sorted(places)[len(places) // 2]] for pool, places in widths.items()}


def _elapsed(claim: Claim, now: int) -> int:
    return max(0, now - claim.started_at) if claim.started_at is not None else 0


def _jobs(
    snapshot: Snapshot,
    traits: Mapping[ClaimId, Traits],
    runtimes: Runtimes,
    random: Random,
    ends: Mapping[ClaimId, int],
) -> list[Job]:
    """Every claim as a job with a randomly drawn runtime."""
    jobs, chances = list[Job](), Chances(random)
    for claim in snapshot.claims:
        own, elapsed = traits.get(claim.id), _elapsed(claim, snapshot.now)
        lasts = _held(claim, ends) if own is None else runtimes.draw(own, chances.of(own), elapsed, claim.max_runtime)
        jobs.append(_job(claim, snapshot.now, lasts))
    return jobs


def _at_limits(snapshot: Snapshot, traits: Mapping[ClaimId, Traits], ends: Mapping[ClaimId, int]) -> list[Job]:
    """Every claim as a job with its maximum runtime."""
    return [
        _job(claim, snapshot.now, claim.max_runtime if claim.id in traits else _held(claim, ends))
        for claim in snapshot.claims
    ]


def _held(claim: Claim, ends: Mapping[ClaimId, int]) -> int | None:
    """How long a recall lasts, in seconds from its submission; None: for ever."""
    return ends[claim.id] - claim.submitted_at if claim.id in ends else None


def _job(claim: Claim, now: int, lasts: int | None) -> Job:
    """A job that runs for `lasts` seconds (None: for ever). A claim that holds cards counts as started."""
    if claim.state is not ClaimState.PENDING and claim.started_at is None:
        claim = replace(claim, started_at=now)
    return Job(claim, FOR_EVER if lasts is None else max(lasts, _elapsed(claim, now) + 1))


def _arrivals(past: Sequence[Job], now: int, random: Random) -> tuple[Job, ...]:
    """The jobs that were submitted from a random earlier day on, moved to the days from now on."""
    days = min(DAYS_BACK, (now - min((job.request.submitted_at for job in past), default=now)) // DAY)
    if not days:
        return ()
    back = DAY * random.randint(1, days)
    return tuple(
        replace(job, request=replace(job.request, id=ClaimId(f"{job.request.id} again"), submitted_at=at))
        for job in past
        if (at := job.request.submitted_at + back) > now
    )


def _play(
    snapshot: Snapshot, waiting: set[ClaimId], jobs: list[Job], arrivals: tuple[Job, ...], calendar: Calendar | None
) -> dict[ClaimId, float]:
    """One simulation: claim → its first start; infinity if it does not start within HORIZON."""
    demand = Demand(snapshot.now, snapshot.now + HORIZON, arrivals)
    played = Simulation(
        replace(snapshot, claims=()), demand, planner, Assumed(between_passes=30, coarseness=0.1), jobs, calendar
    )
    asked = [record for record in played.records if record.job.request.id in waiting]
    played.play(enough=lambda: all(record.first_start is not None or record.refused for record in asked))
    return {record.job.request.id: math.inf if record.first_start is None else record.first_start for record in asked}
