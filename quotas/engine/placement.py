"""Where pods go: of the spots that are free on a node, and of nodes, the best for one pod (space.py says what is free).

Among the places that fit, the one that leaves the largest future request placeable: where the least GPU share becomes
useless for want of CPU, on the card with the least left over, but not too little for anybody else, on the fullest node; a
MIG instance where the fewest other starts are spoiled.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quotas.engine.mig_layouts import PRODUCTS, profile_of, profiles_of
from quotas.engine.space import NOWHERE, Host, Row
from quotas.engine.types import CPU, MEMORY, Claim, Placed, Pool

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
    """The least wasteful spot of all nodes for one pod, by looking at each (room.py remembers instead)."""
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
    return _part_of_a_card(claim, host, free, pod) if _takes_a_part(claim, host) else _cards(claim, host, free, pod)


def has_beside(host: Host, claim: Claim, free: Row) -> bool:
    """Whether the machine has what one pod of the claim takes beside the cards."""
    beside = host.beside
    for what, amount in claim.beside:  # no generator: this is asked more often than anything else
        slot = beside.get(what, NOWHERE)
        if slot is not None and free[slot] < amount:
            return False
    return True


def _takes_a_part(claim: Claim, host: Host) -> bool:
    """Whether one card is enough, and shared."""
    return host.shared and claim.on_card <= host.whole


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
