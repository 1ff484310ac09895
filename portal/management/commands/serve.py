"""The web server of an installation: pages, API, streams and notebooks."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.server.serve import PortTaken, processes


class Command(BaseCommand):
    help = "Starts the web processes on BIND_HOST:PORT. SIGTERM ends them within five seconds, open streams included."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            processes()
        except PortTaken as error:
            raise CommandError(str(error)) from None
