"""What claims can give together, sum by sum: of the taker's own department, and of others, department by department.

A state is what a partial set gives; its value is the rest of the order of preference, which only ever adds up, so the best of
each state is enough. Of each (department, size, priority) only the ⌈need ÷ size⌉ claims with the least lost work can stand in
an optimum.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest

from quotas.engine.permission import Fairness, Right, open_to
from quotas.engine.problem import Problem, by_right
from quotas.engine.quota_tree import Account, Share, share, spare_above
from quotas.engine.recallable import priorities_below, recallable_for
from quotas.engine.shares import NO_CHANGE, Change, lowered
from quotas.engine.types import Claim, ClaimId, DepartmentId

Part = tuple[int, int]
"""(units, how many of them by right) that a set would give less without one of its claims"""
State = tuple[int, int, int, tuple[Part, ...]]
"""(units given at the place, units given back by right, units altogether, and where that matters the least parts: with
fair sharing more victims look better, so a set is looked at only if it is not enough without any one of its claims)"""
Value = tuple[Change, int, int, int, tuple[ClaimId, ...]]
"""(what shares change, units below guarantees, lost work, how many, which)"""
Table = dict[State, Value]

EMPTY: Value = (NO_CHANGE, 0, 0, 0, ())
START: State = (0, 0, 0, ())
NOTHING: Table = {START: EMPTY}


def own_table(problem: Problem, claims: list[Claim]) -> Table:
    """What can be given from the taker's own department: at the place, and elsewhere for the right."""
    lacking, right = problem.need[0], max(*problem.need[1:], _over_limit(problem))
    table: Table = {START: EMPTY}
    for claim in _worth_trying(problem, claims, max(lacking, right), anywhere=right > 0):
        gives, units = _given(problem, claim), problem.books.standing.charges[claim.id]
        value: Value = (NO_CHANGE, 0, problem.books.lost_work(claim), 1, (claim.id,))
        problem.compare(len(table))
        for state, old in list(table.items()):
            if state[1] < right or (gives and state[0] < lacking):
                part = ((gives, units),) if problem.wants_own_needed else ()
                _offer(table, _plus(state, (gives, units, units, part)), join(old, value))
        if not problem.rivals and not problem.taker.inside:
            table = _undominated(problem, table, max(lacking, right))
    return table


def _over_limit(problem: Problem) -> int:
    """Own units that must go before the department may take what is asked at all: its borrow limit, or its wish to
    stand inside the guarantee."""
    return max(0, problem.taker.beyond)


def others_table(problem: Problem, below: int | None, right: Right, usage_after: int) -> Table:
    """What can be given by other departments together, when the taker's will use `usage_after`."""
    if right is Right.NONE or not problem.rivals:
        return NOTHING
    ask = _asking(problem, below, right, usage_after)
    if problem.gives is not None or (right is not Right.RECLAIM and not _is_fair(problem)):
        offers = [ask(department) for department in problem.rivals]
    elif _is_fair(problem):
        mine = share(problem.taker.account, usage_after) if right is Right.FAIR else None
        offers = [*_highest_shares(problem, below, mine, ask)]
    else:
        offers = [ask(department) for department in _cheapest_claims(problem, below)]
    table: Table = {START: EMPTY}
    for theirs in _best_offers(problem, offers):
        table = _merged(problem, table, theirs)
        if problem.taker.inside and not _is_fair(problem):
            table = _undominated(problem, table, max(problem.of_others))
    return table


def _is_fair(problem: Problem) -> bool:
    return problem.books.settings.fair_sharing


def _cheapest_claims(problem: Problem, below: int | None) -> list[DepartmentId]:
    """The departments that the best set can take from by right of the guarantee, as far as that is known."""
    recallable = recallable_for(problem.books, problem.taker)
    worth = recallable.worth_asking(max(problem.of_others), _priority_limit(problem, below), problem.rivals)
    return [department for department in problem.rivals if department in worth]


def _priority_limit(problem: Problem, below: int | None) -> int | None:
    """The priority that others' claims must be below to go by right of the guarantee or of the share."""
    limits = [limit for limit in (below, priorities_below(problem.taker)) if limit is not None]
    return min(limits, default=None)


def _highest_shares(
    problem: Problem, below: int | None, mine: Share | None, ask: Callable[[DepartmentId], Table]
) -> Iterator[Table]:
    """With fair sharing: what is offered by the departments with the highest shares, as many as one set can take from. For
    each claim of another one it could as well take one of the same size from one of these that is still untouched. A
    borrower with the share `mine` takes nothing from who has no more, or would have less without any claim."""
    books, limit, need = problem.books, _priority_limit(problem, below), max(problem.of_others)
    sizes = {size for priority, size in books.sizes if size and (limit is None or priority < limit)}
    least = min(sizes, default=1)
    wanted = {size: 1 if size >= need else 2 + (need - size - 1) // least for size in sizes}
    lowest: Share | None = None
    more = books.ledger.least_pace * least if problem.fairness is Fairness.AFTER else 1
    for borrowed, department in books.borrowers:
        if mine is not None and borrowed < mine + more:
            return
        if not wanted and borrowed != lowest and not books.ledger.keepers:
            return
        if department in problem.rivals:
            table, lowest = ask(department), borrowed
            yield table
            if wanted:
                alone = {state[2] for state, value in table.items() if value[3] == 1}
                wanted = {size: many - (size in alone) for size, many in wanted.items() if many > (size in alone)}
                if least not in wanted and need % least == 0 and not problem.taker.inside:  # no more than needed
                    wanted = {size: many for size, many in wanted.items() if size <= need}


def _best_offers(problem: Problem, offers: list[Table]) -> Iterator[Table]:
    """Of each size of offer only the cheapest departments, as many as one set with an offer of that size could take from:
    whoever takes a dearer one could as well take a cheaper one that is still untouched."""
    by_size: dict[State, list[tuple[Value, int]]] = {}
    for index, table in enumerate(offers):
        for state, value in table.items():
            if state != START:
                by_size.setdefault(state, []).append((value, index))
    parts = {state: min(part for part in state[:3] if part > 0) for state in by_size}
    least, need = min(parts.values(), default=1), max(problem.of_others)
    alike = problem.gives is None and not problem.books.ledger.keepers  # a unit of anybody's is as good as any other
    worth: dict[int, Table] = {}
    for state, values in by_size.items():
        rest = need - (parts[state] if alike else least)  # for the others: without any one of them it is not enough
        many = 1 + max(0, -(-rest // least))
        for value, index in nsmallest(many, values):
            worth.setdefault(index, {START: EMPTY})[state] = value
    return iter(worth.values())


def _merged(problem: Problem, table: Table, offers: Table) -> Table:
    """The table with one more department's offers; who has enough takes nothing more."""
    merged: Table = {}
    problem.compare(len(table) * len(offers))
    for state, value in table.items():
        full = all(given >= needed for given, needed in zip(state[:3], problem.of_others, strict=True))
        _offer(merged, state, value)
        for given, other in () if full else offers.items():
            if given != START:
                _offer(merged, _plus(state, given), join(value, other))
    return merged


def _undominated(problem: Problem, table: Table, most: int) -> Table:
    """The table without sums that are less than another, or both not less than the `most` that is needed, and cost more: where
    all units count alike, and more of them are no harm by themselves."""
    if problem.gives is not None or problem.books.ledger.keepers:
        return table
    kept: Table = {}
    least: tuple[int, int, int] | None = None
    for state, value in sorted(table.items(), key=lambda entry: (-min(entry[0][2], most), entry[1])):
        if least is None or value[1:4] <= least:
            kept[state], least = value, value[1:4]
    return kept


def _asking(problem: Problem, below: int | None, right: Right, usage_after: int) -> Callable[[DepartmentId], Table]:
    """The question what one department can give; remembered for the next taker, since most departments stay as they are. The
    need is rounded up so that takers of like size share what is remembered."""
    books, taker = problem.books, problem.taker
    need = 1 << (max(problem.of_others) - 1).bit_length()
    by_guarantee, by_share = right is Right.RECLAIM, right is Right.FAIR
    least = share(taker.account, usage_after) if right is Right.FAIR else 0
    last_too = right is Right.FAIR and problem.fairness is Fairness.AFTER
    words = taker.policy.reclaim, taker.policy.borrow_preempt
    like = None if words == ("any", None) else (words, taker.claim.priority, right is Right.PRIORITY)
    everywhere = problem.gives is None  # what they give depends on the place else
    known: dict[object, Table] = (
        books.offers.setdefault((need, below, like, taker.patient, last_too, by_guarantee), {}) if everywhere else {}
    )

    def ask(department: DepartmentId) -> Table:
        account = books.ledger.accounts[department]
        spare = spare_above(account, least, or_equal=last_too)
        if spare < (1 if last_too else 0):
            return NOTHING
        if not account.kept:  # more than this is not asked of it
            spare = min(spare, need + books.largest)
        most = None if by_guarantee else account.usage - account.subtree  # who borrows leaves it what it is promised
        behind = sum(books.stands_behind(claim, taker.claim) for claim in problem.rivals[department]) if by_share else 0
        key = department, books.versions.get(department, 0), account.usage, spare, behind
        if key not in known:
            claims = open_to(books, taker, problem.rivals[department], right if books.ledger.flat else None)
            claims = claims if below is None else [claim for claim in claims if claim.priority < below]
            if last_too:
                claims = [claim for claim in claims if books.standing.charges[claim.id] <= spare]
            known[key] = dict(_all_offers(problem, account, claims, spare, last_too, need, most))
        return known[key]

    return ask


def _all_offers(
    problem: Problem, account: Account, claims: list[Claim], spare: int, last_too: bool, need: int, most: int | None
) -> Iterator[tuple[State, Value]]:
    """Nothing, and every sum of claims of which those before the last (or the last, too) take no more than what the
    department can spare, and all together no more than the `most`. They go smallest first, so the last to go is the largest."""
    fair = problem.books.settings.fair_sharing
    table: Table = {START: EMPTY}
    for claim in sorted(_worth_trying(problem, claims, need), key=lambda claim: (claim.units, claim.id)):
        gives, units = _given(problem, claim), problem.books.standing.charges[claim.id]
        value: Value = (NO_CHANGE, 0, problem.books.lost_work(claim), 1, (claim.id,))
        problem.compare(len(table))
        for (given, right_given, total, parts), old in list(table.items()):
            if most is not None and total + units > most:
                continue
            if min(given, right_given) < need and total + units * last_too <= spare:
                of_right = by_right(account, total + units)
                least: tuple[Part, ...] = ()
                if fair and problem.gives is None:
                    smallest = parts[0][0] if parts else units
                    least = ((smallest, of_right - by_right(account, total + units - smallest)),)
                _offer(table, (given + gives, of_right, total + units, least), join(old, value))
    for state, (_, _, lost, count, ids) in table.items():
        below = max(0, account.guaranteed - (account.usage - state[2])) if ids else 0
        change = lowered(account, state[2]) if fair else NO_CHANGE
        yield state, (change, below, lost, count, ids)


def _given(problem: Problem, claim: Claim) -> int:
    """Units the claim would give at the place."""
    return problem.books.standing.charges[claim.id] if problem.gives is None else problem.gives.get(claim.id, 0)


def _worth_trying(problem: Problem, claims: Iterable[Claim], need: int, anywhere: bool = False) -> list[Claim]:
    """Of each size and priority the claims with the least lost work, as many as could be needed."""
    classes: dict[tuple[int, int, int], list[Claim]] = {}
    for claim in claims:
        gives = _given(problem, claim)
        if gives or anywhere or problem.need[0] <= 0:
            classes.setdefault((claim.units, gives, claim.priority), []).append(claim)
    worth: list[Claim] = []
    for (units, gives, _), members in classes.items():
        members.sort(key=lambda claim: (problem.books.lost_work(claim), claim.id))
        worth += members[: max(1, -(-need // max(1, min(units, gives or units))))]
    return worth


def _offer(table: Table, state: State, value: Value) -> None:
    old = table.get(state)
    if old is None or value < old:
        table[state] = value


def _plus(one: State, other: State) -> State:
    """Both together; a part counts only if no other is as small in both ways."""
    parts = one[3] or other[3]
    if one[3] and other[3]:
        both = sorted({*one[3], *other[3]})
        parts = tuple(p for n, p in enumerate(both) if all(p[1] < earlier[1] for earlier in both[:n]))
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], parts


def join(one: Value, other: Value) -> Value:
    ids = tuple(sorted(one[4] + other[4])) if one[4] and other[4] else one[4] or other[4]
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3], ids
