"""Adds new sentences to the catalogs, or reports what is missing there."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.text import catalogs


class Command(BaseCommand):
    help = "Merges the sentences of code and templates into locale/*/LC_MESSAGES/django.po."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing, fail if a catalog is incomplete")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        bad = 0
        for language in catalogs.LANGUAGES:
            if not check:
                catalogs.update(language)
                catalogs.compile_one(language)
            faults = catalogs.faults(language)
            bad += len(faults)
            for fault in faults:
                self.stdout.write(f"{language}: {fault}")
            self.stdout.write(f"{language}: {len(catalogs.read(language))} sentences, {len(faults)} to do")
        if check and bad:
            raise CommandError(f"{bad} sentences are to do: run `make messages`, then translate locale/*/…/django.po")
