"""The queue played forward with the planner itself, each time with other runtimes: a range of starts for each claim that waits.

Others are assumed to come as they came on an earlier day; quotas, nodes and rules to be as now. Pure; times in seconds since
1970.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from quotas.engine.types import Claim, ClaimId, ClaimState, Snapshot
from workloads.estimates.runtimes import Runtimes, Traits
from workloads.replay.demand import Demand, Job
from workloads.replay.simulation import Assumed, Simulation
from workloads.replay.ways import planner

DAY = 86400
HORIZON = 7 * DAY
DAYS_BACK = 14
"""How far back the day may lie from which on others come as they did then."""
FOR_EVER = 10 * HORIZON
PLAYS, FEWEST = 16, 8
LOW, HIGH = 0.1, 0.9  # an 80 % range


@dataclass(frozen=True, slots=True)
class Estimate:
    """A claim starts between `low` and `high` in 80 of 100 cases, in half of them by `median`. `high` is None where it may not
    start within HORIZON. `plays`: how often the queue was played forward."""

    low: int
    median: int
    high: int | None
    plays: int


@dataclass(frozen=True, slots=True)
class NoEstimate:
    """`why`: runtimes_unknown (something that runs or waits before it has no maximum runtime, and too little of its like has
    ended), beyond_horizon (in most plays it does not start within HORIZON) or too_many (no time to play FEWEST times)."""

    why: str


Estimates = dict[ClaimId, Estimate | NoEstimate]


def estimates(
    snapshot: Snapshot,
    traits: Mapping[ClaimId, Traits],
    runtimes: Runtimes,
    past: Sequence[Job] = (),
    out_of_time: Callable[[], bool] = lambda: False,
) -> Estimates:
    """For every pending claim of `snapshot`. `traits` are of its claims; those that have none, as recalls have, hold for ever.
    `past`: what came in the last days, with how long it ran. The same input gives the same estimates, unless `out_of_time` ends
    them earlier."""
    waiting = {claim.id for claim in snapshot.claims if claim.state is ClaimState.PENDING and not claim.is_recall}
    random = Random(snapshot.now)  # noqa: S311 nothing is secret here
    starts = {id: list[float]() for id in sorted(waiting)}
    plays = 0
    while starts and plays < PLAYS and not (plays and out_of_time()):
        for id, at in _play(
            snapshot, waiting, _jobs(snapshot, traits, runtimes, random), _arrivals(past, snapshot.now, random)
        ).items():
            starts[id].append(at)
        plays += 1
    if plays < FEWEST:
        return {id: NoEstimate("too_many") for id in starts}
    unknown = any(
        claim.id in traits and claim.max_runtime is None and runtimes.like(traits[claim.id]) is None
        for claim in snapshot.claims
    )
    return {id: _of(sorted(ats), unknown) for id, ats in starts.items()}


def _of(starts: list[float], unknown: bool) -> Estimate | NoEstimate:
    low, median, high = (starts[math.ceil(part * len(starts)) - 1] for part in (LOW, 0.5, HIGH))
    if math.isinf(median):
        return NoEstimate("runtimes_unknown" if unknown else "beyond_horizon")
    return Estimate(int(low), int(median), None if math.isinf(high) else int(high), len(starts))


def _jobs(snapshot: Snapshot, traits: Mapping[ClaimId, Traits], runtimes: Runtimes, random: Random) -> list[Job]:
    """Every claim with a runtime that is drawn for it."""
    jobs: list[Job] = []
    for claim in snapshot.claims:
        elapsed = max(0, snapshot.now - claim.started_at) if claim.started_at is not None else 0
        own = traits.get(claim.id)
        drawn = None if own is None else runtimes.draw(own, random, elapsed, claim.max_runtime)
        jobs.append(Job(_begun(claim, snapshot.now), FOR_EVER if drawn is None else max(drawn, elapsed + 1)))
    return jobs


def _arrivals(past: Sequence[Job], now: int, random: Random) -> tuple[Job, ...]:
    """What came from some earlier day on, moved to the days from now on."""
    days = min(DAYS_BACK, (now - min((job.request.submitted_at for job in past), default=now)) // DAY)
    if not days:
        return ()
    back = DAY * random.randint(1, days)
    return tuple(
        replace(job, request=replace(job.request, id=ClaimId(f"{job.request.id} again"), submitted_at=at))
        for job in past
        if (at := job.request.submitted_at + back) > now
    )


def _begun(claim: Claim, now: int) -> Claim:
    """Whatever holds cards counts as started."""
    if claim.state is ClaimState.PENDING or claim.started_at is not None:
        return claim
    return replace(claim, started_at=now)


def _play(
    snapshot: Snapshot, waiting: set[ClaimId], jobs: list[Job], arrivals: tuple[Job, ...]
) -> dict[ClaimId, float]:
    """When each of `waiting` starts for the first time; infinity for those that do not within HORIZON."""
    demand = Demand(snapshot.now, snapshot.now + HORIZON, arrivals)
    played = Simulation(replace(snapshot, claims=()), demand, planner, Assumed(between_passes=30, coarseness=0.1), jobs)
    asked = [record for record in played.records if record.job.request.id in waiting]
    played.play(enough=lambda: all(record.first_start is not None or record.refused for record in asked))
    return {record.job.request.id: math.inf if record.first_start is None else record.first_start for record in asked}
