"""`manage.py check_invariants`: checks all invariants on a live database."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from quotas.board import invariants as quota_rules
from workloads import invariants as workload_rules


class Command(BaseCommand):
    help = "Fails with one line for each violated invariant. Only reads; safe at any time."

    def handle(self, *args: Any, **options: Any) -> None:
        lines = violations()
        for line in lines:
            self.stderr.write(line)
        if lines:
            raise CommandError(f"{len(lines)} violations: please report them, with the decision log of that time")
        self.stdout.write("all invariants hold")


def violations() -> list[str]:
    """All violations, from one consistent snapshot of the database."""
    alone = not connection.in_atomic_block
    with transaction.atomic():
        if connection.vendor == "postgresql" and alone:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return [*map(str, quota_rules.violations()), *workload_rules.violations()]
