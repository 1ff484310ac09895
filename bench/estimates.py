"""How accurate estimated starts are: simulates demand with the planner, and at moments on the way estimates the starts of waiting
workloads from the runtimes that had ended by then (and in the trace's 90 days before). The first estimate of each workload is
compared with its start.

    python -m bench.estimates [TRACE.csv] [--weeks 2017-10-02 2017-10-16] [--days 7] [--loads 0.85 0.95] [--moments 60]
        [--svg FILE]

Without a trace, a made-up fortnight of 2,000 workloads is simulated; the first third of the time is only learned from. Guaranteed
quotas are in proportion to mean demand, nodes have 8 cards. Prints a line for each replay and two for all together: as simulated,
and with each moment corrected by the errors of all other hours, as the portal corrects once it has enough of them. An honest 80 %
range holds in 75 to 85 % of cases. Estimates of one moment err together, so besides the part of all estimates there is the mean
over moments. FILE.svg shows all estimates, as simulated: how long each start was expected to take, and took.
"""

import argparse
import datetime as dt
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench._demand import made_up
from bench.economics import DAY, ON_A_NODE, SETTINGS, nobody_from
from quotas.engine.types import ClaimId, ClaimState, Plan, Snapshot
from workloads.estimates.calibrate import Past, correction_of
from workloads.estimates.forward import HORIZON, Estimate, Estimates, estimates
from workloads.estimates.outcomes import Outcome
from workloads.estimates.plot import SIZE, plot_of
from workloads.estimates.runtimes import Runtimes, Traits, size_of
from workloads.replay import arguments
from workloads.replay.demand import Demand, Job
from workloads.replay.simulation import Assumed, Simulation
from workloads.replay.traces import Row, demand_of, in_proportion, rules_of
from workloads.replay.ways import planner

HISTORY, MOST_RUNS = 90 * DAY, 20_000  # as in the portal
HEADINGS = ("from", "load", "moments", "estimated", "80 % range holds", "below", "above", "holds, moments alike",
            "median of |error| / wait", "range / wait", "CPU ms each")  # fmt: skip


class Watcher:
    """The planner as a way of sharing, that also estimates at `moments`. Moments without waiting workloads are skipped, not
    postponed: otherwise many estimates would be at the begin of a burst."""

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
        """The jobs of the last 14 days that have started, each with the part of its work that is known by now."""
        assert self.played is not None
        past = []
        for record in self.played.records:
            job, start = record.job, record.first_start
            if start is not None and now - 14 * DAY < job.request.submitted_at < now:
                seen = job.work if record.finished_at is not None else max(1, min(job.work, now - start))
                past.append(replace(job, work=seen))
        return past


def ended_before(rows: Sequence[Row], begin: int) -> Sequence[Job]:
    """The runs of the trace that had ended before `begin`, as many as the portal would read."""
    ended = [row for row in rows if begin - HISTORY < row.submitted_at + row.runtime <= begin]
    ended.sort(key=lambda row: row.submitted_at + row.runtime)
    return demand_of(ended[-MOST_RUNS:], 0, begin).jobs


def _traits(job: Job) -> Traits:
    request = job.request
    return Traits(request.user, request.department, "", "job", size_of(request.units))


Moment = tuple[int, list[tuple[Estimate, int | None]]]
"""When estimates were made, and the first estimates of workloads, each with its actual start (None: not before the end)."""


def _played(watcher: Watcher) -> Iterator[Moment]:
    assert watcher.played is not None
    starts = {record.job.request.id: record.first_start for record in watcher.played.records}
    first = set[ClaimId]()
    for now, found in watcher.made:
        fresh = [(each, starts[id]) for id, each in found.items() if isinstance(each, Estimate) and id not in first]
        first |= {id for id, each in found.items() if isinstance(each, Estimate)}
        if fresh:
            yield now, fresh


def _pasts(moments: Iterable[Moment]) -> Iterator[Past]:
    """The estimates and their outcomes, in the form of `keep.corrections_of`."""
    for now, found in moments:
        for each, start in found:
            high = None if each.high is None else each.high - now
            waited = HORIZON if start is None else start - now
            yield Past(now // 3600, each.low - now, each.median - now, high, waited)


def cells(moments: Sequence[Moment], corrected: bool = False) -> list[str]:
    """The cells of a line: how many estimates hold. `corrected`: each moment by the outcomes of all other hours."""
    held = below = above = 0
    errors, widths, alike = list[float](), list[float](), list[float]()
    for now, found in moments:
        others = [other for other in moments if other[0] // 3600 != now // 3600] if corrected else []
        correction, here = correction_of([*_pasts(others)]), 0
        for played, start in found:
            each = correction.of(played, now)
            outcome = _outcome(each, now, start)
            here, below, above = here + outcome.is_held, below + outcome.is_earlier, above + outcome.is_later
            if start is not None and each.high is not None:
                waits = max(60, outcome.waited)
                errors.append(outcome.error / waits)
                widths.append((each.high - each.low) / waits)
        held += here
        alike.append(here / len(found))
    estimated = sum(len(found) for _, found in moments)
    parts = [f"{count / max(1, estimated):.0%}" for count in (held, below, above)]
    return [f"{estimated}", *parts, f"{statistics.mean(alike or [0]):.0%}", f"{statistics.median(errors or [0]):.2f}",
            f"{statistics.median(widths or [0]):.2f}"]  # fmt: skip


def drawing(moments: Iterable[Moment]) -> str:
    """An SVG of expected and real waits; workloads that did not start before the end are at the upper edge."""
    plot = plot_of(_outcome(each, now, start) for now, found in moments for each, start in found)
    style = "path{fill:none}text{font:8px sans-serif}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-42 -24 256 260" width="640"><style>{style}</style>',
        '<rect x="-42" y="-24" width="256" height="260" fill="#fff"/>',
        f'<path stroke="#bbb" d="M0 0V{SIZE}H{SIZE}"/><path stroke="#777" stroke-dasharray="4 3" d="M0 {SIZE}L{SIZE} 0"/>',
        f'<path stroke="#1f5fbf" stroke-width="3" stroke-linecap="round" stroke-opacity=".5" d="{plot.held}"/>',
        f'<path stroke="#b4540a" stroke-width=".7" stroke-opacity=".7" d="{plot.missed}"/>',
        '<text x="-5" y="-12" text-anchor="end">real</text><text x="100" y="228" text-anchor="middle">expected wait</text>',
    ]
    for mark, name in zip(plot.marks, ("1 min", "10 min", "1 h", "6 h", "1 d", "7 d"), strict=True):
        parts.append(f'<text x="{mark.at}" y="212" text-anchor="middle">{name}</text>')
        parts.append(f'<text x="-5" y="{mark.up}" dy="3" text-anchor="end">{name}</text>')
    return "".join([*parts, "</svg>\n"])


def _outcome(each: Estimate, now: int, start: int | None) -> Outcome:
    def at(seconds: int) -> dt.datetime:
        return dt.datetime.fromtimestamp(seconds, dt.UTC)

    started = now + HORIZON if start is None else start
    return Outcome(at(now), at(each.low), at(each.median), None if each.high is None else at(each.high), at(started))


def watched(rows: Sequence[Row], begin: int, days: float, load: float, moments: int) -> Watcher:
    """A finished simulation with the estimates made on the way."""
    demand = demand_of(rows, begin, begin + round(days * DAY), ON_A_NODE)
    weights = demand.units_in_use() or nobody_from(demand.begin)
    rules = rules_of(in_proportion(weights, round(sum(weights.values()) / load)), ON_A_NODE, SETTINGS)
    span = demand.end - demand.begin
    at = [demand.begin + span // 3 + span * n // (2 * moments) for n in range(moments)]
    watcher = Watcher(demand, at, ended_before(rows, demand.begin))
    watcher.played = Simulation(rules, demand, watcher, Assumed())
    watcher.played.play()
    return watcher


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=arguments.jobs)
    parser.add_argument("--weeks", nargs="+", metavar="DATE", type=arguments.day, help="first days")
    parser.add_argument("--days", type=arguments.days)
    parser.add_argument("--loads", nargs="+", type=arguments.above_0, default=[0.85, 0.95], help="mean demand ÷ cards")
    parser.add_argument("--moments", type=arguments.count_above_0, default=60)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw expected and real waits there")
    asked = parser.parse_args(words)
    if asked.trace is None:
        rows, days = made_up(2_000, 14), asked.days or 14
    else:
        rows, days = asked.trace, asked.days or 7
    weeks = [int(day.timestamp()) for day in asked.weeks or ()]
    print(" | ".join(HEADINGS))
    together: list[Moment] = []
    for begin in weeks or [rows[0].submitted_at // DAY * DAY]:
        for load in asked.loads:
            watcher = watched(rows, begin, days, load, asked.moments)
            moments = [*_played(watcher)]
            together += moments
            each = 1000 * watcher.cpu / max(1, len(watcher.made))
            week = f"{dt.datetime.fromtimestamp(begin, dt.UTC):%Y-%m-%d}"
            print(" | ".join([week, f"{load:g}", f"{len(moments)}", *cells(moments), f"{each:.0f}"]), flush=True)
    for what, corrected in (("as played", False), ("corrected", True)):
        print(" | ".join(["all", what, f"{len(together)}", *cells(together, corrected), "–"]))
    if asked.svg is not None:
        asked.svg.write_text(drawing(together))


if __name__ == "__main__":
    main(sys.argv[1:])
