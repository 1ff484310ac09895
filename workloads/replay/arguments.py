"""Argument types of the command lines that replay demand: days, numbers and files of jobs. All raise ArgumentTypeError."""

import datetime as dt
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from workloads.replay import traces

YEARS = range(1970, 3000)
DAYS = 0.01, 36_500.0
"""The shortest and the longest time of a replay."""


def day(text: str) -> dt.datetime:
    """Midnight of a day, or a moment; without an offset it is UTC."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        moment = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    if moment.year not in YEARS:
        raise ArgumentTypeError(f"expected a day such as 2017-10-02, not {text!r}")
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def days(text: str) -> float:
    least, most = DAYS
    return _number(text, f"days from {least:g} to {most:g}", lambda value: least <= value <= most)


def count(text: str) -> int:
    return int(_number(text, "a whole number", lambda value: 0 <= value < 10**9 and value.is_integer()))


def above_0(text: str) -> float:
    return _number(text, "a number above 0", lambda value: 0 < value < 10**9)


def count_above_0(text: str) -> int:
    return int(_number(text, "a whole number above 0", lambda value: 0 < value < 10**9 and value.is_integer()))


def _number(text: str, what: str, is_right: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not is_right(value):
        raise ArgumentTypeError(f"expected {what}, not {text!r}")
    return value


def jobs(text: str, made_of: Callable[[Iterable[str]], list[traces.Row]] = traces.read_trace) -> list[traces.Row]:
    """The jobs of a CSV file; at least one."""
    rows: list[traces.Row] = read(Path(text), made_of)
    if not rows:
        raise ArgumentTypeError(f"{text}: no jobs")
    return rows


def read(path: Path, made_of: Callable[[Iterable[str]], Any]) -> Any:
    """`made_of` the lines of a file; a folder stands for the only CSV file in it."""
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if len(files) != 1:
        raise ArgumentTypeError(f"{path}: a folder with {len(files)} CSV files; name one")
    try:
        with files[0].open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            return made_of(lines)
    except OSError as error:
        raise ArgumentTypeError(f"cannot read {files[0]}: {error.strerror}") from error
    except traces.TraceError as error:
        raise ArgumentTypeError(f"{files[0]}, {error}") from error
