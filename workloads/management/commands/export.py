"""`manage.py export`: departments, quotas, settings of pools, images, presets and group rules as one YAML."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from workloads.configuration import plan


class Command(BaseCommand):
    help = "Print departments, quotas, settings of pools, images, presets and group rules as one YAML (docs/configuration.md)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        pass

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(plan.export(), ending="")
