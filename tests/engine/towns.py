"""Snapshots of medium size, generated from a seed: up to fourteen departments and nodes, and claims of every kind.

Small generated snapshots (strategies.py) hardly ever have a claim that is reviewed because another one was; these do.
"""

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

from quotas.engine.placement import Room, Space, find_places
from quotas.engine.types import (
    BorrowPreempt,
    Card,
    Claim,
    ClaimState,
    Department,
    Node,
    Policy,
    Pool,
    Quota,
    Settings,
    Snapshot,
)
from quotas.engine.units import capacity_of
from tests.engine.strategies import MACHINES

GPU = "gpu"
KINDS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]] = MACHINES | {
    "cores": (
        {"unit": "MiB", "units_per_card": 8},
        [{"cards": (Card(8, 100),) * 4, "cpu_milli": 64}, {"cards": (Card(8, 100),) * 8, "cpu_milli": 96}],
        [
            {"units_per_pod": units, "cores_per_pod": cores, "cpu_milli": cpu}
            for units in (1, 2, 4, 8, 16)
            for cores in (None, 30, 60)
            for cpu in (2, 8)
        ],
    ),
    "eight": (
        {"unit": "milli", "units_per_card": 8},
        [
            {"cards": (Card(8),) * 8, "cpu_milli": 96},
            {"cards": (Card(8),) * 2, "cpu_milli": 32},
            {"cards": (Card(8),) * 4, "cpu_milli": 32, "memory_mib": 64},
        ],
        [
            {"units_per_pod": units, "cpu_milli": cpu, "memory_mib": cpu}
            for units in (1, 2, 3, 4, 6, 8, 16, 32, 64)
            for cpu in (1, 4, 12)
        ],
    ),
    "whole8": (
        {},
        [{"cards": (Card(1),) * 8, "cpu_milli": 96}, {"cards": (Card(1),) * 4}],
        [{"units_per_pod": units, "cpu_milli": cpu} for units in (1, 1, 2, 4, 8) for cpu in (1, 8)],
    ),
    "free mig": (
        {"unit": "slice", "units_per_card": 7, "mig": "A100-80GB"},
        [{"cards": (Card(8),) * 2}, {"cards": (Card(8),) * 4}],
        [
            {"units_per_pod": units, "profile": profile}
            for units, profile in ((1, "1g.10gb"), (2, "2g.20gb"), (4, "3g.40gb"), (4, "4g.40gb"))
        ],
    ),
}


def a_town(seed: int) -> Snapshot:
    chance = Random(seed)
    more, kinds, asks = KINDS[chance.choice(sorted(KINDS))]
    machines = tuple(
        Node(f"n{i}", domain=chance.choice([None, "r1", "r2"]), **chance.choice(kinds))
        for i in range(chance.randint(3, 14))
    )
    pool = Pool(GPU, nodes=machines, **more)  # type: ignore[arg-type]
    capacity, many = capacity_of(pool, ()), chance.randint(3, 14)
    nested, fair = chance.random() < 0.25, chance.random() < 0.25
    tenants = _departments(chance, capacity, many, nested)
    claims = _held(chance, pool, tenants, many, asks)
    claims += [_asked(chance, n, many, asks) for n in range(chance.randint(5, 60))]
    settings = Settings(fair_sharing=fair, notice=600, grace=120, restart_cost=chance.choice([0, 300]))
    return Snapshot(f"town {seed}", 0, (pool,), tenants, tuple(claims), settings)


def with_checkpoints(town: Snapshot) -> Snapshot:
    """The same town, where some of the running claims have saved checkpoints: once, regularly, or no longer."""
    chance, claims = Random(town.id), list[Claim]()
    for claim in town.claims:
        if claim.started_at is not None and chance.random() < 0.4:
            saved, every = -chance.randrange(1 - claim.started_at), chance.choice([None, 600, 7200])
            claim = replace(claim, checkpointed_at=saved, checkpoint_every=every)
        claims.append(claim)
    return replace(town, claims=tuple(claims))


def _limit(chance: Random, part: int) -> int | None:
    return chance.choice([None] * 6 + [0, 2, part])


def _policy(chance: Random) -> Policy | None:
    if chance.random() < 0.6:
        return None
    return Policy(
        chance.choice(["never", "lower_priority", "lower_or_newer_equal"]),
        chance.choice(["any", "any", "lower_priority", "never"]),
        chance.choice([None, None, BorrowPreempt(), BorrowPreempt(0)]),
    )


def _departments(chance: Random, capacity: int, many: int, nested: bool) -> tuple[Department, ...]:
    part, tenants = capacity // many, []
    for i in range(many):
        parent, weight = f"g{i % 3}" if nested and i % 4 else None, chance.choice([1, 1, 2, Fraction(1, 2)])
        promised = part if nested else chance.choice([part, part, 2 * capacity // many, 0])
        quota = Quota(promised, _limit(chance, part), _limit(chance, part))
        tenants.append(Department(f"d{i}", parent, weight, {GPU: quota}, _policy(chance)))  # type: ignore[arg-type, dict-item]
    if nested:
        groups = [Quota(0, _limit(chance, part), _limit(chance, part)) for _ in range(3)]
        tenants += [Department(f"g{i}", quotas={GPU: quota}) for i, quota in enumerate(groups)]  # type: ignore[arg-type, dict-item]
    return tuple(tenants)


def _held(
    chance: Random, pool: Pool, tenants: tuple[Department, ...], many: int, asks: list[dict[str, Any]]
) -> list[Claim]:
    room, claims = Room(Space((pool,), tenants)), []
    for n in range(chance.randint(10, 80)):
        owner = chance.randrange(many)
        owner = owner // 2 if chance.random() < 0.7 else owner
        started = -chance.randrange(1, 90000)
        claim = Claim(
            f"h{n:03}", f"d{owner}", GPU, state=ClaimState.HOLDING, submitted_at=started - 60, started_at=started,  # type: ignore[arg-type]
            priority=chance.choice([0, 0, 1, 2]), preemptible=chance.random() < 0.9,
            min_runtime=chance.choice([0] * 5 + [50000]), max_runtime=chance.choice([None, None, 100000]),
            **chance.choice(asks),
        )  # fmt: skip
        places = find_places(claim, pool, room)
        if places is None:
            continue
        room.add(room.space.taken(claim, places), -1)
        claim = replace(claim, placement=places)
        if chance.random() < 0.08:
            claim = replace(claim, state=ClaimState.LEAVING, leave_by=chance.choice([0, 100, 600]))
        claims.append(claim)
    return claims


def _asked(chance: Random, n: int, many: int, asks: list[dict[str, Any]]) -> Claim:
    shape, pods = chance.choice(asks), 1
    if chance.random() < 0.12:
        pods = chance.choice([2, 3])
    return Claim(
        f"p{n:03}", f"d{chance.randrange(many)}", GPU, state=ClaimState.PENDING,  # type: ignore[arg-type]
        submitted_at=-chance.randrange(5000), priority=chance.choice([0, 0, 1, 2]), pods=pods,
        same_domain=pods > 1 and chance.random() < 0.5, own_only=chance.random() < 0.1,
        preemptible=chance.random() < 0.9, max_runtime=chance.choice([None, None, 1000]), **shape,
    )  # fmt: skip
