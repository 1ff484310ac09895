"""`manage.py alive`: exits with 0 if a background process was active recently, for health checks of containers."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from portal.models import Heartbeat, JobRun
from quotas.models import Cluster


class Command(BaseCommand):
    help = "Fails unless the worker, the beat or the watcher has given a sign of life lately."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("process", choices=["worker", "beat", "watcher"])
        parser.add_argument("--within", type=int, default=60, help="seconds")

    def handle(self, *args: Any, process: str, within: int, **options: Any) -> None:
        since = timezone.now() - dt.timedelta(seconds=within)
        signs = {  # the beat starts a job run, a worker finishes it
            "worker": JobRun.objects.filter(finished_at__gte=since),
            "beat": JobRun.objects.filter(started_at__gte=since),
            "watcher": Heartbeat.objects.filter(name__startswith="watch:", at__gte=since),
        }
        has_nothing_to_do = process == "watcher" and not Cluster.objects.filter(active=True).exists()
        if not signs[process].exists() and not has_nothing_to_do:
            raise CommandError(f"no sign of life of the {process} within {within} s")
