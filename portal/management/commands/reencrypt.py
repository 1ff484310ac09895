"""Encrypts every secret again with the first of ENCRYPTION_KEYS, so that an old key can be removed."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.infra.crypt import COLUMNS, INSIDE, reencrypted


class Command(BaseCommand):
    help = "Encrypts every stored secret with the first of ENCRYPTION_KEYS. Safe to run at any time, and again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing; say what no key reads")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        unreadable: list[str] = []
        for label, column in COLUMNS:
            model = apps.get_model(label)
            read = 0
            for row in model._default_manager.exclude(**{column: ""}).order_by("pk").iterator(chunk_size=500):
                old = getattr(row, column)
                new = reencrypted(old)
                if new is None:
                    unreadable.append(f"{label} {row.pk} ({row}): {column}")
                    continue
                read += 1
                if not check:  # a value written in the meantime is encrypted with the first key already
                    model._default_manager.filter(pk=row.pk, **{column: old}).update(**{column: new})
            self.stdout.write(f"{label}.{column}: {read} {'readable' if check else 'encrypted with the first key'}")
        for label, column, members in INSIDE:
            unreadable += self.inside(label, column, members, check)
        for name in unreadable:
            self.stdout.write(f"no key reads {name}")
        if unreadable:
            raise CommandError(
                f"{len(unreadable)} secrets were left as they are: no key of ENCRYPTION_KEYS reads them."
            )

    def inside(self, label: str, column: str, members: tuple[str, ...], check: bool) -> list[str]:
        """The same for members of a JSON column. Returns descriptions of the rows that no key can decrypt."""
        model, unreadable, read = apps.get_model(label), list[str](), 0
        for row in model._default_manager.order_by("pk").iterator(chunk_size=500):
            old = getattr(row, column)
            new = {name: reencrypted(old[name]) for name in members if old.get(name)}
            if None in new.values():
                unreadable.append(f"{label} {row.pk} ({row}): {column}")
                continue
            read += bool(new)
            if new and not check:
                model._default_manager.filter(pk=row.pk, **{column: old}).update(**{column: old | new})
        self.stdout.write(f"{label}.{column}: {read} {'readable' if check else 'encrypted with the first key'}")
        return unreadable
