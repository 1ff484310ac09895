"""Room: what is free of a group of pools, and the best place for a pod in it without looking at every node again: the
answers are kept in order for each shape (ranking.py). The choice is that of a scan over all nodes: the lowest waste, then
the first in the pool's order.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from quotas.engine.placement import Spot, best_spot, cards_on, free_on, largest_on, spot_on
from quotas.engine.ranking import Rank, Ranking, Versions
from quotas.engine.reasons import Machine
from quotas.engine.space import NO_MACHINE, NOWHERE, Host, Places, Row, Slot, Space
from quotas.engine.types import CPU, MEMORY, Claim, Placed, Pool, Snapshot


class Room:
    """The `row` of what is free in a space, at first all of it. Change it only with `add` and `also`, which remember the
    machines that changed."""

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
        for moved in self._watching:
            moved.update(vector)

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

    @contextmanager
    def also(self, vectors: Iterable[Mapping[Slot, int]], times: int = 1) -> Iterator[None]:
        """As if the vectors were free too (times −1: taken), for a while: what is known of the nodes as they are is kept."""
        vectors = [*vectors]
        before = {machine: self._versions.of[machine] for vector in vectors for machine in self._machines(vector)}
        for vector in vectors:
            self.add(vector, times)
        during = {machine: self._versions.of[machine] for machine in before}
        try:
            yield
        finally:
            after = {machine: self._versions.of[machine] for machine in before}
            for vector in vectors:
                self.add(vector, -times)
            for machine, version in before.items():
                if after[machine] == during[machine]:
                    self._versions.restore(machine, version)

    def spot_with(
        self, claim: Claim, hosts: Iterable[Host], lent: Collection[tuple[Mapping[Slot, int], int]]
    ) -> Spot | None:
        """The best spot on these nodes for a pod of the claim if so many times each vector were free, too."""
        for vector, times in lent:
            self._count(vector, times)
        spot = best_spot(claim, hosts, self.row)
        for vector, times in lent:
            self._count(vector, -times)
        return spot

    def _count(self, vector: Mapping[Slot, int], times: int) -> None:
        """row += times × vector, for a while."""
        row = self.row
        for slot, amount in vector.items():
            if slot != NOWHERE:
                row[slot] += times * amount

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


class Common(Room):
    """What is free in both of two rooms."""

    def __init__(self, one: Room, other: Room) -> None:
        super().__init__(one.space, [*map(min, one.row, other.row)])
        self._one, self._other = one.row, other.row
        self._moved = one.watch(), other.watch()

    def as_they_are(self) -> "Common":
        """The same, with what has changed in the two since; not while `also` lends something of it."""
        one, other, row = self._one, self._other, self.row
        for moved in self._moved:
            if moved:
                self.add({slot: more for slot in moved if (more := min(one[slot], other[slot]) - row[slot])})
                moved.clear()
        return self


def rooms_of(snapshot: Snapshot) -> tuple[Room, Room, Common]:
    """All that the pools of the snapshot have, to become what is free now, what is free later, and what both have."""
    space = Space(snapshot.pools, snapshot.departments)
    now, later = Room(space), Room(space)
    return now, later, Common(now, later)


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


def emptiest_host(pool: Pool, room: Room) -> Host | None:
    """The node of the pool with most free units, the first by name of those that are equal."""
    return room.ranking("emptiest", pool, lambda host: (-free_on(host, room.row), host.name)).first()


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
    with ExitStack() as taken:
        for place in placed:
            taken.enter_context(room.also([room.space.taken(claim, (place,), 0)], -1))
        host = room.ranking(("lacks", claim.shape), pool, lacks).first()
        if host is None:
            return None
        asked = {CPU: 0, MEMORY: 0} | dict(claim.beside)
        has = {
            what: amount if (slot := _beside(host, what)) is None else room.row[slot] for what, amount in asked.items()
        }
        lacking = next(
            (what for what, amount in claim.beside if has[what] < amount and what not in (CPU, MEMORY)), None
        )
        machine = Machine(host.name, has[CPU], has[MEMORY], asked[CPU], asked[MEMORY])
        return machine if lacking is None else replace(machine, lacking=lacking, has=has[lacking], asked=asked[lacking])


def _shares(claim: Claim, host: Host, free: Row) -> list[float]:
    """How much the node has of each that a pod asks for beside the cards, the lowest first; 1 is enough."""
    asked = ((_beside(host, what), amount) for what, amount in claim.beside)
    return sorted(1.0 if slot is None else min(1.0, free[slot] / amount) for slot, amount in asked)


def _beside(host: Host, what: str) -> Slot | None:
    return host.beside.get(what, NOWHERE)


def _domains(pool: Pool, room: Room) -> list[str]:
    """The pool's domains, those with few free units first; nodes without a domain belong to none."""
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
    with ExitStack() as taken:
        while len(places) < claim.pods:
            spot = best_in(room, claim, pool, len(places), domain)
            if spot is None:
                break
            places.append(spot.placed)
            if len(places) < claim.pods:
                taken.enter_context(room.also([room.space.taken(claim, (spot.placed,), 0)], -1))
    return tuple(places)


def best_in(room: Room, claim: Claim, pool: Pool, pod: int = 0, domain: str | None = None) -> Spot | None:
    """The least wasteful spot for one pod in the pool, or in one domain."""
    host = _best_host(room, claim, pool, domain)
    return None if host is None else spot_on(host, claim, room.row, pod)


def has_spot(room: Room, claim: Claim, pool: Pool) -> bool:
    """Whether there is a spot for one pod in the pool."""
    return _best_host(room, claim, pool, None) is not None


def _best_host(room: Room, claim: Claim, pool: Pool, domain: str | None) -> Host | None:
    return room.ranking(claim.shape, pool, partial(_waste, claim, room.row), domain).first()


def _waste(claim: Claim, free: Row, host: Host) -> Rank | None:
    spot = spot_on(host, claim, free)
    return None if spot is None else spot.waste
