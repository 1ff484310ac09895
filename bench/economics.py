"""What lending is worth: simulates demand with the planner, with one pooled queue, and with a static partition.

    python -m bench.economics [TRACE.csv] [--weeks 2017-10-02 2017-11-06] [--days 7] [--loads 0.85 0.95] [--ways planner]
                              [--orders submitted fair 86400 604800]

A trace has the columns of workloads/replay/traces.py, or is a pod list with times of Alibaba's cluster-trace-gpu-v2023, whose
tenants are derived (bench/_openb.py) and whose times count from 1970-01-01. Without a trace, a made-up month of 10,000 workloads
is simulated. Guaranteed quotas are in proportion to mean demand, nodes have 8 cards, notice is 600 s, grace 120 s, a checkpoint
is saved every 30 minutes, and a restart costs 60 s. Prints a table with a line for each replay.

`--orders` compares orders of borrowers with the planner alone: by time of submission, with fair sharing, or with fairness over
time with this half-life. "not returned" is the part of all lent capacity that its lenders did not borrow themselves: half the sum
of |lent - borrowed| of all departments, divided by all that was lent. Waits above the guarantee are given separately for the
departments that lent more than they borrowed in the first of these orders and for the others; each line has the same departments.
"""

import argparse
import datetime as dt
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

from bench._demand import made_up
from bench._openb import read_pods
from quotas.engine.types import DepartmentId, Plan, Settings, Snapshot
from workloads.replay import arguments
from workloads.replay.demand import Demand
from workloads.replay.figures import figures_of
from workloads.replay.simulation import Assumed, Simulation
from workloads.replay.tables import part
from workloads.replay.traces import GPU, Row, demand_of, in_proportion, read_trace, rules_of
from workloads.replay.ways import WAYS, planner

DAY, ON_A_NODE = 86400, 8
SUBMITTED, FAIR = "submitted", "fair"
WATCHED = 7 * DAY
"""The half-life of balances that are only counted and do not order the borrowers."""
SETTINGS = Settings(restart_cost=60, notice=600, grace=120)
HEADINGS = ("from", "load", "way", "used", "useful", "lost of borrowed", "stops (most of one)", "late", "of inside", "latest by",
            "inside p50 / p95 / p99 s", "above mean s", "CPU s")  # fmt: skip
ORDER_HEADINGS = ("from", "load", "order", "not returned", "above mean s: lenders", "borrowers", "p95 s: lenders", "borrowers",
                  "useful", "lost of borrowed", "stops", "late", "CPU s")  # fmt: skip


def nobody_from(begin: int) -> NoReturn:
    raise SystemExit(f"--weeks: there were no requests from {dt.datetime.fromtimestamp(begin, dt.UTC):%Y-%m-%d}")


def _stage(rows: Sequence[Row], begin: int, days: float, load: float) -> tuple[Demand, Snapshot]:
    demand = demand_of(rows, begin, begin + round(days * DAY), ON_A_NODE)
    weights = demand.units_in_use() or nobody_from(begin)
    return demand, rules_of(in_proportion(weights, round(sum(weights.values()) / load)), ON_A_NODE, SETTINGS)


def by_time(snapshot: Snapshot) -> Plan:
    """The planner without the balances, which are only counted."""
    return planner(replace(snapshot, pools=tuple(replace(pool, balances=None) for pool in snapshot.pools)))


def lines_of_orders(
    rows: Sequence[Row], begin: int, days: float, load: float, orders: Sequence[str]
) -> Iterator[list[str]]:
    """One replay for each order, each as the cells of a line of the table."""
    demand, rules = _stage(rows, begin, days, load)
    lenders: set[DepartmentId] | None = None
    for order in [SUBMITTED, *(each for each in orders if each != SUBMITTED)]:
        half_life = int(order) if order.isdecimal() else WATCHED
        settings = replace(SETTINGS, fair_sharing=order == FAIR)
        began = time.process_time()
        outcome = Simulation(
            replace(rules, settings=settings), demand, planner if order.isdecimal() else by_time,
            Assumed(half_lives={GPU: half_life}),
        ).play(_progress)  # fmt: skip
        took, every = time.process_time() - began, figures_of(outcome)["all"]
        if lenders is None:
            lenders = {each.department for each in outcome.lines if each.lent > each.borrowed}
        waits: dict[bool, list[int]] = {True: [], False: []}
        for record in outcome.records:
            if record.inside is False:
                waits[record.job.request.department in lenders].append(record.waited(outcome.end))
        means = [f"{sum(each) / max(1, len(each)):,.0f}" for each in waits.values()]
        p95 = [f"{sorted(each)[len(each) * 95 // 100]:,}" if each else "–" for each in waits.values()]
        apart = sum(abs(each.lent - each.borrowed) for each in outcome.lines)
        yield [
            f"{dt.datetime.fromtimestamp(begin, dt.UTC):%Y-%m-%d}", f"{load:g}", order,
            f"{apart / 2 / max(1, sum(each.lent for each in outcome.lines)):.1%}", *means, *p95,
            f"{every['useful_utilisation']:.4f}", part(every["lost_of_borrowed"]), f"{every['stops']:,}", f"{every['late']}",
            f"{took:.0f}",
        ]  # fmt: skip


def line(rows: Sequence[Row], begin: int, days: float, load: float, way: str) -> list[str]:
    """One replay, as the cells of a line of the table."""
    demand, rules = _stage(rows, begin, days, load)
    began = time.process_time()
    outcome = Simulation(rules, demand, WAYS[way], Assumed()).play(_progress)
    took, every = time.process_time() - began, figures_of(outcome)["all"]
    inside, above = every["wait_inside_s"], every["wait_above_s"]
    return [
        f"{dt.datetime.fromtimestamp(begin, dt.UTC):%Y-%m-%d}", f"{load:g}", way, f"{every['utilisation']:.4f}",
        f"{every['useful_utilisation']:.4f}", part(every["lost_of_borrowed"]),
        f"{every['stops']:,} ({every['most_stops_of_a_job']})", f"{every['late']}", part(every["late_of_waits_inside"], 3),
        f"{every['latest_by_s']:,} s", " / ".join(str(inside.get(q, "–")) for q in ("p50", "p95", "p99")),
        f"{above.get('mean', 0):,}", f"{took:.0f}",
    ]  # fmt: skip


def _progress(part: float) -> None:
    if sys.stderr.isatty():
        print(f"\r{part:.0%} ", end="", file=sys.stderr, flush=True)


def _rows(lines: Iterable[str]) -> list[Row]:
    lines = [*lines]
    return (read_pods if "gpu_milli" in "".join(lines[:1]) else read_trace)(lines)


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=partial(arguments.jobs, made_of=_rows))
    parser.add_argument("--weeks", nargs="+", metavar="DATE", type=arguments.day, help="first days")
    parser.add_argument("--days", type=arguments.days)
    parser.add_argument("--loads", nargs="+", type=arguments.above_0, default=[0.95], help="mean demand ÷ cards")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument(
        "--orders", nargs="+", metavar="ORDER", help=f"of who borrows: {SUBMITTED}, {FAIR}, or a half-life in s"
    )
    asked = parser.parse_args(words)
    if asked.trace is None:
        rows, days = made_up(10_000, 30), asked.days or 30
    else:
        rows, days = asked.trace, asked.days or 7
    weeks = [int(day.timestamp()) for day in asked.weeks or ()]
    print(" | ".join(ORDER_HEADINGS if asked.orders else HEADINGS))
    for begin in weeks or [rows[0].submitted_at // DAY * DAY]:
        for load in asked.loads:
            for cells in lines_of_orders(rows, begin, days, load, asked.orders) if asked.orders else ():
                print(" | ".join(cells), flush=True)
            for way in () if asked.orders else asked.ways:
                print(" | ".join(line(rows, begin, days, load, way)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
