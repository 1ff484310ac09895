"""What one node can be cleared for: so many pods of the taker, and the victims that this costs.

A node is made of cells: the whole cards of each claim, or each card that others share, or the instances of a profile. Of
sets of victims that give the same only those are kept that cost least, or take least from some department.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import ge

from quotas.engine.allowances import Allowances, Taken, both
from quotas.engine.books import Books
from quotas.engine.mig_layouts import Profile, profile_of
from quotas.engine.placement import spot_on
from quotas.engine.space import NOWHERE, Host, Slot, Vector
from quotas.engine.types import Claim, ClaimId

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
