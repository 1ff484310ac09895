"""How long one reclaim decision takes among many candidates: the choice of victims for a claim within guaranteed quota.

    python bench/reclaim.py [--candidates 10000]

The pool is full and without nodes, all other departments borrow, and the claim needs several victims. Only the choice is timed,
for the first claim of a pass (which also sorts the candidates) and for each further one. The baseline, in the same run, is the
simplest choice: the newest claims until they suffice, without those that are then not needed.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench._snapshots import lent_out
from quotas.engine.placement import rooms_of
from quotas.engine.preemption import choose
from quotas.engine.reservations import initial_state
from quotas.engine.types import Claim, ClaimState, Snapshot

TAKERS = 50


def newest_first(snapshot: Snapshot, need: int) -> list[Claim]:
    """The baseline, which ignores priorities, lost work and guaranteed quotas."""
    victims: list[Claim] = []
    holding = [claim for claim in snapshot.claims if claim.state is ClaimState.HOLDING]
    for claim in sorted(holding, key=lambda claim: -(claim.started_at or 0)):
        if sum(victim.units for victim in victims) >= need:
            break
        victims.append(claim)
    for victim in [*victims]:
        if sum(other.units for other in victims) - victim.units >= need:
            victims.remove(victim)
    return victims


def measure(candidates: int) -> None:
    snapshot = lent_out(candidates, TAKERS)
    runs = [_choices(snapshot) for _ in range(5)]
    first, further = min(spent[0] for spent, _ in runs), [took for spent, _ in runs for took in spent[1:]]
    plain = median(took for _, baseline in runs for took in baseline)
    print(
        f"{candidates:6} candidates: the first {first:6.2f} CPU ms, a further one {median(further):5.2f}"
        f" (most {max(further):5.2f})   newest first {plain:5.2f}"
    )


def _choices(snapshot: Snapshot) -> tuple[list[float], list[float]]:
    """CPU milliseconds of each choice of a pass, and of each of the baseline."""
    (pool,) = snapshot.pools
    state = initial_state(snapshot, pool, *rooms_of(snapshot))
    spent: list[float] = []
    plain: list[float] = []
    for claim in state.pending:
        began = time.process_time()
        chosen = choose(state, claim)
        spent.append((time.process_time() - began) * 1000)
        if chosen is None:
            raise SystemExit(f"no victims for {claim.id}")
        state.preempt(chosen.victims)
        state.reserve(claim, chosen.places, state.need(claim, chosen.places), chosen.victims)
        began = time.process_time()
        newest_first(snapshot, claim.units)
        plain.append((time.process_time() - began) * 1000)
    return spent, plain


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=10000)
    given = parser.parse_args(arguments)
    for part in (8, 4, 2, 1):
        measure(given.candidates // part)


if __name__ == "__main__":
    main(sys.argv[1:])
