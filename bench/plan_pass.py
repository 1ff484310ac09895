"""How long one planning pass takes.

    python bench/plan_pass.py [--departments 1000 --running 10000 --pending 10000]
                              [--fair] [--nodes] [--nested] [--again] [--lent 0.2]

The baseline, in the same run, is a naive pass: the pending claims by priority and time, each admitted if its units are free –
without quotas, victims, order between departments, or reasons. The ratio shows what the rules cost.

In the snapshot, half of all units are reclaimed at once. With `--again` that plan is carried out and the next passes, ten seconds
apart, are measured too: those that the beat runs while the victims have their notice.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench._snapshots import a_snapshot, in_groups
from quotas.engine.planning_pass import decide
from quotas.engine.types import ClaimState, Plan, Snapshot
from quotas.engine.units import capacity_of
from tests.engine.builders import carried_out

AGAIN = 2


def naive(snapshot: Snapshot) -> int:
    """The baseline: counts units, first come, first served. Returns the number of admitted claims."""
    held = sum(claim.units for claim in snapshot.claims if claim.state is ClaimState.HOLDING)
    (pool,) = snapshot.pools
    free = capacity_of(pool, snapshot.departments) - held
    admitted = 0
    pending = (claim for claim in snapshot.claims if claim.state is ClaimState.PENDING)
    for claim in sorted(pending, key=lambda claim: (-claim.priority, claim.submitted_at, claim.id)):
        if claim.units <= free:
            free -= claim.units
            admitted += 1
    return admitted


def seconds(run: Callable[[], object], times: int) -> float:
    """CPU seconds, the least of several runs: other load on the machine can only add to it."""
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best


def measure(departments: int, running: int, pending: int, options: argparse.Namespace, times: int = 2) -> None:
    snapshot = a_snapshot(departments, running, pending, options.fair, options.nodes, options.lent)
    if options.nested:
        snapshot = in_groups(snapshot, 10)
    plan = one_pass(snapshot, times)
    for _ in range(AGAIN if options.again else 0):
        snapshot = replace(carried_out(snapshot, plan), now=snapshot.now + 10)
        plan = one_pass(snapshot, times)


def one_pass(snapshot: Snapshot, times: int) -> Plan:
    """Measures a pass, prints the figures and returns the plan."""
    running, pending = (
        sum(c.state is state for c in snapshot.claims) for state in (ClaimState.HOLDING, ClaimState.PENDING)
    )
    plans: list[Plan] = []
    ours = seconds(lambda: plans.append(decide(snapshot)), times)
    baseline = seconds(lambda: naive(snapshot), times)
    kinds = Counter(decision.decision.value for decision in plans[-1].decisions)
    preempted = sum(len(decision.victims) for decision in plans[-1].decisions)
    print(
        f"{len(snapshot.departments):5} departments {running:6} running {pending:6} pending: {ours:7.3f} CPU s"
        f"   naive {baseline * 1000:6.1f} ms   ratio {ours / baseline:6.0f}   {ours / pending * 1e6:6.0f} µs a claim"
        f"   {dict(kinds)}, {preempted} preempted"
    )
    return plans[-1]


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--departments", type=int, default=1000)
    parser.add_argument("--running", type=int, default=10000)
    parser.add_argument("--pending", type=int, default=10000)
    parser.add_argument("--fair", action="store_true", help="with fair sharing")
    parser.add_argument("--nested", action="store_true", help="ten departments to a group")
    parser.add_argument("--once", action="store_true", help="no scaling curves")
    parser.add_argument("--again", action="store_true", help=f"the {AGAIN} passes after it, too")
    parser.add_argument("--nodes", action="store_true", help="parts of cards on nodes as in a real cluster")
    parser.add_argument(
        "--lent", type=float, default=0.7, help="the share of running claims that only half of the departments have"
    )
    given = parser.parse_args(arguments)
    measure(given.departments, given.running, given.pending, given)
    if given.once:
        return
    print("Scaling, pending claims:")
    for part in (8, 4, 2):
        measure(given.departments, given.running, given.pending // part, given)
    print("Scaling, departments:")
    for part in (10, 4, 2):
        measure(given.departments // part, given.running, given.pending, given)
    print("Scaling, everything:")
    for part in (8, 4, 2):
        measure(given.departments // part, given.running // part, given.pending // part, given)


if __name__ == "__main__":
    main(sys.argv[1:])
