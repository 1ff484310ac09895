"""Snapshots and plans as JSON, one in each line.

The keys are the fields of the dataclasses in types.py and reasons.py, read by their annotations: `Units` is an integer of at
least 0, a `Name` is not empty, and so on. Reading is strict: a key that is unknown, missing, of the wrong type or out of range,
or that refers to nothing, raises SnapshotError with the path of the key. `null` is the same as no key.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Literal, NewType, cast, get_args, get_origin, get_type_hints

from quotas.engine.mig_profiles import profile_of
from quotas.engine.reasons import REASONS, Reason
from quotas.engine.types import Claim, Decision, Department, Plan, Policy, Pool, Quota, Range, Snapshot, Weight
from quotas.engine.units import resized

Json = dict[str, Any]
Reader = Callable[[object, str], Any]
"""(value, path of its key) → the value, checked and converted. Raises SnapshotError."""

ANNOTATIONS = frozenset({"kueue"})
"""Keys of a snapshot with what another scheduler decided; they are skipped."""
RENAMED = {"held_for": "preempted_for"}
"""Keys of a claim in snapshots that older versions have recorded, and their present names."""
MOST_SLICES = 64
"""The most slices of a card that MIG cuts: each costs time, and no real card has more than 8."""
SHOWN = 60
"""The most characters, or digits, of a refused value that an error shows."""
WEIGHT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,20})?|[0-9]{1,15}/(?!0+$)[0-9]{1,15}")


class SnapshotError(ValueError):
    """A snapshot that cannot be read. `key` is the path of the offending value, e.g. `claims[3].units_per_pod`."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key


def _expected(what: str, value: object, key: str) -> SnapshotError:
    """The error for an unexpected value, which is shown shortened."""
    if isinstance(value, int) and abs(value) >= 10**SHOWN:
        shown = f"about 10^{int(value.bit_length() * 0.30103)}"
    else:
        shown = repr(value) if len(repr(value)) <= SHOWN else repr(value)[:SHOWN] + "…"
    return SnapshotError(key, f"expected {what}, got {shown}")


# Reading a snapshot ---------------------------------------------------------------------------------------------------


def parse_snapshot(data: object, *, recorded: bool = False) -> Snapshot:
    """Read one snapshot. `recorded`: each claim has its charge already; see claim_from_json. Raises SnapshotError."""
    given = _instance(dict, "an object", data, "")
    frame: Snapshot = _reader(Snapshot)({**given, "claims": []}, "")
    pools: dict[Any, Pool] = {pool.id: pool for pool in frame.pools}
    read = _items(lambda value, key: claim_from_json(value, key, pools, recorded=recorded))
    claims = given.get("claims")
    snapshot = replace(frame, claims=read([] if claims is None else claims, "claims"))
    _check_references(snapshot)
    return snapshot


def claim_from_json(data: object, key: str, pools: Mapping[Any, Pool], *, recorded: bool = False) -> Claim:
    """Read one claim. With a profile and no `units_per_pod`, it is charged the profile's slices (0 for an unknown profile).
    Without `asked_per_pod`, `units_per_pod` is what a pod takes of a card, and the charge is computed, unless the claim is
    `recorded`. Raises SnapshotError."""
    given = {RENAMED.get(name, name): value for name, value in _instance(dict, "an object", data, key).items()}
    if given.get("units_per_pod") is None and given.get("profile") is not None:
        pool = pools.get(given.get("pool"))
        profile = profile_of(pool.mig if pool else None, _text(given["profile"], f"{key}.profile"))
        given = {**given, "units_per_pod": profile.size if profile else 0}
    claim: Claim = _reader(Claim)(given, key)
    more = claim.cores_per_pod or claim.cpu_milli or claim.memory_mib
    if claim.asked_per_pod is None and more and claim.pool in pools and not recorded:
        return resized(claim, claim.units_per_pod, pools[claim.pool])
    return claim


def quota_from_json(data: object, key: str) -> Quota:
    """Read one quota. Raises SnapshotError."""
    return cast(Quota, _reader(Quota)(data, key))


def policy_from_json(data: Json) -> Policy:
    """Read a policy as stored with a quota, department or pool. Raises SnapshotError."""
    return cast(Policy, _reader(Policy)(data, "policy"))


def reason_from_json(data: Json) -> Reason:
    """Read a reason written by reason_to_json. Raises KeyError for a code that is unknown to this version, and SnapshotError."""
    kind: Any = REASONS[data["code"]]
    return cast(Reason, _reader(kind)({name: data[name] for name in data if name != "code"}, ""))


def _check_references(snapshot: Snapshot) -> None:
    """Raise SnapshotError for a duplicate name, a reference to nothing, or a department that is above itself."""
    pools = _unique("pools", [pool.id for pool in snapshot.pools])
    departments = _unique("departments", [department.id for department in snapshot.departments])
    _unique("claims", [claim.id for claim in snapshot.claims])
    below_root: set[Any] = set()
    parents = {department.id: department.parent for department in snapshot.departments}
    for index, department in enumerate(snapshot.departments):
        key = f"departments[{index}]"
        _known("department", f"{key}.parent", department.parent, {*departments, None})
        _check_parents(department, parents, below_root, key)
        for name, by_pool in (("quotas", department.quotas), ("user_caps", department.user_caps)):
            for pool in by_pool:
                _known("pool", f"{key}.{name}.{pool}", pool, pools)
        for number, budget in enumerate(department.budgets):
            _known("department", f"{key}.budgets[{number}].department", budget.department, departments)
            _known("pool", f"{key}.budgets[{number}].pool", budget.pool, {*pools, None})
    for index, claim in enumerate(snapshot.claims):
        _known("department", f"claims[{index}].department", claim.department, departments)
        _known("pool", f"claims[{index}].pool", claim.pool, pools)
    for index, each in enumerate(snapshot.pools):
        _unique(f"pools[{index}].nodes", [node.name for node in each.nodes or ()])
        for name in each.balances or ():
            _known("department", f"pools[{index}].balances.{name}", name, departments)
        for number, node in enumerate(each.nodes or () if each.mig is not None else ()):
            for place, card in enumerate(node.cards):
                if card.units > MOST_SLICES:
                    where = f"pools[{index}].nodes[{number}].cards[{place}].units"
                    raise _expected(f"at most {MOST_SLICES} slices", card.units, where)


def _unique(key: str, names: list[Any]) -> set[Any]:
    seen: set[Any] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise SnapshotError(f"{key}[{index}]", f"{name!r} stands here twice")
        seen.add(name)
    return seen


def _known(what: str, key: str, name: object, known: set[Any]) -> None:
    if name not in known:
        raise SnapshotError(key, f"unknown {what} {name!r}")


def _check_parents(department: Department, parents: Mapping[Any, Any], below_root: set[Any], key: str) -> None:
    """Go up from the department to the root, or to one that is known to be `below_root`, and add all on the way to these."""
    way: set[Any] = set()
    each: Any = department.id
    while each is not None and each not in below_root:
        if each in way:
            raise SnapshotError(f"{key}.parent", f"{department.id!r} is below itself")
        way.add(each)
        each = parents.get(each)
    below_root |= way


# Readers of values ----------------------------------------------------------------------------------------------------


@cache
def _reader(kind: Any) -> Reader:
    """The reader for values annotated with `kind`, which is one of the annotations in types.py and reasons.py."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind == Weight:
        return _weight
    if origin is Annotated:
        limits = arguments[1]
        return _integer(limits) if isinstance(limits, Range) else _not_empty
    if origin is Literal:
        return _one_of(arguments)
    if origin is tuple:
        return _items(_reader(arguments[0]))
    if origin is Mapping:
        return _mapping(_reader(arguments[1]))
    if type(None) in arguments:
        return _reader(arguments[0])
    if is_dataclass(kind):
        return _record(cast(type, kind))
    if isinstance(kind, NewType):
        return _text
    if issubclass(kind, StrEnum):
        return lambda value, key: kind(_one_of(tuple(kind))(value, key))
    return {int: _integer(Range()), str: _text, bool: _flag}[kind]


def _instance(kind: type, what: str, value: object, key: str) -> Any:
    if not isinstance(value, kind):
        raise _expected(what, value, key)
    return value


def _text(value: object, key: str) -> str:
    return cast(str, _instance(str, "a string", value, key))


def _flag(value: object, key: str) -> bool:
    return cast(bool, _instance(bool, "true or false", value, key))


def _not_empty(value: object, key: str) -> str:
    if not _text(value, key):
        raise SnapshotError(key, "must not be empty")
    return str(value)


def _weight(value: object, key: str) -> Fraction:
    """Read an exact weight: 2, 0.5, "0.5" or "1/3"."""
    written = value if isinstance(value, str) else str(value) if type(value) in (int, float) else ""
    if WEIGHT.fullmatch(written):
        return Fraction(written)
    raise _expected("a number of at least 0", value, key)


def _integer(limits: Range) -> Reader:
    def read(value: object, key: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _expected("an integer", value, key)
        if value < limits.least:
            raise _expected(f"at least {limits.least}", value, key)
        if value > limits.most:
            raise _expected(f"at most {limits.most}", value, key)
        return value

    return read


def _one_of(words: tuple[str, ...]) -> Reader:
    def read(value: object, key: str) -> str:
        if value not in words:
            raise _expected(f"one of {', '.join(words)}", value, key)
        return str(value)

    return read


def _items(read: Reader) -> Reader:
    def read_all(value: object, key: str) -> tuple[Any, ...]:
        items = _instance(list, "a list", value, key)
        return tuple(read(item, f"{key}[{index}]") for index, item in enumerate(items))

    return read_all


def _mapping(read: Reader) -> Reader:
    def read_all(value: object, key: str) -> Json:
        given = _instance(dict, "an object", value, key)
        return {name: read(item, f"{key}.{name}") for name, item in given.items()}

    return read_all


def _record(kind: type) -> Reader:
    """The reader for a dataclass: every key must be known, required ones present; null and absent keys get their default."""
    hints = get_type_hints(kind, include_extras=True)
    readers = {name: _reader(hints[name]) for name, _ in _fields(kind)}
    required = [name for name, default in _fields(kind) if default is MISSING]
    skipped = ANNOTATIONS if kind is Snapshot else frozenset[str]()

    def read(value: object, key: str) -> Any:
        given = _instance(dict, "an object", value, key)
        prefix = f"{key}." if key else ""
        for name in given:
            if name not in readers and name not in skipped:
                raise SnapshotError(prefix + name, "unknown key")
        for name in required:
            if given.get(name) is None:
                raise SnapshotError(prefix + name, "missing")
        return kind(**{n: readers[n](v, prefix + n) for n, v in given.items() if v is not None and n not in skipped})

    return read


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """(name, default) of the fields that a dataclass is constructed from; MISSING: no default."""
    given = (f for f in fields(kind) if f.init)
    return tuple((f.name, f.default if f.default_factory is MISSING else f.default_factory()) for f in given)


# Writing --------------------------------------------------------------------------------------------------------------


def snapshot_to_json(snapshot: Snapshot) -> Json:
    """The snapshot as JSON values, without keys at their default. parse_snapshot returns the same snapshot."""
    return record_to_json(snapshot)


def plan_to_json(plan: Plan) -> Json:
    """The plan as JSON values, with every key of every decision."""
    decisions = [decision_to_json(decision) for decision in plan.decisions]
    return {"id": plan.id, "decisions": decisions, "withdrawn": list(plan.withdrawn)}


def decision_to_json(decision: Decision) -> Json:
    """One decision as JSON values, with every key; `from` is sorted by lender."""
    ordered = replace(decision, from_=dict(sorted(decision.from_.items())))
    return {name.rstrip("_"): _value(getattr(ordered, name)) for name, _ in _fields(Decision)}


def reason_to_json(reason: Reason) -> Json:
    """A reason as {"code": …} with its numbers; None is left out."""
    return record_to_json(reason)


def record_to_json(record: Any) -> Json:
    """A dataclass as an object of its required fields and those that differ from the default."""
    return {name: _value(value) for name, value in _own_fields(record).items()}


def one_level(value: object) -> Any:
    """The `default` of a JSON writer: converts a dataclass, Fraction or Mapping, but not the values in it. Raises TypeError for
    anything else. With it, a writer in C takes half the time of `snapshot_to_json`."""
    if is_dataclass(value):
        return _own_fields(value)
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} has no JSON")


def _own_fields(record: Any) -> dict[str, Any]:
    kind: Any = type(record)
    differing = {
        name: value
        for name, default in _fields(kind)
        if (value := getattr(record, name)) is not default and value != default  # no value equals MISSING
    }
    return {"code": kind.code, **differing} if issubclass(kind, Reason) else differing


def _value(value: Any) -> Any:
    if value is None or type(value) in (int, str, bool):
        return value
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    known = one_level(value)
    return {name: _value(item) for name, item in known.items()} if isinstance(known, dict) else known
