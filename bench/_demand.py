"""Made-up demand from a seed: departments with their own busy hours, jobs of mixed sizes, most short and a few of days."""

from random import Random

from workloads.replay.traces import Row

DEPARTMENTS = ("vision", "speech", "nlp", "robotics", "climate", "physics")
SIZES = (1, 1, 1, 1, 2, 2, 4, 8, 16)
HOUR, DAY = 3600, 86400


def made_up(jobs: int, days: float, seed: int = 1) -> list[Row]:
    """That many jobs, submitted over that many days, most of them in the busy hours of their department."""
    chance = Random(seed)
    rows = []
    for _ in range(jobs):
        turn = min(int(chance.expovariate(0.6)), len(DEPARTMENTS) - 1)  # the first departments request most
        day, hour = chance.randrange(max(1, int(days))), (9 + 3 * turn + chance.gauss(3, 4)) % 24
        at = min(int(day * DAY + hour * HOUR), int(days * DAY) - 1)
        runtime = max(60, int(chance.lognormvariate(7.5, 1.8)))
        rows.append(Row(at, min(runtime, 3 * DAY), chance.choice(SIZES), DEPARTMENTS[turn]))
    return sorted(rows, key=lambda row: row.submitted_at)
