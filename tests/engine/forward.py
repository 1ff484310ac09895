"""Plays snapshots forward: a plan is carried out, its victims leave and are queued again, and the next plan is made; nothing
else changes. Also generates the crowded pools that are played."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

from quotas.engine.placement import Room, Space, find_places
from quotas.engine.planning_pass import decide
from quotas.engine.types import (
    BorrowPreempt,
    Claim,
    ClaimId,
    ClaimState,
    Department,
    DepartmentId,
    Policy,
    Pool,
    PoolId,
    Quota,
    Settings,
    Snapshot,
)
from tests.engine.builders import carried_out, nodes

GPU = PoolId("gpu")
LONG = 100_000
"""Seconds after which every minimum runtime in these pools is over and every waiting borrower is starved."""


@dataclass(frozen=True)
class Played:
    """The outcome: the `last` state, how often each claim was preempted (`stopped`), and whether the pool came to rest
    (`settled`)."""

    last: Snapshot
    stopped: Counter[ClaimId]
    passes: int
    settled: bool


def played(snapshot: Snapshot, most: int) -> Played:
    """Plan and carry out until two passes in a row, the second one much later, change nothing; at most `most` passes."""
    stopped: Counter[ClaimId] = Counter()
    quiet = passes = 0
    while quiet < 2 and passes < most:
        plan = decide(snapshot)
        passes += 1
        stopped.update(victim for decision in plan.decisions for victim in decision.victims)
        claims = _queued_again(carried_out(snapshot, plan).claims, snapshot.now + 60)
        quiet = quiet + 1 if _standing(claims) == _standing(snapshot.claims) else 0
        snapshot = replace(snapshot, claims=claims, now=snapshot.now + (LONG if quiet else 60))
    return Played(snapshot, stopped, passes, quiet == 2)


def _queued_again(claims: Iterable[Claim], now: int) -> tuple[Claim, ...]:
    """Preempted claims have gone and are queued again with their original time in the queue (rule 19)."""
    return tuple(
        replace(
            claim, state=ClaimState.PENDING, started_at=None, leave_by=None, preempted_for=None, placement=None, queued_at=now
        )
        if claim.state is ClaimState.LEAVING
        else claim
        for claim in claims
    )  # fmt: skip


def _standing(claims: Iterable[Claim]) -> dict[ClaimId, object]:
    return {claim.id: (claim.state, claim.reserved, claim.placement) for claim in claims}


@dataclass(frozen=True)
class World:
    """The kind of a generated pool."""

    fair: bool
    nested: bool
    placed: bool


def a_crowd(seed: int, world: World) -> Snapshot:
    """A pool with more demand than capacity: departments of mixed weights, limits and policies, claims of mixed sizes and
    priorities."""
    chance = Random(f"{seed} {world}")
    tenants = _tenants(chance, world.nested)
    promised = sum(department.quotas[GPU].guaranteed for department in tenants)
    capacity = max(promised, chance.randint(6, 14))
    pool = Pool(GPU, nodes=nodes(*_machines(chance, capacity))) if world.placed else Pool(GPU, capacity=capacity)
    leaves = [d.id for d in tenants if all(other.parent != d.id for other in tenants)]
    claims = _holding(chance, pool, tenants, leaves, capacity)
    claims += [_pending(chance, n, leaves) for n in range(chance.randint(2, 8))]
    settings = Settings(fair_sharing=world.fair, restart_cost=chance.choice([0, 60]))
    return Snapshot(f"crowd {seed}", 0, (pool,), tenants, tuple(claims), settings)


def _machines(chance: Random, capacity: int) -> list[int]:
    size = chance.choice([2, 4, 8])
    return [size] * (capacity // size) + ([capacity % size] if capacity % size else [])


def _limit(chance: Random) -> int | None:
    return chance.choice([None] * 9 + [0, 1, 2, 4])


def _policy(chance: Random) -> Policy | None:
    if chance.random() < 0.4:
        return None
    return Policy(
        chance.choice(["never", "lower_priority", "lower_or_newer_equal"]),
        chance.choice(["any"] * 5 + ["lower_priority", "never"]),
        chance.choice([None, BorrowPreempt(), BorrowPreempt(0), BorrowPreempt(1)]),
    )


def _tenants(chance: Random, nested: bool) -> tuple[Department, ...]:
    inner: dict[str, str | None] = {}
    if nested:
        inner = {"x": None, "y": chance.choice(["x", None]), "z": chance.choice(["x", "y", None])}
    names = "abcdef"[: chance.choice([2, 2, 3, 3, 4, 6])]
    parents = {name: chance.choice([*inner, None]) if inner else None for name in names} | inner
    return tuple(
        Department(
            DepartmentId(name),
            None if parent is None else DepartmentId(parent),
            chance.choice([1, 1, 1, 1, 2, 3, Fraction(1, 2), 0]),
            {GPU: Quota(chance.choice([0, 0, 0, 1, 2, 3, 4, 6]) if name in names else chance.choice([0, 0, 2]),
                        _limit(chance), _limit(chance))},
            _policy(chance),
        )
        for name, parent in parents.items()
    )  # fmt: skip


def _size(chance: Random) -> int:
    return chance.choice([1, 1, 2, 2, 3, 4, 5, 6])


def _holding(
    chance: Random, pool: Pool, tenants: tuple[Department, ...], leaves: list[DepartmentId], capacity: int
) -> list[Claim]:
    """Holding claims that could all have started in the pool, one after the other."""
    room, left, claims = Room(Space((pool,), tenants)), capacity, list[Claim]()
    for n in range(chance.randint(2, 12)):
        started = chance.randint(-900, 0)
        claim = Claim(
            ClaimId(f"h{n}"), chance.choice(leaves), GPU, _size(chance), ClaimState.HOLDING,
            started - chance.randint(0, 50), started_at=started, priority=chance.choice([0, 0, 1, 2]),
            min_runtime=chance.choice([0, 0, 0, 0, 300]),
        )  # fmt: skip
        places = find_places(claim, pool, room) if pool.nodes is not None else ()
        if claim.units <= left and places is not None:
            left -= claim.units
            if pool.nodes is not None:
                room.add(room.space.taken(claim, places), -1)
            claims.append(replace(claim, placement=places or None))
    return claims


def _pending(chance: Random, n: int, leaves: list[DepartmentId]) -> Claim:
    return Claim(
        ClaimId(f"p{n}"), chance.choice(leaves), GPU, _size(chance), ClaimState.PENDING, chance.randint(-900, 0),
        priority=chance.choice([0, 0, 1, 2]), own_only=chance.random() < 0.1,
    )  # fmt: skip
