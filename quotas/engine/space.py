"""Space: what a group of pools has, and where each amount of it stands in a row of numbers.

Every amount has a **slot**. A **row** has an amount for every slot: what there is, or what is free of it. A **vector** has
the amounts of a few slots: what a claim takes at its places. Slots are given to

    each pool        its units as a whole (recalls and claims without places count only here)
    each machine     its CPU, its memory and its pods, where they are limited, and its devices, such as RDMA; pools that
                     share a machine share them
    each card        its units, one card after the other, and its compute in percent, where that is limited;
                     of a card that MIG cuts freely each memory slice, and its media engine
    each profile     of a fixed MIG geometry: the instances that are there

What is not there, such as a lost node, is NOWHERE: nothing of it is ever free.
"""

from collections.abc import Iterable, Iterator, Mapping

from quotas.engine.mig_layouts import Profile, profile_of
from quotas.engine.types import CPU, MEMORY, PODS, Claim, Department, Node, Placed, Pool, PoolId
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
            for what, amount in _beside(host.node):
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


def _beside(node: Node) -> Iterator[tuple[str, int]]:
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
            yield from _instance(host, card, profile, placed.start)


def _instance(host: Host, card: int, profile: Profile, start: int) -> Iterator[tuple[Slot, int]]:
    """The memory slices, and the media engine, of an instance that is cut there."""
    if card >= len(host.slices):
        yield NOWHERE, 1
        return
    if profile.media:
        yield host.media[card], 1
    slices = range(host.slices[card].start, host.slices[card].stop)
    yield from ((slices[n] if n < len(slices) else NOWHERE, 1) for n in range(start, start + profile.size))


def fits(free: Row, vector: Mapping[Slot, int]) -> bool:
    """Whether a vector can be taken from what is free."""
    return all(free[slot] >= amount for slot, amount in vector.items())


def names(space: Space) -> dict[Slot, str]:
    """What each slot is called in a message, such as card/a100/n1/0."""
    called = {NOWHERE: "a lost place"} | {slot: f"pool/{pool}" for pool, slot in space.pool.items()}
    for pool, hosts in space.hosts.items():
        for host in hosts.values():
            there = {f"{what}/{host.name}": slot for what, slot in host.beside.items()}
            here = f"{pool}/{host.name}"
            there |= {f"card/{here}/{card}": slot for card, slot in enumerate(host.cards)}
            there |= {f"cores/{here}/{card}": slot for card, slot in enumerate(host.cores)}
            there |= {f"instance/{here}/{profile}": slot for profile, slot in host.instances.items()}
            there |= {f"media/{here}/{card}": slot for card, slot in enumerate(host.media)}
            for card, part in enumerate(host.slices):
                there |= {f"slice/{here}/{card}/{n}": slot for n, slot in enumerate(range(part.start, part.stop))}
            called |= {slot: name for name, slot in there.items() if slot is not None}
    return called
