"""Places: what the nodes of a group of pools have, what of it is free, and where on them pods go.

Every amount has a **slot**. A **row** has an amount for every slot: what there is, or what is free of it. A **vector** has
the amounts of a few slots: what a claim takes at its places. Slots are given to

    each pool        its units as a whole (recalls and claims without places count only here)
    each machine     its CPU, its memory and its pods, where they are limited, and its devices, such as RDMA; pools that
                     share a machine share them
    each card        its units, one card after the other, and its compute in percent, where that is limited;
                     of a card that MIG cuts freely each memory slice, and its media engine
    each profile     of a fixed MIG geometry: the instances that are there

What is not there, such as a lost node, is NOWHERE: nothing of it is ever free.

Among the places that fit, a pod gets the one that leaves the largest future request placeable: where the least GPU share
becomes useless for want of CPU, on the card with the least left over, but not too little for anybody else, on the fullest
node; a MIG instance where the fewest other starts are spoiled. Equals go to the first node in the pool's order.

`Space` gives out the slots, `spot_on` judges one node, a `Room` is a row with remembered rankings of its nodes, of which only
those are asked again that changed, and `find_places` places all pods of a claim.
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
"""The number of the machine that the units of a pool as a whole stand on."""


class Host:
    """A node as one pool sees it, and the slots of what it has; None for compute that is not limited. `cards` are the slots
    of its cards' units, `stretch` the same as a part of a row; `slices` has such a part for each freely cut card.
    `beside` has the slots of its machine: None for CPU, memory or pods that are not limited; a device that it does not name
    is not there. `whole` is the largest card's units; one whose cards are `shared` gives parts of them, and one `counts_parts`
    where a card is more than one unit but for MIG. `turn` is its place in the pool's order; pools that share a machine have
    the same `number` for it."""

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
    """The slots of a group of pools. `capacity` is the row of all there is, `at` says on which machine a slot is; `pool` has
    the slot of each pool's units, `hosts` its nodes in the pool's order: by their names, shorter ones first."""

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
        """Slots for these amounts, one after the other; the first of them."""
        first = len(self.capacity)
        self.capacity += amounts
        self.at += [machine] * len(amounts)
        return first

    def _host(self, pool: Pool, node: Node, turn: int) -> Host:
        host = Host(pool, node, turn, self.machines.setdefault(node.name, len(self.machines)))
        for profile, count in (node.instances or {}).items():
            host.instances[profile] = self._add(host.number, count)
        if pool.mig is None:
            first = self._add(host.number, *[card.left for card in node.cards])
            host.cards, host.stretch = range(first, len(self.capacity)), slice(first, len(self.capacity))
            if any(card.cores is not None for card in node.cards):
                host.cores = [None if c.cores is None else self._add(host.number, c.cores) for c in node.cards]
        elif node.instances is None:
            for card in node.cards:
                host.media.append(self._add(host.number, 1))
                first = self._add(host.number, *[int(slice_ < card.left) for slice_ in range(card.units)])
                host.slices.append(slice(first, first + card.units))
        return host

    def _share_machines(self) -> None:
        """What a machine has beside its cards is there once, whichever pool names it."""
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
        """What the claim takes at `places`; `units` overrides what it counts for in the pool as a whole."""
        vector: Vector = {self.pool[claim.pool]: claim.units if units is None else units}
        hosts = self.hosts[claim.pool]
        for placed in places or ():
            host = hosts.get(placed.node)
            for slot, amount in ((NOWHERE, 1),) if host is None else _on_host(claim, host, placed):
                vector[slot] = vector.get(slot, 0) + amount
        return vector


def _by_name(node: Node) -> tuple[int, str]:
    """n2 before n10, whatever order they came in."""
    return len(node.name), node.name


def _beside_cards(node: Node) -> Iterator[tuple[str, int]]:
    """What a node says it has beside its cards."""
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
    """The memory slices, and the media engine, of an instance that is cut there."""
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
"""CPU in milli that work on a whole card usually wants. GPU share on a node beyond its free CPU is as good as lost."""
LEFT_ON_NODE = 1 / 80
"""What a card's worth left over on a node counts beside a card lost for want of CPU, or left over on the card used."""
HARDLY_USED = 1 / 5
"""Less than this share of a card is hardly ever asked for: where no more is left over on the card, it counts twice. The
numbers are tuned on three lists of Alibaba's cluster-trace-gpu-v2023 (bench/placement.py)."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for one pod and how good it is: the lowest `waste` wins, then the first in the pool's order."""

    waste: tuple[float, ...]
    placed: Placed


def best_spot(claim: Claim, hosts: Iterable[Host], free: Row, pod: int = 0) -> Spot | None:
    """The least wasteful spot of all nodes for one pod, by looking at each (a Room remembers instead)."""
    spots = (spot for host in hosts if (spot := spot_on(host, claim, free, pod)) is not None)
    return min(spots, key=lambda spot: spot.waste, default=None)


# Spots on one node ----------------------------------------------------------------------------------------------------


def spot_on(host: Host, claim: Claim, free: Row, pod: int = 0) -> Spot | None:
    """The least wasteful spot for one pod on the node, None when it does not fit there."""
    return cards_on(host, claim, free, pod) if has_beside(host, claim, free) else None


def cards_on(host: Host, claim: Claim, free: Row, pod: int = 0) -> Spot | None:
    """The same by the cards alone, as if the machine had plenty of all else."""
    if host.pool.mig is not None:
        return _instance(claim, host, free, pod)
    takes_a_part = host.shared and claim.on_card <= host.whole
    return (_part_of_a_card if takes_a_part else _cards)(claim, host, free, pod)


def has_beside(host: Host, claim: Claim, free: Row) -> bool:
    """Whether the machine has what one pod of the claim takes beside the cards."""
    beside = host.beside
    for what, amount in claim.beside:  # no generator: this is asked more often than anything else
        slot = beside.get(what, NOWHERE)
        if slot is not None and free[slot] < amount:
            return False
    return True


def _part_of_a_card(claim: Claim, host: Host, free: Row, pod: int) -> Spot | None:
    """Part of one card, best fit."""
    left, asked = free[host.stretch], claim.on_card
    if max(left) < asked:  # as on most nodes of a full pool
        return None
    fitting = [i for i, units in enumerate(left) if units >= asked and _cores_fit(claim, host, i, free)]
    if not fitting:
        return None
    card = min(fitting, key=left.__getitem__)
    over = (left[card] - asked) / host.whole
    over += over if over < HARDLY_USED else 0
    return Spot((over + _waste(claim, host, sum(left), free),), Placed(pod, host.name, (card,)))


def _cards(claim: Claim, host: Host, free: Row, pod: int) -> Spot | None:
    """As many empty cards as it takes."""
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
    """Cards' worth of GPU share that the pod makes useless on a node with so many units `left`; of nodes that lose the same,
    the one with the least left."""
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
    """An instance of the claim's profile: one that is there, or where it can be cut with the fewest other starts spoiled."""
    if host.node.instances is None:
        return min(_cuts(claim, host, free, pod), key=lambda spot: spot.waste, default=None)
    there = host.instances.get(claim.profile or "")
    left = 0 if there is None else free[there]
    return Spot((left,), Placed(pod, host.name)) if left > 0 else None


def _cuts(claim: Claim, host: Host, free: Row, pod: int) -> Iterator[Spot]:
    """Every start at which the profile fits on a freely cut card, ranked by how many other starts it spoils."""
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
    """How many memory slices the placements still possible on a card add up to."""
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


def largest_on(host: Host, free: Row, like: Claim | None = None) -> int:
    """The most units one pod of any shape could get on the node (on one card, where cards are shared); `like` a claim's pod,
    with as much CPU and memory for each unit, and as many pods and devices."""
    most = _largest_on_cards(host, free)
    for what, amount in () if like is None else like.beside:
        slot = host.beside.get(what, NOWHERE)
        if like is None or slot is None or most == 0:
            continue
        if what in (CPU, MEMORY):
            most = min(most, like.on_card * max(0, free[slot]) // amount)
        elif free[slot] < amount:
            most = 0
    return most if host.shared or not host.whole else most - most % host.whole


def _largest_on_cards(host: Host, free: Row) -> int:
    left = free[host.stretch]
    best = max(left.count(host.whole) * host.whole, *left, 0)
    for name, profile in profiles_of(host.pool.mig).items():
        probe = Claim("", "", host.pool.id, 0, "pending", 0, profile=name)  # type: ignore[arg-type]
        if profile.size > best and _instance(probe, host, free, 0) is not None:
            best = profile.size
    return best


# Nodes in the order of what is asked of each --------------------------------------------------------------------------

Rank = tuple[Any, ...]
LAST: Rank = (float("inf"),)
"""The rank of a node that is out of the question."""


Changed = list[tuple[int, int, int]]
"""Machines that a trial changes: (machine, its version before, and since)."""


class Versions:
    """A number for each machine that names the state it is in, and the machines that changed, in turn."""

    def __init__(self, machines: int) -> None:
        self.of = [0] * machines
        self.changed: list[int] = []
        self._latest = 0

    def note(self, machine: int) -> int:
        """The machine is in a state that it was never in before: its version."""
        self._latest += 1
        self.restore(machine, self._latest)
        return self._latest

    def restore(self, machine: int, version: int) -> None:
        """The machine is in that state again."""
        self.of[machine] = version
        self.changed.append(machine)


class Ranking:
    """Nodes by a rank that depends on the state of each alone; None is no rank."""

    def __init__(self, versions: Versions, hosts: Sequence[Host], rank: Callable[[Host], Rank | None]) -> None:
        self._versions, self._hosts, self._rank = versions, hosts, rank
        self._index = {host.number: index for index, host in enumerate(hosts)}
        self._seen = len(versions.changed)
        self._known = [versions.of[host.number] for host in hosts]
        self._ranks = [(rank(host) or LAST, index) for index, host in enumerate(hosts)]
        self._lowest: tuple[Rank, int] | None = None

    def first(self) -> Host | None:
        """The node of the lowest rank, the first of those that are equal."""
        ranks = self._fresh()
        if self._lowest is None:
            self._lowest = min(ranks, default=(LAST, 0))
        rank, index = self._lowest
        return None if rank == LAST else self._hosts[index]

    def ranks(self) -> list[Rank]:
        """The rank of every node, in the order of the nodes; LAST where it has none."""
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
    """The `row` of what is free in a space, at first all of it. Change it only with `add`, or on trial: both remember which
    machines changed."""

    def __init__(self, space: Space, row: Row | None = None) -> None:
        self.space = space
        self.row = [*space.capacity] if row is None else row
        self._versions = Versions(len(space.machines))
        self._rankings: dict[tuple[object, ...], Ranking] = {}
        self._watching: list[set[Slot]] = []

    def watch(self) -> set[Slot]:
        """A set that all is added to of which there is more or less from now on; the caller empties it."""
        moved: set[Slot] = set()
        self._watching.append(moved)
        return moved

    def add(self, vector: Mapping[Slot, int], times: int = 1) -> None:
        """row += times × vector, but for what is nowhere."""
        self._count(vector, times)
        for machine in self._machines(vector):
            self._versions.note(machine)

    def _machines(self, slots: Iterable[Slot]) -> set[int]:
        return {machine for slot in slots if (machine := self.space.at[slot]) != NO_MACHINE}

    def version(self, host: Host) -> int:
        """As long as this is the same, so is what is free on the node."""
        return self._versions.of[host.number]

    def note(self, host: Host) -> None:
        """Something else has changed on the node."""
        self._versions.note(host.number)

    def forget(self) -> None:
        """All that was asked."""
        self._rankings.clear()

    def lend(self, vector: Mapping[Slot, int], times: int) -> Changed:
        """As `add`, but for a trial; the answer is for `take_back`."""
        versions = self._versions
        before = [(machine, versions.of[machine]) for machine in self._machines(vector)]
        self._count(vector, times)
        return [(machine, version, versions.note(machine)) for machine, version in before]

    def take_back(self, vector: Mapping[Slot, int], times: int, changed: Changed) -> None:
        """The trial is over: a machine that nothing else happened to is in the state that it was in before."""
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
        """The nodes of the pool (or of one domain) by `rank`, which answers the `question` for one node."""
        key = pool.id, domain, question
        known = self._rankings.get(key)
        if known is None:
            hosts = [host for host in self.space.hosts[pool.id].values() if domain is None or host.domain == domain]
            known = self._rankings[key] = Ranking(self._versions, hosts, rank)
        return known


class Trial:
    """A journal of what is tried: when the trial ends, all that it did is undone, the last first. What others enter meanwhile
    stays."""

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
        self._undo.append((room.take_back, (vector, times, room.lend(vector, times))))

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


class FreeInBoth(Room):
    """What is free in both of two rooms."""

    def __init__(self, one: Room, other: Room) -> None:
        super().__init__(one.space, [*map(min, one.row, other.row)])
        self._one, self._other = one.row, other.row
        self._moved = one.watch(), other.watch()

    def refreshed(self) -> "FreeInBoth":
        """The same, with what has changed in the two since; not while something of it is on trial."""
        one, other, row = self._one, self._other, self.row
        for moved in self._moved:
            if moved:
                self.add({slot: more for slot in moved if (more := min(one[slot], other[slot]) - row[slot])})
                moved.clear()
        return self


def rooms_of(snapshot: Snapshot) -> tuple[Room, Room, FreeInBoth]:
    """All that the pools of the snapshot have, to become what is free now, what is free later, and what both have."""
    space = Space(snapshot.pools, snapshot.departments)
    now, later = Room(space), Room(space)
    return now, later, FreeInBoth(now, later)


# Finding places -------------------------------------------------------------------------------------------------------


ANYWHERE: Sequence[str | None] = (None,)
"""No domain in particular."""


def find_places(claim: Claim, pool: Pool, room: Room, units: int | None = None) -> Places | None:
    """Places for all pods of the claim in the room, () where the pool has no nodes; None when it does not fit.

    The room is the same afterwards. `units` is what the claim charges to the pool as a whole, if not all its units.
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
    """How many of the claim's pods find a place at the same time."""
    return len(_place_pods(claim, pool, room, None))


def free_units(pool: Pool, room: Room) -> list[int]:
    """Free units on every node of the pool, in their order."""
    ranks = room.ranking("free", pool, lambda host: (free_on(host, room.row),)).ranks()
    return [int(rank[0]) for rank in ranks]


def largest_pod(pool: Pool, room: Room, like: Claim | None = None) -> int:
    """The most units one pod of any shape, or of one `like` the claim's, could get on one node (one card, where cards are
    shared)."""
    question = ("largest", None if like is None else (like.on_card, like.beside))
    host = room.ranking(question, pool, lambda host: (-largest_on(host, room.row, like),)).first()
    return 0 if host is None else largest_on(host, room.row, like)


def nearest_machine(claim: Claim, pool: Pool, room: Room) -> Machine | None:
    """Of the nodes with the cards for one more pod of the claim, beside those that fit, the one that comes nearest to the
    CPU, memory, pods and devices it asks for. None when it is the cards, or a common domain, that is missing."""

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
    """How much the node has of each that a pod asks for beside the cards, the lowest first; 1 is enough."""
    asked = ((host.beside.get(what, NOWHERE), amount) for what, amount in claim.beside)
    return sorted(1.0 if slot is None else min(1.0, free[slot] / amount) for slot, amount in asked)


def by_domain(hosts: Iterable[Host]) -> list[tuple[Host, ...]]:
    """The nodes of each domain; those without one belong to none."""
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
    """Places for the claim's pods one by one, each at its best spot, as far as there are any."""
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
