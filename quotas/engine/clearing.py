"""Victims for who needs more than one place, or one that is no simple sum: nodes are cleared one by one, each for as many
pods as it can give, and the cheapest nodes that give all pods together are chosen.

Whatever the number of candidates: if a permitted set of victims makes room, one is found (docs/quota-rules.md,
    "Exactness"). The sets that a node can be cleared with come from options.py, what may be taken from whom from
allowances.py; `permitted` and `makes_room` have the last word.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from quotas.engine.allowances import Allowances
from quotas.engine.books import Books
from quotas.engine.options import Clearable, Market, Option
from quotas.engine.permission import Fairness, Taker, lacking_anywhere, lacking_of_pool, permitted
from quotas.engine.quota_tree import Account, Share, share
from quotas.engine.search import Cost, makes_room
from quotas.engine.space import Host
from quotas.engine.types import Claim, ClaimId

TRIED, COMPLETED, CHEAP = 30, 5, 8
"""So many of the sets that ought to make room are tried, and so many completed. Once a few are found, nothing dearer is
looked for."""
NARROW, WIDE = 12, 96
"""How many partial sets are kept beside each other at first; and at last, where fewer lead to none."""
DIGIT = 1 << 80
"""What one part of a price counts beside the next."""

Victims = tuple[Claim, ...]


def clear(
    books: Books,
    taker: Taker,
    claims: Sequence[Claim],
    fairness: Fairness,
    cost: Cost,
    hosts: Collection[Host] | None = None,
) -> Victims | None:
    """The best set found that makes a place on these nodes (None: on any), or None if there is none. The order of preference is
    gone through level by level: spare its own, leave everybody what is promised, take the lowest priorities; within a level
    the least lost work."""
    clearing = Clearing(books, taker, fairness, cost, books.hosts.values() if hosts is None else hosts)
    found = clearing.cheapest(claims, strict=False, widths=(NARROW, WIDE))
    if not found:
        return found
    mine = taker.account.id
    if taker.inside and all(victim.department != mine for victim in found):
        claims = [claim for claim in claims if claim.department != mine]
    if not cost(found)[2] and max(victim.priority for victim in found) == min(claim.priority for claim in claims):
        return found
    return clearing.lowest(claims, strict=True) or clearing.lowest(claims, strict=False) or found


@dataclass(frozen=True, slots=True)
class Clearing:
    """One taker's search."""

    books: Books
    taker: Taker
    fairness: Fairness
    cost: Cost
    hosts: Collection[Host]

    def lowest(self, claims: Sequence[Claim], strict: bool) -> Victims | None:
        """The cheapest set of the lowest priorities that have one."""
        ceilings = sorted({claim.priority for claim in claims})
        low, high = 0, len(ceilings) - 1
        best = self.cheapest(claims, strict)
        while best is not None and low < high:
            middle = (low + high) // 2
            found = self.cheapest([claim for claim in claims if claim.priority <= ceilings[middle]], strict)
            if found is None:
                low = middle + 1
            else:
                best, high = found, middle
        return best

    def cheapest(self, claims: Sequence[Claim], strict: bool, widths: Iterable[int] = (NARROW,)) -> Victims | None:
        """The cheapest set of these, or None. In a tree, and for who would borrow, some may only go after others; and hardly ever
        more units are lacking, for the right to a place or of the pool as a whole, than those who stand there give."""
        books, taker = self.books, self.taker
        for nearer_gone in (False, True) if not books.ledger.flat or not taker.inside else (False,):
            allowances = Allowances(books, taker, sorted(claims, key=_id), self.fairness, nearer_gone)
            if makes_room(books, taker, allowances.reach) is None:
                continue
            prices = _prices(books, taker, allowances.reach)
            for width, lacking in product(widths, (0, max(0, lacking_anywhere(books, taker)))):
                ways, tired = _ways(books, taker, self.hosts, allowances, prices, strict, width, lacking)
                found = self._first(ways, allowances.reach, prices, lacking > 0)
                if found is not None:
                    return found
                if not ways and not tired:
                    break
        return None

    def _first(
        self, ways: Iterable[Option], claims: Sequence[Claim], prices: Mapping[ClaimId, int], complete: bool
    ) -> Victims | None:
        """The best of the sets that may go and make room; if none does and they may be completed, one that has been."""
        sets = sorted((self._claims(option.victims) for option in ways), key=self._cost)
        for victims in sets[:TRIED]:
            allowed = permitted(self.books, self.taker, victims, self.fairness)
            if allowed and makes_room(self.books, self.taker, victims) is not None:
                return victims
        completed = (self._completed(victims, claims, prices) for victims in sets[:COMPLETED] if complete)
        return next((victims for victims in completed if victims is not None), None)

    def _cost(self, victims: Victims) -> Any:
        return self.cost(victims) if victims else ()

    def _claims(self, ids: Iterable[ClaimId]) -> Victims:
        return tuple(self.books.claims[id] for id in sorted(ids))

    def _completed(self, victims: Victims, claims: Sequence[Claim], prices: Mapping[ClaimId, int]) -> Victims | None:
        """The victims, and whoever else must go for the right to their places: those nearer to the taker, and its own, may give
        the right to others."""
        books, taker, charges = self.books, self.taker, self.books.standing.charges
        allowed = permitted(books, taker, victims, self.fairness)
        lacking, given = lacking_of_pool(books, taker), sum(charges[victim.id] for victim in victims)
        rest = [claim for claim in claims if claim not in victims]
        for claim in sorted(rest, key=lambda claim: (prices[claim.id], claim.id)):
            more = (*victims, claim)
            allowed_with_it = permitted(books, taker, more, self.fairness)
            if allowed and not allowed_with_it:
                continue
            victims, given, allowed = more, given + charges[claim.id], allowed_with_it
            if allowed and given >= lacking and makes_room(books, taker, victims) is not None:
                return victims
        return None


def _prices(books: Books, taker: Taker, claims: Iterable[Claim]) -> dict[ClaimId, int]:
    """What each costs in the order of preference, as one number: sums compare as the order does."""
    ledger, fair, prices = books.ledger, books.settings.fair_sharing, dict[ClaimId, int]()
    shares = sorted({_share(ledger[claim.department]) for claim in claims}, reverse=True) if fair else []
    turn = {share: n for n, share in enumerate(shares)}
    for claim in claims:
        last = (claim.department == taker.account.id) == taker.inside
        spread = claim.units * turn[_share(ledger[claim.department])] if fair else 0
        price = 0
        for part in (claim.units if last else 0, spread, books.lost_work(claim), 1, claim.units):
            price = price * DIGIT + part
        prices[claim.id] = price
    return prices


def _id(claim: Claim) -> ClaimId:
    return claim.id


def _share(account: Account) -> Share:
    return share(account, account.usage)


# Putting nodes together -----------------------------------------------------------------------------------------------


def _ways(
    books: Books,
    taker: Taker,
    nodes: Collection[Host],
    allowances: Allowances,
    prices: dict[ClaimId, int],
    strict: bool,
    width: int,
    lacking: int,
) -> tuple[list[Option], bool]:
    """Sets that give all pods a place; and whether there may be others."""
    on_node: dict[str, list[Claim]] = {}
    cells: dict[ClaimId, set[object]] = {}
    by_card = not all(host.whole <= 1 or host.node.instances is not None for host in nodes)
    for one in allowances.reach:
        for placed in one.placement or ():
            there = on_node.setdefault(placed.node, [])
            if not there or there[-1] is not one:
                there.append(one)
            cells.setdefault(one.id, set()).update(
                [(placed.node, c) for c in placed.cards] if by_card else [placed.node]
            )
    several = frozenset(id for id, places in cells.items() if len(places) > 1)
    market = Market(books, allowances, prices, several, lacking, strict, width)
    alone = (market.option((0,), (id,)) for id in prices) if lacking else ()
    anywhere = [[option] for option in alone if option is not None]
    found: list[Option] = []
    for hosts in _domains(nodes, taker.claim):
        here = [Clearable(market, taker.claim, host, on_node.get(host.name, ()), taker.claim.pods) for host in hosts]
        need = taker.claim.pods - sum(node.free for node in here)
        if need <= sum(node.most - node.free for node in here):
            options = [*(node.options() for node in here if need > 0), *anywhere]
            found += _put_together(market, options, max(0, need), found)
    return found, market.tired


def _domains(hosts: Collection[Host], claim: Claim) -> Iterable[list[Host]]:
    """Of these nodes those that all pods may share."""
    if not claim.same_domain:
        return [[*hosts]]
    domains: dict[str, list[Host]] = {}
    for host in hosts:
        if host.domain is not None:
            domains.setdefault(host.domain, []).append(host)
    return domains.values()


def _put_together(market: Market, nodes: Iterable[list[Option]], need: int, known: Iterable[Option]) -> list[Option]:
    """Sets that give so many pods, each node cleared in one of its ways, and all units that are lacking; as far as enough sets
    are not `known` that cost less."""
    states = [market.nothing(0)]
    done: list[Option] = []
    prices = sorted(option.price for option in known)[:CHEAP]
    for options in _worth_trying(market, nodes, need):
        more: list[Option] = []
        dearest = prices[CHEAP - 1] if len(prices) >= CHEAP else None
        for state in states:
            for option in options:
                if dearest is not None and state.price + option.price >= dearest:
                    continue
                pods = min(need, state.gives[0] + option.gives[0])
                union = market.union(state, option, (pods,))
                if union is not None:
                    (done if pods == need and union.units == market.lacking else more).append(union)
        done = market.best(done)
        prices = sorted([*prices, *[option.price for option in done]])[:CHEAP]
        states = market.best([*states, *more])
    return done


def _worth_trying(market: Market, nodes: Iterable[list[Option]], need: int) -> list[list[Option]]:
    """The ways to clear each node, the cheapest nodes first. Of ways that give the same, and take the same from everybody, no
    more are looked at than one set could use."""
    ways = sorted(
        ((option, turn) for turn, options in enumerate(nodes) for option in options),
        key=lambda way: (way[0].price, way[1]),
    )
    seen: Counter[object] = Counter()
    worth: dict[int, list[Option]] = {}
    for option, turn in ways:
        kind = option.gives, option.units, option.taken, option.several
        seen[kind] += 1
        if seen[kind] <= need + (-(-market.lacking // option.units) if option.units else 0):
            worth.setdefault(turn, []).append(option)
    return [*worth.values()]
