"""Victims for a claim that needs several places, or one that is no simple sum: clear nodes one by one, each for as many pods
as possible, and choose the cheapest nodes that together take all pods.

A node is cleared by taking all candidates there and putting back those that are not needed (`_sets_on`). Sets of several nodes
are built node by node, and the best sets so far are kept: the cheapest, and those that take less from some department than any
cheaper one, because what may be taken from each is limited (`_put_together`). `permitted` and `makes_room` decide in the end;
a set that lacks the right to its places, or units of the pool as a whole, is completed by claims from anywhere.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from operator import add, ge, sub

from quotas.engine.placement import Host, by_domain, spot_on
from quotas.engine.preemption_rules import Preemptor, cost, permitted
from quotas.engine.quota_tree import share
from quotas.engine.types import Claim, ClaimId
from quotas.engine.victim_search import completed, makes_room

NARROW, WIDE = 12, 96
"""How many partial sets are kept: at first, and then if these lead to no result."""
ORDERS = 200
"""With the wide search, how many combinations are tried on each node for each of the two orders of putting back."""
ENOUGH = 8
"""Once so many sets are found, dearer ones are no longer searched for."""
TRIED, COMPLETED = 30, 5
"""How many of the sets found are tried, and how many are completed."""

Victims = tuple[Claim, ...]


def clear(preemptor: Preemptor, claims: Sequence[Claim], hosts: Collection[Host] | None = None) -> Victims | None:
    """The best set of these claims found that makes places on these nodes (None: on any); None if there is none. It follows the
    order of preference level by level: spare its own department, leave every department its guarantee, take the lowest
    priorities; within a level, the least lost work."""
    clearing = Clearing(preemptor, tuple(preemptor.state.hosts.values() if hosts is None else hosts))
    found = clearing.cheapest(claims, keep_guarantees=False, widths=(NARROW, WIDE))
    if not found:
        return found
    mine = preemptor.account.id
    if preemptor.inside and all(victim.department != mine for victim in found):
        claims = [claim for claim in claims if claim.department != mine]
    lowest = min(claim.priority for claim in claims)
    if not cost(preemptor, found).below_guarantee and max(victim.priority for victim in found) == lowest:
        return found
    return clearing.lowest(claims, keep_guarantees=True) or clearing.lowest(claims, keep_guarantees=False) or found


@dataclass(frozen=True, slots=True)
class Clearing:
    """The search for one preemptor's victims on these nodes."""

    preemptor: Preemptor
    hosts: tuple[Host, ...]

    def lowest(self, claims: Sequence[Claim], keep_guarantees: bool) -> Victims | None:
        """The cheapest set with the lowest maximum priority for which there is one."""
        ceilings = sorted({claim.priority for claim in claims})
        low, high = 0, len(ceilings) - 1
        best = self.cheapest(claims, keep_guarantees)
        while best is not None and low < high:
            middle = (low + high) // 2
            found = self.cheapest([claim for claim in claims if claim.priority <= ceilings[middle]], keep_guarantees)
            if found is None:
                low = middle + 1
            else:
                best, high = found, middle
        return best

    def cheapest(
        self, claims: Sequence[Claim], keep_guarantees: bool, widths: Iterable[int] = (NARROW,)
    ) -> Victims | None:
        """The cheapest set of these claims, or None. In a tree, and for a borrower, some claims may go only after others."""
        preemptor = self.preemptor
        alone = [claim for claim in claims if permitted(preemptor, (claim,))]
        in_any_order = preemptor.state.ledger.flat and preemptor.inside
        for reach, step_by_step in ((alone, True),) if in_any_order else ((alone, True), (claims, False)):
            if makes_room(preemptor, reach) is None:
                continue
            for width in widths:
                candidates = Candidates(preemptor, reach, keep_guarantees, step_by_step, width)
                found = self._first(candidates.clearing(self.hosts), candidates.by_price)
                if found is not None:
                    return found
        return None

    def _first(self, sets: list[Victims], by_price: list[Claim]) -> Victims | None:
        """The best set that is permitted and makes room; if there is none, one that could be completed."""
        sets.sort(key=lambda victims: cost(self.preemptor, victims) if victims else ())
        for victims in sets[:TRIED]:
            if permitted(self.preemptor, victims) and makes_room(self.preemptor, victims) is not None:
                return victims
        ends = (completed(self.preemptor, victims, by_price) for victims in sets[:COMPLETED])
        return next((victims for victims in ends if victims is not None), None)


# Sets that clear nodes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClearingSet:
    """Victims, and how many `pods` get a place when they leave. `price`: their cost in the order of preference. `taken`: the
    units that each department gives, then the same without its largest victim, by which it may give more than it borrows."""

    pods: int
    victims: frozenset[ClaimId]
    price: tuple[int, ...]
    taken: tuple[int, ...]

    def is_dominated_by(self, other: "ClearingSet") -> bool:
        """Whether the other set, which is no dearer, gives as many pods a place and takes no more from any department."""
        return other.pods >= self.pods and all(map(ge, self.taken, other.taken))


class Candidates:
    """The claims that may go, the cheapest first. `keep_guarantees`: no department may fall below its guarantee.
    `step_by_step`: a set that is not permitted does not become so when more claims go. The `width` cheapest sets are kept,
    and half as many that give the most pods a place and take the fewest units."""

    def __init__(
        self, preemptor: Preemptor, claims: Sequence[Claim], keep_guarantees: bool, step_by_step: bool, width: int
    ) -> None:
        self._preemptor, self._state = preemptor, preemptor.state
        self._step_by_step, self._width = step_by_step, width
        self._prices = _prices(preemptor, claims)
        self.by_price = sorted(claims, key=lambda claim: (self._prices[claim.id], claim.id))
        self._departments = sorted({claim.department for claim in claims})
        self._most: list[int | None] = [None] * len(self._departments)
        if keep_guarantees:
            accounts = [self._state.ledger[department] for department in self._departments]
            self._most = [None if a.children else max(0, a.usage - a.guaranteed) for a in accounts]
        self._taken: dict[frozenset[ClaimId], bool] = {}
        self._on_node: dict[str, list[Claim]] = {}
        for claim in self.by_price:
            for name in {placed.node for placed in claim.placement or ()}:
                self._on_node.setdefault(name, []).append(claim)

    def clearing(self, hosts: Collection[Host]) -> list[Victims]:
        """Sets that give all pods a place on the nodes; within one domain if the pods must share one."""
        domains = by_domain(hosts) if self._preemptor.claim.same_domain else [tuple(hosts)]
        sets = [one for domain in domains for one in self._put_together(domain)]
        return [self._claims(one.victims) for one in sets]

    def _put_together(self, hosts: Sequence[Host]) -> list[ClearingSet]:
        """Sets that give all pods a place on these nodes, by clearing each node in one of its ways, or not at all."""
        free = {host.name: self._pods(host, ()) for host in hosts}
        need = max(0, self._preemptor.claim.pods - sum(free.values()))
        nodes = [sets for host in hosts if (sets := self._sets_on(host, free[host.name]))]
        nothing = self._set(0, frozenset())
        partial, done = [nothing], [] if need else [nothing]
        for sets in sorted(nodes, key=lambda sets: sets[0].price):
            unions = [
                self._set(min(need, one.pods + more.pods), one.victims | more.victims)
                for one, more in product(partial, sets)
            ]
            done = self._best([*done, *(one for one in unions if one.pods == need)])
            partial = self._best([*partial, *(one for one in unions if one.pods < need)])
            if len(done) >= ENOUGH:
                partial = [one for one in partial if one.price < done[ENOUGH - 1].price]
        return done

    def _set(self, pods: int, victims: frozenset[ClaimId]) -> ClearingSet:
        units, largest = dict.fromkeys(self._departments, 0), dict.fromkeys(self._departments, 0)
        price: tuple[int, ...] = (0,) * PARTS_OF_A_PRICE
        for claim in self._claims(victims):
            charge = self._state.charges[claim.id]
            units[claim.department] += charge
            largest[claim.department] = max(largest[claim.department], charge)
            price = tuple(map(add, price, self._prices[claim.id]))
        return ClearingSet(pods, victims, price, (*units.values(), *map(sub, units.values(), largest.values())))

    def _best(self, sets: Iterable[ClearingSet]) -> list[ClearingSet]:
        """The sets to keep: those that may be taken and to which no other is preferable in every respect."""
        kept: list[ClearingSet] = []
        spare: list[ClearingSet] = []
        for one in sorted(sets, key=lambda one: (one.price, -one.pods)):
            if any(map(one.is_dominated_by, kept)):
                continue
            if len(kept) == self._width:
                spare.append(one)
            elif self._may_be_taken(one):
                kept.append(one)
        spare.sort(key=lambda one: (-one.pods, sum(one.taken), one.price))
        return [*kept, *islice(filter(self._may_be_taken, spare), self._width // 2)]

    def _may_be_taken(self, one: ClearingSet) -> bool:
        if one.victims not in self._taken:
            within = all(most is None or units <= most for units, most in zip(one.taken, self._most, strict=False))
            allowed = not self._step_by_step or permitted(self._preemptor, self._claims(one.victims))
            self._taken[one.victims] = within and allowed
        return self._taken[one.victims]

    def _claims(self, victims: Iterable[ClaimId]) -> Victims:
        return tuple(self._state.claims[id] for id in sorted(victims))

    # One node ---------------------------------------------------------------------------------------------------------

    def _sets_on(self, host: Host, free: int) -> list[ClearingSet]:
        """Sets that clear the node for one pod more than the `free` ones that fit there already, for two more, and so on."""
        here = self._on_node.get(host.name, [])
        most = self._pods(host, here) if here else free
        found: dict[frozenset[ClaimId], ClearingSet] = {}
        for pods in range(free + 1, most + 1):
            for order in self._orders(here):
                victims = here
                for claim in order:
                    rest = [other for other in victims if other is not claim]
                    if self._pods(host, rest) >= pods:
                        victims = rest
                ids = frozenset(victim.id for victim in victims)
                if ids not in found:
                    found[ids] = self._set(self._pods(host, victims) - free, ids)
        return self._best(found.values())

    def _orders(self, here: list[Claim]) -> Iterator[list[Claim]]:
        """Orders in which the candidates on a node are put back: the dearest first; the smallest first, because with its last
        victim a department may give more than it borrows. With the wide search also every combination of how many claims of
        each department come before all others, for departments that can give little."""
        dearest = here[::-1]
        for order in (dearest, sorted(dearest, key=lambda claim: claim.units)):
            yield order
            theirs = [[claim for claim in order if claim.department == lender] for lender in self._departments]
            combinations = product(*(range(len(claims) + 1) for claims in theirs))
            for counts in islice(combinations, 1, ORDERS) if self._width == WIDE else ():
                first = [claim for claims, count in zip(theirs, counts, strict=True) for claim in claims[:count]]
                yield first + [claim for claim in order if claim not in first]

    def _pods(self, host: Host, gone: Iterable[Claim]) -> int:
        """How many of the preemptor's pods fit on the node once these claims have left."""
        state, claim = self._state, self._preemptor.claim
        with state.trial() as trial:
            trial.free(state.free_later, [state.vectors[one.id] for one in gone])
            for pods in range(claim.pods):
                spot = spot_on(host, claim, state.free_later.row)
                if spot is None:
                    return pods
                trial.take(state.free_later, [state.space.taken(claim, (spot.placed,), 0)])
        return claim.pods


PARTS_OF_A_PRICE = 5


def _prices(preemptor: Preemptor, claims: Iterable[Claim]) -> dict[ClaimId, tuple[int, ...]]:
    """Claim id → its cost in the order of preference: units of claims that go last (of the preemptor's own department; for a
    borrower, of others), units weighted by the rank of the share, lost work, number of claims, units. Sums compare in that
    order."""
    state = preemptor.state
    ledger, fair, prices = state.ledger, state.settings.fair_sharing, dict[ClaimId, tuple[int, ...]]()
    accounts = [ledger[department] for department in {claim.department for claim in claims}] if fair else []
    shares = {account.id: share(account, account.usage) for account in accounts}
    turn = {one: n for n, one in enumerate(sorted(set(shares.values()), reverse=True))}
    for claim in claims:
        last = claim.units if (claim.department == preemptor.account.id) == preemptor.inside else 0
        spread = claim.units * turn[shares[claim.department]] if fair else 0
        prices[claim.id] = last, spread, state.lost_work(claim), 1, claim.units
    return prices
