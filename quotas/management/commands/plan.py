"""`manage.py plan`: plan snapshots from a file, replay a pass of the decision log, or plan a pool group as it is now."""

import json
import sys
import zlib
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from quotas.engine import types as e
from quotas.engine.planning_pass import decide
from quotas.engine.snapshot_json import SnapshotError, decision_to_json, parse_snapshot, plan_to_json
from quotas.engine.what_if import ClaimsOnNodes, Difference, claims_on, compare
from quotas.management.written_changes import CHANGES, drained, with_change
from quotas.models import PlanPass, PoolGroup
from quotas.planning.replay import Replay, replay
from quotas.planning.snapshot import load_snapshot
from quotas.wording import Words

Json = dict[str, Any]
Changes = Sequence[Sequence[str]]


class Command(BaseCommand):
    help = (
        "Plan without writing anything: snapshots from a file (one JSON a line in, one out; docs/quota-rules-reference.md,"
        " Snapshot and plan as JSON), a pass of the decision log again, or a pool group as it stands now."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("--snapshots", metavar="FILE.jsonl", help="the snapshots; - reads stdin")
        source.add_argument(
            "--replay", metavar="ID", help="a pass, as a decision's page names it; fails if the plan differs"
        )
        source.add_argument("--live", metavar="GROUP", help="a pool group as it stands now")
        parser.add_argument(
            "--what-if",
            nargs="+",
            action="append",
            default=[],
            metavar="WORD",
            help=f"and what would change if: {CHANGES}",
        )
        parser.add_argument("--json", action="store_true", help="with --replay and --live: one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        changes: Changes = options["what_if"]
        if options["snapshots"] is not None:
            for answer in answers(_lines(options["snapshots"]), changes):
                self._print(answer)
        elif options["replay"] is not None:
            self._replay(_pass(options["replay"]), changes, options["json"])
        else:
            group = PoolGroup.objects.filter(name=options["live"]).first()
            if group is None:
                raise CommandError(f"no pool group {options['live']}: there are {', '.join(_groups()) or 'none'}")
            snapshot = load_snapshot(group, now=timezone.now())
            self._show(snapshot, decide(snapshot), changes, options["json"])

    def _replay(self, plan_pass: PlanPass, changes: Changes, as_json: bool) -> None:
        try:
            again = replay(plan_pass)
        except (SnapshotError, ValueError, zlib.error) as error:
            raise CommandError(f"the snapshot of {plan_pass.public_id} cannot be read: {error}") from error
        if as_json:
            heading = {"pass": plan_pass.public_id, "same": again.same if again.recorded else None}
            self._show(again.snapshot, again.plan, changes, as_json, heading | {"differing": again.differing})
        else:
            self.stdout.write(_about(again))
            self._show(again.snapshot, again.plan, changes, as_json)
        if again.recorded and not again.same:
            raise CommandError(
                f"another plan than then: {', '.join(again.differing) or 'the order of the same answers'}"
            )

    def _show(
        self, snapshot: e.Snapshot, plan: e.Plan, changes: Changes, as_json: bool, heading: Json | None = None
    ) -> None:
        try:
            changed = _changed(snapshot, changes)
        except SnapshotError as error:
            raise CommandError(f"--what-if: {error}") from error
        if as_json:
            self._print((heading or {}) | _as_json(snapshot, plan, changed, changes))
            return
        words = Words(snapshot, changed)
        lines = (
            words.of_difference(_difference(snapshot, plan, changed), claims_on(snapshot, drained(changes)))
            if changes
            else words.of_plan(plan)
        )
        for line in lines:
            self.stdout.write(line)

    def _print(self, answer: Json) -> None:
        self.stdout.write(json.dumps(answer, separators=(",", ":")))


# Lines ----------------------------------------------------------------------------------------------------------------


def answers(lines: Iterable[str], changes: Changes = ()) -> Iterator[Json]:
    """A plan for each line, or {"id", "error"} if it cannot be read. Empty lines are skipped."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _answer(number, line, changes)


def _answer(number: int, line: str, changes: Changes) -> Json:
    id = None
    try:
        data = json.loads(line, object_pairs_hook=_each_key_once)
    except SnapshotError as error:
        return {"id": id, "error": f"line {number}: {error}"}
    except (ValueError, RecursionError) as error:
        return {"id": id, "error": f"line {number}: not JSON: {error}"}
    try:
        id = data.get("id") if isinstance(data, dict) else None
        snapshot = parse_snapshot(data)
        return _as_json(snapshot, decide(snapshot), _changed(snapshot, changes), changes)
    except SnapshotError as error:
        return {"id": id, "error": f"line {number}: {error}"}


def _each_key_once(pairs: list[tuple[str, Any]]) -> Json:
    unique: Json = {}
    for key, value in pairs:
        if key in unique:
            raise SnapshotError(key, "stands here twice")
        unique[key] = value
    return unique


def _lines(path: str) -> Iterator[str]:
    if path == "-":
        yield from sys.stdin
        return
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            yield from lines
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error


# Plans ----------------------------------------------------------------------------------------------------------------


def _changed(snapshot: e.Snapshot, changes: Changes) -> e.Snapshot:
    """The snapshot after all changes. Raises SnapshotError."""
    for words in changes:
        snapshot = with_change(snapshot, words)
    return snapshot


def _difference(snapshot: e.Snapshot, plan: e.Plan, changed: e.Snapshot) -> Difference:
    return compare(snapshot, plan, changed, decide(changed))


def _as_json(snapshot: e.Snapshot, plan: e.Plan, changed: e.Snapshot, changes: Changes) -> Json:
    """The plan; with changes, also the difference they make and the claims on nodes that they drain."""
    if not changes:
        return plan_to_json(plan)
    standing: ClaimsOnNodes = claims_on(snapshot, drained(changes))
    by_node = {"standing": {node: list(claims) for node, claims in standing.items()}} if standing else {}
    return plan_to_json(plan) | {"what_if": difference_to_json(_difference(snapshot, plan, changed)) | by_node}


def _about(again: Replay) -> str:
    row = again.plan_pass
    plan = "" if not row.plan else f", its plan {len(row.plan):,} bytes"
    came = "its plan was not kept" if not row.plan else "the plan is identical" if again.same else "another plan"
    at = timezone.localtime(row.at)
    return (
        f"Pass {row.public_id} over {row.group.name}, {at:%Y-%m-%d %H:%M:%S %Z}, took {row.milliseconds} ms.\n"
        f"Its snapshot: {len(again.snapshot.claims)} claims, {len(row.snapshot):,} bytes of compressed JSON{plan}.\n"
        f"Replayed: {came}."
    )


def _pass(id: str) -> PlanPass:
    row = PlanPass.objects.select_related("group").filter(public_id=id).first()
    if row is None:
        raise CommandError(f"no pass {id}: a decision's page and the API name the pass that took it")
    return row


def _groups() -> list[str]:
    return list(PoolGroup.objects.order_by("name").values_list("name", flat=True))


def difference_to_json(difference: Difference) -> Json:
    """The difference as JSON values; `recallable` by department, then pool."""
    recallable: dict[str, dict[str, int]] = {}
    for (department, pool), units in difference.recallable.items():
        recallable.setdefault(department, {})[pool] = units
    return {
        "changes": [
            {
                "claim": change.claim,
                "before": change.before and decision_to_json(change.before),
                "after": change.after and decision_to_json(change.after),
            }
            for change in difference.changes
        ],
        "recalled": list(difference.recalled),
        "recalled_units": dict(difference.recalled_units),
        "spared": list(difference.spared),
        "withdrawn": sorted({*difference.after.withdrawn} - {*difference.before.withdrawn}),
        "recallable": recallable,
    }
