"""`manage.py plan`: plan snapshots from a file, without a database."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from quotas.engine.admission import decide
from quotas.engine.wire import SnapshotError, parse_snapshot, plan_to_json


class Command(BaseCommand):
    help = "Read one snapshot a line and print one plan a line (docs/quota-rules.md, Snapshot and plan as JSON)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--snapshots", required=True, metavar="FILE.jsonl", help="the snapshots; - reads stdin")

    def handle(self, *args: Any, **options: Any) -> None:
        for answer in answers(_lines(options["snapshots"])):
            self.stdout.write(json.dumps(answer, ensure_ascii=False, separators=(",", ":")))


def answers(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """A plan for every line; {"id", "error"} for one that cannot be read. Empty lines are skipped."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _answer(number, line)


def _answer(number: int, line: str) -> dict[str, Any]:
    id = None
    try:
        data = json.loads(line)
        id = data.get("id") if isinstance(data, dict) else None
        return plan_to_json(decide(parse_snapshot(data)))
    except (json.JSONDecodeError, RecursionError) as error:
        return {"id": id, "error": f"line {number}: not JSON: {error}"}
    except SnapshotError as error:
        return {"id": id, "error": f"line {number}: {error}"}


def _lines(path: str) -> Iterator[str]:
    if path == "-":
        yield from sys.stdin
        return
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            yield from lines
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
