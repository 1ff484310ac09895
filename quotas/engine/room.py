"""Room: what is free of a group of pools, and the best place for a pod in it without looking at every node again: the
answers are kept in order for each shape (ranking.py). The choice is that of a scan over all nodes: the lowest waste, then
the first in the pool's order.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from quotas.engine.placement import (
    Key,
    Places,
    Spot,
    Vector,
    best_spot,
    capacity_vector,
    free_on,
    largest_on,
    pod_vector,
    shape_of,
    spot_on,
)
from quotas.engine.ranking import Changed, Falls, Rank, Ranking
from quotas.engine.reasons import Machine
from quotas.engine.types import Claim, Node, Placed, Pool, Snapshot


class Room(dict[Key, int]):
    """A vector of free amounts. Change it only with `add` and `also`, which remember the nodes that changed, and of which
    of them there is more of something. What was taken and given back between two questions has not changed: often
    there is no more where a victim goes and its successor comes, and what is known of such a node still bounds it."""

    def __init__(self, free: Mapping[Key, int]) -> None:
        super().__init__(free)
        self._changes: list[Changed] = []
        self._nodes: dict[str, Changed] = {}
        self._since_asked: dict[Key, int] = {}
        self._rankings: dict[tuple[object, ...], Ranking] = {}
        self._watching: list[set[Key]] = []

    def watch(self) -> set[Key]:
        """A set that all is added to of which there is more or less from now on; the caller empties it."""
        moved: set[Key] = set()
        self._watching.append(moved)
        return moved

    def add(self, vector: Mapping[Key, int], times: int = 1) -> None:
        """self += times × vector; keys that are not there (a lost node's) are left out."""
        since = self._since_asked
        for key, amount in vector.items():
            if key in self:
                self[key] += times * amount
                since[key] = since.get(key, 0) + times * amount
        for moved in self._watching:
            moved.update(vector)

    def _settle(self) -> None:
        """Note what has changed since somebody asked."""
        if self._since_asked:
            self._note_all(self._since_asked)
            self._since_asked.clear()

    def version(self, node: str) -> int:
        """As long as this is the same, so is what is free on the node."""
        self._settle()
        return self._changed(node).version

    def _changed(self, node: str) -> Changed:
        if node not in self._nodes:
            self._nodes[node] = Changed()
        return self._nodes[node]

    def forget(self) -> None:
        """All that was asked."""
        self._rankings.clear()

    def _note_all(self, amounts: Mapping[Key, int]) -> None:
        for node, more in _nodes_changed(amounts).items():
            self._note(node, more)

    def _note(self, node: str, more: bool) -> None:
        changed = self._changed(node)
        self._changes.append(changed)
        changed.version = len(self._changes)
        if more:
            changed.risen = changed.version

    @contextmanager
    def also(self, vectors: Iterable[Mapping[Key, int]], times: int = 1) -> Iterator[None]:
        """As if the vectors were free too (times −1: taken), for a while: what is known of the nodes as they are is kept."""
        self._settle()
        lent: dict[Key, int] = {}
        for vector in vectors:
            for key, amount in vector.items():
                lent[key] = lent.get(key, 0) + times * amount
        before = [(changed, changed.version) for changed in map(self._changed, _nodes_changed(lent))]
        mine = -1 - len(self._changes)
        self._lend(lent)
        for changed, _ in before:
            changed.version = mine
        try:
            yield
        finally:
            as_before = [(changed, version) for changed, version in before if changed.version == mine]
            self._lend({key: -amount for key, amount in lent.items()})
            for changed, version in as_before:
                changed.version = version

    def _lend(self, vector: Mapping[Key, int]) -> None:
        self._count(vector, 1)
        self._note_all(vector)
        for moved in self._watching:
            moved.update(vector)

    def spot_with(
        self,
        claim: Claim,
        pool: Pool,
        nodes: Iterable[Node],
        lent: Collection[tuple[Mapping[Key, int], int]],
    ) -> Spot | None:
        """The best spot on these nodes for a pod of the claim if so many times each vector were free, too."""
        for vector, times in lent:
            self._count(vector, times)
        spot = best_spot(claim, pool, nodes, self)
        for vector, times in lent:
            self._count(vector, -times)
        return spot

    def _count(self, vector: Mapping[Key, int], times: int) -> None:
        """self += times × vector, for a while."""
        for key, amount in vector.items():
            if key in self:
                self[key] += times * amount

    def ranking(
        self,
        question: object,
        pool: Pool,
        rank: Callable[[Node], Rank | None],
        domain: str | None = None,
        falls: Falls | None = None,
    ) -> Ranking:
        """The nodes of the pool (or of one domain) by `rank`, which answers the `question` for one node. Where nothing rises
        no rank comes of None; of bounds, and of what a walk over them asks for, none falls there but as `falls` tells."""
        self._settle()
        key = pool.id, domain, question
        if key not in self._rankings:
            nodes = [node for node in pool.nodes or () if domain is None or node.domain == domain]
            noted = [self._changed(node.name) for node in nodes]
            self._rankings[key] = Ranking(self._changes, noted, nodes, rank, falls)
        return self._rankings[key]


class Common(Room):
    """What is free in both of two rooms."""

    def __init__(self, one: Room, other: Room) -> None:
        super().__init__({key: min(amount, other[key]) for key, amount in one.items()})
        self._one, self._other = one, other
        self._moved = one.watch(), other.watch()

    def as_they_are(self) -> "Common":
        """The same, with what has changed in the two since; not while `also` lends something of it."""
        one, other = self._one, self._other
        for moved in self._moved:
            if moved:
                self.add({key: min(one[key], other[key]) - self[key] for key in moved if key in self})
                moved.clear()
        return self


def _nodes_changed(amounts: Mapping[Key, int]) -> dict[str, bool]:
    """The nodes of which there is more or less of something, and whether there is more."""
    nodes: dict[str, bool] = {}
    for key, amount in amounts.items():
        if amount and key[0] != "pool":
            node: Any = key[2] if len(key) > 2 else key[1]  # node_of, without a call for each key
            nodes[node] = amount > 0 or nodes.get(node, False)
    return nodes


def free_vectors(snapshot: Snapshot) -> tuple[Room, Room, Common]:
    """The capacity of all pools of the group, to become free_now, free_later and what both have."""
    vector: Vector = {}
    for pool in snapshot.pools:
        vector.update(capacity_vector(pool, snapshot.departments))
    now, later = Room(vector), Room(vector)
    return now, later, Common(now, later)


# Finding places -------------------------------------------------------------------------------------------------------


def find_places(claim: Claim, pool: Pool, room: Room, units: int | None = None) -> Places | None:
    """Places for all pods of the claim in the room, () where the pool has no nodes; None when it does not fit.

    The room is the same afterwards. `units` is what the claim charges to the pool as a whole, if not all its units.
    """
    if room["pool", pool.id] < (claim.units if units is None else units):
        return None
    if pool.nodes is None or claim.is_recall:
        return ()
    domains: Sequence[str | None] = _domains(pool, room) if claim.same_domain else (None,)
    for domain in domains:
        places = _place_pods(claim, pool, room, domain)
        if len(places) == claim.pods:
            return places
    return None


def pods_that_fit(claim: Claim, pool: Pool, room: Room) -> int:
    """How many of the claim's pods find a place at the same time."""
    return len(_place_pods(claim, pool, room, None))


def free_units(pool: Pool, room: Room) -> list[int]:
    """Free units on every node of the pool, in their order."""
    ranks = room.ranking("free", pool, lambda node: (free_on(pool, node, room),)).ranks()
    return [int(rank[0]) for rank in ranks if rank is not None]


def largest_pod(pool: Pool, room: Room) -> int:
    """The most units one pod of any shape could get on one node (one card, where cards are shared)."""
    node = room.ranking("largest", pool, lambda node: (-largest_on(pool, node, room),)).first()
    return 0 if node is None else largest_on(pool, node, room)


def nearest_machine(claim: Claim, pool: Pool, room: Room) -> Machine | None:
    """Of the nodes with the cards for one more pod of the claim, beside those that fit, the one that comes nearest to the
    CPU and memory it asks for. None when it is the cards, or a common domain, that is missing."""
    bare = replace(claim, cpu_milli=0, memory_mib=0)

    def lacks(node: Node) -> Rank | None:
        fits = spot_on(node, bare, pool, room) is not None
        return tuple(-share for share in _shares(claim, node, room)) if fits else None

    placed = _place_pods(claim, pool, room, None)
    if len(placed) == claim.pods:
        return None
    with ExitStack() as taken:
        for place in placed:
            taken.enter_context(room.also([dict(pod_vector(claim, pool, place))], -1))
        node = room.ranking(("lacks", shape_of(claim)), pool, lacks).first()
        if node is None:
            return None
        there = room.get(("cpu", node.name), claim.cpu_milli), room.get(("memory", node.name), claim.memory_mib)
        return Machine(node.name, *there, claim.cpu_milli, claim.memory_mib)


def _shares(claim: Claim, node: Node, room: Room) -> list[float]:
    """How much of the CPU and of the memory that a pod asks for the node has, the lower first; 1 is enough."""
    asked = {("cpu", node.name): claim.cpu_milli, ("memory", node.name): claim.memory_mib}
    return sorted(min(1.0, room[key] / amount) if amount and key in room else 1.0 for key, amount in asked.items())


def _domains(pool: Pool, room: Room) -> list[str]:
    """The pool's domains, those with few free units first; nodes without a domain belong to none."""
    free: dict[str, int] = {}
    for node, units in zip(pool.nodes or (), free_units(pool, room), strict=True):
        if node.domain is not None:
            free[node.domain] = free.get(node.domain, 0) + units
    return sorted(free, key=lambda domain: (free[domain], domain))


def _place_pods(claim: Claim, pool: Pool, room: Room, domain: str | None) -> Places:
    """Places for the claim's pods one by one, each at its best spot, as far as there are any."""
    if claim.pods == 1:
        spot = best_in(room, claim, pool, 0, domain)
        return () if spot is None else (spot.placed,)
    places: list[Placed] = []
    with ExitStack() as taken:
        while len(places) < claim.pods:
            spot = best_in(room, claim, pool, len(places), domain)
            if spot is None:
                break
            places.append(spot.placed)
            if len(places) < claim.pods:
                taken.enter_context(room.also([dict(pod_vector(claim, pool, spot.placed))], -1))
    return tuple(places)


def best_in(room: Room, claim: Claim, pool: Pool, pod: int = 0, domain: str | None = None) -> Spot | None:
    """The least wasteful spot for one pod in the pool, or in one domain."""

    def waste(node: Node) -> Rank | None:
        spot = spot_on(node, claim, pool, room)
        return None if spot is None else spot.waste

    node = room.ranking(shape_of(claim), pool, waste, domain).first()
    return None if node is None else spot_on(node, claim, pool, room, pod)
