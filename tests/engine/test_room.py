"""What is remembered of free room from question to question changes no answer."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.placement import best_spot, capacity_vector, occupied
from quotas.engine.room import Common, Room, find_places, largest_pod, pods_that_fit
from quotas.engine.types import Card, Claim, Node, Placed, Pool
from quotas.engine.units import resized
from tests.engine.builders import pending

POOLS = st.sampled_from(
    [
        ("card", None, Card(1), [1, 2, 4], [None]),
        ("percent", None, Card(100, 100), [10, 50, 100, 200], [None, 20, 60]),
        ("slice", "A30", Card(4), [1, 2, 4], [None]),
    ]
)
PROFILES = {1: "1g.6gb", 2: "2g.12gb", 4: "4g.24gb"}


@st.composite
def pools(draw: st.DrawFn) -> tuple[Pool, list[Claim]]:
    """A pool of some nodes, and claims that ask one after the other, often of the same shape."""
    unit, mig, card, sizes, cores = draw(POOLS)
    nodes = tuple(
        Node(
            f"n{n}",
            (card,) * draw(st.sampled_from([1, 2, 4])),
            domain=draw(st.sampled_from([None, "r1", "r2"])),
            cpu_milli=draw(st.sampled_from([None, 8000, 40_000])),
            memory_mib=draw(st.sampled_from([None, 1000])),
            instances={"1g.6gb": 2, "2g.12gb": 1} if mig and draw(st.booleans()) else None,
        )
        for n in range(draw(st.integers(1, 6)))
    )
    pool, claims = Pool("gpu", unit=unit, mig=mig, nodes=nodes), []
    for n in range(draw(st.integers(1, 25))):
        units = draw(st.sampled_from(sizes))
        claims.append(
            resized(pending(
                f"c{n}", "a", units, pods=draw(st.sampled_from([1, 1, 2, 3])), same_domain=draw(st.booleans()),
                profile=PROFILES[units] if mig else None, cores_per_pod=draw(st.sampled_from(cores)),
                cpu_milli=draw(st.sampled_from([0, 3000])), memory_mib=draw(st.sampled_from([0, 300])),
            ), units, pool)
        )  # fmt: skip
    return pool, claims


def scanned(claim: Claim, pool: Pool, free: dict[object, int]) -> list[Placed]:
    """The plain way: each pod at the best spot of all nodes, one after the other, as far as there are any."""
    room, places = Room(free), []  # type: ignore[arg-type]
    for pod in range(claim.pods):
        spot = best_spot(claim, pool, pool.nodes or (), room, pod)
        if spot is None:
            break
        places.append(spot.placed)
        room.add({**occupied(claim, pool, places[-1:]), ("pool", pool.id): 0}, -1)
    return places


def scanned_places(claim: Claim, pool: Pool, free: dict[object, int]) -> tuple[Placed, ...] | None:
    """All pods, or none; where one domain is wanted, the fullest that holds them all."""
    if free["pool", pool.id] < claim.units:
        return None
    if not claim.same_domain:
        return _whole(scanned(claim, pool, free), claim)
    found = []
    for domain in {node.domain for node in pool.nodes or () if node.domain is not None}:
        nodes = tuple(node for node in pool.nodes or () if node.domain == domain)
        part = Pool(pool.id, unit=pool.unit, mig=pool.mig, nodes=nodes)
        units = sum(_free_on(part, node, free) for node in nodes)
        found.append((units, domain, _whole(scanned(claim, part, free), claim)))
    return next((places for _, _, places in sorted(found, key=lambda entry: entry[:2]) if places), None)


def _whole(places: list[Placed], claim: Claim) -> tuple[Placed, ...] | None:
    return tuple(places) if len(places) == claim.pods else None


def _free_on(pool: Pool, node: Node, free: dict[object, int]) -> int:
    if node.instances is not None:
        return sum(int(name[0]) * free["instance", pool.id, node.name, name] for name in node.instances)
    kind = "slice" if pool.mig else "card"
    return sum(units for key, units in free.items() if key[0] == kind and key[2] == node.name)  # type: ignore[index]


@settings(max_examples=60, deadline=None)
@given(pools(), st.randoms(use_true_random=False))
def test_every_place_is_the_one_a_scan_over_all_nodes_would_choose(case, chance) -> None:  # type: ignore[no-untyped-def]
    pool, claims = case
    room = Room(capacity_vector(pool, ()))
    running = []
    for claim in claims:
        before = dict(room)
        places = find_places(claim, pool, room)
        assert room == before
        assert places == scanned_places(claim, pool, before)
        assert pods_that_fit(claim, pool, room) == len(scanned(claim, pool, before))
        assert largest_pod(pool, room) == largest_pod(pool, Room(before))
        if places is not None:
            running.append(occupied(claim, pool, places))
            room.add(running[-1], -1)
        if running and chance.random() < 0.4:
            room.add(running.pop(chance.randrange(len(running))))


def test_room_that_is_lent_for_a_while_is_returned() -> None:
    room = Room({("pool", "gpu"): 1, ("card", "gpu", "n1", 0): 1})  # type: ignore[dict-item]
    with room.also([{("card", "gpu", "n1", 0): 1}, {("card", "gpu", "lost", 0): 1}]):  # type: ignore[dict-item]
        assert room["card", "gpu", "n1", 0] == 2
    assert room["card", "gpu", "n1", 0] == 1


def test_what_two_rooms_have_in_common_follows_both() -> None:
    """Also while something is lent to one of them, and when that is over."""
    card, pool = ("card", "p", "n1", 0), ("pool", "p")
    now, later = Room({card: 4, pool: 8}), Room({card: 4, pool: 8})
    common = Common(now, later)
    now.add({card: 3, pool: 3}, -1)
    later.add({card: 2, pool: 2, ("card", "p", "gone", 0): 1}, -1)
    assert common.as_they_are() == {card: 1, pool: 5}
    with later.also([{card: 2, pool: 2}], -1):
        assert common.as_they_are() == {card: 0, pool: 4}
    with later.also([{card: 2, pool: 2}]):
        assert common.as_they_are() == {card: 1, pool: 5}
    now.add({card: 3, pool: 3})
    assert common.as_they_are() == later == {card: 2, pool: 6}
