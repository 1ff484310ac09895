"""The made-up snapshots that several benchmarks use."""

import random
from dataclasses import replace
from typing import Any

from bench._openb import SHARES, machine_of
from bench._openb import nodes as openb_nodes
from quotas.engine.placement import Room, Space, find_places
from quotas.engine.types import (
    Claim,
    ClaimId,
    ClaimState,
    Department,
    DepartmentId,
    Node,
    Pool,
    PoolId,
    Quota,
    Settings,
    Snapshot,
)
from quotas.engine.units import capacity_of

GPU = PoolId("gpu")


SIZES = {1: 3, 2: 2, 4: 1, 8: 1}
"""For pools without nodes: cards that a claim requests → relative frequency."""


def a_snapshot(
    departments: int, running: int, pending: int, fair: bool = False, with_nodes: bool = False, lent: float = 0.7
) -> Snapshot:
    """A full pool: half of the departments borrow what the other half does not use, and all have pending claims. The part `lent`
    of the running claims belongs to that half, the rest to any department."""
    chance = random.Random(42)
    mix = SHARES if with_nodes else SIZES
    sizes = chance.choices(list(mix), list(mix.values()), k=running + pending)
    nodes = some_of(openb_nodes(), sum(sizes[:running])) if with_nodes else None
    pool = Pool(
        GPU, unit="milli" if nodes else "card", nodes=nodes, capacity=None if nodes else sum(sizes[:running]) * 51 // 50
    )
    capacity = capacity_of(pool, ())
    tenants = tuple(
        Department(DepartmentId(f"d{n:04}"), quotas={GPU: Quota(capacity // departments)}) for n in range(departments)
    )
    claims: list[Claim] = []
    room = Room(Space((pool,)))
    for n, units in enumerate(sizes):
        machine: dict[str, Any] = machine_of(units) if with_nodes else {}
        borrows = n < running and chance.random() < lent
        department = DepartmentId(f"d{chance.randrange(departments) // (2 if borrows else 1):04}")
        priority = chance.choice([0, 0, 1])
        if n >= running:
            asked_at = -chance.randrange(5000)
            claims.append(
                Claim(
                    ClaimId(f"p{n:05}"),
                    department,
                    GPU,
                    units,
                    ClaimState.PENDING,
                    asked_at,
                    priority=priority,
                    **machine,
                )
            )
            continue
        started = -chance.randrange(1, 90000)
        claim = Claim(ClaimId(f"h{n:05}"), department, GPU, units, ClaimState.HOLDING, started - 60, started_at=started,
                      priority=priority, **machine)  # fmt: skip
        places = find_places(claim, pool, room)
        if places is not None:
            room.add(room.space.taken(claim, places), -1)
            claims.append(replace(claim, placement=places or None))
    return Snapshot("bench", 0, (pool,), tenants, tuple(claims), Settings(fair_sharing=fair, notice=600, grace=120))


def in_groups(snapshot: Snapshot, size: int) -> Snapshot:
    """The same departments as teams, `size` to a department."""
    groups = [Department(DepartmentId(f"g{n}")) for n in range(-(-len(snapshot.departments) // size))]
    members = [replace(d, parent=groups[n // size].id) for n, d in enumerate(snapshot.departments)]
    return replace(snapshot, departments=(*groups, *members))


def some_of(nodes: tuple[Node, ...], units: int) -> tuple[Node, ...]:
    """Nodes of every kind, just enough to be nearly full with these units."""
    share = min(1.0, 1.08 * units / sum(card.units for node in nodes for card in node.cards))
    return tuple(node for index, node in enumerate(nodes) if int((index + 1) * share) > int(index * share))


def lent_out(candidates: int, preemptors: int) -> Snapshot:
    """Departments with 100 running claims each that borrow half of their units, and one department that lends all of these."""
    chance = random.Random(42)
    sizes = [chance.choice([1, 1, 1, 2, 2, 4, 8]) for _ in range(candidates)]
    owner = DepartmentId("owner")
    used: dict[DepartmentId, int] = {}
    claims: list[Claim] = []
    for n, units in enumerate(sizes):
        department = DepartmentId(f"d{n % max(1, candidates // 100):04}")
        used[department] = used.get(department, 0) + units
        started = -chance.randrange(1, 90000)
        claims.append(
            Claim(ClaimId(f"h{n:05}"), department, GPU, units, ClaimState.HOLDING, started - 60, started_at=started,
                  priority=chance.choice([0, 0, 1]))
        )  # fmt: skip
    claims += (Claim(ClaimId(f"p{n:02}"), owner, GPU, 1 + n % 16, ClaimState.PENDING, n) for n in range(preemptors))
    borrowers = [Department(name, quotas={GPU: Quota(units // 2)}) for name, units in used.items()]
    lent = sum(sizes) - sum(units // 2 for units in used.values())
    tenants = (Department(owner, quotas={GPU: Quota(lent)}), *borrowers)
    return Snapshot("bench", 0, (Pool(GPU, capacity=sum(sizes)),), tenants, tuple(claims), Settings())
