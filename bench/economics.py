"""What lending is worth: demand played forward through the planner, beside one pooled queue and a static partition.

    python -m bench.economics [TRACE.csv] [--weeks 2017-10-02 2017-11-06] [--days 7] [--loads 0.85 0.95] [--ways planner]

Without a trace a made-up month of 10,000 workloads is played. Guarantees are in proportion to mean demand, on nodes of 8 cards;
notice 600 s, grace 120 s, a checkpoint every 30 minutes, a restart costs 60 s. Prints a table, a line for each replay.
"""

import argparse
import datetime as dt
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench._demand import made_up
from quotas.engine.types import Settings
from workloads.replay.figures import figures_of
from workloads.replay.simulation import Assumed, Simulation
from workloads.replay.traces import Row, demand_of, in_proportion, read_trace, rules_of
from workloads.replay.ways import WAYS

DAY, ON_A_NODE = 86400, 8
SETTINGS = Settings(restart_cost=60, notice=600, grace=120)
HEADINGS = ("from", "load", "way", "used", "useful", "lost of borrowed", "stops (most of one)", "late", "of inside", "latest by",
            "inside p50 / p95 / p99 s", "above mean s", "CPU s")  # fmt: skip


def line(rows: Sequence[Row], begin: int, days: float, load: float, way: str) -> list[str]:
    """One replay, as the cells of a line of the table."""
    demand = demand_of(rows, begin, begin + round(days * DAY), ON_A_NODE)
    weights = demand.units_in_use()
    rules = rules_of(in_proportion(weights, round(sum(weights.values()) / load)), ON_A_NODE, SETTINGS)
    began = time.process_time()
    outcome = Simulation(rules, demand, WAYS[way], Assumed()).play(_progress)
    took, every = time.process_time() - began, figures_of(outcome)["all"]
    inside, above = every["wait_inside_s"], every["wait_above_s"]
    return [
        f"{dt.datetime.fromtimestamp(begin, dt.UTC):%Y-%m-%d}", f"{load:g}", way, f"{every['utilisation']:.4f}",
        f"{every['useful_utilisation']:.4f}", f"{every['lost_of_borrowed']:.2%}",
        f"{every['stops']:,} ({every['most_stops_of_a_job']})", f"{every['late']}", f"{every['late_of_waits_inside']:.3%}",
        f"{every['latest_by_s']:,} s", " / ".join(str(inside.get(q, "–")) for q in ("p50", "p95", "p99")),
        f"{above.get('mean', 0):,}", f"{took:.0f}",
    ]  # fmt: skip


def _progress(part: float) -> None:
    if sys.stderr.isatty():
        print(f"\r{part:.0%} ", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--weeks", nargs="+", metavar="DATE", help="first days")
    parser.add_argument("--days", type=float)
    parser.add_argument("--loads", nargs="+", type=float, default=[0.95], help="mean demand ÷ cards")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    asked = parser.parse_args(arguments)
    if asked.trace is None:
        rows, days = made_up(10_000, 30), asked.days or 30
    else:
        with asked.trace.open(encoding="utf-8-sig", newline="") as lines:
            rows, days = read_trace(lines), asked.days or 7
    weeks = [int(dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC).timestamp()) for day in asked.weeks or ()]
    print(" | ".join(HEADINGS))
    for begin in weeks or [rows[0].submitted_at // DAY * DAY]:
        for load in asked.loads:
            for way in asked.ways:
                print(" | ".join(line(rows, begin, days, load, way)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
