"""Waits for what a process of an installation needs before it starts, because Kubernetes does not start pods in an order."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from portal.server.health import reason_against

EVERY = 1.0  # s
REPEATED = 30.0  # s, after which the same reason is printed again


class Command(BaseCommand):
    help = "Ends when the database answers, or has every migration as well. Until then it says what is missing."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["database", "migrations"])

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        reason, said_at = "", 0.0
        while missing := reason_against(what):
            if missing != reason or time.monotonic() - said_at > REPEATED:
                self.stderr.write(missing)
                reason, said_at = missing, time.monotonic()
            connections.close_all()  # a connection that the database has dropped does not recover
            time.sleep(EVERY)
