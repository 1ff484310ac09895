"""Victims for who needs more than one place, or one that is no simple sum: nodes are cleared one by one, each for as many
pods as it can give, and the cheapest nodes that give all pods together are chosen.

Whatever the number of candidates: if a permitted set of victims makes room, one is found (docs/quota-rules.md, "Exactness").
`Allowances` are what may be taken from each department, as sums that only ever add up; `Clearable` has the sets that one node
can be cleared with; `clear` puts nodes together. `permitted` and `makes_room` have the last word.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import ge
from typing import Any

from quotas.engine.mig_layouts import Profile, profile_of
from quotas.engine.pass_state import Books
from quotas.engine.placement import NOWHERE, Host, Slot, Vector, spot_on
from quotas.engine.preemption_rules import Fairness, Taker, lacking_anywhere, lacking_of_pool, permitted
from quotas.engine.quota_tree import Account, Share, share
from quotas.engine.types import Claim, ClaimId, DepartmentId
from quotas.engine.victim_search import Cost, makes_room

Taken = tuple[tuple[int, int], ...]
"""For each limited account: (units taken, the same without the largest victim). Where both are less, so they stay whatever is
added."""


class Allowances:
    """`permitted` says whether one set may go. Here the same is found out once for all sets of the candidates, by asking it for
    single claims after ever more of a department is gone. So the search can drop at once what takes too much from somebody.

    What may be taken from the accounts that the candidates could exhaust: departments, and in a tree those above them up to
    where the paths of taker and victim meet. Victims go in the order of their size, so all but the largest count before it
    goes; it may overshoot. `reach` are the candidates that may go at all; with `nearer_gone` also those that may only once
    those nearer to the taker, and its own, have gone."""

    def __init__(
        self, books: Books, taker: Taker, claims: Iterable[Claim], fairness: Fairness, nearer_gone: bool = False
    ) -> None:
        self._books, self._taker, self._fairness = books, taker, fairness
        self._charges = books.standing.charges
        claims = tuple(claims)
        above = _ancestors(taker.account)
        self._paths = {d: _below(books.ledger.accounts[d], above) for d in {claim.department for claim in claims}}
        levels = _levels(above, self._paths)
        self.reach: list[Claim] = []
        self._limits: list[dict[int, int]] = []
        self._whole: list[int | None] = []
        self._slots: dict[DepartmentId, list[int]] = {department: [] for department in self._paths}
        gone: list[tuple[DepartmentId, int]] = []
        for level in sorted(set(levels.values())):
            near = [claim for claim in claims if levels[claim.department] == level]
            self._enter(near)
            if nearer_gone:
                gone += [(claim.department, -self._charges[claim.id]) for claim in near]
                for entry in gone[-len(near) :]:
                    books.ledger.lend(*entry)
        for department, units in gone:
            books.ledger.lend(department, -units)
        self._of = {claim.id: self._taken(claim) for claim in self.reach}
        self.nothing: Taken = ((0, 0),) * len(self._limits)

    def _enter(self, claims: list[Claim]) -> None:
        """Those of the claims that may go, and the limits of the accounts that they could exhaust."""
        known: dict[tuple[DepartmentId, int, int], bool] = {}
        by_account: dict[DepartmentId, list[Claim]] = {}
        accounts: dict[DepartmentId, Account] = {}
        for claim in claims:
            kind = claim.department, self._charges[claim.id], claim.priority
            own = claim.department == self._taker.account.id
            if kind not in known:
                known[kind] = own or permitted(self._books, self._taker, (claim,), self._fairness)
            if known[kind]:
                self.reach.append(claim)
                for account in () if own else self._paths[claim.department]:
                    accounts[account.id] = account
                    by_account.setdefault(account.id, []).append(claim)
        for id, found in by_account.items():
            self._limit(accounts[id], found)

    def _limit(self, account: Account, claims: list[Claim]) -> None:
        """Note the account if not all of the claims may go together, or not without breaking a promise."""
        sizes = {self._charges[claim.id]: claim for claim in claims}
        total = sum(self._charges[claim.id] for claim in claims)
        before = {size: self._most_before(account, claim, total - size) for size, claim in sizes.items()}
        promised = None if account.children else max(0, account.usage - account.guaranteed)
        largest = max(sizes)
        if before[largest] < total - largest or (promised is not None and promised < total):
            for department in {claim.department for claim in claims}:
                self._slots[department].append(len(self._limits))
            self._limits.append(before)
            self._whole.append(promised)

    def _most_before(self, account: Account, claim: Claim, most: int) -> int:
        """How much of the account may have gone, of `most` that could, and the claim may still go."""

        def may_go(gone: int) -> bool:
            self._books.ledger.lend(account.id, -gone)
            allowed = permitted(self._books, self._taker, (claim,), self._fairness)
            self._books.ledger.lend(account.id, gone)
            return allowed

        if may_go(most):
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if may_go(middle) else (low, middle)
        return low

    def _taken(self, claim: Claim) -> Taken:
        slots, units = self._slots[claim.department], self._charges[claim.id]
        return tuple((units, 0) if slot in slots else (0, 0) for slot in range(len(self._limits)))

    def of(self, claim: ClaimId) -> Taken:
        """What is taken with one claim."""
        return self._of[claim]

    def bear(self, taken: Taken, strict: bool) -> bool:
        """Whether so much may be taken; `strict`: and leaves every department what it is promised."""
        for (units, before), limits, whole in zip(taken, self._limits, self._whole, strict=True):
            if units and (before > limits.get(units - before, 0) or (strict and whole is not None and units > whole)):
                return False
        return True


def both(one: Taken, other: Taken) -> Taken:
    """What is taken with two sets that have no claim in common."""
    if not one:
        return one
    return tuple(
        [
            (a + b, a + b - max(a - before_a, b - before_b))
            for (a, before_a), (b, before_b) in zip(one, other, strict=True)
        ]
    )


def _ancestors(account: Account) -> list[DepartmentId]:
    """The account and all above it, from below."""
    found = [account]
    while found[-1].parent is not None:
        found.append(found[-1].parent)
    return [one.id for one in found]


def _below(account: Account, above: list[DepartmentId]) -> list[Account]:
    """The account and those above it, up to where the paths meet."""
    path = [account]
    while path[-1].parent is not None and path[-1].parent.id not in above:
        path.append(path[-1].parent)
    return path


def _levels(above: list[DepartmentId], paths: dict[DepartmentId, list[Account]]) -> dict[DepartmentId, int]:
    """How far up the path of each department meets the taker's; its own claims come first of all."""
    turn = {id: turn for turn, id in enumerate(above)}
    tops = {department: path[-1].parent for department, path in paths.items() if department != above[0]}
    return dict.fromkeys(paths, -1) | {d: turn[top.id] for d, top in tops.items() if top is not None}


# What one node can be cleared for -------------------------------------------------------------------------------------

Gives = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Option:
    """Victims and what they give: at the end so many pods, on the way there cards or units, and CPU and the like beside them.
    `several` are those of them that also stand elsewhere; `units` what they give of what is lacking wherever they stand."""

    gives: Gives
    victims: frozenset[ClaimId]
    units: int
    price: int
    taken: Taken
    several: frozenset[ClaimId]
    merits: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        taken = [-units for pair in self.taken for units in pair]
        object.__setattr__(self, "merits", (*self.gives, self.units, *taken))


@dataclass(slots=True)
class Market:
    """The candidates, what each costs, and which of them stand in `several` cells. `lacking` units must go wherever they stand,
    for the right to a place. `strict`: no department falls below its guarantee. No more than `width` partial sets are kept
    beside each other, the cheapest, and half as many that take least; `tired` says that there were more."""

    books: Books
    allowances: Allowances
    prices: Mapping[ClaimId, int]
    several: frozenset[ClaimId]
    lacking: int
    strict: bool
    width: int
    tired: bool = False

    def nothing(self, *gives: int) -> Option:
        """No victims, and what is there without them."""
        return Option(gives, frozenset(), 0, 0, self.allowances.nothing, frozenset())

    def option(self, gives: Gives, victims: Iterable[ClaimId]) -> Option | None:
        """These victims, if so much may be taken."""
        victims = frozenset(victims)
        taken = self.allowances.nothing
        for id in victims:
            taken = both(taken, self.allowances.of(id))
        if not self.allowances.bear(taken, self.strict):
            return None
        units = min(self.lacking, sum(self.books.standing.charges[id] for id in victims)) if self.lacking else 0
        return Option(gives, victims, units, sum(self.prices[id] for id in victims), taken, victims & self.several)

    def union(self, one: Option, other: Option, gives: Gives) -> Option | None:
        """Both, if so much may be taken."""
        victims = one.victims | other.victims
        if not one.victims.isdisjoint(other.victims):
            return self.option(gives, victims)
        taken = both(one.taken, other.taken)
        if not self.allowances.bear(taken, self.strict):
            return None
        units = min(self.lacking, one.units + other.units)
        return Option(gives, victims, units, one.price + other.price, taken, one.several | other.several)

    def best(self, options: Iterable[Option]) -> list[Option]:
        """The options without those that another is at least as good as."""
        kept: list[Option] = []
        spare: list[Option] = []
        for option in sorted(options, key=_order):
            merits, several = option.merits, option.several
            for other in kept:
                if all(map(ge, other.merits, merits)) and other.several >= several:
                    break
            else:
                (kept if len(kept) < self.width else spare).append(option)
        if spare:
            self.tired = True
            spare.sort(
                key=lambda one: (*[-given for given in one.gives], sum(units for units, _ in one.taken), one.price)
            )
            kept += spare[: self.width // 2]
        return kept


def _order(option: Option) -> tuple[int, ...]:
    return option.price, *[-given for given in option.gives], -option.units


class Clearable:
    """One node, the candidates there, and the taker's shape. `free` pods fit as it is, `most` would if all these went."""

    def __init__(self, market: Market, claim: Claim, host: Host, candidates: Sequence[Claim], most: int) -> None:
        self._market, self._claim, self._host = market, claim, host
        beside = [(host.beside.get(what, NOWHERE), amount) for what, amount in claim.beside]
        self._asked_beside = [(slot, amount) for slot, amount in beside if slot is not None]
        self._row = market.books.free_later.row
        self._vectors = {one.id: market.books.vectors[one.id] for one in candidates}
        self._claims = sorted(candidates, key=lambda one: (market.prices[one.id], one.id))
        self.free = self._pods(most)
        self._move(1)
        self.most = self._pods(most) if candidates else self.free
        self._move(-1)

    def _move(self, times: int) -> None:
        for vector in self._vectors.values():
            for slot, amount in vector.items():
                self._row[slot] += times * amount

    def _pods(self, most: int) -> int:
        """How many pods fit on the node, up to `most`."""
        taken: list[Vector] = []
        while len(taken) < most:
            spot = spot_on(self._host, self._claim, self._row)
            if spot is None:
                break
            vector = self._market.books.space.taken(self._claim, (spot.placed,), 0)
            taken.append(vector)
            for slot, amount in vector.items():
                self._row[slot] -= amount
        for vector in taken:
            for slot, amount in vector.items():
                self._row[slot] += amount
        return len(taken)

    def options(self) -> list[Option]:
        """What clears the node for one pod more than fit already, for two more, and so on."""
        if self.most <= self.free:
            return []
        market, each, caps = self._market, self._each, self._caps
        here, cells = self._cells()
        states = [market.nothing(here, *(0 for _ in caps[1:]))]
        for cell in cells:
            more = []
            for state in states:
                for option in cell:
                    union = market.union(state, option, self._sum(state, option, caps))
                    if union is not None:
                        more.append(union)
            states = market.best([*states, *more])
        found = []
        for pods in range(self.free + 1, self.most + 1):
            for state in states:
                if state.gives[0] >= pods * each:
                    found += self._with_the_machine(state, pods)
        return market.best(found)

    def _sum(self, state: Option, option: Option, caps: Gives) -> Gives:
        """What both give: beside the cards of those that stand on several once."""
        amount = min(state.gives[0] + option.gives[0], caps[0])
        if not any(caps[1:]):
            return amount, *state.gives[1:]
        return amount, *map(min, self._beside(state.victims | option.victims), caps[1:])

    def _beside(self, victims: Iterable[ClaimId]) -> Gives:
        """What the victims give on the node of what a pod needs beside the cards: CPU, memory and the like."""
        vectors = [self._vectors[id] for id in victims if id in self._vectors]
        return tuple([sum([vector.get(slot, 0) for vector in vectors]) for slot, _ in self._asked_beside])

    @property
    def _caps(self) -> Gives:
        """No more is of use: cards or instances, and what a pod needs beside them."""
        return (self.most * self._each, *self._lacking_beside(self.most))

    def _lacking_beside(self, pods: int) -> Gives:
        """What the node lacks beside the cards for so many pods."""
        return tuple([max(0, pods * amount - self._row[slot]) for slot, amount in self._asked_beside])

    def _with_the_machine(self, state: Option, pods: int) -> list[Option]:
        """The victims, and whoever else must go for what so many pods need beside the cards."""
        lacking = self._lacking_beside(pods)
        given = {one.id: self._beside((one.id,)) for one in self._claims if one.id not in state.victims}
        start = replace(state, gives=state.gives[1:])
        found = self._covers(start, given, lacking, lacking) if any(lacking) else [start]
        return [replace(option, gives=(pods - self.free,)) for option in found]

    def _covers(self, start: Option, given: Mapping[ClaimId, Gives], need: Gives, caps: Gives) -> list[Option]:
        """The sets that give what is needed together with the start. More than `caps` is of no use."""
        market = self._market
        if _enough(start.gives, need):
            return [start]
        done: list[Option] = []
        states = [start]
        for id, gives in given.items():
            alone = market.option(gives, (id,)) if any(gives) else None
            if alone is None:
                continue
            more: list[Option] = []
            for state in states:
                total = tuple([min(a + b, cap) for a, b, cap in zip(state.gives, gives, caps, strict=True)])
                union = market.union(state, alone, total) if total != state.gives else None
                if union is not None:
                    (done if _enough(total, need) else more).append(union)
            states = market.best([*states, *more])
        return market.best(done)

    # Cells ------------------------------------------------------------------------------------------------------------

    @property
    def _each(self) -> int:
        """What a pod takes of the cells: whole cards, or one place."""
        host, on_card = self._host, self._claim.on_card
        if host.pool.mig is not None or not host.whole or (host.shared and on_card <= host.whole):
            return 1
        return on_card // host.whole

    def _cells(self) -> tuple[int, list[list[Option]]]:
        """What is free of the cells, and what each of them can be cleared for."""
        host, row = self._host, self._row
        profile = profile_of(host.pool.mig, self._claim.profile)
        if profile is not None and host.node.instances is not None:
            slot = host.instances.get(self._claim.profile or "", 0)
            return row[slot], self._one_by_one([slot])
        if profile is not None:
            return self._together([self._cuts(profile, card) for card in range(len(host.slices))])
        if host.shared and self._claim.on_card <= host.whole:
            return self._together([self._parts(card) for card in range(len(host.cards))])
        if host.whole <= 1:
            return row[host.stretch].count(host.whole), self._one_by_one(host.cards)
        return self._together([self._emptied(card) for card in range(len(host.cards))])

    def _one_by_one(self, slots: Sequence[Slot]) -> list[list[Option]]:
        """Each claim gives whole cards, or instances."""
        cells = []
        for one in self._claims:
            vector = self._vectors[one.id]
            option = self._market.option((sum([vector.get(slot, 0) for slot in slots]),), (one.id,))
            if option is not None and (option.gives[0] or any(self._beside((one.id,)))):
                cells.append([option])
        return cells

    def _together(self, cells: Iterable[tuple[int, list[Option]]]) -> tuple[int, list[list[Option]]]:
        """What is free of all the cells, and what those give that are more than that."""
        cells = list(cells)
        return sum(free for free, _ in cells), [options for _, options in cells if options]

    def _on_card(self, slots: Iterable[Slot]) -> list[Claim]:
        """The candidates that take something of these."""
        slots = tuple(slots)
        return [one for one in self._claims if any(slot in self._vectors[one.id] for slot in slots)]

    def _parts(self, card: int) -> tuple[int, list[Option]]:
        """A card that others share, for one pod or several beside each other."""
        host, claim, row, market = self._host, self._claim, self._row, self._market
        units, cores = host.cards[card], host.cores[card] if host.cores else None
        asked, compute = claim.on_card, (claim.cores_per_pod or 0) if cores is not None else 0
        space, total = market.books.space.capacity, (row[units], 0 if cores is None else row[cores])
        free = _times(total, (asked, compute))
        here = self._on_card([units, *([] if cores is None else [cores])])
        given = {
            one.id: (self._vectors[one.id].get(units, 0), 0 if cores is None else self._vectors[one.id].get(cores, 0))
            for one in here
        }
        found: list[Option] = []
        for pods in range(free + 1, min(space[units] // asked, self.most) + 1):
            need = max(0, pods * asked - total[0]), max(0, pods * compute - total[1])
            covers = self._covers(market.nothing(0, 0), given, need, need)
            if not covers:
                break
            found += [replace(option, gives=(pods - free,)) for option in covers]
        return free, found

    def _emptied(self, card: int) -> tuple[int, list[Option]]:
        """A card that others share, all of it."""
        host, claim, row = self._host, self._claim, self._row
        units, cores = host.cards[card], host.cores[card] if host.cores else None
        compute = (claim.cores_per_pod or 0) if cores is not None else 0
        left, spare = row[units], 0 if cores is None else row[cores]
        if left == host.whole and spare >= compute:
            return 1, []
        here = self._on_card([units, *([] if cores is None else [cores])])
        left += sum(self._vectors[one.id].get(units, 0) for one in here)
        spare += 0 if cores is None else sum(self._vectors[one.id].get(cores, 0) for one in here)
        option = self._market.option((1,), [one.id for one in here])
        return 0, [option] if left == host.whole and spare >= compute and option is not None else []

    def _cuts(self, profile: Profile, card: int) -> tuple[int, list[Option]]:
        """A card that MIG cuts freely: the starts at which instances may stand beside each other, without those in the way."""
        market, row, stretch, media = self._market, self._row, self._host.slices[card], self._host.media[card]
        holders = {
            slot: [one.id for one in self._on_card([slot])] for slot in (*range(stretch.start, stretch.stop), media)
        }
        ends: dict[int, list[Option]] = {0: [market.nothing(0)]}
        for start in sorted(profile.starts):
            slots = [*range(stretch.start + start, min(stretch.start + start + profile.size, stretch.stop))]
            slots += [media] if profile.media else []
            busy = [slot for slot in slots if row[slot] < 1]
            in_the_way = market.option((1,), {id for slot in busy for id in holders[slot]})
            if in_the_way is None or not all(holders[slot] for slot in busy):
                continue
            before = [option for end, options in ends.items() if end <= start for option in options]
            with_it = [market.union(one, in_the_way, (one.gives[0] + 1,)) for one in before]
            if profile.media:
                with_it = [one for one in with_it if one is not None and one.gives[0] == 1]
            ends.setdefault(start + profile.size, []).extend([one for one in with_it if one is not None])
        options = [option for found in ends.values() for option in found]
        free = max(option.gives[0] for option in options if not option.victims)
        better = [option for option in options if option.gives[0] > free]
        return free, market.best([replace(option, gives=(option.gives[0] - free,)) for option in better])


def _enough(gives: Gives, need: Gives) -> bool:
    return all(map(ge, gives, need))


def _times(total: Sequence[int], each: Sequence[int]) -> int:
    """How often `each` fits into the total."""
    return min([max(0, amount) // one for amount, one in zip(total, each, strict=True) if one], default=0)


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
