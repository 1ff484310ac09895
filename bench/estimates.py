"""How well estimated starts hold: demand played forward through the planner, and at moments on the way the starts of what waits
are estimated from what has ended by then (and in the trace's 90 days before), corrected by errors seen by then, and compared with
when it does start: the first estimate of each.

    python -m bench.estimates [TRACE.csv] [--begin 2017-10-02] [--days 7] [--loads 0.85 0.95] [--moments 60]

Without a trace a made-up fortnight of 2,000 workloads is played; the first third of the time is only learned from. Guarantees
are in proportion to mean demand, on nodes of 8 cards. Prints a line for each load. An 80 % range that is honest holds in 75 to
85 % of cases; estimates of one moment err together, so beside the part of all stands the mean of the moments' parts.
"""

import argparse
import datetime as dt
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench._demand import made_up
from bench.economics import DAY, ON_A_NODE, SETTINGS
from quotas.engine.types import ClaimId, ClaimState, Plan, Snapshot
from workloads.estimates.calibrate import Past, correction_of
from workloads.estimates.forward import HORIZON, Estimate, Estimates, estimates
from workloads.estimates.runtimes import Runtimes, Traits, size_of
from workloads.replay.demand import Demand, Job
from workloads.replay.simulation import Assumed, Simulation
from workloads.replay.traces import Row, demand_of, in_proportion, read_trace, rules_of
from workloads.replay.ways import planner

HISTORY, MOST_RUNS = 90 * DAY, 20_000  # as the product reads them
HEADINGS = ("load", "moments", "waiting", "estimated", "80 % range holds", "below", "above", "holds, moments alike",
            "median of |error| / wait", "range / wait", "CPU ms each")  # fmt: skip


class Watcher:
    """A way of sharing that is the planner's, and estimates at `moments`, of which one at which nobody waits is left out: put off
    until somebody does, they would all stand at the beginning of a burst."""

    def __init__(self, demand: Demand, moments: Sequence[int], before: Sequence[Job] = ()) -> None:
        self.moments, self.traits, self.before = (
            list(moments),
            {job.request.id: _traits(job) for job in demand.jobs},
            before,
        )
        self.made: list[tuple[int, Estimates]] = []
        self.cpu = 0.0
        self.played: Simulation | None = None

    def __call__(self, snapshot: Snapshot) -> Plan:
        plan = planner(snapshot)
        started = {decision.claim for decision in plan.decisions if decision.decision == "admit"}
        waits = [c for c in snapshot.claims if c.state is ClaimState.PENDING and c.id not in started]
        due = sum(moment <= snapshot.now for moment in self.moments)
        del self.moments[:due]
        if due and waits:
            began = time.process_time()
            fresh = {claim.id for claim in waits if claim.queued_at is None}
            known = self._known(snapshot.now)
            past = self._past(snapshot.now)
            found = estimates(snapshot, {c.id: self.traits[c.id] for c in snapshot.claims}, known, past)
            self.cpu += time.process_time() - began
            self.made.append((snapshot.now, {id: each for id, each in found.items() if id in fresh}))
        return plan

    def _known(self, now: int) -> Runtimes:
        assert self.played is not None
        known = Runtimes()
        for job in self.before:
            known.learn(_traits(job), job.work)
        for record in self.played.records:
            if record.finished_at is not None and record.finished_at <= now:
                known.learn(_traits(record.job), record.job.work)
            elif record.first_start is not None and now > record.first_start:
                known.learn(_traits(record.job), min(now - record.first_start, record.job.work), over=False)
        return known

    def _past(self, now: int) -> list[Job]:
        """What came in the last days and has started, with as much of its work as could be seen by now."""
        assert self.played is not None
        past = []
        for record in self.played.records:
            job, start = record.job, record.first_start
            if start is not None and now - 14 * DAY < job.request.submitted_at < now:
                seen = job.work if record.finished_at is not None else max(1, min(job.work, now - start))
                past.append(replace(job, work=seen))
        return past


def ended_before(rows: Sequence[Row], begin: int) -> Sequence[Job]:
    """What the product has read of the time before: the runs of the trace that had ended by then."""
    ended = [row for row in rows if begin - HISTORY < row.submitted_at + row.runtime <= begin]
    ended.sort(key=lambda row: row.submitted_at + row.runtime)
    return demand_of(ended[-MOST_RUNS:], 0, begin).jobs


def _traits(job: Job) -> Traits:
    request = job.request
    return Traits(request.user, request.department, "", "job", size_of(request.units))


def _pasts(
    first: Mapping[ClaimId, tuple[int, Estimate]], starts: Mapping[ClaimId, int | None], now: int
) -> Iterator[Past]:
    """What is known by now of how long those took to start, as `keep.corrections_of` reads it."""
    for id, (made, each) in first.items():
        start = starts[id]
        started = start is not None and start <= now
        if started or now > (made + HORIZON if each.high is None else each.high):
            high = None if each.high is None else each.high - made
            waited = (start if started and start is not None else now) - made
            yield Past(made // 3600, each.low - made, each.median - made, high, waited)


def line(rows: Sequence[Row], begin: int, days: float, load: float, moments: int) -> list[str]:
    demand = demand_of(rows, begin, begin + round(days * DAY), ON_A_NODE)
    weights = demand.units_in_use()
    rules = rules_of(in_proportion(weights, round(sum(weights.values()) / load)), ON_A_NODE, SETTINGS)
    span = demand.end - demand.begin
    at = [demand.begin + span // 3 + span * n // (2 * moments) for n in range(moments)]
    watcher = Watcher(demand, at, ended_before(rows, demand.begin))
    watcher.played = Simulation(rules, demand, watcher, Assumed())
    watcher.played.play()
    starts: dict[ClaimId, int | None] = {record.job.request.id: record.first_start for record in watcher.played.records}
    asked = estimated = held = below = above = 0
    errors, widths, by_moment = list[float](), list[float](), dict[int, list[bool]]()
    first: dict[ClaimId, tuple[int, Estimate]] = {}
    for now, found in watcher.made:
        correction = correction_of([*_pasts(first, starts, now)])
        for id, played in found.items():
            start, asked = starts[id], asked + 1
            if not isinstance(played, Estimate) or id in first:
                continue
            first[id] = now, played
            each, estimated = correction.of(played, now), estimated + 1
            late = each.high is not None and (start is None or start > each.high + 60)
            early = start is not None and start < each.low - 60
            held, below, above = held + (not late and not early), below + early, above + late
            by_moment.setdefault(now, []).append(not late and not early)
            if start is not None and each.high is not None:
                waits = max(60, start - now)
                errors.append(abs(start - each.median) / waits)
                widths.append((each.high - each.low) / waits)
    parts = [f"{count / max(1, estimated):.0%}" for count in (held, below, above)]
    alike = [sum(each) / len(each) for each in by_moment.values()]
    parts.append(f"{statistics.mean(alike or [0]):.0%}")
    return [f"{load:g}", f"{len(watcher.made)}", f"{asked}", f"{estimated}", *parts,
            f"{statistics.median(errors or [0]):.2f}", f"{statistics.median(widths or [0]):.2f}",
            f"{1000 * watcher.cpu / max(1, len(watcher.made)):.0f}"]  # fmt: skip


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--begin")
    parser.add_argument("--days", type=float)
    parser.add_argument("--loads", nargs="+", type=float, default=[0.85, 0.95], help="mean demand ÷ cards")
    parser.add_argument("--moments", type=int, default=60)
    asked = parser.parse_args(arguments)
    if asked.trace is None:
        rows, days = made_up(2_000, 14), asked.days or 14
    else:
        with asked.trace.open(encoding="utf-8-sig", newline="") as lines:
            rows, days = read_trace(lines), asked.days or 7
    begin = rows[0].submitted_at // DAY * DAY
    if asked.begin:
        begin = int(dt.datetime.fromisoformat(asked.begin).replace(tzinfo=dt.UTC).timestamp())
    print(" | ".join(HEADINGS))
    for load in asked.loads:
        print(" | ".join(line(rows, begin, days, load, asked.moments)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
