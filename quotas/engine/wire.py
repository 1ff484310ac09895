"""Snapshots and plans as JSON: one snapshot a line in, one plan a line out, strict about every key."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from fractions import Fraction
from typing import Any, TypeVar

from quotas.engine.mig import profile_of
from quotas.engine.reasons import REASONS, Reason
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

T = TypeVar("T")
Json = dict[str, Any]
Reader = Callable[[object, str], Any]

ANNOTATIONS = frozenset({"kueue"})
"""Keys of a snapshot that note what another scheduler decided; they are skipped."""


class SnapshotError(ValueError):
    """A snapshot that cannot be read. `key` is the path of the offending value, e.g. `claims[3].units_per_pod`."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key


# What a value must be -------------------------------------------------------------------------------------------------


def _integer(least: int | None = None) -> Reader:
    def read(value: object, key: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise SnapshotError(key, f"expected an integer, got {value!r}")
        if least is not None and value < least:
            raise SnapshotError(key, f"expected at least {least}, got {value}")
        return value

    return read


def _weight(value: object, key: str) -> Fraction:
    """A weight is exact: 2, 0.5, "0.5" or "1/3"."""
    try:
        weight = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise SnapshotError(key, f"expected a number, got {value!r}") from None
    if weight < 0:
        raise SnapshotError(key, f"expected at least 0, got {value}")
    return weight


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise SnapshotError(key, f"expected a string, got {value!r}")
    return value


def _name(value: object, key: str) -> str:
    if not _text(value, key):
        raise SnapshotError(key, "must not be empty")
    return str(value)


def _flag(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise SnapshotError(key, f"expected true or false, got {value!r}")
    return value


def _one_of(*words: str) -> Reader:
    def read(value: object, key: str) -> str:
        if value not in words:
            raise SnapshotError(key, f"expected one of {', '.join(words)}, got {value!r}")
        return str(value)

    return read


def _state(value: object, key: str) -> ClaimState:
    return ClaimState(_one_of(*ClaimState)(value, key))


def _items(read: Reader) -> Reader:
    def read_all(value: object, key: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise SnapshotError(key, f"expected a list, got {value!r}")
        return tuple(read(item, f"{key}[{index}]") for index, item in enumerate(value))

    return read_all


def _mapping(read: Reader) -> Reader:
    def read_all(value: object, key: str) -> dict[str, Any]:
        return {name: read(item, f"{key}.{name}") for name, item in _object(value, key).items()}

    return read_all


def _object(value: object, key: str) -> Json:
    if not isinstance(value, dict):
        raise SnapshotError(key, f"expected an object, got {value!r}")
    return value


def _record(kind: type[T], readers: Mapping[str, Reader], skip: frozenset[str] = frozenset()) -> Callable[..., T]:
    """A reader of `kind`: every key known, required ones present, null and absent keys at their default."""
    defaulted = {f.name for f in fields(kind) if f.default is not MISSING or f.default_factory is not MISSING}  # type: ignore[arg-type]
    required = [name for name in readers if name not in defaulted]

    def read(value: object, key: str) -> T:
        given = _object(value, key)
        prefix = f"{key}." if key else ""
        for name in given:
            if name not in readers and name not in skip:
                raise SnapshotError(prefix + name, "unknown key")
        for name in required:
            if given.get(name) is None:
                raise SnapshotError(prefix + name, "missing")
        return kind(**{n: readers[n](v, prefix + n) for n, v in given.items() if v is not None and n not in skip})

    return read


_any = _integer()
_count = _integer(0)
_policy = _record(
    Policy,
    {
        "within": _one_of("never", "lower_priority", "lower_or_newer_equal"),
        "reclaim": _one_of("never", "lower_priority", "any"),
        "borrow_preempt": _record(BorrowPreempt, {"max_priority": _any}),
    },
)
_settings = _record(
    Settings,
    {
        "fair_sharing": _flag,
        "starvation_after": _count,
        "restart_cost": _count,
        "notice": _count,
        "grace": _count,
        "policy": _policy,
    },
)
_card = _record(Card, {"units": _count, "cores": _count})
_node = _record(
    Node,
    {
        "name": _name,
        "cards": _items(_card),
        "instances": _mapping(_count),
        "domain": _text,
        "cpu_milli": _count,
        "memory_mib": _count,
    },
)
_pool = _record(
    Pool,
    {
        "id": _name,
        "unit": _name,
        "nodes": _items(_node),
        "capacity": _count,
        "nominal": _count,
        "units_per_card": _integer(1),
        "mig": _text,
        "cluster_unreachable_since": _any,
        "policy": _policy,
        "notice": _count,
        "grace": _count,
    },
)
_quota = _record(Quota, {"guaranteed": _count, "borrow_limit": _count, "lend_limit": _count, "policy": _policy})
_department = _record(
    Department,
    {
        "id": _name,
        "parent": _text,
        "weight": _weight,
        "quotas": _mapping(_quota),
        "policy": _policy,
        "paused": _flag,
        "user_caps": _mapping(_count),
    },
)
_placed = _record(Placed, {"pod": _count, "node": _text, "cards": _items(_count), "start": _count})
_reservation = _record(Reservation, {"units": _count, "places": _items(_placed)})
_claim = _record(
    Claim,
    {
        "id": _name,
        "department": _text,
        "pool": _text,
        "units_per_pod": _count,
        "state": _state,
        "submitted_at": _any,
        "pods": _count,
        "user": _text,
        "priority": _any,
        "queued_at": _any,
        "started_at": _any,
        "checkpointed_at": _any,
        "min_runtime": _count,
        "max_runtime": _count,
        "preemptible": _flag,
        "own_only": _flag,
        "cores_per_pod": _count,
        "profile": _text,
        "same_domain": _flag,
        "cpu_milli": _count,
        "memory_mib": _count,
        "backoff_until": _any,
        "leave_by": _any,
        "held_for": _text,
        "reserved": _reservation,
        "placement": _items(_placed),
        "notice": _count,
        "grace": _count,
    },
)
_snapshot = _record(
    Snapshot,
    {
        "id": _text,
        "now": _any,
        "settings": _settings,
        "pools": _items(_pool),
        "departments": _items(_department),
        "claims": _items(lambda value, key: value),  # read below: a profile's charge needs its pool
    },
    skip=ANNOTATIONS,
)


# Reading --------------------------------------------------------------------------------------------------------------


def parse_snapshot(data: object) -> Snapshot:
    """Read one snapshot. Raises SnapshotError naming the key: unknown, missing, of the wrong kind or range, used
    twice, or pointing to a department or pool that is not there."""
    given = dict(_object(data, ""))
    claims = given.pop("claims", None) or []
    frame = _snapshot({**given, "claims": []}, "")
    pools = {pool.id: pool for pool in frame.pools}
    snapshot = Snapshot(
        id=frame.id,
        now=frame.now,
        pools=frame.pools,
        departments=frame.departments,
        claims=_items(lambda value, key: _claim(_with_charge(value, key, pools), key))(claims, "claims"),
        settings=frame.settings,
    )
    _check_references(snapshot)
    return snapshot


def _with_charge(value: object, key: str, pools: Mapping[Any, Pool]) -> Json:
    """A claim with a profile and no `units_per_pod` is charged the profile's slices (0 for an unknown one)."""
    claim = _object(value, key)
    if claim.get("units_per_pod") is not None or claim.get("profile") is None:
        return claim
    pool = pools.get(claim.get("pool"))
    profile = profile_of(pool.mig if pool else None, _text(claim["profile"], f"{key}.profile"))
    return {**claim, "units_per_pod": profile.size if profile else 0}


def _check_references(snapshot: Snapshot) -> None:
    pools = _unique("pools", [pool.id for pool in snapshot.pools])
    departments = _unique("departments", [department.id for department in snapshot.departments])
    _unique("claims", [claim.id for claim in snapshot.claims])
    parents = {department.id: department.parent for department in snapshot.departments}
    for index, department in enumerate(snapshot.departments):
        key = f"departments[{index}]"
        if department.parent is not None and department.parent not in departments:
            raise SnapshotError(f"{key}.parent", f"unknown department {department.parent!r}")
        _refuse_circle(department, parents, key)
        for name, mapping in (("quotas", department.quotas), ("user_caps", department.user_caps)):
            for pool in mapping:
                if pool not in pools:
                    raise SnapshotError(f"{key}.{name}.{pool}", f"unknown pool {pool!r}")
    for index, claim in enumerate(snapshot.claims):
        if claim.department not in departments:
            raise SnapshotError(f"claims[{index}].department", f"unknown department {claim.department!r}")
        if claim.pool not in pools:
            raise SnapshotError(f"claims[{index}].pool", f"unknown pool {claim.pool!r}")
    for index, pool_ in enumerate(snapshot.pools):
        _unique(f"pools[{index}].nodes", [node.name for node in pool_.nodes or ()])


def _unique(key: str, names: list[Any]) -> set[Any]:
    seen: set[Any] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise SnapshotError(f"{key}[{index}]", f"{name!r} stands here twice")
        seen.add(name)
    return seen


def _refuse_circle(department: Department, parents: Mapping[Any, Any], key: str) -> None:
    above = department.parent
    for _ in range(len(parents)):
        if above is None:
            return
        above = parents.get(above)
    raise SnapshotError(f"{key}.parent", f"{department.id!r} is below itself")


# Writing --------------------------------------------------------------------------------------------------------------


def snapshot_to_json(snapshot: Snapshot) -> Json:
    """The snapshot as JSON values, absent keys left out; parse_snapshot gives the same snapshot back."""
    return _plain(snapshot)


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
        "placement": None if decision.placement is None else [_plain(placed) for placed in decision.placement],
        "victims": list(decision.victims),
        "waiting_on": list(decision.waiting_on),
        "by": decision.by,
        "reasons": [reason_to_json(reason) for reason in decision.reasons],
        "position": decision.position,
        "ahead": list(decision.ahead),
        "largest": decision.largest,
    }


def reason_to_json(reason: Reason) -> Json:
    """A reason as {"code": …, and its numbers}."""
    return {"code": reason.code, **{f.name: _value(getattr(reason, f.name)) for f in fields(reason)}}


def policy_from_json(data: Json) -> Policy:
    """A policy alone, as it is kept with a quota, department or pool. Raises SnapshotError."""
    policy: Policy = _policy(data, "policy")
    return policy


def reason_from_json(data: Json) -> Reason:
    """The reason that reason_to_json wrote. Raises KeyError for a code this version does not know."""
    values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in data.items() if n != "code"}
    return REASONS[data["code"]](**values)


def _plain(record: Any) -> Json:
    """A frozen record as an object of what differs from the defaults (required fields always)."""
    result = {}
    for f in fields(record):
        value = getattr(record, f.name)
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        if default is MISSING or value != default:
            result[f.name] = _value(value)
    return result


def _value(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return _plain(value)
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else str(value)
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _value(item) for name, item in value.items()}
    return value
