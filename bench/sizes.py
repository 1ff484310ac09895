"""How long one planning pass takes with requests of many different sizes, with and without fair sharing, and how long the choice
of victims takes for one large request.

    python bench/sizes.py [--departments 100 --running 2000 --pending 1000]

The pool is full and without nodes: half of the departments borrow what the other half does not use. In MiB hardly two requests
have the same size, so each set of victims has a different sum. The baseline, in the same run, is the naive pass of
bench/plan_pass.py.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench._snapshots import GPU
from bench.plan_pass import one_pass
from quotas.engine.types import (
    Claim,
    ClaimId,
    ClaimState,
    Department,
    DepartmentId,
    Pool,
    Quota,
    Settings,
    Snapshot,
)

UNITS = {
    "card": ([1, 2, 4, 8], 1),
    "GiB": ([2, 3, 4, 6, 8, 10, 12, 16, 24], 8),
    "MiB": (random.Random(42).sample(range(500, 24_000), 200), 8_000),
}
"""Unit → (sizes of requests, units of a card)."""
LARGE = 200


def a_pool_of(unit: str, departments: int, running: int, pending: int) -> Snapshot:
    chance, (sizes, _) = random.Random(42), UNITS[unit]
    claims = [
        Claim(ClaimId(f"h{n:05}"), _of(chance, departments // 2), GPU, chance.choice(sizes), ClaimState.HOLDING,
              submitted_at=-90_000, started_at=-chance.randrange(1, 80_000), priority=chance.choice([0, 0, 1]))
        for n in range(running)
    ]  # fmt: skip
    used = sum(claim.units for claim in claims)
    claims += [
        Claim(ClaimId(f"p{n:05}"), _of(chance, departments), GPU, chance.choice(sizes), ClaimState.PENDING,
              submitted_at=-chance.randrange(5_000), priority=chance.choice([0, 0, 1]))
        for n in range(pending)
    ]  # fmt: skip
    quota = {GPU: Quota(used // departments)}
    tenants = tuple(Department(DepartmentId(f"d{n:04}"), quotas=quota) for n in range(departments))
    return Snapshot("bench", 0, (Pool(GPU, capacity=used * 51 // 50),), tenants, tuple(claims), Settings(notice=600))


def _of(chance: random.Random, departments: int) -> DepartmentId:
    return DepartmentId(f"d{chance.randrange(departments):04}")


def with_a_recall(snapshot: Snapshot, units: int) -> Snapshot:
    """The snapshot in which one department, which runs nothing, recalls so many of its units, and no other claim is pending."""
    owner = replace(snapshot.departments[-1], quotas={GPU: Quota(units)})
    others = tuple(replace(d, quotas={GPU: Quota(0)}) for d in snapshot.departments[:-1])
    recall = Claim(ClaimId("recall"), owner.id, GPU, units, ClaimState.PENDING, submitted_at=0, pods=0)
    running = [claim for claim in snapshot.claims if claim.state is ClaimState.HOLDING]
    pools = (replace(snapshot.pools[0], capacity=sum(claim.units for claim in running)),)
    return replace(snapshot, pools=pools, departments=(*others, owner), claims=(*running, recall))


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--departments", type=int, default=100)
    parser.add_argument("--running", type=int, default=2000)
    parser.add_argument("--pending", type=int, default=1000)
    given = parser.parse_args(arguments)
    for unit, (_, card) in UNITS.items():
        snapshot = a_pool_of(unit, given.departments, given.running, given.pending)
        for fair in (False, True):
            print(f"\n{unit}{', fair sharing' if fair else ''}")
            snapshot = replace(snapshot, settings=replace(snapshot.settings, fair_sharing=fair))
            one_pass(snapshot, 1)
            one_pass(with_a_recall(snapshot, LARGE * card), 1)


if __name__ == "__main__":
    main(sys.argv[1:])
