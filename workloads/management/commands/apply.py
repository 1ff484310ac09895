"""`manage.py apply FILE`: applies a configuration file, completely or not at all."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.access import SYSTEM
from portal.errors import Problem
from portal.infra.confirm import Unconfirmed
from workloads.configuration import plan

DIFFERS, REFUSED = 1, 2


class Command(BaseCommand):
    help = (
        "Make departments, quotas, settings of pools, images, presets and group rules what the file says, all of it or nothing"
        " (docs/configuration.md). Exits with 0: done, or nothing to do; 1: a dry run found differences; 2: refused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="a file of `manage.py export`, or part of one; - reads stdin")
        parser.add_argument("--dry-run", action="store_true", help="say what would change and whom it affects")
        parser.add_argument("--yes", action="store_true", help="although it takes something from somebody")
        parser.add_argument(
            "--confirm", metavar="MARK", default="", help="exactly the plan that a dry run gave this mark"
        )
        parser.add_argument("--source", default="", help="names the file in the audit log, such as repository@commit")

    def handle(self, *args: Any, **options: Any) -> None:
        file, mark = options["file"], options["confirm"]
        source = options["source"] or file
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"cannot read {file}: {error}", returncode=REFUSED) from error
        try:
            if options["dry_run"] or (options["yes"] and not mark):
                planned = plan.apply(actor=SYSTEM, text=text, source=source, dry_run=True)
                mark = planned.mark
            if not options["dry_run"]:
                planned = plan.apply(actor=SYSTEM, text=text, source=source, confirmed=mark)
        except Unconfirmed as problem:
            breaks = "".join(f"\n  {each['detail']}" for each in problem.numbers["breaks"])
            raise CommandError(
                f"{problem.detail if mark else 'refused without --yes, because:'}{breaks}", returncode=REFUSED
            ) from problem
        except Problem as problem:
            faults = "".join(f"\n  {fault_line(each)}" for each in getattr(problem, "errors", []))
            raise CommandError(f"{file}: {problem.detail}{faults}", returncode=REFUSED) from problem
        self._show(planned)
        if options["dry_run"] and planned.changes:
            raise SystemExit(DIFFERS)

    def _show(self, planned: plan.Plan) -> None:
        for change in planned.changes:
            self.stdout.write(in_words(change))
        if not planned.changes:
            self.stdout.write("Nothing to change.")
            return
        for line in (planned.preview.sentence, *planned.preview.lines, *planned.preview.unsaid):
            self.stdout.write(line)
        self.stdout.write(f"Plan {planned.mark}: {'applied' if planned.applied else 'nothing was changed'}.")


def fault_line(fault: Any) -> str:
    where = f"line {fault.line}: " if fault.line else ""
    return f"{where}{fault.field}: {fault.detail}"


def in_words(change: plan.Change) -> str:
    """A change as one line: + a new value, - a removed one, ~ a changed one."""
    if change.before is None:
        return f"+ {change.name}: {change.after}"
    if change.after is None:
        return f"- {change.name}: {change.before}"
    return f"~ {change.name}: {change.before} → {change.after}"
