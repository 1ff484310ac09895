"""Hypothesis strategies for snapshots: small numbers, so that limits, ties and fragments happen often."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from quotas.engine.placement import Room, Space, find_places
from quotas.engine.types import (
    BorrowPreempt,
    Card,
    Claim,
    ClaimState,
    Department,
    Node,
    Placed,
    Policy,
    Pool,
    Quota,
    Settings,
    Snapshot,
)
from quotas.engine.units import capacity_of
from tests.engine.builders import nodes

SIZES = st.sampled_from([1, 1, 2, 2, 3, 4])
limits = st.one_of(st.none(), st.integers(0, 6))
policies = st.builds(
    Policy,
    within=st.sampled_from(["never", "lower_priority", "lower_or_newer_equal"]),
    reclaim=st.sampled_from(["any", "any", "lower_priority", "never"]),
    borrow_preempt=st.one_of(st.none(), st.builds(BorrowPreempt, st.one_of(st.none(), st.integers(0, 2)))),
)


@st.composite
def departments(draw: st.DrawFn, nested: bool = False) -> tuple[Department, ...]:
    count = draw(st.integers(2, 4))
    names = "abcd"[:count]
    quotas = [Quota(draw(st.integers(0, 6)), draw(limits), draw(limits)) for _ in names]
    tenants = [
        Department(
            name,
            parent=draw(st.sampled_from(["x", "y", None])) if nested else None,
            weight=draw(st.integers(1, 3)),
            quotas={"gpu": quota},
            policy=draw(policies),
        )
        for name, quota in zip(names, quotas, strict=True)
    ]
    if nested:
        inner = Quota(draw(st.integers(0, 3)), draw(limits), draw(limits))
        tenants += [Department("x", quotas={"gpu": inner}), Department("y", parent="x", quotas={"gpu": Quota()})]
    return tuple(tenants)


@st.composite
def snapshots(
    draw: st.DrawFn, *, fair: bool | None = None, nested: bool = False, placed: bool = False, preemptors: int = 4
) -> Snapshot:
    """A pool with holding claims that fit into it, and some pending claims."""
    tenants = draw(departments(nested))
    promised = sum(department.quotas["gpu"].guaranteed for department in tenants)
    rest = draw(st.integers(-1, 4))
    capacity = max(0, promised + rest)
    pool = Pool("gpu", nodes=nodes(*_split(capacity, draw))) if placed else Pool("gpu", capacity=capacity)
    claims = _holding(draw, tenants, pool, capacity)
    leaves = [d.id for d in tenants if all(other.parent != d.id for other in tenants)]
    claims += [
        Claim(
            f"p{n}",
            draw(st.sampled_from(leaves)),
            "gpu",
            draw(SIZES),
            ClaimState.PENDING,
            draw(st.integers(-1000, 0)),
            pods=draw(st.sampled_from([1, 1, 1, 2, 0])),
            priority=draw(st.integers(0, 2)),
            max_runtime=draw(st.sampled_from([None, 50, 5000])),
            own_only=draw(st.sampled_from([False, False, True])),
            preemptible=draw(st.sampled_from([True, True, False])),
        )
        for n in range(draw(st.integers(1, preemptors)))
    ]
    fair = draw(st.booleans()) if fair is None else fair
    return Snapshot("case", 0, (pool,), tenants, tuple(claims), Settings(fair_sharing=fair, notice=60, grace=10))


@st.composite
def balanced(draw: st.DrawFn, kinds: st.SearchStrategy[Snapshot]) -> Snapshot:
    """The same pool with balances (fairness over time) of its departments: small ones, so that ties happen, and large ones."""
    snapshot = draw(kinds)
    amounts = st.sampled_from([0, 0, 1000, -1000, 500, -2500]) | st.integers(-(10**6), 10**6)
    balances = draw(st.dictionaries(st.sampled_from([each.id for each in snapshot.departments]), amounts))
    return replace(snapshot, pools=tuple(replace(pool, balances=balances) for pool in snapshot.pools))


def _split(capacity: int, draw: st.DrawFn) -> list[int]:
    size = draw(st.sampled_from([2, 4, 8]))
    return [size] * (capacity // size) + ([capacity % size] if capacity % size else [])


def checkpoints(started: int) -> st.SearchStrategy[tuple[int | None, int | None]]:
    """When a claim that started then saved its last checkpoint, and how often it saves: never, once, or regularly until now
    or until some time ago."""
    saved = st.integers(started, 0)
    return st.just((None, None)) | st.tuples(saved, st.none()) | st.tuples(saved, st.integers(1, 120))


def _holding(draw: st.DrawFn, tenants: tuple[Department, ...], pool: Pool, capacity: int) -> list[Claim]:
    free = {node.name: list(range(len(node.cards))) for node in pool.nodes or ()}
    leaves = [d.id for d in tenants if all(other.parent != d.id for other in tenants)]
    claims: list[Claim] = []
    for n in range(draw(st.integers(0, 10))):
        units = draw(SIZES)
        node = next((name for name, cards in free.items() if len(cards) >= units), None)
        if units > capacity or (pool.nodes is not None and node is None):
            continue
        capacity -= units
        places = None
        if node is not None:
            places = (Placed(0, node, tuple(free[node].pop(0) for _ in range(units))),)
        started = draw(st.integers(-900, 0))
        saved, every = draw(checkpoints(started))
        claims.append(
            Claim(
                f"h{n}",
                draw(st.sampled_from(leaves)),
                "gpu",
                units,
                ClaimState.HOLDING,
                started - draw(st.integers(0, 50)),
                started_at=started,
                idle_since=draw(st.sampled_from([None, None, None, -1])),
                checkpointed_at=saved,
                checkpoint_every=every,
                priority=draw(st.integers(0, 2)),
                preemptible=draw(st.sampled_from([True, True, True, False])),
                min_runtime=draw(st.sampled_from([0, 0, 0, 100])),
                max_runtime=draw(st.sampled_from([None, None, 2000])),
                placement=places,
            )
        )
    return claims


@st.composite
def reclaims(draw: st.DrawFn, *, fair: bool = False, nested: bool = False, candidates: int = 9) -> Snapshot:
    """A full pool without nodes, and one claim that needs several victims: of others, of its own department, or of both.
    Nested, the departments form a tree up to four deep."""
    inner = {"x": None, "y": draw(st.sampled_from(["x", None])), "z": draw(st.sampled_from("xy"))} if nested else {}
    tenants = [
        Department(
            name,
            parent=draw(st.sampled_from([*inner, None])) if inner else None,
            weight=draw(st.sampled_from([1, 1, 2, 3, 0, Fraction(1, 2)])),
            quotas={"gpu": Quota(draw(st.integers(*bounds)), draw(limits), draw(limits))},
            policy=draw(policies),
        )
        for name, bounds in (("t", (2, 9)), ("b", (0, 3)), ("c", (0, 3)), ("d", (0, 3)))
    ]
    tenants += [
        Department(
            name,
            parent=parent,
            weight=draw(st.integers(1, 3)),
            quotas={"gpu": Quota(draw(st.integers(0, 3)), draw(limits), draw(limits))},
        )
        for name, parent in inner.items()
    ]
    claims = []
    for n in range(draw(st.integers(3, candidates))):
        started = draw(st.integers(-20, 0))
        saved, every = draw(checkpoints(started))
        claims.append(
            Claim(
                f"h{n}",
                draw(st.sampled_from("tbbbccd")),
                "gpu",
                draw(SIZES),
                ClaimState.HOLDING,
                draw(st.integers(-20, 0)),
                started_at=started,
                checkpointed_at=saved,
                checkpoint_every=every,
                priority=draw(st.integers(0, 2)),
            )
        )
    preemptor = Claim(
        "p", "t", "gpu", draw(st.integers(2, 8)), ClaimState.PENDING, draw(st.integers(-20, 0)), priority=2
    )
    held = sum(claim.units for claim in claims)
    promised = sum(department.quotas["gpu"].guaranteed for department in tenants)
    pool = Pool("gpu", capacity=max(held, promised) + draw(st.integers(0, 1)))
    return Snapshot("case", 0, (pool,), tuple(tenants), (*claims, preemptor), Settings(fair_sharing=fair))


MACHINES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]] = {
    "whole cards": (
        {},
        [{"cards": (Card(1),) * 2}, {"cards": (Card(1),) * 4}],
        [{"units_per_pod": units} for units in (1, 1, 2, 4)],
    ),
    "shared cards": (
        {"unit": "MiB", "units_per_card": 8},
        [{"cards": (Card(8),)}, {"cards": (Card(8),) * 2}, {"cards": (Card(8),) * 3}],
        [{"units_per_pod": units} for units in (1, 2, 3, 4, 6, 8, 16)],
    ),
    "shared cards of small machines": (
        {"unit": "MiB", "units_per_card": 8},
        [{"cards": (Card(8),), "cpu_milli": 8}, {"cards": (Card(8),) * 2, "cpu_milli": 12, "memory_mib": 16}],
        [{"units_per_pod": units, "cpu_milli": cpu, "memory_mib": 8 - cpu} for units in (1, 3, 6, 8) for cpu in (1, 4)],
    ),
    "instances": (
        {"unit": "slice", "units_per_card": 7, "mig": "A100-80GB"},
        [{"cards": (Card(7),) * 2, "instances": {"3g.40gb": 2, "2g.20gb": 1, "1g.10gb": 2}}],
        [{"units_per_pod": units, "profile": name} for units, name in ((1, "1g.10gb"), (2, "2g.20gb"), (4, "3g.40gb"))],
    ),
}
"""For each kind of pool: the pool, its kinds of nodes, and the shapes of its claims."""
CROWDED = MACHINES | {
    "replicas on machines of few pods": (
        {"unit": "replica", "units_per_card": 4},
        [{"cards": (Card(4),) * 2, "pods": 3}, {"cards": (Card(4),), "pods": 2, "devices": {"rdma/hca": 2}}],
        [{"units_per_pod": units, "devices": devices} for units in (1, 2, 4) for devices in ({}, {"rdma/hca": 1})],
    ),
}
"""The same and more. The towns (towns.py) do not use them: a new kind would change what each seed generates."""


@st.composite
def crowded(draw: st.DrawFn) -> Snapshot:
    """A few nodes that several departments share, and one pending claim of a single pod."""
    more, kinds, asks = CROWDED[draw(st.sampled_from(sorted(CROWDED)))]
    some = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    machines = tuple(Node(f"n{n}", **kind) for n, kind in enumerate(some))
    pool = Pool("gpu", nodes=machines, **more)  # type: ignore[arg-type]
    capacity = capacity_of(pool, ())
    owned = draw(st.integers(capacity // 2, capacity))
    guarantees = owned, draw(st.integers(0, (capacity - owned) // 2)), 0
    tenants = tuple(
        Department(name, quotas={"gpu": Quota(units, draw(limits), draw(limits))}, policy=draw(policies))  # type: ignore[dict-item,arg-type]
        for name, units in zip("abc", guarantees, strict=True)
    )
    room, claims = Room(Space((pool,), tenants)), []
    for n in range(draw(st.integers(5, 9))):
        owner, started = draw(st.sampled_from("abbbccc")), draw(st.integers(-900, 0))
        claim = Claim(
            f"h{n}", owner, "gpu", state=ClaimState.HOLDING, submitted_at=started, started_at=started,  # type: ignore[arg-type]
            priority=draw(st.integers(0, 2)), preemptible=draw(st.sampled_from([True, True, True, False])),
            **draw(st.sampled_from(asks)),
        )  # fmt: skip
        places = find_places(claim, pool, room)
        if places is not None:
            room.add(room.space.taken(claim, places), -1)
            claims.append(replace(claim, placement=places))
    preemptor = Claim(
        "w", "a", "gpu", state=ClaimState.PENDING, submitted_at=draw(st.integers(-900, 0)),  # type: ignore[arg-type]
        priority=draw(st.integers(0, 2)), own_only=draw(st.booleans()), **draw(st.sampled_from(asks)),
    )  # fmt: skip
    return Snapshot("case", 0, (pool,), tenants, (*claims, preemptor), Settings(notice=60, grace=10))


@st.composite
def gangs(draw: st.DrawFn) -> Snapshot:
    """Nodes of four cards full of borrowers, and a gang of two or three pods inside its guarantee."""
    policy = Policy(within="lower_priority")
    tenants = (Department("t", quotas={"gpu": Quota(12)}, policy=policy), Department("b", quotas={"gpu": Quota()}))
    count = draw(st.integers(2, 4))
    free = {node.name: list(range(4)) for node in nodes(*[4] * count)}
    claims = []
    for n in range(draw(st.integers(count, 3 * count))):
        units = draw(st.sampled_from([1, 2, 4]))
        node = draw(st.sampled_from(sorted(free)))
        if len(free[node]) < units:
            continue
        places = (Placed(0, node, tuple(free[node].pop(0) for _ in range(units))),)
        owner, started = draw(st.sampled_from("bbbt")), draw(st.integers(-900, 0))
        more = {"started_at": started, "priority": draw(st.integers(0, 2)), "placement": places}
        claims.append(Claim(f"h{n}", owner, "gpu", units, ClaimState.HOLDING, started, **more))  # type: ignore[arg-type]
    units, pods = draw(st.sampled_from([(1, 3), (2, 2), (2, 3), (4, 2), (3, 2)]))
    preemptor = Claim("p", "t", "gpu", units, ClaimState.PENDING, 0, pods=pods, priority=2)  # type: ignore[arg-type]
    return Snapshot("case", 0, (Pool("gpu", nodes=nodes(*[4] * count)),), tenants, (*claims, preemptor), Settings())  # type: ignore[arg-type]
