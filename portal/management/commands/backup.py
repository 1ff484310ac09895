"""Backs up the database to one file, which `manage.py restore` reads. It does not contain the keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from portal import audit
from portal.access import SYSTEM
from portal.infra.locks import durable
from portal.management import backups

SUFFIX = ".backup"


class Command(BaseCommand):
    help = "Writes the whole database into a file, while everything runs. Keep ENCRYPTION_KEYS elsewhere: they are not in it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path, help="a new file, or a folder: the file's name is the time then")
        parser.add_argument("--keep", type=int, help="in a folder: how many backups stay; the oldest go")

    def handle(self, *args: Any, path: Path, keep: int | None, **options: Any) -> None:
        if keep is not None and (keep < 1 or not path.is_dir()):
            raise CommandError("--keep is a number of backups in a folder, at least 1.")
        now = timezone.now()
        file = path / f"gpu-quota-portal-{now:%Y%m%dT%H%M%SZ}{SUFFIX}" if path.is_dir() else path
        if file.exists():
            raise CommandError(f"{file} is there already.")
        try:
            backups.require_postgres()
            about = backups.manifest(now.isoformat())
            backups.dump(file, about)
        except backups.Refused as error:
            raise CommandError(str(error)) from None
        with durable():
            audit.record(SYSTEM, "backup.made", file.name, after={"bytes": file.stat().st_size, "keys": about.keys})
        for old in sorted(path.glob(f"gpu-quota-portal-*{SUFFIX}"))[:-keep] if keep else ():
            old.unlink()
        self.stdout.write(
            f"{file}: {file.stat().st_size} bytes. It can be read with the keys {', '.join(about.keys) or 'of DEBUG'} only."
        )
