"""The best victim set for one place, exactly: a dynamic programme over what claims give together (sums.py). In a tree of
departments no permitted set is better than the one found, which may itself not be permitted: as if the tree were flat.

The priority ceiling does not add up and is lowered from outside as long as nothing that outranks it gets worse.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from quotas.engine.permission import Right, right_of
from quotas.engine.problem import Problem, TooManySets, by_right
from quotas.engine.shares import Change
from quotas.engine.sums import EMPTY, START, State, Table, Value, join, others_table, own_table
from quotas.engine.types import Claim, ClaimId


@dataclass(frozen=True, slots=True)
class Ranked:
    """A whole set, comparable: what outranks the priority ceiling, and everything."""

    first: tuple[int, Change, int]
    rest: tuple[int, int, int, tuple[ClaimId, ...]]


def best_set(problem: Problem) -> tuple[Claim, ...] | None:
    """The best permitted set, or None when there is none; in a tree one that is at least as good. Raises TooManySets."""
    best = _solve(problem, None)
    while best is not None:
        chosen = [problem.books.claims[id] for id in best.rest[3]]
        lower = _lower(problem, max((claim.priority for claim in chosen), default=None))
        if lower is None or lower.first > best.first:
            return tuple(chosen)
        best = lower
    return None


def _lower(problem: Problem, ceiling: int | None) -> Ranked | None:
    """The best set of lower priorities; the one before is kept where that is too much to ask."""
    try:
        return None if ceiling is None else _solve(problem, ceiling)
    except TooManySets:
        return None


def _solve(problem: Problem, below: int | None) -> Ranked | None:
    """The best set among claims of priority less than `below`, ceiling left aside."""
    tables: dict[object, Table] = {}
    best = _combined(problem, below, {START: EMPTY}, tables) if problem.taker.inside else None
    if best is not None or (problem.taker.inside and not problem.own):
        return best  # who is inside its guarantee stops none of its own where others do
    own = own_table(problem, [claim for claim in problem.own if below is None or claim.priority < below])
    return _combined(problem, below, own, tables)


def _combined(problem: Problem, below: int | None, own: Table, tables: dict[object, Table]) -> Ranked | None:
    """The best set of some of its own claims and others'; `tables` remembers what those can give."""
    best: Ranked | None = None
    for mine, my_value in own.items():
        usage_after = problem.taker.account.usage + problem.taker.asked - mine[2]
        right = _right(problem, usage_after)
        key = (right, usage_after if right is Right.FAIR else None)
        if key not in tables:
            tables[key] = others_table(problem, below, right, usage_after)
        problem.compare(len(tables[key]))
        spared = [*_without_one(mine)] if right is Right.FAIR else []
        for theirs, their_value in tables[key].items():
            if (
                _enough(problem, mine, theirs)
                and not any(_enough(problem, mine, less) for less in _smaller(theirs))
                and not any(_enough(problem, less, theirs) for less in spared)
            ):
                ranked = _rank(problem, mine, my_value, theirs, their_value)
                if best is None or (ranked.first, ranked.rest) < (best.first, best.rest):
                    best = ranked
    return best


def _right(problem: Problem, usage_after: int) -> Right:
    """The right to others' claims; in a tree it differs from claim to claim, and none is left out."""
    if not problem.books.ledger.flat:
        return Right.RECLAIM
    return right_of(problem.taker, problem.books.settings.fair_sharing, problem.taker.account, usage_after)


def _rank(problem: Problem, mine: State, my_value: Value, theirs: State, their_value: Value) -> Ranked:
    change, below, lost, count, ids = join(my_value, their_value)
    units = mine[2] if problem.taker.inside else theirs[2]
    return Ranked((units, change, below), (lost, count, mine[2] + theirs[2], ids))


def _enough(problem: Problem, mine: State, theirs: State) -> bool:
    """Whether a set gives the place, the pool and the quotas what the taker lacks."""
    lacking, _, of_pool = problem.need
    if mine[0] + theirs[0] < lacking or mine[2] + theirs[2] < of_pool:
        return False
    if not problem.books.ledger.flat:  # each unit gives the right to one more at most
        return mine[2] + theirs[2] >= problem.need[1]
    account, root = problem.taker.account, problem.books.ledger.root
    usage = account.usage - mine[2]
    above = root.subtree - root.usage + by_right(account, mine[2]) + theirs[1]
    if problem.limit is not None:
        above = min(above, account.subtree - account.kept - max(0, usage - account.kept) + problem.limit)
    return max(0, account.kept - usage) + above >= problem.taker.asked


def _without_one(mine: State) -> Iterator[State]:
    """What is left of the taker's own without one claim. Who would start again on what is freed counts as staying: with fair
    sharing no own work is stopped only to look as if the department borrowed less."""
    given, right_given, units, parts = mine
    return ((given - gives, right_given - own, units - own, ()) for gives, own in parts)


def _smaller(state: State) -> Iterator[State]:
    """What is left without one claim."""
    given, right_given, units, parts = state
    return ((given - part, right_given - of_right, units - part, ()) for part, of_right in parts)
