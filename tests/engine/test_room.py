"""What the placement remembers about free room changes no answer."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.placement import (
    NOWHERE,
    FreeNowAndLater,
    Host,
    Room,
    Row,
    Space,
    Trial,
    best_spot,
    find_places,
    largest_request,
    pods_that_fit,
)
from quotas.engine.types import Card, Claim, Node, Placed, Pool
from quotas.engine.units import resized
from tests.engine.builders import pending
from tests.engine.invariants import names

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
    """A pool with some nodes, and claims that are placed one after the other, often of the same shape."""
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


def scanned(claim: Claim, space: Space, hosts: list[Host], free: Row) -> list[Placed]:
    """The plain way: each pod at the best spot of all nodes, one after the other, as long as there is one."""
    room, places = Room(space, [*free]), []
    for pod in range(claim.pods):
        spot = best_spot(claim, hosts, room.row, pod)
        if spot is None:
            break
        places.append(spot.placed)
        room.add(space.taken(claim, (places[-1],), 0), -1)
    return places


def scanned_places(claim: Claim, space: Space, free: Row) -> tuple[Placed, ...] | None:
    """Places for all pods, or None; with one domain, the fullest domain that has room for all."""
    hosts = [*space.hosts[claim.pool].values()]
    if free[space.pool[claim.pool]] < claim.units:
        return None
    if not claim.same_domain:
        return _whole(scanned(claim, space, hosts, free), claim)
    by_domain = []
    for domain in {host.domain for host in hosts if host.domain is not None}:
        part = [host for host in hosts if host.domain == domain]
        units = sum(_free_on(host, free) for host in part)
        by_domain.append((units, domain, _whole(scanned(claim, space, part, free), claim)))
    return next((places for _, _, places in sorted(by_domain, key=lambda entry: entry[:2]) if places), None)


def largest_tried(claim: Claim, pool: Pool, room: Room) -> int:
    """The plain way: the most pods of the claim, or the largest smaller pod, for which places are found."""
    free = max(0, room.row[room.space.pool[pool.id]])
    for pods in range(claim.pods, 0, -1):
        if find_places(replace(claim, pods=pods), pool, room, 0) is not None:
            return min(free, pods * claim.on_card)
    for units in range(claim.on_card - 1, 0, -1):
        if (pod := smaller(claim, units, pool)) is not None and find_places(pod, pool, room, 0) is not None:
            return min(free, units)
    return 0


def smaller(claim: Claim, units: int, pool: Pool) -> Claim | None:
    """One pod of the claim with fewer units, and as much of everything else for each; None if there is no such profile."""
    if pool.mig is not None and units not in PROFILES:
        return None
    whole = max(card.units for node in pool.nodes or () for card in node.cards)
    cores = claim.cores_per_pod and -(-claim.cores_per_pod * min(units, whole) // min(claim.on_card, whole))
    return replace(
        claim, pods=1, units_per_pod=units, asked_per_pod=None, cores_per_pod=cores,
        profile=PROFILES[units] if pool.mig else None, cpu_milli=-(-claim.cpu_milli * units // claim.on_card),
        memory_mib=-(-claim.memory_mib * units // claim.on_card),
    )  # fmt: skip


def _whole(places: list[Placed], claim: Claim) -> tuple[Placed, ...] | None:
    return tuple(places) if len(places) == claim.pods else None


def _free_on(host: Host, free: Row) -> int:
    sized = sum(int(name[0]) * free[slot] for name, slot in host.instances.items())
    return sized + sum(free[slot] for slot in host.cards) + sum(units for part in host.slices for units in free[part])


@settings(max_examples=60, deadline=None)
@given(pools(), st.randoms(use_true_random=False))
def test_places_are_those_that_a_scan_over_all_nodes_finds(case, chance) -> None:  # type: ignore[no-untyped-def]
    pool, claims = case
    space = Space((pool,))
    room, hosts = Room(space), [*space.hosts[pool.id].values()]
    running = []
    for claim in claims:
        before = [*room.row]
        places = find_places(claim, pool, room)
        assert room.row == before
        assert places == scanned_places(claim, space, before)
        if not claim.same_domain:
            assert pods_that_fit(claim, pool, room) == len(scanned(claim, space, hosts, before))
        if places is None:
            assert largest_request(claim, pool, room) == largest_tried(claim, pool, room)
        if places is not None:
            running.append(space.taken(claim, places))
            room.add(running[-1], -1)
        if running and chance.random() < 0.4:
            room.add(running.pop(chance.randrange(len(running))))


def a_space(cards: int, units: int) -> tuple[Space, int, int]:
    """A space with one node and one card; the slots of the card and of the pool."""
    pool = Pool("gpu", unit="MiB", nodes=(Node("n1", (Card(cards),)),))  # type: ignore[arg-type]
    space = Space((pool,))
    space.capacity[space.pool[pool.id]] = units
    return space, space.hosts[pool.id]["n1"].cards[0], space.pool[pool.id]


def test_room_is_restored_at_the_end_of_a_trial() -> None:
    space, card, pool = a_space(1, 1)
    room = Room(space)
    with Trial() as trial:
        trial.free(room, [{card: 1}, {card: 1, NOWHERE: 1}])
        assert room.row[card] == 3
    assert room.row == [0, *space.capacity[1:]]
    assert room.row[card] == room.row[pool] == 1


def test_free_now_and_later_follows_changes_of_both_rooms() -> None:
    """Also during a trial in one of them, and after it."""
    space, card, pool = a_space(4, 8)
    now, later = Room(space), Room(space)
    common = FreeNowAndLater(now, later)

    def shared() -> tuple[int, int]:
        row = common.refreshed().row
        return row[card], row[pool]

    now.add({card: 3, pool: 3}, -1)
    later.add({card: 2, pool: 2, NOWHERE: 1}, -1)
    assert shared() == (1, 5)
    with Trial() as trial:
        trial.take(later, [{card: 2, pool: 2}])
        assert shared() == (0, 4)
    with Trial() as trial:
        trial.free(later, [{card: 2, pool: 2}])
        assert shared() == (1, 5)
    now.add({card: 3, pool: 3})
    assert shared() == (2, 6)
    assert common.row == later.row


def test_lost_place_takes_and_frees_nothing() -> None:
    """A node or a card that does not exist, an instance or a slice that the geometry does not have."""
    lost = Node("n1", (Card(4),)), Node("n2", (Card(4),), instances={"1g.6gb": 4})
    pool = Pool("gpu", unit="slice", mig="A30", nodes=lost)  # type: ignore[arg-type]
    space = Space((pool,))
    for placed in (
        Placed(0, "gone", (0,), 0), Placed(0, "n1", (1,), 0), Placed(0, "n1", (0,), 3), Placed(0, "n2", (0,), 0), Placed(0, "n2"),
    ):  # fmt: skip
        vector = space.taken(pending("c", "a", 2, profile="2g.12gb"), (placed,))
        assert vector[NOWHERE] > 0
        room = Room(space)
        room.add(vector)
        assert room.row[NOWHERE] == 0
    whole = Pool("gpu", unit="MiB", nodes=(Node("n1", (Card(4, 100),)),))  # type: ignore[arg-type]
    beyond = Space((whole,)).taken(pending("c", "a", 2, cores_per_pod=50), (Placed(0, "n1", (1,)),))
    assert beyond[NOWHERE] == 2


def test_every_slot_has_a_name() -> None:
    cut, fixed = Node("n1", (Card(2),), cpu_milli=8), Node("n2", (Card(2),), instances={"1g.6gb": 2}, memory_mib=8)
    pools = (
        Pool("a", unit="slice", mig="A30", nodes=(cut, fixed)),  # type: ignore[arg-type]
        Pool("b", unit="MiB", nodes=(Node("n1", (Card(8, 100), Card(8)), cpu_milli=8),)),  # type: ignore[arg-type]
    )
    space = Space(pools)
    called = names(space)
    assert sorted(called) == [*range(len(space.capacity))]
    assert sorted(called.values()) == sorted([
        "a lost place", "pool/a", "pool/b", "cpu/n1", "memory/n2", "media/a/n1/0", "slice/a/n1/0/0", "slice/a/n1/0/1",
        "instance/a/n2/1g.6gb", "card/b/n1/0", "card/b/n1/1", "cores/b/n1/0",
    ])  # fmt: skip
    assert len({space.at[slot] for slot, name in called.items() if "n1" in name}) == 1, "one node is in both pools"


def test_empty_cards_that_lack_compute_are_not_given_as_whole_cards() -> None:
    pool = Pool("gpu", unit="percent", nodes=(Node("n1", (Card(100, 100), Card(100, 30))),))  # type: ignore[arg-type]
    room = Room(Space((pool,)))
    assert find_places(pending("c", "a", 200, cores_per_pod=60), pool, room) is None
    assert find_places(pending("c", "a", 200, cores_per_pod=30), pool, room) == (Placed(0, "n1", (0, 1)),)
