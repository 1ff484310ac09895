"""How accurate randomly drawn runtimes are. Twice a day of a trace, for each department, the card-hours of the
next day of jobs that wait (submitted in the last two hours) and that run (submitted before) are compared with drawn ones.

    python -m bench.runtimes [TRACE.csv] [--weeks 2017-10-02 2017-10-16] [--together 0.2 0.4]

Jobs count as started when they are submitted, as there is no planner; so this takes a minute where `estimates` takes hours, and
every hour counts alike. Without a trace, the second week of a made-up fortnight is used. Prints a line for each correlation: in
which part of the cases the sum is in the 80 % range of the draws, or below it. An honest range holds in 80 %.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from random import Random

from bench._demand import made_up
from workloads.estimates.runtimes import TOGETHER, Chances, Runtimes, Traits, size_of
from workloads.replay import arguments
from workloads.replay.traces import Row

HOUR, DAY = 3600, 86400
STEP, HISTORY, LATELY, DRAWS = 12 * HOUR, 90 * DAY, 2 * HOUR, 25
MANY = 8
HEADINGS = (
    "together",
    "what",
    "sums",
    "in the 80 % range",
    "below",
    f"of {MANY} jobs or more",
    "in the 80 % range",
    "below",
)
Ranks = dict[tuple[float, str], list[tuple[float, int]]]
"""(correlation, what is summed) → for each sum: the part of the draws below the actual value, and the number of jobs."""


def _traits(row: Row) -> Traits:
    return Traits(row.department, row.department, "", "job", size_of(row.units))


def _known(rows: Sequence[Row], now: int) -> Runtimes:
    known = Runtimes()
    for row in rows:
        if now - HISTORY < row.submitted_at < now - LATELY:
            over = row.submitted_at + row.runtime <= now
            known.learn(_traits(row), row.runtime if over else now - row.submitted_at, over=over)
    return known


def _sums(rows: Sequence[Row], known: Runtimes, now: int, together: float) -> Iterator[tuple[str, int, float]]:
    """For each department and for all: (name, number of jobs, part of the draws below the actual sum)."""
    real, drawn, random = Counter[str](), [Counter[str]() for _ in range(DRAWS)], Random(now)
    elapsed = [0 if row.submitted_at > now - LATELY else now - row.submitted_at for row in rows]
    for row, lasted in zip(rows, elapsed, strict=True):
        for name in (row.department, "all"):
            real[name] += row.units * min(DAY, row.runtime - lasted)
    for sums in drawn:
        chances = Chances(random, together)
        for row, lasted in zip(rows, elapsed, strict=True):
            lasts = known.draw(_traits(row), chances.of(_traits(row)), lasted) or lasted
            for name in (row.department, "all"):
                sums[name] += row.units * min(DAY, lasts - lasted)
    jobs = Counter(row.department for row in rows) + Counter({"all": len(rows)})
    for name in real:
        less = sum((sums[name] < real[name]) + (sums[name] == real[name]) / 2 for sums in drawn)
        yield name, jobs[name], less / DRAWS


def ranks(rows: Sequence[Row], begins: Sequence[int], together: Sequence[float]) -> Ranks:
    found: Ranks = defaultdict(list)
    for begin in begins:
        for now in range(begin + HOUR // 2, begin + 7 * DAY, STEP):
            live = [row for row in rows if now - 14 * DAY < row.submitted_at <= now]
            waits = [row for row in live if row.submitted_at > now - LATELY]
            runs = [row for row in live if row.submitted_at <= now - LATELY and row.submitted_at + row.runtime > now]
            known = _known(rows, now)
            for each in together:
                for what, of_it in (("wait", waits), ("run", runs)):
                    for name, jobs, rank in _sums(of_it, known, now, each):
                        whose = "all that" if name == "all" else "a department's that"
                        found[each, f"{whose} {what}"].append((rank, jobs))
    return found


def _parts(ranks: Sequence[float]) -> list[str]:
    parts = sum(0.1 <= rank <= 0.9 for rank in ranks), sum(rank < 0.1 for rank in ranks)
    return [f"{len(ranks)}", *(f"{part / max(1, len(ranks)):.0%}" for part in parts)]


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=arguments.jobs)
    parser.add_argument("--weeks", nargs="+", metavar="DATE", type=arguments.day, help="first days")
    parser.add_argument(
        "--together", nargs="+", type=float, default=[TOGETHER], help="correlation of one person's runtimes"
    )
    asked = parser.parse_args(words)
    rows = asked.trace or made_up(2_000, 14)
    weeks = [int(day.timestamp()) for day in asked.weeks or ()]
    print(" | ".join(HEADINGS))
    for (together, what), of_it in sorted(
        ranks(rows, weeks or [rows[0].submitted_at + 7 * DAY], asked.together).items()
    ):
        cells = _parts([rank for rank, _ in of_it]) + _parts([rank for rank, jobs in of_it if jobs >= MANY])
        print(" | ".join([f"{together:g}", what, *cells]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
