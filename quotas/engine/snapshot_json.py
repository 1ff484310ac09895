"""Readers of JSON values: each takes a value and its key, and gives the value checked or raises SnapshotError.

Snapshots and plans as JSON: one snapshot a line in, one plan a line out, strict about every key.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from fractions import Fraction
from functools import cache, partial
from typing import Any, TypeVar

from quotas.engine.mig_layouts import profile_of
from quotas.engine.reasons import REASONS, Machine, Move, Reason
from quotas.engine.types import (
    BorrowPreempt,
    Card,
    Claim,
    ClaimState,
    Decision,
    Department,
    Node,
    Placed,
    Plan,
    Policy,
    Pool,
    Quota,
    Reservation,
    Settings,
    Snapshot,
)
from quotas.engine.units import resized

T = TypeVar("T")
Json = dict[str, Any]
Reader = Callable[[object, str], Any]


class SnapshotError(ValueError):
    """A snapshot that cannot be read. `key` is the path of the offending value, e.g. `claims[3].units_per_pod`."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key


def shown(value: object) -> str:
    """The value in an error, short."""
    if isinstance(value, int) and abs(value) >= 10**SHOWN:
        return f"about 10^{int(value.bit_length() * 0.30103)}"
    written = repr(value)
    return written if len(written) <= SHOWN else written[:SHOWN] + "…"


SHOWN = 60
LARGEST = 2**53 - 1
"""Integers beyond this are not the same number to every reader of JSON."""

WEIGHT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,20})?|[0-9]{1,15}/[0-9]{1,15}")


def integer(least: int = -LARGEST, most: int = LARGEST) -> Reader:
    def read(value: object, key: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise SnapshotError(key, f"expected an integer, got {shown(value)}")
        if value < least:
            raise SnapshotError(key, f"expected at least {least}, got {shown(value)}")
        if value > most:
            raise SnapshotError(key, f"expected at most {most}, got {shown(value)}")
        return value

    return read


def weight(value: object, key: str) -> Fraction:
    """A weight is exact: 2, 0.5, "0.5" or "1/3"."""
    written = value if isinstance(value, str) else str(value) if type(value) in (int, float) else ""
    try:
        if WEIGHT.fullmatch(written):
            return Fraction(written)
    except ZeroDivisionError:
        pass
    raise SnapshotError(key, f"expected a number of at least 0, got {shown(value)}")


def text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise SnapshotError(key, f"expected a string, got {shown(value)}")
    return value


def name_(value: object, key: str) -> str:
    if not text(value, key):
        raise SnapshotError(key, "must not be empty")
    return str(value)


def flag(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise SnapshotError(key, f"expected true or false, got {shown(value)}")
    return value


def one_of(*words: str) -> Reader:
    def read(value: object, key: str) -> str:
        if value not in words:
            raise SnapshotError(key, f"expected one of {', '.join(words)}, got {shown(value)}")
        return str(value)

    return read


def items(read: Reader) -> Reader:
    def read_all(value: object, key: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise SnapshotError(key, f"expected a list, got {shown(value)}")
        return tuple(read(item, f"{key}[{index}]") for index, item in enumerate(value))

    return read_all


def mapping(read: Reader) -> Reader:
    def read_all(value: object, key: str) -> dict[str, Any]:
        return {name: read(item, f"{key}.{name}") for name, item in object_(value, key).items()}

    return read_all


def object_(value: object, key: str) -> Json:
    if not isinstance(value, dict):
        raise SnapshotError(key, f"expected an object, got {shown(value)}")
    return value


def record(kind: type[T], readers: Mapping[str, Reader], skip: frozenset[str] = frozenset()) -> Callable[..., T]:
    """A reader of `kind`: every key known, required ones present, null and absent keys at their default."""
    defaulted = {f.name for f in fields(kind) if f.default is not MISSING or f.default_factory is not MISSING}  # type: ignore[arg-type]
    required = [name for name in readers if name not in defaulted]

    def read(value: object, key: str) -> T:
        given = object_(value, key)
        prefix = f"{key}." if key else ""
        for name in given:
            if name not in readers and name not in skip:
                raise SnapshotError(prefix + name, "unknown key")
        for name in required:
            if given.get(name) is None:
                raise SnapshotError(prefix + name, "missing")
        return kind(**{n: readers[n](v, prefix + n) for n, v in given.items() if v is not None and n not in skip})

    return read


ANNOTATIONS = frozenset({"kueue"})
"""Keys of a snapshot that note what another scheduler decided; they are skipped."""


MOST_PODS = 10_000
"""Of one claim."""
MOST_SLICES = 64
"""Of one card that MIG cuts; there is none with more than 8."""


# What a record consists of --------------------------------------------------------------------------------------------


def _state(value: object, key: str) -> ClaimState:
    return ClaimState(one_of(*ClaimState)(value, key))


_any = integer()
_count = integer(0)
_policy = record(
    Policy,
    {
        "within": one_of("never", "lower_priority", "lower_or_newer_equal"),
        "reclaim": one_of("never", "lower_priority", "any"),
        "borrow_preempt": record(BorrowPreempt, {"max_priority": _any}),
    },
)
_settings = record(
    Settings,
    {
        "fair_sharing": flag,
        "starvation_after": _count,
        "restart_cost": _count,
        "notice": _count,
        "grace": _count,
        "policy": _policy,
    },
)
_card = record(Card, {"units": _count, "cores": _count, "outside": _count})
_node = record(
    Node,
    {
        "name": name_,
        "cards": items(_card),
        "instances": mapping(_count),
        "domain": text,
        "cpu_milli": _count,
        "memory_mib": _count,
        "pods": _count,
        "devices": mapping(_count),
    },
)
_pool = record(
    Pool,
    {
        "id": name_,
        "unit": name_,
        "nodes": items(_node),
        "capacity": _count,
        "nominal": _count,
        "units_per_card": integer(1),
        "cpu_per_card": _count,
        "memory_per_card": _count,
        "cores_per_card": integer(1),
        "mig": text,
        "cluster_unreachable_since": _any,
        "policy": _policy,
        "notice": _count,
        "grace": _count,
    },
)
_quota = record(
    Quota,
    {
        "guaranteed": _count,
        "borrow_limit": _count,
        "lend_limit": _count,
        "lend_limit_most": _count,
        "policy": _policy,
    },
)
_department = record(
    Department,
    {
        "id": name_,
        "parent": text,
        "weight": weight,
        "quotas": mapping(_quota),
        "policy": _policy,
        "paused": flag,
        "user_caps": mapping(_count),
    },
)
_placed = record(Placed, {"pod": _count, "node": text, "cards": items(_count), "start": _count})
_reservation = record(Reservation, {"units": _count, "places": items(_placed)})
_claim = record(
    Claim,
    {
        "id": name_,
        "department": text,
        "pool": text,
        "units_per_pod": _count,
        "state": _state,
        "submitted_at": _any,
        "pods": integer(0, MOST_PODS),
        "user": text,
        "priority": _any,
        "queued_at": _any,
        "started_at": _any,
        "checkpointed_at": _any,
        "min_runtime": _count,
        "max_runtime": _count,
        "preemptible": flag,
        "own_only": flag,
        "cores_per_pod": _count,
        "asked_per_pod": _count,
        "profile": text,
        "same_domain": flag,
        "cpu_milli": _count,
        "memory_mib": _count,
        "devices": mapping(_count),
        "backoff_until": _any,
        "leave_by": _any,
        "held_for": text,
        "reserved": _reservation,
        "placement": items(_placed),
        "notice": _count,
        "grace": _count,
    },
)
_snapshot = record(
    Snapshot,
    {
        "id": text,
        "now": _any,
        "settings": _settings,
        "pools": items(_pool),
        "departments": items(_department),
        "claims": items(lambda value, key: value),  # read below: a profile's charge needs its pool
    },
    skip=ANNOTATIONS,
)


# Reading --------------------------------------------------------------------------------------------------------------


def parse_snapshot(data: object, *, recorded: bool = False) -> Snapshot:
    """Read one snapshot; in one that was `recorded` each claim says what it was charged. Raises SnapshotError naming the
    key: unknown, missing, of the wrong kind or range, used twice, or pointing to a department or pool that is not there.
    """
    given = dict(object_(data, ""))
    claims = given.pop("claims", None)
    frame = _snapshot({**given, "claims": []}, "")
    pools = {pool.id: pool for pool in frame.pools}
    read = partial(claim_from_json, pools=pools, recorded=recorded)
    snapshot = Snapshot(
        id=frame.id,
        now=frame.now,
        pools=frame.pools,
        departments=frame.departments,
        claims=items(read)([] if claims is None else claims, "claims"),
        settings=frame.settings,
    )
    _check_references(snapshot)
    return snapshot


def _with_charge(value: object, key: str, pools: Mapping[Any, Pool]) -> Json:
    """A claim with a profile and no `units_per_pod` is charged the profile's slices (0 for an unknown one)."""
    claim = object_(value, key)
    if claim.get("units_per_pod") is not None or claim.get("profile") is None:
        return claim
    pool = pools.get(claim.get("pool"))
    profile = profile_of(pool.mig if pool else None, text(claim["profile"], f"{key}.profile"))
    return {**claim, "units_per_pod": profile.size if profile else 0}


def _check_references(snapshot: Snapshot) -> None:
    pools = _unique("pools", [pool.id for pool in snapshot.pools])
    departments = _unique("departments", [department.id for department in snapshot.departments])
    _unique("claims", [claim.id for claim in snapshot.claims])
    parents, rooted = {department.id: department.parent for department in snapshot.departments}, set[Any]()
    for index, department in enumerate(snapshot.departments):
        key = f"departments[{index}]"
        if department.parent is not None and department.parent not in departments:
            raise SnapshotError(f"{key}.parent", f"unknown department {department.parent!r}")
        _refuse_circle(department, parents, rooted, key)
        for name, by_pool in (("quotas", department.quotas), ("user_caps", department.user_caps)):
            for pool in by_pool:
                if pool not in pools:
                    raise SnapshotError(f"{key}.{name}.{pool}", f"unknown pool {pool!r}")
    for index, claim in enumerate(snapshot.claims):
        if claim.department not in departments:
            raise SnapshotError(f"claims[{index}].department", f"unknown department {claim.department!r}")
        if claim.pool not in pools:
            raise SnapshotError(f"claims[{index}].pool", f"unknown pool {claim.pool!r}")
    for index, pool_ in enumerate(snapshot.pools):
        _unique(f"pools[{index}].nodes", [node.name for node in pool_.nodes or ()])
        _refuse_endless_cards(pool_, f"pools[{index}]")


def _unique(key: str, names: list[Any]) -> set[Any]:
    seen: set[Any] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise SnapshotError(f"{key}[{index}]", f"{name!r} stands here twice")
        seen.add(name)
    return seen


def _refuse_circle(department: Department, parents: Mapping[Any, Any], rooted: set[Any], key: str) -> None:
    """`rooted` has those that are known to hang on the root."""
    above: set[Any] = set()
    one: Any = department.id
    while one is not None and one not in rooted:
        if one in above:
            raise SnapshotError(f"{key}.parent", f"{department.id!r} is below itself")
        above.add(one)
        one = parents.get(one)
    rooted |= above


def _refuse_endless_cards(pool: Pool, key: str) -> None:
    """Each slice of a card that MIG cuts is looked at by itself."""
    for number, node in enumerate(pool.nodes or () if pool.mig is not None else ()):
        for index, card in enumerate(node.cards):
            if card.units > MOST_SLICES:
                where = f"{key}.nodes[{number}].cards[{index}].units"
                raise SnapshotError(where, f"expected at most {MOST_SLICES} slices, got {shown(card.units)}")


# Writing --------------------------------------------------------------------------------------------------------------


def snapshot_to_json(snapshot: Snapshot) -> Json:
    """The snapshot as JSON values, absent keys left out; parse_snapshot gives the same snapshot back."""
    return record_to_json(snapshot)


def plan_to_json(plan: Plan) -> Json:
    """The plan as JSON values, every key of every decision present."""
    return {
        "id": plan.id,
        "decisions": [decision_to_json(decision) for decision in plan.decisions],
        "withdrawn": list(plan.withdrawn),
    }


def decision_to_json(decision: Decision) -> Json:
    """One decision as JSON values, every key present."""
    return {
        "claim": decision.claim,
        "decision": decision.decision.value,
        "own": decision.own,
        "borrowed": decision.borrowed,
        "from": dict(sorted(decision.from_.items())),
        "placement": None if decision.placement is None else [record_to_json(placed) for placed in decision.placement],
        "victims": list(decision.victims),
        "waiting_on": list(decision.waiting_on),
        "by": decision.by,
        "reasons": [reason_to_json(reason) for reason in decision.reasons],
        "position": decision.position,
        "ahead": list(decision.ahead),
        "largest": decision.largest,
    }


def reason_to_json(reason: Reason) -> Json:
    """A reason as {"code": …, and its numbers}; what nobody looked for is left out."""
    values = {f.name: getattr(reason, f.name) for f in fields(reason)}
    return {"code": reason.code, **{name: _value(value) for name, value in values.items() if value is not None}}


def quota_from_json(data: object, key: str) -> Quota:
    """One quota alone. Raises SnapshotError."""
    quota: Quota = _quota(data, key)
    return quota


def claim_from_json(data: object, key: str, pools: Mapping[Any, Pool], *, recorded: bool = False) -> Claim:
    """One claim alone; with a profile it needs no `units_per_pod`. Without `asked_per_pod`, `units_per_pod` is what it
    asks of a card, and its charge is worked out, unless it was `recorded`. Raises SnapshotError."""
    claim: Claim = _claim(_with_charge(data, key, pools), key)
    more = claim.cores_per_pod or claim.cpu_milli or claim.memory_mib
    if claim.asked_per_pod is None and more and claim.pool in pools and not recorded:
        return resized(claim, claim.units_per_pod, pools[claim.pool])
    return claim


def policy_from_json(data: Json) -> Policy:
    """A policy alone, as it is kept with a quota, department or pool. Raises SnapshotError."""
    policy: Policy = _policy(data, "policy")
    return policy


def reason_from_json(data: Json) -> Reason:
    """The reason that reason_to_json wrote. Raises KeyError for a code this version does not know."""
    values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in data.items() if n != "code"}
    if "moves" in values:
        values["moves"] = tuple(Move(**{**move, "cards": tuple(move.get("cards", ()))}) for move in values["moves"])
    if "machine" in values:
        values["machine"] = Machine(**values["machine"])
    return REASONS[data["code"]](**values)


def record_to_json(record: Any) -> Json:
    """A frozen record as an object of what differs from the defaults (required fields always)."""
    result = {}
    for name, default in _defaults(type(record)):  # type: ignore[arg-type]
        value = getattr(record, name)
        if default is MISSING or value != default:
            result[name] = _value(value)
    return result


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    given = (f for f in fields(kind) if f.init)
    return tuple((f.name, f.default_factory() if f.default_factory is not MISSING else f.default) for f in given)


def _value(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return record_to_json(value)
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else str(value)
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _value(item) for name, item in value.items()}
    return value
