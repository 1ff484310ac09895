"""Places: what the nodes of a group of pools have, how much of it is free, and where on them pods go.

Every amount has a **slot**. A **row** has an amount for every slot: what there is, or how much of it is free. A **vector** has
the amounts of a few slots: what a claim takes at its places. Slots exist for

    each pool        its units as a whole (recalls and claims without places count only here)
    each machine     its CPU, its memory and its pods, where they are limited, and its devices, such as RDMA; pools that
                     share a machine share them
    each card        its units, one card after the other, and its compute in percent, where that is limited;
                     of a card that MIG cuts on demand, each memory slice and the media engine
    each profile     of a fixed MIG geometry, its instances

What does not exist, such as a lost node, is NOWHERE: nothing of it is ever free.

Among the places that fit, a pod gets the one that keeps the most room for large requests later: where the least GPU share
becomes useless for lack of CPU, on the card with the least left over, but not too little for other pods, on the fullest node.
A MIG instance goes where it spoils the fewest other starts. Of equals, the first node in the pool's order is taken.

`Space` assigns the slots, `spot_on` rates one node, a `Room` is a row with cached rankings of its nodes, in which only changed
nodes are rated again, and `find_places` places all pods of a claim.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from quotas.engine.mig_profiles import PRODUCTS, Profile, profile_of, profiles_of
from quotas.engine.reasons import Machine
from quotas.engine.types import CPU, MEMORY, PODS, Claim, Department, Node, Placed, Pool, PoolId, Snapshot
from quotas.engine.units import capacity_of

Slot = int
Row = list[int]
Vector = dict[Slot, int]
Places = tuple[Placed, ...]

NOWHERE: Slot = 0
NO_MACHINE = -1
"""The machine number of slots that are on no machine: units of a pool as a whole."""


class Host:
    """A node in one pool, and the slots of what it has; None for compute that is not limited. `cards` are the slots of its
    cards' units, `stretch` the same as a slice of a row; `slices` has such a slice of a row for each card that is cut on demand.
    `beside` has the slots of its machine: None for CPU, memory or pods that are not limited; missing devices do not exist.
    `whole`: units of the largest card. `shared`: cards are given out in parts. `counts_parts`: a card is more than one unit,
    without MIG. `turn`: its position in the pool's order. `number`: of its machine, the same in all pools that share it."""

    __slots__ = (
        "beside", "cards", "cores", "counts_parts", "domain", "instances", "media", "name", "node", "number", "pool",
        "shared", "slices", "stretch", "turn", "whole",
    )  # fmt: skip

    def __init__(self, pool: Pool, node: Node, turn: int, number: int) -> None:
        self.pool, self.node, self.turn, self.number = pool, node, turn, number
        self.name, self.domain = node.name, node.domain
        self.whole = max([card.units for card in node.cards], default=0)
        self.shared = self.whole > 1 and pool.unit != "card"
        self.counts_parts = self.whole > 1 and pool.mig is None
        self.beside: dict[str, Slot | None] = {}
        self.cards = range(0)
        self.stretch = slice(0, 0)
        self.cores: list[Slot | None] = []
        self.instances: dict[str, Slot] = {}
        self.slices: list[slice] = []
        self.media: list[Slot] = []


class Space:
    """The slots of a group of pools. `capacity` is the row of everything there is; `at` has the machine of each slot, `pool` the
    slot of each pool's units, `hosts` each pool's nodes in its order: by name, shorter names first."""

    def __init__(self, pools: Iterable[Pool], departments: Iterable[Department] = ()) -> None:
        self.capacity: Row = [0]
        self.at: list[int] = [NO_MACHINE]
        self.pool: dict[PoolId, Slot] = {}
        self.hosts: dict[PoolId, dict[str, Host]] = {}
        self.machines: dict[str, int] = {}
        pools, departments = tuple(pools), tuple(departments)
        for pool in pools:
            self.pool[pool.id] = self._add(NO_MACHINE, capacity_of(pool, departments))
            nodes = sorted(pool.nodes or (), key=_by_name)
            self.hosts[pool.id] = {node.name: self._host(pool, node, turn) for turn, node in enumerate(nodes)}
        self._share_machines()

    def _add(self, machine: int, *amounts: int) -> Slot:
        """Add consecutive slots for these amounts. Returns the first one."""
        first = len(self.capacity)
        self.capacity += amounts
        self.at += [machine] * len(amounts)
        return first

    def _host(self, pool: Pool, node: Node, turn: int) -> Host:
        host = Host(pool, node, turn, self.machines.setdefault(node.name, len(self.machines)))
        for profile, count in (node.instances or {}).items():
            host.instances[profile] = self._add(host.number, count)
        if pool.mig is None:
            first = self._add(host.number, *[card.capacity for card in node.cards])
            host.cards, host.stretch = range(first, len(self.capacity)), slice(first, len(self.capacity))
            if any(card.cores is not None for card in node.cards):
                host.cores = [None if c.cores is None else self._add(host.number, c.cores) for c in node.cards]
        elif node.instances is None:
            for card in node.cards:
                host.media.append(self._add(host.number, 1))
                first = self._add(host.number, *[int(slice_ < card.capacity) for slice_ in range(card.units)])
                host.slices.append(slice(first, first + card.units))
        return host

    def _share_machines(self) -> None:
        """Add slots for what machines have beside cards: once for each machine, even if several pools list it."""
        found: dict[int, dict[str, Slot | None]] = {}
        every = [host for hosts in self.hosts.values() for host in hosts.values()]
        for host in every:
            slots = found.setdefault(host.number, {CPU: None, MEMORY: None, PODS: None})
            for what, amount in _beside_cards(host.node):
                if slots.get(what) is None:
                    slots[what] = self._add(host.number, amount)
        for host in every:
            host.beside = found[host.number]

    def taken(self, claim: Claim, places: Places | None, units: int | None = None) -> Vector:
        """What the claim takes at `places`. `units`: what it takes of the pool as a whole, if not all its units."""
        vector: Vector = {self.pool[claim.pool]: claim.units if units is None else units}
        hosts = self.hosts[claim.pool]
        for placed in places or ():
            host = hosts.get(placed.node)
            for slot, amount in ((NOWHERE, 1),) if host is None else _on_host(claim, host, placed):
                vector[slot] = vector.get(slot, 0) + amount
        return vector


def _by_name(node: Node) -> tuple[int, str]:
    """A sort key that puts n2 before n10."""
    return len(node.name), node.name


def _beside_cards(node: Node) -> Iterator[tuple[str, int]]:
    """What a node reports to have beside its cards."""
    for what, amount in ((CPU, node.cpu_milli), (MEMORY, node.memory_mib), (PODS, node.pods)):
        if amount is not None:
            yield what, amount
    yield from sorted(node.devices.items())


def _on_host(claim: Claim, host: Host, placed: Placed) -> Iterator[tuple[Slot, int]]:
    """What a pod of the claim takes of a node."""
    for what, amount in claim.beside:
        beside = host.beside.get(what, NOWHERE)
        if beside is not None:
            yield beside, amount
    profile = profile_of(host.pool.mig, claim.profile)
    if profile is None:
        for card in placed.cards:
            yield host.cards[card] if card < len(host.cards) else NOWHERE, claim.on_card // len(placed.cards)
            cores = host.cores[card] if card < len(host.cores) else None
            if cores is not None and claim.cores_per_pod is not None:
                yield cores, claim.cores_per_pod
    elif placed.start is None:
        yield host.instances.get(claim.profile or "", NOWHERE), 1
    else:
        for card in placed.cards:
            yield from _instance_slots(host, card, profile, placed.start)


def _instance_slots(host: Host, card: int, profile: Profile, start: int) -> Iterator[tuple[Slot, int]]:
    """The memory slices, and if needed the media engine, that an instance at `start` takes of a card."""
    if card >= len(host.slices):
        yield NOWHERE, 1
        return
    if profile.media:
        yield host.media[card], 1
    slices = range(host.slices[card].start, host.slices[card].stop)
    yield from ((slices[n] if n < len(slices) else NOWHERE, 1) for n in range(start, start + profile.size))


def add(vector: Vector, other: Mapping[Slot, int]) -> None:
    """vector += other"""
    for slot, amount in other.items():
        vector[slot] = vector.get(slot, 0) + amount


def fits(free: Row, vector: Mapping[Slot, int]) -> bool:
    """Whether a vector can be taken from what is free."""
    return all(free[slot] >= amount for slot, amount in vector.items())


# Where one pod goes ---------------------------------------------------------------------------------------------------

CPU_OF_A_CARD = 10_000
"""Millicores that work on a whole card usually requests. GPU share beyond a node's free CPU counts as lost."""
LEFT_ON_NODE = 1 / 80
"""The weight of a card's worth left over on a node, relative to one that is lost for lack of CPU or left over on the card."""
HARDLY_USED = 1 / 5
"""Smaller shares of a card are hardly ever requested: if less than this is left over on the card, it counts twice. The three
numbers are tuned on three lists of Alibaba's cluster-trace-gpu-v2023 (bench/placement.py)."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for one pod and how good it is: the lowest `waste` wins, then the first in the pool's order."""

    waste: tuple[float, ...]
    placed: Placed


def best_spot(claim: Claim, hosts: Iterable[Host], free: Row, pod: int = 0) -> Spot | None:
    """The least wasteful spot on these nodes for one pod, without a cache (unlike a Room's ranking)."""
    spots = (spot for host in hosts if (spot := spot_on(host, claim, free, pod)) is not None)
    return min(spots, key=lambda spot: spot.waste, default=None)


# Spots on one node ----------------------------------------------------------------------------------------------------


def spot_on(host: Host, claim: Claim, free: Row, pod: int = 0) -> Spot | None:
    """The least wasteful spot for one pod on the node; None if it does not fit."""
    return cards_on(host, claim, free, pod) if has_beside(host, claim, free) else None


def cards_on(host: Host, claim: Claim, free: Row, pod: int = 0) -> Spot | None:
    """The same by cards alone, as if the machine had enough of everything else."""
    if host.pool.mig is not None:
        return _instance(claim, host, free, pod)
    takes_a_part = host.shared and claim.on_card <= host.whole
    return (_part_of_a_card if takes_a_part else _cards)(claim, host, free, pod)


def has_beside(host: Host, claim: Claim, free: Row) -> bool:
    """Whether the machine has what one pod of the claim takes beside the cards."""
    beside = host.beside
    for what, amount in claim.beside:  # no generator: this is called more often than anything else
        slot = beside.get(what, NOWHERE)
        if slot is not None and free[slot] < amount:
            return False
    return True


def _part_of_a_card(claim: Claim, host: Host, free: Row, pod: int) -> Spot | None:
    """Part of one card, best fit."""
    left, asked = free[host.stretch], claim.on_card
    if max(left) < asked:  # the case on most nodes of a full pool
        return None
    fitting = [i for i, units in enumerate(left) if units >= asked and _cores_fit(claim, host, i, free)]
    if not fitting:
        return None
    card = min(fitting, key=left.__getitem__)
    over = (left[card] - asked) / host.whole
    over += over if over < HARDLY_USED else 0
    return Spot((over + _waste(claim, host, sum(left), free),), Placed(pod, host.name, (card,)))


def _cards(claim: Claim, host: Host, free: Row, pod: int) -> Spot | None:
    """As many empty cards as the pod takes."""
    whole, left = host.whole, free[host.stretch]
    if not whole or claim.on_card % whole:
        return None
    count = claim.on_card // whole
    if left.count(whole) < count:
        return None
    empty = [i for i, units in enumerate(left) if units == whole and _cores_fit(claim, host, i, free)]
    if len(empty) < count:
        return None
    return Spot((_waste(claim, host, sum(left), free),), Placed(pod, host.name, tuple(empty[:count])))


def _waste(claim: Claim, host: Host, left: int, free: Row) -> float:
    """How many cards' worth of GPU share the pod makes useless on a node with `left` free units, plus a small amount for what it
    leaves over, so that of equal nodes the fullest is taken."""
    cards = left / host.whole
    cards_left = cards - claim.on_card / host.whole
    slot = host.beside[CPU]
    if slot is None:
        return LEFT_ON_NODE * cards_left
    cpu = free[slot] / CPU_OF_A_CARD
    cpu_left = cpu - claim.cpu_milli / CPU_OF_A_CARD
    lost = max(0.0, cards_left - cpu_left) - max(0.0, cards - cpu)
    return lost + LEFT_ON_NODE * (cards_left + cpu_left / 2)


def _cores_fit(claim: Claim, host: Host, card: int, free: Row) -> bool:
    if claim.cores_per_pod is None or not host.cores:
        return True
    cores = host.cores[card]
    return cores is None or free[cores] >= claim.cores_per_pod


def _instance(claim: Claim, host: Host, free: Row, pod: int) -> Spot | None:
    """An instance of the claim's profile: an existing one, or one cut where it spoils the fewest other starts."""
    if host.node.instances is None:
        return min(_cuts(claim, host, free, pod), key=lambda spot: spot.waste, default=None)
    there = host.instances.get(claim.profile or "")
    left = 0 if there is None else free[there]
    return Spot((left,), Placed(pod, host.name)) if left > 0 else None


def _cuts(claim: Claim, host: Host, free: Row, pod: int) -> Iterator[Spot]:
    """Every start at which the profile fits on a card that is cut on demand, with how many other starts it spoils."""
    profile = profile_of(host.pool.mig, claim.profile)
    for card, stretch in enumerate(host.slices if profile is not None else ()):
        if profile is None or (profile.media and free[host.media[card]] < 1):
            continue
        empty = {slice_ for slice_, units in enumerate(free[stretch]) if units >= 1}
        for start in profile.starts:
            taken = set(range(start, start + profile.size))
            if taken <= empty:
                spoiled = _starts_in(host.pool, empty) - _starts_in(host.pool, empty - taken)
                yield Spot((spoiled, len(empty)), Placed(pod, host.name, (card,), start))


def _starts_in(pool: Pool, empty: set[int]) -> int:
    """The sum of memory slices over all placements that are still possible on a card."""
    return sum(
        profile.size
        for profile in PRODUCTS[pool.mig or ""].values()
        for start in profile.starts
        if all(slice_ in empty for slice_ in range(start, start + profile.size))
    )


# Measuring ------------------------------------------------------------------------------------------------------------


def free_on(host: Host, free: Row) -> int:
    """Free units on one node."""
    if host.node.instances is not None:
        sizes = ((profile_of(host.pool.mig, name), slot) for name, slot in host.instances.items())
        return sum(profile.size * free[slot] for profile, slot in sizes if profile is not None)
    return sum([sum(free[stretch]) for stretch in host.slices]) if host.slices else sum(free[host.stretch])


def largest_on(host: Host, free: Row, like: Claim) -> int:
    """Units of the largest pod like the claim's that fits on the node (on one card, if cards are shared): not larger than the
    claim's, with as much compute, CPU and memory for each unit, and the same devices. For MIG: of a smaller profile."""
    most = (_largest_on_cards if host.pool.mig is None else _largest_instance)(host, free, like)
    for what, amount in like.beside:
        slot = host.beside.get(what, NOWHERE)
        if slot is None or most == 0:
            continue
        if what in (CPU, MEMORY):
            most = min(most, like.on_card * max(0, free[slot]) // amount)
        elif free[slot] < amount:
            most = 0
    return most if host.shared or not host.whole else most - most % host.whole


def _largest_on_cards(host: Host, free: Row, like: Claim) -> int:
    """Any number of whole empty cards or, if cards are shared, a part of one."""
    left, whole = free[host.stretch], host.whole
    empty = sum(units == whole and _cores_fit(like, host, card, free) for card, units in enumerate(left))
    parts = [min(units, _compute_for(like, host, card, free)) for card, units in enumerate(left) if host.shared]
    return min(like.on_card, max(empty * whole, *parts, 0))


def _compute_for(like: Claim, host: Host, card: int, free: Row) -> int:
    """For how many units of the card its free compute is enough, at the claim's percentage for each unit."""
    cores = host.cores[card] if host.cores and like.cores_per_pod else None
    return host.whole if cores is None else min(like.on_card, host.whole) * free[cores] // (like.cores_per_pod or 1)


def _largest_instance(host: Host, free: Row, like: Claim) -> int:
    best = 0
    for name, profile in profiles_of(host.pool.mig).items():
        if best < profile.size < like.on_card and _instance(replace(like, profile=name), host, free, 0) is not None:
            best = profile.size
    return best


# Nodes in order of a rank --------------------------------------------------------------------------

Rank = tuple[Any, ...]
LAST: Rank = (float("inf"),)
"""The rank of a node that is not possible."""


Changed = list[tuple[int, int, int]]
"""Machines that a trial changes: (machine, its version before the trial, its version in the trial)."""


class Versions:
    """A number for each machine that identifies its state, and the machines that changed, in order."""

    def __init__(self, machines: int) -> None:
        self.of = [0] * machines
        self.changed: list[int] = []
        self._latest = 0

    def note(self, machine: int) -> int:
        """Give the machine a new version, because it is in a new state. Returns it."""
        self._latest += 1
        self.restore(machine, self._latest)
        return self._latest

    def restore(self, machine: int, version: int) -> None:
        """The machine is in an earlier state again."""
        self.of[machine] = version
        self.changed.append(machine)


class Ranking:
    """Nodes by a rank that depends only on the state of each node; None: the node has no rank."""

    def __init__(self, versions: Versions, hosts: Sequence[Host], rank: Callable[[Host], Rank | None]) -> None:
        self._versions, self._hosts, self._rank = versions, hosts, rank
        self._index = {host.number: index for index, host in enumerate(hosts)}
        self._seen = len(versions.changed)
        self._known = [versions.of[host.number] for host in hosts]
        self._ranks = [(rank(host) or LAST, index) for index, host in enumerate(hosts)]
        self._lowest: tuple[Rank, int] | None = None

    def first(self) -> Host | None:
        """The node with the lowest rank; of equals, the first."""
        ranks = self._fresh()
        if self._lowest is None:
            self._lowest = min(ranks, default=(LAST, 0))
        rank, index = self._lowest
        return None if rank == LAST else self._hosts[index]

    def ranks(self) -> list[Rank]:
        """The rank of every node, in the order of the nodes; LAST if it has none."""
        return [rank for rank, _ in self._fresh()]

    def _fresh(self) -> list[tuple[Rank, int]]:
        changed, seen = self._versions.changed, self._seen
        if seen < len(changed):
            self._seen = len(changed)
            for machine in {*changed[seen:]}:
                index, version = self._index.get(machine), self._versions.of[machine]
                if index is not None and version != self._known[index]:
                    self._known[index] = version
                    ranked = self._ranks[index] = self._rank(self._hosts[index]) or LAST, index
                    if self._lowest is not None and ranked < self._lowest:
                        self._lowest = ranked
                    elif self._lowest is not None and self._lowest[1] == index:
                        self._lowest = None
        return self._ranks


# What is free ---------------------------------------------------------------------------------------------------------


class Room:
    """The `row` of what is free in a space, at first all of it. Change it only with `add` or in a trial, which record the
    changed machines."""

    def __init__(self, space: Space, row: Row | None = None) -> None:
        self.space = space
        self.row = [*space.capacity] if row is None else row
        self._versions = Versions(len(space.machines))
        self._rankings: dict[tuple[object, ...], Ranking] = {}
        self._watching: list[set[Slot]] = []

    def watch(self) -> set[Slot]:
        """A set to which every slot that changes from now on is added; the caller empties it."""
        moved: set[Slot] = set()
        self._watching.append(moved)
        return moved

    def add(self, vector: Mapping[Slot, int], times: int = 1) -> None:
        """row += times × vector, except for NOWHERE."""
        self._count(vector, times)
        for machine in self._machines(vector):
            self._versions.note(machine)

    def _machines(self, slots: Iterable[Slot]) -> set[int]:
        return {machine for slot in slots if (machine := self.space.at[slot]) != NO_MACHINE}

    def version(self, host: Host) -> int:
        """A number that is the same as long as what is free on the node is the same."""
        return self._versions.of[host.number]

    def note(self, host: Host) -> None:
        """Record a change on the node other than in the row."""
        self._versions.note(host.number)

    def forget(self) -> None:
        """Clear the cached rankings."""
        self._rankings.clear()

    def add_in_trial(self, vector: Mapping[Slot, int], times: int) -> Changed:
        """As `add`; pass the result to `undo` when the trial ends."""
        versions = self._versions
        before = [(machine, versions.of[machine]) for machine in self._machines(vector)]
        self._count(vector, times)
        return [(machine, version, versions.note(machine)) for machine, version in before]

    def undo(self, vector: Mapping[Slot, int], times: int, changed: Changed) -> None:
        """Undo `add_in_trial`: a machine that did not change otherwise gets its version from before the trial."""
        versions = self._versions
        self._count(vector, -times)
        for machine, before, during in changed:
            if versions.of[machine] == during:
                versions.restore(machine, before)
            else:
                versions.note(machine)

    def _count(self, vector: Mapping[Slot, int], times: int) -> None:
        row = self.row
        for slot, amount in vector.items():
            if slot != NOWHERE:
                row[slot] += times * amount
        for moved in self._watching:
            moved.update(vector)

    def ranking(
        self,
        question: object,
        pool: Pool,
        rank: Callable[[Host], Rank | None],
        domain: str | None = None,
    ) -> Ranking:
        """The nodes of the pool (or of one domain) by `rank`, cached by `question`."""
        key = pool.id, domain, question
        known = self._rankings.get(key)
        if known is None:
            hosts = [host for host in self.space.hosts[pool.id].values() if domain is None or host.domain == domain]
            known = self._rankings[key] = Ranking(self._versions, hosts, rank)
        return known


class Trial:
    """A journal of tried changes: when the trial ends, they are undone in reverse order. Changes made otherwise meanwhile
    stay."""

    __slots__ = ("_undo",)

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.rollback()

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._undo)

    def rollback(self, mark: int = 0) -> None:
        """Undo what was tried since the mark."""
        while len(self._undo) > mark:
            undo, arguments = self._undo.pop()
            undo(*arguments)

    def free(self, room: Room, vectors: Collection[Mapping[Slot, int]], times: int = 1) -> None:
        """As if the vectors were free in the room, too."""
        vector = _sum(vectors)
        self._undo.append((room.undo, (vector, times, room.add_in_trial(vector, times))))

    def take(self, room: Room, vectors: Collection[Mapping[Slot, int]]) -> None:
        """As if the vectors were not free in the room."""
        self.free(room, vectors, -1)


def _sum(vectors: Collection[Mapping[Slot, int]]) -> Mapping[Slot, int]:
    """All the vectors as one."""
    first, *others = vectors or ({},)
    if not others:
        return first
    total = dict(first)
    for vector in others:
        add(total, vector)
    return total


class FreeNowAndLater(Room):
    """What is free in both of two rooms: the smaller amount of each slot."""

    def __init__(self, one: Room, other: Room) -> None:
        super().__init__(one.space, [*map(min, one.row, other.row)])
        self._one, self._other = one.row, other.row
        self._moved = one.watch(), other.watch()

    def refreshed(self) -> "FreeNowAndLater":
        """Update it with changes in the two rooms, and return it. Not allowed during a trial on it."""
        one, other, row = self._one, self._other, self.row
        for moved in self._moved:
            if moved:
                self.add({slot: more for slot in moved if (more := min(one[slot], other[slot]) - row[slot])})
                moved.clear()
        return self


def rooms_of(snapshot: Snapshot) -> tuple[Room, Room, FreeNowAndLater]:
    """Empty rooms of the snapshot's pools, for what is free now, what is free later, and what is free in both."""
    space = Space(snapshot.pools, snapshot.departments)
    now, later = Room(space), Room(space)
    return now, later, FreeNowAndLater(now, later)


# Finding places -------------------------------------------------------------------------------------------------------


ANYWHERE: Sequence[str | None] = (None,)
"""No domain in particular."""


def find_places(claim: Claim, pool: Pool, room: Room, units: int | None = None) -> Places | None:
    """Places for all pods of the claim in the room; () if the pool has no nodes; None if it does not fit.

    The room does not change. `units`: what the claim takes of the pool as a whole, if not all its units.
    """
    if room.row[room.space.pool[pool.id]] < (claim.units if units is None else units):
        return None
    if pool.nodes is None or claim.is_recall:
        return ()
    for domain in _domains(pool, room) if claim.same_domain else ANYWHERE:
        places = _place_pods(claim, pool, room, domain)
        if len(places) == claim.pods:
            return places
    return None


def pods_that_fit(claim: Claim, pool: Pool, room: Room) -> int:
    """How many of the claim's pods fit at the same time, in one domain if they must share it."""
    domains = _domains(pool, room) if claim.same_domain else ANYWHERE
    return max((len(_place_pods(claim, pool, room, domain)) for domain in domains), default=0)


def free_units(pool: Pool, room: Room) -> list[int]:
    """Free units on every node of the pool, in the order of nodes."""
    ranks = room.ranking("free", pool, lambda host: (free_on(host, room.row),)).ranks()
    return [int(rank[0]) for rank in ranks]


def largest_request(claim: Claim, pool: Pool, room: Room) -> int:
    """Units of the largest request like the claim that fits: as many of its pods as fit or, if none does, one smaller pod."""
    units = max(0, room.row[room.space.pool[pool.id]])
    pods = pods_that_fit(claim, pool, room)
    if pods:
        return min(units, pods * claim.on_card)

    def most_first(host: Host) -> Rank | None:
        possible = host.domain is not None or not claim.same_domain
        return (-largest_on(host, room.row, claim),) if possible else None

    host = room.ranking(("largest", claim.shape, claim.same_domain), pool, most_first).first()
    return 0 if host is None else min(units, largest_on(host, room.row, claim))


def nearest_machine(claim: Claim, pool: Pool, room: Room) -> Machine | None:
    """Of the nodes with cards for one more pod than fit, the one that comes closest to the CPU, memory, pods and devices that
    the pod requests. None if cards, or a common domain, are missing."""

    def lacks(host: Host) -> Rank | None:
        fits = cards_on(host, claim, room.row) is not None
        return tuple(-share for share in _shares(claim, host, room.row)) if fits else None

    placed = _place_pods(claim, pool, room, None)
    if len(placed) == claim.pods:
        return None
    with Trial() as trial:
        trial.take(room, [room.space.taken(claim, (place,), 0) for place in placed])
        host = room.ranking(("lacks", claim.shape), pool, lacks).first()
        if host is None:
            return None
        asked = {CPU: 0, MEMORY: 0} | dict(claim.beside)
        has = {
            what: amount if (slot := host.beside.get(what, NOWHERE)) is None else room.row[slot]
            for what, amount in asked.items()
        }
        lacking = next(
            (what for what, amount in claim.beside if has[what] < amount and what not in (CPU, MEMORY)), None
        )
        machine = Machine(host.name, has[CPU], has[MEMORY], asked[CPU], asked[MEMORY])
        return machine if lacking is None else replace(machine, lacking=lacking, has=has[lacking], asked=asked[lacking])


def _shares(claim: Claim, host: Host, free: Row) -> list[float]:
    """The fraction of each resource that a pod requests beside cards which the node has free, at most 1, the lowest first."""
    asked = ((host.beside.get(what, NOWHERE), amount) for what, amount in claim.beside)
    return sorted(1.0 if slot is None else min(1.0, free[slot] / amount) for slot, amount in asked)


def by_domain(hosts: Iterable[Host]) -> list[tuple[Host, ...]]:
    """The nodes of each domain; nodes without a domain are left out."""
    found: dict[str, list[Host]] = {}
    for host in hosts:
        if host.domain is not None:
            found.setdefault(host.domain, []).append(host)
    return [tuple(found[name]) for name in sorted(found)]


def _domains(pool: Pool, room: Room) -> list[str]:
    """The pool's domains, those with few free units first."""
    free: dict[str, int] = {}
    for host, units in zip(room.space.hosts[pool.id].values(), free_units(pool, room), strict=True):
        if host.domain is not None:
            free[host.domain] = free.get(host.domain, 0) + units
    return sorted(free, key=lambda domain: (free[domain], domain))


def _place_pods(claim: Claim, pool: Pool, room: Room, domain: str | None) -> Places:
    """Places for the claim's pods, one by one at the best spot, for as many as fit."""
    if claim.pods == 1:
        spot = best_in(room, claim, pool, 0, domain)
        return () if spot is None else (spot.placed,)
    places: list[Placed] = []
    with Trial() as trial:
        while len(places) < claim.pods:
            spot = best_in(room, claim, pool, len(places), domain)
            if spot is None:
                break
            places.append(spot.placed)
            if len(places) < claim.pods:
                trial.take(room, [room.space.taken(claim, (spot.placed,), 0)])
    return tuple(places)


def best_in(room: Room, claim: Claim, pool: Pool, pod: int = 0, domain: str | None = None) -> Spot | None:
    """The least wasteful spot for one pod in the pool, or in one domain."""
    host = _best_host(room, claim, pool, domain)
    return None if host is None else spot_on(host, claim, room.row, pod)


def has_spot(room: Room, claim: Claim, pool: Pool) -> bool:
    """Whether there is a spot for one pod in the pool."""
    return _best_host(room, claim, pool, None) is not None


def _best_host(room: Room, claim: Claim, pool: Pool, domain: str | None) -> Host | None:
    return room.ranking(claim.shape, pool, partial(_waste_on, claim, room.row), domain).first()


def _waste_on(claim: Claim, free: Row, host: Host) -> Rank | None:
    spot = spot_on(host, claim, free)
    return None if spot is None else spot.waste
