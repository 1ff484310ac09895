"""Replaces the database with a file of `manage.py backup`, in one transaction: all of it or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from portal import audit
from portal.access import SYSTEM
from portal.infra.locks import durable
from portal.management import backups
from portal.models import User


class Command(BaseCommand):
    help = "Restores a backup into an empty database, and migrates it. Stop web, worker, beat and watcher first."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", type=Path)
        parser.add_argument("--force", action="store_true", help="replace the database that is there")
        parser.add_argument(
            "--other-keys",
            action="store_true",
            help="restore without the keys of the backup: connections, tokens for webhooks and secret variables are lost",
        )

    def handle(self, *args: Any, path: Path, force: bool, other_keys: bool, **options: Any) -> None:
        try:
            backups.require_postgres()
            with path.open("rb") as file:
                about = backups.read_manifest(file)
                self.refuse(about, force=force, other_keys=other_keys)
                backups.load(file)
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}.") from None
        except backups.Refused as error:
            raise CommandError(str(error)) from None
        call_command("migrate", interactive=False, verbosity=0)
        with durable():
            audit.record(SYSTEM, "backup.restored", path.name, after={"at": about.at, "version": about.version})
        self.stdout.write(
            f"Restored: the database of {about.at}, version {about.version}. Start the processes; the first passes find what "
            "runs in the clusters. `manage.py reencrypt --check` says whether every secret can be read."
        )

    def refuse(self, about: backups.Manifest, *, force: bool, other_keys: bool) -> None:
        """Raises Refused if the backup cannot be restored here. Changes nothing."""
        if unknown := backups.unknown_migrations(about):
            raise backups.Refused(
                f"The backup is of version {about.version}, which is newer than this one: it has {len(unknown)} migrations "
                f"more, the first is {unknown[0]}. Install that version."
            )
        missing = [key for key in about.keys if key not in backups.fingerprints()]
        if missing and not other_keys:
            raise backups.Refused(
                f"Secrets in the backup are encrypted with keys that are not in ENCRYPTION_KEYS: {', '.join(missing)} "
                f"(configured: {', '.join(backups.fingerprints()) or 'none'}). Put them there, or give --other-keys and enter "
                "connections and secrets again."
            )
        tables = connection.introspection.table_names()
        if not force and tables and (User._meta.db_table not in tables or User.objects.exists()):
            raise backups.Refused("The database is not empty. --force replaces all of it.")
        if sessions := backups.other_sessions():
            raise backups.Refused(
                f"{sessions} other sessions use the database: stop web, worker, beat and watcher first, and what else uses it."
            )
