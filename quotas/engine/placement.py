"""Where pods go. Capacity is a vector of free amounts; a claim with its places is a vector of what it occupies.

Keys of a vector:
    ("pool", pool)                     units of the pool as a whole (recalls and claims without places count only here)
    ("card", pool, node, index)        units of one card          ("cores", pool, node, index)   its compute, 100 a card
    ("cpu", node), ("memory", node)    the machine's own; pools that share a node share them
    ("instance", pool, node, profile)  instances of a fixed MIG geometry
    ("slice", pool, node, card, index) a memory slice of a freely cut card; ("media", pool, node, card) its media engine

Among the places that fit, the one that leaves the largest future request placeable: where the least GPU share becomes
useless for want of CPU, on the card with the least left over, but not too little for anybody else, on the fullest node; a
MIG instance where the fewest other starts are spoiled.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from quotas.engine.mig import PRODUCTS, Profile, profile_of
from quotas.engine.types import Claim, Node, Placed, Pool
from quotas.engine.units import capacity_of

Key = tuple[str | int, ...]
Vector = dict[Key, int]
Places = tuple[Placed, ...]
Shape = tuple[int, int | None, str | None, int, int]

UNCOUNTED = frozenset({"cpu", "memory", "cores"})
"""Of these there may be no key: a machine has plenty of CPU or memory, or a card's compute is not limited."""

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


# Vectors --------------------------------------------------------------------------------------------------------------


def add(vector: Vector, other: Mapping[Key, int], times: int = 1) -> None:
    """vector += times × other, in place; keys the vector does not know (a lost node's) are left out."""
    for key, amount in other.items():
        if key in vector:
            vector[key] += times * amount


def node_of(key: Key) -> str | None:
    """The node that a key of a vector is about; None for the pool as a whole."""
    return None if key[0] == "pool" else str(key[2 if len(key) > 2 else 1])


def fits(vector: Mapping[Key, int], other: Mapping[Key, int]) -> bool:
    """Whether `other` can be taken from the free `vector`."""
    return all(vector.get(key, 0) >= amount for key, amount in other.items())


def capacity_vector(pool: Pool, departments: Iterable[object]) -> Vector:
    """Everything the pool has, free. A machine's CPU and memory are there once, whichever pool names them."""
    vector: Vector = {("pool", pool.id): capacity_of(pool, departments)}  # type: ignore[arg-type]
    for node in pool.nodes or ():
        if node.cpu_milli is not None:
            vector["cpu", node.name] = node.cpu_milli
        if node.memory_mib is not None:
            vector["memory", node.name] = node.memory_mib
        vector.update(_node_capacity(pool, node))
    return vector


def _node_capacity(pool: Pool, node: Node) -> Iterator[tuple[Key, int]]:
    for profile, count in (node.instances or {}).items():
        yield ("instance", pool.id, node.name, profile), count
    for index, card in enumerate(node.cards):
        if pool.mig is None:
            yield ("card", pool.id, node.name, index), card.units
            if card.cores is not None:
                yield ("cores", pool.id, node.name, index), card.cores
        elif node.instances is None:
            yield ("media", pool.id, node.name, index), 1
            for slice_ in range(card.units):
                yield ("slice", pool.id, node.name, index, slice_), 1


def occupied(claim: Claim, pool: Pool, places: Places | None, units: int | None = None) -> Vector:
    """What the claim takes of the pool at `places`; `units` overrides what it counts for in the pool as a whole."""
    vector: Vector = {("pool", pool.id): claim.units if units is None else units}
    for placed in places or ():
        for key, amount in pod_vector(claim, pool, placed):
            vector[key] = vector.get(key, 0) + amount
    return vector


def counted(free: Mapping[Key, int], claim: Claim, pool: Pool, places: Places | None, units: int) -> Vector:
    """What the claim occupies of what is counted in the `free` vector."""
    vector = occupied(claim, pool, places, units)
    return {key: amount for key, amount in vector.items() if key in free or key[0] not in UNCOUNTED}


def pod_vector(claim: Claim, pool: Pool, placed: Placed) -> Iterator[tuple[Key, int]]:
    node, profile = placed.node, profile_of(pool.mig, claim.profile)
    if claim.cpu_milli:
        yield ("cpu", node), claim.cpu_milli
    if claim.memory_mib:
        yield ("memory", node), claim.memory_mib
    if profile is not None and placed.start is None:
        yield ("instance", pool.id, node, claim.profile or ""), 1
    for card in placed.cards:
        if profile is None:
            yield ("card", pool.id, node, card), claim.on_card // len(placed.cards)
            if claim.cores_per_pod is not None:
                yield ("cores", pool.id, node, card), claim.cores_per_pod
        elif placed.start is not None:
            yield from _instance_vector(pool, node, card, profile, placed.start)


def _instance_vector(pool: Pool, node: str, card: int, profile: Profile, start: int) -> Iterator[tuple[Key, int]]:
    if profile.media:
        yield ("media", pool.id, node, card), 1
    for slice_ in range(start, start + profile.size):
        yield ("slice", pool.id, node, card, slice_), 1


# Spots on one node ----------------------------------------------------------------------------------------------------


def shape_of(claim: Claim) -> Shape:
    """All that matters for where one pod of the claim can go."""
    return claim.on_card, claim.cores_per_pod, claim.profile, claim.cpu_milli, claim.memory_mib


def spot_on(node: Node, claim: Claim, pool: Pool, free: Mapping[Key, int], pod: int = 0) -> Spot | None:
    """The least wasteful spot for one pod on the node, None when it does not fit there."""
    if not _machine_fits(claim, node, free):
        return None
    return _spot_on_cards(claim, pool, node, free, pod) if pool.mig is None else _instance(claim, pool, node, free, pod)


def best_spot(claim: Claim, pool: Pool, nodes: Iterable[Node], free: Mapping[Key, int], pod: int = 0) -> Spot | None:
    """The least wasteful spot of all nodes for one pod, by looking at each (room.py remembers instead)."""
    spots = (spot for node in nodes if (spot := spot_on(node, claim, pool, free, pod)) is not None)
    return min(spots, key=lambda spot: spot.waste, default=None)


def _machine_fits(claim: Claim, node: Node, free: Mapping[Key, int]) -> bool:
    return (node.cpu_milli is None or free["cpu", node.name] >= claim.cpu_milli) and (
        node.memory_mib is None or free["memory", node.name] >= claim.memory_mib
    )


def _instance(claim: Claim, pool: Pool, node: Node, free: Mapping[Key, int], pod: int) -> Spot | None:
    """An instance of the claim's profile: one that is there, or where it can be cut with the fewest other starts spoiled."""
    profile = profile_of(pool.mig, claim.profile)
    if profile is None:
        return None
    if node.instances is None:
        return min(_cuts(profile, pool, node, free, pod), key=lambda spot: spot.waste, default=None)
    left = free.get(("instance", pool.id, node.name, claim.profile or ""), 0)
    return Spot((left,), Placed(pod, node.name)) if left > 0 else None


def _spot_on_cards(claim: Claim, pool: Pool, node: Node, free: Mapping[Key, int], pod: int) -> Spot | None:
    """Part of one card, best fit; or, when one card is not enough, as many empty cards as it takes."""
    whole, asked = node.whole, claim.on_card
    left = [free["card", pool.id, node.name, index] for index in range(len(node.cards))]
    if asked <= whole and not (whole == 1 or pool.unit == "card"):
        fitting = [i for i, u in enumerate(left) if u >= asked and _cores_fit(claim, pool, node, i, free)]
        if not fitting:
            return None
        cards: tuple[int, ...] = (min(fitting, key=left.__getitem__),)
        over = (left[cards[0]] - asked) / whole
        over += over if over < HARDLY_USED else 0
    elif whole and asked % whole == 0:
        empty = [i for i, units in enumerate(left) if units == whole and _cores_fit(claim, pool, node, i, free)]
        cards, over = tuple(empty[: asked // whole]), 0.0
        if len(empty) < asked // whole:
            return None
    else:
        return None
    return Spot((over + _waste(claim, node, sum(left) / whole, whole, free),), Placed(pod, node.name, cards))


def _waste(claim: Claim, node: Node, cards: float, whole: int, free: Mapping[Key, int]) -> float:
    """Cards' worth of GPU share that the pod makes useless on a node with `cards` free; of nodes that lose the same, the
    one with the least left."""
    cards_left = cards - claim.on_card / whole
    if node.cpu_milli is None:
        return LEFT_ON_NODE * cards_left
    cpu = free["cpu", node.name] / CPU_OF_A_CARD
    cpu_left = cpu - claim.cpu_milli / CPU_OF_A_CARD
    lost = max(0.0, cards_left - cpu_left) - max(0.0, cards - cpu)
    return lost + LEFT_ON_NODE * (cards_left + cpu_left / 2)


def _cores_fit(claim: Claim, pool: Pool, node: Node, index: int, free: Mapping[Key, int]) -> bool:
    key = ("cores", pool.id, node.name, index)
    return claim.cores_per_pod is None or key not in free or free[key] >= claim.cores_per_pod


def _cuts(profile: Profile, pool: Pool, node: Node, free: Mapping[Key, int], pod: int) -> Iterator[Spot]:
    """Every start at which the profile fits on a freely cut card, ranked by how many other starts it spoils."""
    for index, card in enumerate(node.cards):
        if profile.media and free["media", pool.id, node.name, index] < 1:
            continue
        empty = {s for s in range(card.units) if free["slice", pool.id, node.name, index, s] >= 1}
        for start in profile.starts:
            taken = set(range(start, start + profile.size))
            if taken <= empty:
                spoiled = _starts_in(pool, empty) - _starts_in(pool, empty - taken)
                yield Spot((spoiled, len(empty)), Placed(pod, node.name, (index,), start))


def _starts_in(pool: Pool, empty: set[int]) -> int:
    """How many memory slices the placements still possible on a card add up to."""
    return sum(
        profile.size
        for profile in PRODUCTS[pool.mig or ""].values()
        for start in profile.starts
        if all(slice_ in empty for slice_ in range(start, start + profile.size))
    )


# Measuring ------------------------------------------------------------------------------------------------------------


def free_on(pool: Pool, node: Node, free: Mapping[Key, int]) -> int:
    """Free units on one node."""
    if node.instances is not None:
        sizes = ((profile_of(pool.mig, name), name) for name in node.instances)
        return sum(p.size * free["instance", pool.id, node.name, name] for p, name in sizes if p is not None)
    if pool.mig is not None:
        return sum(free["slice", pool.id, node.name, i, s] for i, c in enumerate(node.cards) for s in range(c.units))
    return sum(free["card", pool.id, node.name, index] for index in range(len(node.cards)))


def largest_on(pool: Pool, node: Node, free: Mapping[Key, int]) -> int:
    """The most units one pod of any shape could get on the node (on one card, where cards are shared)."""
    left = [free["card", pool.id, node.name, i] for i in range(len(node.cards))] if pool.mig is None else []
    whole = node.whole
    best = max(left.count(whole) * whole, *left, 0)
    for name, profile in PRODUCTS.get(pool.mig or "", {}).items():
        probe = Claim("", "", pool.id, 0, "pending", 0, profile=name)  # type: ignore[arg-type]
        if profile.size > best and _instance(probe, pool, node, free, 0) is not None:
            best = profile.size
    return best
