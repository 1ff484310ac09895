"""Compiles the catalogs without gettext's tools; skips those that have not changed."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from portal.text import catalogs


class Command(BaseCommand):
    help = "Compiles locale/*/LC_MESSAGES/django.po to django.mo (no gettext tools needed)."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        for language in catalogs.LANGUAGES:
            if catalogs.compile_one(language):
                self.stdout.write(f"compiled {catalogs.po_file(language)}")
