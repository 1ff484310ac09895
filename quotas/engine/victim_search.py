"""Search for victim sets: the cheapest claims that free a number of units, and sets for which there is no exact method.

`lowest_sum` solves one knapsack, for pools (and recalls) that only count units. `search` is for trees of departments and gangs
over several nodes: first greedy sets from several orders, without claims that can be put back; then, up to LOOKS, other sets in
the order of preference that may still be better than the best so far. Up to about ten candidates, that is every set.
`cheapest_nodes` finds the nodes for one pod.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Any, NamedTuple

from quotas.engine.pass_state import PassState
from quotas.engine.placement import LAST, NOWHERE, Host, Places, Slot, spot_on
from quotas.engine.preemption_rules import (
    Preemptor,
    cost,
    lacking_of_pool,
    open_to,
    permitted,
    within_reach,
)
from quotas.engine.quota_tree import NO_CHANGE, share
from quotas.engine.types import Claim, ClaimId, DepartmentId
from quotas.engine.units import entered_at

Taken = tuple[ClaimId, "Taken"] | tuple[()]
"""A set as a linked list: its last claim, and those taken before it."""
Value = tuple[int, int, int, Taken]
"""(lost work, number of claims, units, claims) of a set."""
SUMS = 2_000
"""The most sums in the table: in a pool that counts MiB, an owner may recall millions of units."""


def cheapest_sum(
    claims: Iterable[Claim], need: int, units: Callable[[Claim], int], lost: Callable[[Claim], int]
) -> tuple[Claim, ...] | None:
    """The claims that together free at least `need` units and lose the least work; of equals, the fewest claims, then the fewest
    units, then the smaller ids. None if all together are too few.

    A table has the best set for every sum of units up to `need`; it may become large, so it is thinned out after each size.
    Up to SUMS sums, the answer is exact.
    """
    table: dict[int, Value] = {0: (0, 0, 0, ())}
    by_id = {claim.id: claim for claim in claims}
    for size, same in _worth_taking(by_id.values(), need, units, lost):
        for given, value in list(table.items()):
            for claim in same[: -(-(need - given) // size)]:
                value = value[0] + lost(claim), value[1] + 1, value[2] + size, (claim.id, value[3])
                state = min(value[2], need)
                if state not in table or _is_better(value, table[state]):
                    table[state] = value
        table = _thinned_out(table)
    return tuple(by_id[id] for id in _ids(table[need][3])) if need in table else None


def lowest_sum(
    claims: Iterable[Claim], need: int, units: Callable[[Claim], int], lost: Callable[[Claim], int]
) -> tuple[Claim, ...] | None:
    """As `cheapest_sum`, of the lowest priorities that suffice."""
    claims = list(claims)
    for ceiling in sorted({claim.priority for claim in claims}):
        low = [claim for claim in claims if claim.priority <= ceiling]
        if sum(map(units, low)) >= need:
            return tuple(low) if len(low) == 1 else cheapest_sum(low, need, units, lost)
    return None


def _is_better(value: Value, other: Value) -> bool:
    return value[:3] < other[:3] or (value[:3] == other[:3] and _ids(value[3]) < _ids(other[3]))


def _ids(taken: Taken) -> list[ClaimId]:
    found: list[ClaimId] = []
    while taken:
        id, taken = taken
        found.append(id)
    return sorted(found)


def _worth_taking(
    claims: Iterable[Claim], need: int, units: Callable[[Claim], int], lost: Callable[[Claim], int]
) -> Iterable[tuple[int, list[Claim]]]:
    """(size, claims of that size that can be in the best set, cheapest first), from the largest size down: without claims that
    are not needed because enough others are no smaller and lose less."""
    sizes: dict[int, list[Claim]] = {}
    for claim in claims:
        sizes.setdefault(units(claim), []).append(claim)
    losses: list[int] = []
    for size in sorted(sizes, reverse=True):
        many = -(-need // size)
        cheapest = sorted(sizes[size], key=lambda claim: (lost(claim), claim.id))[:many]
        worth = [claim for claim in cheapest if bisect_left(losses, lost(claim)) < many]
        for claim in worth:
            insort(losses, lost(claim))
        yield size, worth


def _thinned_out(table: dict[int, Value]) -> dict[int, Value]:
    """The table without sums that are smaller and dearer than another. Of more than SUMS, an even selection that includes the
    largest, from which `need` can still be reached if possible."""
    kept: list[tuple[int, Value]] = []
    for given, value in sorted(table.items(), reverse=True):
        if not kept or value[:2] <= kept[-1][1][:2]:
            kept.append((given, value))
    return dict(kept[:: -(-len(kept) // SUMS)])


# Set by set -----------------------------------------------------------------------------------------------------------


MANY = 16
"""With more candidates than this on nodes, no other sets are checked after a greedy set is found: each check is a search for
places, and the few that are checked of so many sets hardly ever include a better one."""
LOOKS, FEWER_LOOKS, TRIES = 500, 100, 10
"""How many sets are checked for one preemptor after the greedy ones: LOOKS if only units count or no greedy set was found, and
candidates are few; else FEWER_LOOKS. For each of these, TRIES sets may be dismissed as too dear."""


def search(preemptor: Preemptor, claims: list[Claim]) -> tuple[Claim, ...] | None:
    """The best set found; None if none is found."""
    state = preemptor.state
    if state.settings.fair_sharing:
        claims = within_reach(preemptor, claims)
        if makes_room(preemptor, claims) is None:
            return None
    found = [
        victims
        for order in (sorted(claims, key=lambda claim: cost(preemptor, (claim,))), *_orders(preemptor, claims))
        if (victims := _greedy(preemptor, order)) is not None
    ]
    costs = {cost(preemptor, victims): victims for victims in found}
    return _improved(preemptor, claims, costs[cheapest(preemptor, costs)] if costs else None)


def cheapest(preemptor: Preemptor, costs: Mapping[Any, tuple[Claim, ...]]) -> Any:
    """The least cost of these sets; of those that differ only in their ids, the cost of the set whose places waste least."""
    first = min(costs)
    equal = [value for value in costs if value[:-1] == first[:-1]]
    return min(equal, key=lambda value: (waste(preemptor, costs[value]), value[-1])) if len(equal) > 1 else first


def _improved(
    preemptor: Preemptor,
    claims: list[Claim],
    best: tuple[Claim, ...] | None,
) -> tuple[Claim, ...] | None:
    """A better set than the best so far if one is found, else that. Depth first: a set is not extended if it makes room, or if
    no set that contains it can be better."""
    state = preemptor.state
    candidates = next(_orders(preemptor, claims))
    if best is not None and state.pool.nodes is not None and len(candidates) > MANY:
        return best
    charges, lacking = state.charges, lacking_of_pool(preemptor)
    least = None if best is None else cost(preemptor, best)
    thorough = len(candidates) <= MANY and (state.pool.nodes is None or best is None)
    looks = LOOKS if thorough else FEWER_LOOKS
    left = [*accumulate((charges[claim.id] for claim in reversed(candidates)), initial=0)][::-1]
    stack: list[tuple[tuple[Claim, ...], int]] = [((), 0)]
    tries = TRIES * looks
    while stack and looks and tries:
        before, index = stack.pop()
        given = sum(charges[victim.id] for victim in before)
        if index == len(candidates) or given + left[index] < lacking:
            continue
        stack.append((before, index + 1))
        victims, given = (*before, candidates[index]), given + charges[candidates[index].id]
        tries -= 1
        if least is not None and _is_dearer(preemptor, victims, least):
            continue
        looks -= 1
        if given < lacking or not _suffices(preemptor, victims):
            stack.append((victims, index + 1))
            continue
        value = cost(preemptor, victims)
        if (least is None or value[:-1] <= least[:-1]) and not _shrinks(preemptor, victims):
            least = cheapest(preemptor, {value: victims} if best is None else {least: best, value: victims})
            best = victims if least == value else best
    return best


def _is_dearer(preemptor: Preemptor, victims: tuple[Claim, ...], least: Any) -> bool:
    """Whether no set that contains these can be better than the best so far. On nodes, sets of equal cost may be better; with
    fair sharing, all sets that take no more units from departments to spare."""
    state = preemptor.state
    if state.settings.fair_sharing:
        first = (victim for victim in victims if (victim.department == preemptor.account.id) == preemptor.inside)
        return bool(sum(victim.units for victim in first) > least[0])
    value = cost(preemptor, victims)
    return bool(value >= least if state.pool.nodes is None else value[:-1] > least[:-1])


def _suffices(preemptor: Preemptor, victims: tuple[Claim, ...]) -> bool:
    return (
        permitted(preemptor, victims) and makes_room(preemptor, victims) is not None and needs_own(preemptor, victims)
    )


def needs_own(preemptor: Preemptor, victims: Collection[Claim]) -> bool:
    """Whether the preemptor needs each claim of its own department among the victims to make room. With fair sharing, a borrower
    that takes others' claims must not also stop own work that would start again on what is freed, only to lower its share."""
    state = preemptor.state
    mine = [victim for victim in victims if victim.department == preemptor.account.id]
    if not state.settings.fair_sharing or preemptor.renewing or not mine or len(mine) == len(victims):
        return True
    gone = sum(state.charges[victim.id] for victim in mine)
    if preemptor.account.usage + preemptor.asked - gone <= preemptor.account.promised:
        return True
    rests = ([other for other in victims if other is not victim] for victim in mine)
    return all(makes_room(preemptor, rest) is None for rest in rests)


def _shrinks(preemptor: Preemptor, victims: tuple[Claim, ...]) -> bool:
    """Whether any victim can be put back."""
    smaller = (tuple(other for other in victims if other is not victim) for victim in victims)
    return any(_suffices(preemptor, rest) for rest in smaller)


def _orders(preemptor: Preemptor, claims: list[Claim]) -> Iterator[list[Claim]]:
    """Orders of the candidates: by preference (dearest last), by size (largest or smallest first), and newest first."""
    state = preemptor.state
    mine = preemptor.account.id
    loss = {claim.id: state.lost_work(claim) for claim in claims}

    def others_first(claim: Claim) -> bool:
        return (claim.department == mine) == preemptor.inside

    yield sorted(claims, key=lambda c: (others_first(c), c.priority, loss[c.id], c.id))
    yield sorted(claims, key=lambda c: (others_first(c), c.priority, -c.units, loss[c.id], c.id))
    yield sorted(claims, key=lambda c: (others_first(c), c.priority, c.units, loss[c.id], c.id))
    yield sorted(claims, key=lambda c: (others_first(c), -entered_at(c), c.id))


def _greedy(preemptor: Preemptor, order: list[Claim]) -> tuple[Claim, ...] | None:
    """Take claims in this order, if permitted, until the preemptor fits; then put back those that are not needed."""
    state = preemptor.state
    charges, lacking = state.charges, lacking_of_pool(preemptor)
    victims: list[Claim] = []
    given = 0
    for claim in order:
        if permitted(preemptor, [*victims, claim]):
            victims.append(claim)
            given += charges[claim.id]
            if given >= lacking and makes_room(preemptor, victims) is not None:
                break
    else:
        return None
    victims, _ = put_back(preemptor, victims, victims[-2::-1])
    return tuple(victims) if needs_own(preemptor, victims) else None


def put_back(
    preemptor: Preemptor, victims: list[Claim], order: Iterable[Claim], places: Places = ()
) -> tuple[list[Claim], Places]:
    """The victims without those that need not go, tried in this `order`, and the `places` that the rest make."""
    charges = preemptor.state.charges
    spare = sum([charges[victim.id] for victim in victims]) - lacking_of_pool(preemptor)
    for victim in order:
        if charges[victim.id] > spare:
            continue
        rest = [other for other in victims if other is not victim]
        # a set that is not permitted whole may become so as claims are put back
        if permitted(preemptor, rest) or not permitted(preemptor, victims):
            room = makes_room(preemptor, rest)
            if room is not None:
                victims, places, spare = rest, room, spare - charges[victim.id]
    return victims, places


def completed(preemptor: Preemptor, victims: tuple[Claim, ...], claims: Iterable[Claim]) -> tuple[Claim, ...] | None:
    """The victims with further claims that must go to give the right to their places, or because the pool as a whole has too
    little free; None if all are too few."""
    charges, lacking = preemptor.state.charges, lacking_of_pool(preemptor)
    given, allowed = sum(charges[victim.id] for victim in victims), permitted(preemptor, victims)
    for claim in claims:
        if claim in victims:
            continue
        more = (*victims, claim)
        allowed_with_it = permitted(preemptor, more)
        if allowed and not allowed_with_it:
            continue
        victims, given, allowed = more, given + charges[claim.id], allowed_with_it
        if allowed and given >= lacking and makes_room(preemptor, victims) is not None:
            return victims
    return None


def makes_room(preemptor: Preemptor, victims: Iterable[Claim]) -> Places | None:
    """Places for the preemptor once the victims and all leavers have left; None if there are none, or if quotas do not allow it.
    The state does not change."""
    state, victims = preemptor.state, tuple(victims)
    with state.trial() as trial:
        trial.uncharge(victims)
        if not state.entitled(preemptor.claim):
            return None
        trial.free(state.free_later, [state.vectors[victim.id] for victim in victims])
        return state.places(preemptor.claim, state.free_later)


def waste(preemptor: Preemptor, victims: tuple[Claim, ...]) -> tuple[float, ...]:
    """The waste (placement.py) of the preemptor's places once the victims have left, summed over all its pods."""
    state = preemptor.state
    claim, free = preemptor.claim, state.free_later
    wasted: list[tuple[float, ...]] = []
    with state.trial() as trial:
        trial.leave(victims)
        for placed in state.places(claim, free) or ():
            spot = spot_on(state.hosts[placed.node], claim, free.row)
            wasted.append(() if spot is None else spot.waste)
            trial.take(free, [state.space.taken(claim, (placed,), 0)])
    return tuple(map(sum, zip(*wasted, strict=True)))


# The nodes for one pod, cheapest first --------------------------------------------------------------------------------

Bound = tuple[object, ...]
"""The beginning of a cost: no set on the node costs less."""
NEVER: Bound = LAST
"""The bound of a node where no set makes a place."""


class NodeCost(NamedTuple):
    """The least cost of clearing a node, and `victims` of that cost, if they are known."""

    bound: Bound
    victims: tuple[Claim, ...] = ()


def cheapest_nodes(
    preemptor: Preemptor, own: Sequence[Claim], departments: Collection[DepartmentId]
) -> Iterator[tuple[NodeCost, Host, list[Claim]]]:
    """The nodes that may have a place once candidates on them have left, the cheapest first, with these candidates."""
    state = preemptor.state
    mine, hosts = {claim.id for claim in own}, [*state.hosts.values()]

    def candidates(host: Host) -> list[Claim]:
        here = state.on_node.get(host.name, {}).values()
        theirs = open_to(preemptor, [claim for claim in here if claim.department in departments])
        return [*(claim for claim in here if claim.id in mine), *theirs]

    remembered: dict[int, tuple[int, NodeCost]] = {}
    if preemptor.inside and not mine and state.ledger.flat and not state.settings.fair_sharing:
        state.note_changed_spare()
        opened_by = (preemptor.policy, preemptor.claim.priority) if preemptor.policy.reclaim != "any" else "any"
        kind = opened_by, preemptor.ignore_min_runtime  # what decides which claims are open
        bounds = state.free_later.ranking(("bound", kind), state.pool, partial(_lower_bound_on, preemptor)).ranks()
        remembered = state.node_costs.setdefault((preemptor.claim.shape, kind), remembered)
    else:
        if not departments:
            hosts = state.in_order({placed.node for claim in own for placed in claim.placement or ()})
        bounds = [_lower_bound(preemptor, candidates(host), mine) for host in hosts]
    version = state.free_later.version
    known = {index: cost for index, (seen, cost) in remembered.items() if seen == version(hosts[index])}
    for index, node_cost in known.items():
        bounds[index] = node_cost.bound
    heap = [(bound, index) for index, bound in enumerate(bounds) if bound != NEVER]
    heapify(heap)
    while heap:
        bound, index = heappop(heap)
        host = hosts[index]
        if index in known:
            yield known[index], host, candidates(host)
            continue
        known[index] = _node_cost(preemptor, host, candidates(host), mine, bound)
        remembered[index] = version(host), known[index]
        if known[index].bound != NEVER:
            heappush(heap, (known[index].bound, index))


def _lower_bound_on(preemptor: Preemptor, host: Host) -> Bound | None:
    """The least cost of victims on the node, for every preemptor inside its guarantee with this policy."""
    state = preemptor.state
    borrowed = [claim for claim in state.on_node.get(host.name, {}).values() if claim.department in state.ledger.above]
    claims = open_to(preemptor, borrowed)
    return _lower_bound(preemptor, claims) if claims else None


def _lower_bound(preemptor: Preemptor, claims: list[Claim], mine: Collection[ClaimId] = ()) -> Bound:
    """The least cost of any set of these claims for the preemptor. `mine`: claims of its own department."""
    state, own = preemptor.state, sum(claim.id in mine for claim in claims)
    if not claims:
        return NEVER
    if own not in (0, len(claims)) or (own and preemptor.inside):
        return (0,)
    if state.settings.fair_sharing:  # the department that borrows most gives first
        units = 0 if own or preemptor.inside else min(claim.units for claim in claims)
        return units, -max(share(account, account.usage) for account in (state.ledger[c.department] for c in claims))
    if not (own or preemptor.inside):
        return (min(claim.units for claim in claims),)
    priority, lost = min([(claim.priority, state.lost_work(claim)) for claim in claims])
    return 0, NO_CHANGE, 0 if own else min(map(state.short_of_guarantee, claims)), priority, lost


def _node_cost(
    preemptor: Preemptor, host: Host, claims: list[Claim], mine: Collection[ClaimId], lower_bound: Bound
) -> NodeCost:
    """The least cost of a place on the node, if some of these claims go."""
    state, at_least = preemptor.state, NodeCost(lower_bound)
    with state.trial() as trial:
        trial.free(state.free_later, [state.vectors[claim.id] for claim in claims])
        if spot_on(host, preemptor.claim, state.free_later.row) is None:
            return NodeCost(NEVER)
    own = claims[0].id in mine
    if state.settings.fair_sharing or at_least.bound == (0,) or not (own or preemptor.inside):
        return at_least
    if host.shared and preemptor.claim.on_card > host.whole:
        return _whole_cards(state, preemptor.claim, host, claims, own) or at_least
    found: list[NodeCost] = []
    for gives, need in _lacking_on(state, preemptor.claim, host, claims):
        if sum(gives.values()) >= need:
            found.append(_cheapest(state, [claim for claim in claims if claim.id in gives], gives, need, own))
    return min(found, key=lambda node_cost: node_cost.bound, default=at_least)


def _lacking_on(
    state: PassState, claim: Claim, host: Host, claims: list[Claim]
) -> Iterator[tuple[dict[ClaimId, int], int]]:
    """(what each claim would give, how much is needed) for each way to get a place on the node: of a card's units or, if a card
    has enough, of the first thing of which the machine has too little. Empty if places are not simple sums."""
    free, shape = state.free_later.row, host.pool.mig
    cards: Sequence[tuple[Collection[Slot], int]] = ()
    if shape is None and host.whole <= 1:
        cards = [(host.cards, claim.on_card - sum(free[host.stretch]))]
    elif host.shared and claim.on_card <= host.whole:
        cards = [((card,), claim.on_card - free[card]) for card in host.cards]
    elif slot := host.instances.get(claim.profile or "", NOWHERE):
        cards = [((slot,), 1 - free[slot])]
    if any(need <= 0 for _, need in cards):
        asked = [(host.beside.get(what, NOWHERE), amount) for what, amount in claim.beside]
        lacking = [((slot,), amount - free[slot]) for slot, amount in asked if slot is not None and free[slot] < amount]
        cards = lacking[:1]
    at = {slot: index for index, (slots, _) in enumerate(cards) for slot in slots}
    gives: list[dict[ClaimId, int]] = [{} for _ in cards]
    for one in claims:
        for slot, amount in state.vectors[one.id].items():
            if slot in at:
                cell = gives[at[slot]]
                cell[one.id] = cell.get(one.id, 0) + amount
    return ((gift, need) for gift, (_, need) in zip(gives, cards, strict=True))


def _whole_cards(state: PassState, claim: Claim, host: Host, claims: list[Claim], own: bool) -> NodeCost | None:
    """The cost of emptying the cheapest of several shared cards, which are needed whole. None if enough are empty already, or if
    the candidates cannot empty enough."""
    left, need = state.free_later.row, claim.on_card // host.whole
    costs: list[tuple[Bound, list[Claim]]] = []
    for card in host.cards:
        here = [one for one in claims if card in state.vectors[one.id]]
        if left[card] + sum(state.vectors[one.id][card] for one in here) == host.whole:
            short = 0 if own else sum(map(state.short_of_guarantee, here))
            ceiling = max([one.priority for one in here], default=-(10**9))
            costs.append(((short, ceiling, sum(map(state.lost_work, here)), len(here)), here))
    costs.sort(key=lambda cost: cost[0])
    victims = {one.id: one for _, here in costs[:need] for one in here}
    if len(costs) < need or not victims:
        return None
    priority, lost = max(one.priority for one in victims.values()), sum(map(state.lost_work, victims.values()))
    return NodeCost((0, NO_CHANGE, 0, priority, lost, len(victims)), tuple(victims.values()))


def _cheapest(state: PassState, claims: list[Claim], gives: dict[ClaimId, int], need: int, own: bool) -> NodeCost:
    """The cheapest victims; if they give enough, only claims whose departments do not fall below their guarantees."""
    spare, short = claims if own else [claim for claim in claims if not state.short_of_guarantee(claim)], 0
    if sum([gives[claim.id] for claim in spare]) < need:
        short = min([short for claim in claims if (short := state.short_of_guarantee(claim))])
        spare = claims
    victims = lowest_sum(spare, need, lambda claim: gives[claim.id], state.lost_work) or ()
    lost, ceiling = sum(map(state.lost_work, victims)), max(victim.priority for victim in victims)
    return NodeCost((0, NO_CHANGE, short, ceiling, lost, len(victims)), victims)
