"""Victims for who needs more than one place, or one that is no simple sum: nodes are cleared one by one, each for as many
pods as it can give, and the cheapest nodes that give all pods together are chosen.

Whatever the number of candidates: if a permitted set of victims makes room, one is found
(docs/quota-rules-reference.md, "Who may be stopped").
`Allowances` are what may be taken from each department, as sums that only ever add up; `Clearable` has the sets that one node
can be cleared with; `clear` puts nodes together. `permitted` and `makes_room` have the last word.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import ge
from typing import Any

from quotas.engine.mig_layouts import Profile, profile_of
from quotas.engine.pass_state import PassState
from quotas.engine.placement import NOWHERE, Host, Slot, spot_on
from quotas.engine.preemption_rules import Preemptor, cost, lacking_anywhere, lacking_of_pool, permitted
from quotas.engine.quota_tree import Account, Share, share
from quotas.engine.types import Claim, ClaimId, DepartmentId
from quotas.engine.victim_search import makes_room

Taken = tuple[tuple[int, int], ...]
"""For each limited account: (units taken, the same without the largest victim). Where both are less, so they stay whatever is
added."""


class Allowances:
    """`permitted` says whether one set may go. Here the same is found out once for all sets of the candidates, by asking it for
    single claims after ever more of a department is gone. So the search can drop at once what takes too much from somebody.

    What may be taken from the accounts that the candidates could exhaust: departments, and in a tree those above them up to
    where the paths of preemptor and victim meet. Victims go in the order of their size, so all but the largest count before it
    goes; it may overshoot. `reach` are the candidates that may go at all; with `nearer_gone` also those that may only once
    those nearer to the preemptor, and its own, have gone."""

    def __init__(
        self,
        preemptor: Preemptor,
        claims: Iterable[Claim],
        nearer_gone: bool = False,
    ) -> None:
        state = preemptor.state
        self._state, self._preemptor = preemptor.state, preemptor
        self._charges = state.charges
        claims = tuple(claims)
        above = _ancestors(preemptor.account)
        self._paths = {d: _below(state.ledger.accounts[d], above) for d in {claim.department for claim in claims}}
        levels = _levels(above, self._paths)
        self.reach: list[Claim] = []
        self._limits: list[dict[int, int]] = []
        self._above_guarantee: list[int | None] = []
        self._slots: dict[DepartmentId, list[int]] = {department: [] for department in self._paths}
        with state.trial() as trial:
            for level in sorted(set(levels.values())):
                near = [claim for claim in claims if levels[claim.department] == level]
                self._enter(near)
                if nearer_gone:
                    trial.uncharge(near)
        self._of = {claim.id: self._taken(claim) for claim in self.reach}
        self.nothing: Taken = ((0, 0),) * len(self._limits)

    def _enter(self, claims: list[Claim]) -> None:
        """Those of the claims that may go, and the limits of the accounts that they could exhaust."""
        known: dict[tuple[DepartmentId, int, int], bool] = {}
        by_account: dict[DepartmentId, list[Claim]] = {}
        accounts: dict[DepartmentId, Account] = {}
        for claim in claims:
            kind = claim.department, self._charges[claim.id], claim.priority
            own = claim.department == self._preemptor.account.id
            if kind not in known:
                known[kind] = own or permitted(self._preemptor, (claim,))
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
            self._above_guarantee.append(promised)

    def _most_before(self, account: Account, claim: Claim, most: int) -> int:
        """How much of the account may have gone, of `most` that could, and the claim may still go."""

        def may_go(gone: int) -> bool:
            with self._state.trial() as trial:
                trial.charge(account.id, -gone)
                return permitted(self._preemptor, (claim,))

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

    def allow(self, taken: Taken, keep_guarantees: bool) -> bool:
        """Whether so much may be taken; `keep_guarantees`: and leaves every department what it is promised."""
        for (units, before), limits, whole in zip(taken, self._limits, self._above_guarantee, strict=True):
            if units and (
                before > limits.get(units - before, 0) or (keep_guarantees and whole is not None and units > whole)
            ):
                return False
        return True


def sum_taken(one: Taken, other: Taken) -> Taken:
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
    """How far up the path of each department meets the preemptor's; its own claims come first of all."""
    turn = {id: turn for turn, id in enumerate(above)}
    tops = {department: path[-1].parent for department, path in paths.items() if department != above[0]}
    return dict.fromkeys(paths, -1) | {d: turn[top.id] for d, top in tops.items() if top is not None}


# What one node can be cleared for -------------------------------------------------------------------------------------

Gives = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Option:
    """Victims and what they give: at the end so many pods, on the way there cards or units, and CPU and the like beside them.
    `elsewhere` are those of them that also stand elsewhere; `units` what they give of what is lacking wherever they stand."""

    gives: Gives
    victims: frozenset[ClaimId]
    units: int
    price: int
    taken: Taken
    elsewhere: frozenset[ClaimId]
    merits: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        taken = [-units for pair in self.taken for units in pair]
        object.__setattr__(self, "merits", (*self.gives, self.units, *taken))


@dataclass(slots=True)
class Candidates:
    """The claims that may go, the price of each, and which of them stand in several parts (`elsewhere`). `lacking` units must go
    wherever they stand, for the right to a place. With `keep_guarantees` no department falls below its guarantee. At most `width`
    partial sets are kept beside each other, the cheapest, and half as many that take least; `truncated` says that there were
    more."""

    state: PassState
    allowances: Allowances
    prices: Mapping[ClaimId, int]
    elsewhere: frozenset[ClaimId]
    lacking: int
    keep_guarantees: bool
    width: int
    truncated: bool = False

    def nothing(self, *gives: int) -> Option:
        """No victims, and what is there without them."""
        return Option(gives, frozenset(), 0, 0, self.allowances.nothing, frozenset())

    def option(self, gives: Gives, victims: Iterable[ClaimId]) -> Option | None:
        """These victims, if so much may be taken."""
        victims = frozenset(victims)
        taken = self.allowances.nothing
        for id in victims:
            taken = sum_taken(taken, self.allowances.of(id))
        if not self.allowances.allow(taken, self.keep_guarantees):
            return None
        units = min(self.lacking, sum(self.state.charges[id] for id in victims)) if self.lacking else 0
        return Option(gives, victims, units, sum(self.prices[id] for id in victims), taken, victims & self.elsewhere)

    def union(self, one: Option, other: Option, gives: Gives) -> Option | None:
        """Both, if so much may be taken."""
        victims = one.victims | other.victims
        if not one.victims.isdisjoint(other.victims):
            return self.option(gives, victims)
        taken = sum_taken(one.taken, other.taken)
        if not self.allowances.allow(taken, self.keep_guarantees):
            return None
        units = min(self.lacking, one.units + other.units)
        return Option(gives, victims, units, one.price + other.price, taken, one.elsewhere | other.elsewhere)

    def best(self, options: Iterable[Option]) -> list[Option]:
        """The options without those that another is at least as good as."""
        kept: list[Option] = []
        spare: list[Option] = []
        for option in sorted(options, key=_order):
            merits, elsewhere = option.merits, option.elsewhere
            for other in kept:
                if all(map(ge, other.merits, merits)) and other.elsewhere >= elsewhere:
                    break
            else:
                (kept if len(kept) < self.width else spare).append(option)
        if spare:
            self.truncated = True
            spare.sort(
                key=lambda one: (*[-given for given in one.gives], sum(units for units, _ in one.taken), one.price)
            )
            kept += spare[: self.width // 2]
        return kept


def _order(option: Option) -> tuple[int, ...]:
    return option.price, *[-given for given in option.gives], -option.units


class Clearable:
    """One node, the candidates there, and the preemptor's shape. `free` pods fit as it is, `most` would if all these went."""

    def __init__(self, candidates: Candidates, claim: Claim, host: Host, claims: Sequence[Claim], most: int) -> None:
        self._candidates, self._claim, self._host = candidates, claim, host
        beside = [(host.beside.get(what, NOWHERE), amount) for what, amount in claim.beside]
        self._asked_beside = [(slot, amount) for slot, amount in beside if slot is not None]
        self._row = candidates.state.free_later.row
        self._vectors = {one.id: candidates.state.vectors[one.id] for one in claims}
        self._claims = sorted(claims, key=lambda one: (candidates.prices[one.id], one.id))
        self.free = self._pods(most)
        with candidates.state.trial() as trial:
            trial.free(candidates.state.free_later, self._vectors.values())
            self.most = self._pods(most) if claims else self.free

    def _pods(self, most: int) -> int:
        """How many pods fit on the node, up to `most`."""
        state = self._candidates.state
        with state.trial() as trial:
            for pods in range(most):
                spot = spot_on(self._host, self._claim, self._row)
                if spot is None:
                    return pods
                trial.take(state.free_later, [state.space.taken(self._claim, (spot.placed,), 0)])
        return most

    def options(self) -> list[Option]:
        """What clears the node for one pod more than fit already, for two more, and so on."""
        if self.most <= self.free:
            return []
        candidates, each, caps = self._candidates, self._parts_per_pod, self._caps
        here, parts = self._parts()
        states = [candidates.nothing(here, *(0 for _ in caps[1:]))]
        for part in parts:
            more = []
            for state in states:
                for option in part:
                    union = candidates.union(state, option, self._sum(state, option, caps))
                    if union is not None:
                        more.append(union)
            states = candidates.best([*states, *more])
        found = []
        for pods in range(self.free + 1, self.most + 1):
            for state in states:
                if state.gives[0] >= pods * each:
                    found += self._with_beside(state, pods)
        return candidates.best(found)

    def _sum(self, state: Option, option: Option, caps: Gives) -> Gives:
        """What both give: beside the cards of those that stand on elsewhere once."""
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
        return (self.most * self._parts_per_pod, *self._lacking_beside(self.most))

    def _lacking_beside(self, pods: int) -> Gives:
        """What the node lacks beside the cards for so many pods."""
        return tuple([max(0, pods * amount - self._row[slot]) for slot, amount in self._asked_beside])

    def _with_beside(self, state: Option, pods: int) -> list[Option]:
        """The victims, and whoever else must go for what so many pods need beside the cards."""
        lacking = self._lacking_beside(pods)
        given = {one.id: self._beside((one.id,)) for one in self._claims if one.id not in state.victims}
        start = replace(state, gives=state.gives[1:])
        found = self._covers(start, given, lacking, lacking) if any(lacking) else [start]
        return [replace(option, gives=(pods - self.free,)) for option in found]

    def _covers(self, start: Option, given: Mapping[ClaimId, Gives], need: Gives, caps: Gives) -> list[Option]:
        """The sets that give what is needed together with the start. More than `caps` is of no use."""
        candidates = self._candidates
        if _enough(start.gives, need):
            return [start]
        done: list[Option] = []
        states = [start]
        for id, gives in given.items():
            alone = candidates.option(gives, (id,)) if any(gives) else None
            if alone is None:
                continue
            more: list[Option] = []
            for state in states:
                total = tuple([min(a + b, cap) for a, b, cap in zip(state.gives, gives, caps, strict=True)])
                union = candidates.union(state, alone, total) if total != state.gives else None
                if union is not None:
                    (done if _enough(total, need) else more).append(union)
            states = candidates.best([*states, *more])
        return candidates.best(done)

    # Cells ------------------------------------------------------------------------------------------------------------

    @property
    def _parts_per_pod(self) -> int:
        """What a pod takes of the parts: whole cards, or one place."""
        host, on_card = self._host, self._claim.on_card
        if host.pool.mig is not None or not host.whole or (host.shared and on_card <= host.whole):
            return 1
        return on_card // host.whole

    def _parts(self) -> tuple[int, list[list[Option]]]:
        """What is free of the parts, and what each of them can be cleared for."""
        host, row = self._host, self._row
        profile = profile_of(host.pool.mig, self._claim.profile)
        if profile is not None and host.node.instances is not None:
            slot = host.instances.get(self._claim.profile or "", 0)
            return row[slot], self._part_per_claim([slot])
        if profile is not None:
            return self._part_per_card([self._mig_card(profile, card) for card in range(len(host.slices))])
        if host.shared and self._claim.on_card <= host.whole:
            return self._part_per_card([self._shared_card(card) for card in range(len(host.cards))])
        if host.whole <= 1:
            return row[host.stretch].count(host.whole), self._part_per_claim(host.cards)
        return self._part_per_card([self._emptied_card(card) for card in range(len(host.cards))])

    def _part_per_claim(self, slots: Sequence[Slot]) -> list[list[Option]]:
        """Each claim gives whole cards, or instances."""
        parts = []
        for one in self._claims:
            vector = self._vectors[one.id]
            option = self._candidates.option((sum([vector.get(slot, 0) for slot in slots]),), (one.id,))
            if option is not None and (option.gives[0] or any(self._beside((one.id,)))):
                parts.append([option])
        return parts

    def _part_per_card(self, parts: Iterable[tuple[int, list[Option]]]) -> tuple[int, list[list[Option]]]:
        """What is free of all the parts, and what those give that are more than that."""
        parts = list(parts)
        return sum(free for free, _ in parts), [options for _, options in parts if options]

    def _on_card(self, slots: Iterable[Slot]) -> list[Claim]:
        """The candidates that take something of these."""
        slots = tuple(slots)
        return [one for one in self._claims if any(slot in self._vectors[one.id] for slot in slots)]

    def _shared_card(self, card: int) -> tuple[int, list[Option]]:
        """A card that others share, for one pod or elsewhere beside each other."""
        host, claim, row, candidates = self._host, self._claim, self._row, self._candidates
        units, cores = host.cards[card], host.cores[card] if host.cores else None
        asked, compute = claim.on_card, (claim.cores_per_pod or 0) if cores is not None else 0
        space, total = candidates.state.space.capacity, (row[units], 0 if cores is None else row[cores])
        free = _times(total, (asked, compute))
        here = self._on_card([units, *([] if cores is None else [cores])])
        given = {
            one.id: (self._vectors[one.id].get(units, 0), 0 if cores is None else self._vectors[one.id].get(cores, 0))
            for one in here
        }
        found: list[Option] = []
        for pods in range(free + 1, min(space[units] // asked, self.most) + 1):
            need = max(0, pods * asked - total[0]), max(0, pods * compute - total[1])
            covers = self._covers(candidates.nothing(0, 0), given, need, need)
            if not covers:
                break
            found += [replace(option, gives=(pods - free,)) for option in covers]
        return free, found

    def _emptied_card(self, card: int) -> tuple[int, list[Option]]:
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
        option = self._candidates.option((1,), [one.id for one in here])
        return 0, [option] if left == host.whole and spare >= compute and option is not None else []

    def _mig_card(self, profile: Profile, card: int) -> tuple[int, list[Option]]:
        """A card that MIG cuts freely: the starts at which instances may stand beside each other, without those in the way."""
        candidates, row, stretch, media = self._candidates, self._row, self._host.slices[card], self._host.media[card]
        holders = {
            slot: [one.id for one in self._on_card([slot])] for slot in (*range(stretch.start, stretch.stop), media)
        }
        ends: dict[int, list[Option]] = {0: [candidates.nothing(0)]}
        for start in sorted(profile.starts):
            slots = [*range(stretch.start + start, min(stretch.start + start + profile.size, stretch.stop))]
            slots += [media] if profile.media else []
            busy = [slot for slot in slots if row[slot] < 1]
            in_the_way = candidates.option((1,), {id for slot in busy for id in holders[slot]})
            if in_the_way is None or not all(holders[slot] for slot in busy):
                continue
            before = [option for end, options in ends.items() if end <= start for option in options]
            with_it = [candidates.union(one, in_the_way, (one.gives[0] + 1,)) for one in before]
            if profile.media:
                with_it = [one for one in with_it if one is not None and one.gives[0] == 1]
            ends.setdefault(start + profile.size, []).extend([one for one in with_it if one is not None])
        options = [option for found in ends.values() for option in found]
        free = max(option.gives[0] for option in options if not option.victims)
        better = [option for option in options if option.gives[0] > free]
        return free, candidates.best([replace(option, gives=(option.gives[0] - free,)) for option in better])


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
    preemptor: Preemptor,
    claims: Sequence[Claim],
    hosts: Collection[Host] | None = None,
) -> Victims | None:
    """The best set found that makes a place on these nodes (None: on any), or None if there is none. The order of preference is
    gone through level by level: spare its own, leave everybody what is promised, take the lowest priorities; within a level
    the least lost work."""
    state = preemptor.state
    clearing = Clearing(preemptor, state.hosts.values() if hosts is None else hosts)
    found = clearing.cheapest(claims, keep_guarantees=False, widths=(NARROW, WIDE))
    if not found:
        return found
    mine = preemptor.account.id
    if preemptor.inside and all(victim.department != mine for victim in found):
        claims = [claim for claim in claims if claim.department != mine]
    if not cost(preemptor, found)[2] and max(victim.priority for victim in found) == min(
        claim.priority for claim in claims
    ):
        return found
    return clearing.lowest(claims, keep_guarantees=True) or clearing.lowest(claims, keep_guarantees=False) or found


@dataclass(frozen=True, slots=True)
class Clearing:
    """One preemptor's search."""

    preemptor: Preemptor
    hosts: Collection[Host]

    def lowest(self, claims: Sequence[Claim], keep_guarantees: bool) -> Victims | None:
        """The cheapest set of the lowest priorities that have one."""
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
        """The cheapest set of these, or None. In a tree, and for who would borrow, some may only go after others; and hardly ever
        more units are lacking, for the right to a place or of the pool as a whole, than those who stand there give."""
        state, preemptor = self.preemptor.state, self.preemptor
        for nearer_gone in (False, True) if not state.ledger.flat or not preemptor.inside else (False,):
            allowances = Allowances(preemptor, sorted(claims, key=_id), nearer_gone)
            if makes_room(preemptor, allowances.reach) is None:
                continue
            prices = _prices(preemptor, allowances.reach)
            for width, lacking in product(widths, (0, max(0, lacking_anywhere(preemptor)))):
                sets, truncated = _sets(preemptor, self.hosts, allowances, prices, keep_guarantees, width, lacking)
                found = self._first(sets, allowances.reach, prices, lacking > 0)
                if found is not None:
                    return found
                if not sets and not truncated:
                    break
        return None

    def _first(
        self, sets: Iterable[Option], claims: Sequence[Claim], prices: Mapping[ClaimId, int], complete: bool
    ) -> Victims | None:
        """The best of the sets that may go and make room; if none does and they may be completed, one that has been."""
        by_cost = sorted((self._claims(option.victims) for option in sets), key=self._cost)
        for victims in by_cost[:TRIED]:
            allowed = permitted(self.preemptor, victims)
            if allowed and makes_room(self.preemptor, victims) is not None:
                return victims
        completed = (self._completed(victims, claims, prices) for victims in by_cost[:COMPLETED] if complete)
        return next((victims for victims in completed if victims is not None), None)

    def _cost(self, victims: Victims) -> Any:
        return cost(self.preemptor, victims) if victims else ()

    def _claims(self, ids: Iterable[ClaimId]) -> Victims:
        return tuple(self.preemptor.state.claims[id] for id in sorted(ids))

    def _completed(self, victims: Victims, claims: Sequence[Claim], prices: Mapping[ClaimId, int]) -> Victims | None:
        """The victims, and whoever else must go for the right to their places: those nearer to the preemptor, and its own, may
        give the right to others."""
        preemptor, charges = self.preemptor, self.preemptor.state.charges
        allowed = permitted(preemptor, victims)
        lacking, given = lacking_of_pool(preemptor), sum(charges[victim.id] for victim in victims)
        rest = [claim for claim in claims if claim not in victims]
        for claim in sorted(rest, key=lambda claim: (prices[claim.id], claim.id)):
            more = (*victims, claim)
            allowed_with_it = permitted(preemptor, more)
            if allowed and not allowed_with_it:
                continue
            victims, given, allowed = more, given + charges[claim.id], allowed_with_it
            if allowed and given >= lacking and makes_room(preemptor, victims) is not None:
                return victims
        return None


def _prices(preemptor: Preemptor, claims: Iterable[Claim]) -> dict[ClaimId, int]:
    """What each costs in the order of preference, as one number: sums compare as the order does."""
    state = preemptor.state
    ledger, fair, prices = state.ledger, state.settings.fair_sharing, dict[ClaimId, int]()
    shares = sorted({_share(ledger[claim.department]) for claim in claims}, reverse=True) if fair else []
    turn = {share: n for n, share in enumerate(shares)}
    for claim in claims:
        last = (claim.department == preemptor.account.id) == preemptor.inside
        spread = claim.units * turn[_share(ledger[claim.department])] if fair else 0
        price = 0
        for part in (claim.units if last else 0, spread, state.lost_work(claim), 1, claim.units):
            price = price * DIGIT + part
        prices[claim.id] = price
    return prices


def _id(claim: Claim) -> ClaimId:
    return claim.id


def _share(account: Account) -> Share:
    return share(account, account.usage)


# Putting nodes together -----------------------------------------------------------------------------------------------


def _sets(
    preemptor: Preemptor,
    nodes: Collection[Host],
    allowances: Allowances,
    prices: dict[ClaimId, int],
    keep_guarantees: bool,
    width: int,
    lacking: int,
) -> tuple[list[Option], bool]:
    """Sets that give all pods a place; and whether there may be others."""
    state = preemptor.state
    on_node: dict[str, list[Claim]] = {}
    parts: dict[ClaimId, set[object]] = {}
    by_card = not all(host.whole <= 1 or host.node.instances is not None for host in nodes)
    for one in allowances.reach:
        for placed in one.placement or ():
            there = on_node.setdefault(placed.node, [])
            if not there or there[-1] is not one:
                there.append(one)
            parts.setdefault(one.id, set()).update(
                [(placed.node, c) for c in placed.cards] if by_card else [placed.node]
            )
    elsewhere = frozenset(id for id, places in parts.items() if len(places) > 1)
    candidates = Candidates(state, allowances, prices, elsewhere, lacking, keep_guarantees, width)
    alone = (candidates.option((0,), (id,)) for id in prices) if lacking else ()
    anywhere = [[option] for option in alone if option is not None]
    found: list[Option] = []
    for hosts in _domains(nodes, preemptor.claim):
        here = [
            Clearable(candidates, preemptor.claim, host, on_node.get(host.name, ()), preemptor.claim.pods)
            for host in hosts
        ]
        need = preemptor.claim.pods - sum(node.free for node in here)
        if need <= sum(node.most - node.free for node in here):
            options = [*(node.options() for node in here if need > 0), *anywhere]
            found += _put_together(candidates, options, max(0, need), found)
    return found, candidates.truncated


def _domains(hosts: Collection[Host], claim: Claim) -> Iterable[list[Host]]:
    """Of these nodes those that all pods may share."""
    if not claim.same_domain:
        return [[*hosts]]
    domains: dict[str, list[Host]] = {}
    for host in hosts:
        if host.domain is not None:
            domains.setdefault(host.domain, []).append(host)
    return domains.values()


def _put_together(
    candidates: Candidates, nodes: Iterable[list[Option]], need: int, known: Iterable[Option]
) -> list[Option]:
    """Sets that give so many pods, each node cleared in one of its sets, and all units that are lacking; as far as enough sets
    are not `known` that cost less."""
    states = [candidates.nothing(0)]
    done: list[Option] = []
    prices = sorted(option.price for option in known)[:CHEAP]
    for options in sorted(filter(None, nodes), key=lambda options: options[0].price):
        more: list[Option] = []
        dearest = prices[CHEAP - 1] if len(prices) >= CHEAP else None
        for state in states:
            for option in options:
                if dearest is not None and state.price + option.price >= dearest:
                    continue
                pods = min(need, state.gives[0] + option.gives[0])
                union = candidates.union(state, option, (pods,))
                if union is not None:
                    (done if pods == need and union.units == candidates.lacking else more).append(union)
        done = candidates.best(done)
        prices = sorted([*prices, *[option.price for option in done]])[:CHEAP]
        states = candidates.best([*states, *more])
    return done
