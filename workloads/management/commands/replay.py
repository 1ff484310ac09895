"""`manage.py replay`: simulates demand with the planner, and compares other ways of sharing and other rules."""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from portal.errors import Problem
from quotas.engine.snapshot_json import SnapshotError
from quotas.engine.types import Settings, Snapshot
from quotas.management.written_changes import CHANGES, with_change
from quotas.models import PoolGroup
from workloads.backtests import draft
from workloads.replay import arguments, history, traces
from workloads.replay.demand import Demand
from workloads.replay.figures import Figures, figures_of
from workloads.replay.simulation import Assumed, Simulation
from workloads.replay.tables import lines_of
from workloads.replay.ways import WAYS

HOUR, DAY = 3600, 86400
MOST_CARDS = 100_000
NOBODY = "there were no requests in that time: see --from and --days"
WHAT_IF, DRAFT = "what-if", "draft"


class Command(BaseCommand):
    help = (
        "Play demand forward through the planner, beside one pooled queue and a static partition, and report utilisation,"
        " waits, late promises, stops and lost work. With --what-if: what would have been under other rules. Nothing is"
        " written."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument(
            "--history", metavar="GROUP", help="what was asked for in this pool group, from the database"
        )
        source.add_argument(
            "--trace",
            metavar="FILE.csv",
            type=Path,
            help=f"jobs as CSV: {'; '.join(' or '.join(names) for names in traces.HEADINGS.values())}; the first four are needed",
        )
        parser.add_argument(
            "--from", dest="begin", metavar="DATE", type=arguments.day, help="first day, such as 2017-10-02 (UTC)"
        )
        parser.add_argument("--days", type=arguments.days, default=30.0, help="how long to play (default 30)")
        parser.add_argument(
            "--what-if", nargs="+", action="append", default=[], metavar="WORD",
            help=f"the planner once more under other rules: {CHANGES}",
        )  # fmt: skip
        parser.add_argument(
            "--draft", metavar="FILE.yaml", type=Path,
            help="with --history, the planner once more under what this configuration file says of quotas, policies and pools",
        )  # fmt: skip
        parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS], help="ways of sharing (default all)")
        parser.add_argument("--json", action="store_true", help="all figures as one object")
        parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
        assumed = parser.add_argument_group("assumptions", "in seconds")
        for name, default in (("checkpoint-every", 1800), ("restart", 60), ("between-passes", 60)):
            assumed.add_argument(f"--{name}", type=arguments.count, default=default, help=f"default {default}")
        of_trace = parser.add_argument_group("with --trace", "who shares what")
        of_trace.add_argument("--load", type=arguments.above_0, default=0.9, help="mean demand ÷ cards (default 0.9)")
        of_trace.add_argument("--guarantees", metavar="FILE.csv", type=Path,
                              help="department,guaranteed; else in proportion to mean demand")  # fmt: skip
        of_trace.add_argument("--cards-per-node", type=arguments.count, default=8, help="0: without nodes (default 8)")
        of_trace.add_argument("--notice", type=arguments.count, default=600, help="default 600")
        of_trace.add_argument("--grace", type=arguments.count, default=120, help="default 120")

    def handle(self, *args: Any, **options: Any) -> None:
        assumed = Assumed(
            options["checkpoint_every"], options["restart"], between_passes=max(1, options["between_passes"])
        )
        if options["trace"] is not None:
            if options["draft"] is not None:
                raise CommandError("--draft: a trace has no departments of the installation; see --what-if")
            stage = Stage(*_of_trace(options), assumed)
        else:
            stage = self._of_history(_group(options["history"]), assumed, options)
        if not stage.demand.jobs:
            raise CommandError(NOBODY)
        played = {way: (way, stage) for way in options["ways"]}
        if options["what_if"]:
            other = replace(stage, rules=_changed(stage.rules, options["what_if"]))
            if stage.calendar is not None:
                changed = partial(_changed, changes=options["what_if"])
                other = replace(other, calendar=replace(stage.calendar, changed=changed))
            played = {"planner": ("planner", stage), WHAT_IF: ("planner", other)} | played
        if options["draft"] is not None:
            drafted = self._of_history(_group(options["history"]), assumed, options, _read(options["draft"], _text))
            played = {"planner": ("planner", stage), DRAFT: ("planner", drafted)} | played
        results = {name: self._played(name, way, on, options) for name, (way, on) in played.items()}
        if options["json"]:
            self.stdout.write(json.dumps(results, indent=1))
            return
        for line in lines_of(results):
            self.stdout.write(line)

    def _played(self, name: str, way: str, on: Stage, options: dict[str, Any]) -> Figures:
        began = time.monotonic()

        def progress(part: float) -> None:
            if not options["quiet"]:
                print(
                    f"\r{name}: {part:.0%} after {time.monotonic() - began:.0f} s ", end="", file=sys.stderr, flush=True
                )

        calendar = on.calendar if way == "planner" else None  # the other ways do not lend
        simulation = Simulation(on.rules, on.demand, WAYS[way], on.assumed, calendar=calendar, counts_lent=True)
        outcome = simulation.play(progress)
        progress(1)
        if not options["quiet"]:
            print(file=sys.stderr)
        return figures_of(outcome)

    def _of_history(
        self, group: PoolGroup, assumed: Assumed, options: dict[str, Any], text: str | None = None
    ) -> Stage:
        now = timezone.now()
        days = dt.timedelta(days=options["days"])
        begin = options["begin"] or now - days
        end = min(now, begin + days)
        try:
            terms = history.Terms.of(group) if text is None else _drafted(group, text)
        except Problem as problem:
            raise CommandError(f"--draft: {problem}") from None
        demand, unknown = history.demand_of(group, begin, end, terms.pools)
        if unknown and not options["quiet"]:
            print(f"{unknown} workloads that never ran are left out", file=sys.stderr)
        return Stage(terms.snapshot(begin), demand, terms.assumed(begin, assumed), terms.calendar(begin, end))


def _drafted(group: PoolGroup, text: str) -> history.Terms:
    """The terms with the changes of a draft. Raises NothingChanges and as draft.read."""
    wishes = draft.read(text, group)
    draft.changes_of(wishes)
    return draft.terms_of(group, wishes)


# The input of a simulation --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    rules: Snapshot
    demand: Demand
    assumed: Assumed
    calendar: history.Windows | None = None


def _of_trace(options: dict[str, Any]) -> tuple[Snapshot, Demand]:
    rows = _read(options["trace"], traces.read_trace)
    if not rows:
        raise CommandError(f"{options['trace']}: no jobs")
    first = options["begin"]
    begin = int(first.timestamp()) if first else rows[0].submitted_at // DAY * DAY
    end = min(begin + round(options["days"] * DAY), max(begin, rows[-1].submitted_at) + HOUR)
    demand = traces.demand_of(rows, begin, end, options["cards_per_node"])
    if not demand.jobs:
        raise CommandError(NOBODY)
    weights = demand.units_in_use()
    cards = round(sum(weights.values()) / options["load"])
    if options["guarantees"] is not None:
        guaranteed = _read(options["guarantees"], traces.read_guarantees)
        missing = sorted(id for id in weights if id not in guaranteed)
        if missing:
            raise CommandError(f"{options['guarantees']}: no line for {', '.join(missing)}")
    elif cards < len(weights):
        raise CommandError(f"--load {options['load']}: {cards} cards are too few for {len(weights)} departments")
    else:
        guaranteed = traces.in_proportion(weights, cards)
    if sum(guaranteed.values()) > MOST_CARDS:
        name = "--load" if options["guarantees"] is None else "--guarantees"
        raise CommandError(f"{name}: {sum(guaranteed.values())} cards are too many; at most {MOST_CARDS} are played")
    settings = Settings(restart_cost=options["restart"], notice=options["notice"], grace=options["grace"])
    return traces.rules_of(guaranteed, options["cards_per_node"], settings), demand


def _read(path: Path, made_of: Any) -> Any:
    try:
        return arguments.read(path, made_of)
    except ArgumentTypeError as error:
        raise CommandError(str(error)) from error


def _text(lines: Iterable[str]) -> str:
    return "".join(lines)


def _changed(rules: Snapshot, changes: Sequence[Sequence[str]]) -> Snapshot:
    try:
        for words in changes:
            if words[0] == "request":
                raise SnapshotError("request", "a replay plays what was asked for; change quotas, nodes or settings")
            rules = with_change(rules, words)
    except SnapshotError as error:
        raise CommandError(f"--what-if: {error}") from error
    return rules


def _group(name: str) -> PoolGroup:
    group = PoolGroup.objects.filter(name=name).first()
    if group is None:
        known = ", ".join(PoolGroup.objects.order_by("name").values_list("name", flat=True)) or "none"
        raise CommandError(f"--history: no pool group {name}: there are {known}")
    return group
