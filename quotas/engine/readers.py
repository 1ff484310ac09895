"""Readers of JSON values: each takes a value and its key, and gives the value checked or raises SnapshotError."""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from fractions import Fraction
from typing import Any, TypeVar

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
