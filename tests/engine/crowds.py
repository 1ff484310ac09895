"""Crowded nodes, generated from a seed: more candidates than the exact search tries, and one claim inside its guarantee whose
pods mostly find places only if several claims are preempted."""

from dataclasses import replace
from random import Random
from typing import Any

from quotas.engine.placement import Room, Space, find_places
from quotas.engine.types import Card, Claim, ClaimState, Department, Node, Policy, Pool, Quota, Settings, Snapshot
from quotas.engine.units import capacity_of

Shapes = list[dict[str, Any]]


def _shapes(*units: int) -> Shapes:
    return [{"units_per_pod": each} for each in units]


def _with_machine(*each: tuple[int, int, int]) -> Shapes:
    return [{"units_per_pod": units, "cpu_milli": cpu, "memory_mib": memory} for units, cpu, memory in each]


def _with_compute(*each: tuple[int, int]) -> Shapes:
    return [{"units_per_pod": units, "cores_per_pod": cores} for units, cores in each]


def _profiles(*names: str) -> Shapes:
    sizes = {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 4, "4g.40gb": 4}
    return [{"units_per_pod": sizes[name], "profile": name} for name in names]


SHARED: dict[str, Any] = {"unit": "MiB", "units_per_card": 8}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], Shapes, Shapes]] = {
    "cards": ({}, {"cards": (Card(1),) * 8}, _shapes(1, 1, 2, 4), _shapes(2, 3, 4, 8)),
    "one-card jobs": ({}, {"cards": (Card(1),) * 8}, _shapes(1), _shapes(5, 8)),
    "small nodes": ({}, {"cards": (Card(1),) * 4}, _shapes(1, 1, 2), _shapes(2, 3, 4)),
    "cards and CPU": (
        {},
        {"cards": (Card(1),) * 4, "cpu_milli": 16, "memory_mib": 32},
        _with_machine((1, 1, 2), (1, 7, 1), (2, 3, 20), (1, 2, 9)),
        _with_machine((1, 8, 8), (2, 10, 8), (3, 14, 8)),
    ),
    "cards and pods": ({}, {"cards": (Card(1),) * 8, "pods": 6}, _shapes(1, 1, 2), _shapes(1, 2, 4)),
    "shared memory": (SHARED, {"cards": (Card(8),) * 2}, _shapes(1, 2, 3, 5, 8), _shapes(4, 7, 8, 16)),
    "memory and compute": (
        SHARED,
        {"cards": (Card(8, 100),) * 2},
        _with_compute((4, 10), (4, 50), (6, 70), (3, 30)),
        _with_compute((5, 60), (8, 80), (4, 50)),
    ),
    "MIG": (
        {"unit": "slice", "units_per_card": 8, "mig": "A100-80GB"},
        {"cards": (Card(8),) * 2},
        _profiles("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"),
        _profiles("2g.20gb", "3g.40gb", "4g.40gb"),
    ),
}
"""For each kind of pool: the pool, its nodes, the shapes of holding claims, and those of the preemptor's pods."""


def a_crowd(seed: int) -> Snapshot:
    """Claim `p` of department `t` is pending and inside its guarantee; the other claims borrow or are within their
    guarantees. Some snapshots have a tree that is equivalent to a flat pool: each department is the only child of a parent
    that has no guarantee of its own."""
    chance = Random(seed)
    more, kind, asks, wants = KINDS[chance.choice(sorted(KINDS))]
    many = chance.randint(3, 5)
    racks = chance.choice([0, 0, 1, 2])
    machines = tuple(Node(f"n{n}", domain=f"r{n % racks}" if racks else None, **kind) for n in range(many))
    pool = Pool("gpu", nodes=machines, **more)  # type: ignore[arg-type]
    owners = chance.choice([["u"], ["u", "u", "v"], ["u", "v", "w"], ["u", "u", "u", "v", "t"]])
    claims = _held(chance, pool, owners, asks)
    claims.append(_preemptor(chance, wants, many, bool(racks)))
    departments, fair = _departments(chance, pool, claims), chance.random() < 0.3
    if chance.random() < 0.25:
        parents = [Department(f"of {department.id}", quotas={"gpu": Quota()}) for department in departments]  # type: ignore[arg-type, dict-item]
        departments = (*(replace(d, parent=p.id) for d, p in zip(departments, parents, strict=True)), *parents)
    return Snapshot(f"crowd {seed}", 0, (pool,), departments, tuple(claims), Settings(fair_sharing=fair))


def _held(chance: Random, pool: Pool, owners: list[str], asks: Shapes) -> list[Claim]:
    room, claims = Room(Space((pool,))), list[Claim]()
    full = chance.choice([0.8, 1, 1, 1])
    for n in range(200):
        started = -chance.randrange(1, 90000)
        claim = Claim(
            f"h{n:03}", chance.choice(owners), "gpu", state=ClaimState.HOLDING, submitted_at=started, started_at=started,  # type: ignore[arg-type]
            priority=chance.choice([0, 0, 0, 1]), preemptible=chance.random() < 0.95,
            pods=2 if chance.random() < 0.06 else 1, **chance.choice(asks),
        )  # fmt: skip
        places = find_places(claim, pool, room)
        if places is not None and sum(c.units for c in claims) + claim.units <= full * capacity_of(pool, ()):
            room.add(room.space.taken(claim, places), -1)
            claims.append(replace(claim, placement=places))
    return claims


def _preemptor(chance: Random, wants: Shapes, nodes: int, racks: bool) -> Claim:
    pods = chance.choice([1, 2, 2, 2, 3])
    return Claim(
        "p", "t", "gpu", state=ClaimState.PENDING, submitted_at=0, pods=pods, priority=1,  # type: ignore[arg-type]
        same_domain=racks and chance.random() < 0.7, own_only=chance.random() < 0.2, **chance.choice(wants),
    )  # fmt: skip


def _departments(chance: Random, pool: Pool, claims: list[Claim]) -> tuple[Department, ...]:
    """The preemptor's department is guaranteed what it uses and requests; the others share the rest, which is often less than
    they use."""
    capacity = capacity_of(pool, ())

    def used(department: str) -> int:
        return sum(claim.units for claim in claims if claim.department == department)

    owned = min(capacity, used("t") + chance.choice([0, 0, 1, 4]))
    rest, promised = capacity - owned, {"t": owned}
    for department in "uvw":
        wished = chance.choice([used(department), used(department) - 1, used(department) // 2, rest // 2, 0])
        promised[department] = max(0, min(rest, wished))
        rest -= promised[department]
    policy = Policy(chance.choice(["never", "lower_priority"]), chance.choice(["any", "any", "any", "lower_priority"]))
    return tuple(
        Department(name, quotas={"gpu": Quota(units)}, policy=policy if name == "t" else None)  # type: ignore[arg-type, dict-item]
        for name, units in promised.items()
    )
