"""A backup: one line of JSON that describes it, followed by the output of `pg_dump`.

It is restored in one transaction, which is committed only if the file was complete. Without the first line it is an ordinary
PostgreSQL dump: `tail -n +2 FILE | pg_restore …`. It does not contain keys, only their fingerprints.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from django.apps import apps
from django.conf import settings
from django.db import connection, connections
from django.db.backends.postgresql.client import DatabaseClient
from django.db.migrations.loader import MigrationLoader

from portal.infra import env

FORMAT = "gpu-quota-portal-backup"
LONGEST_LINE = 1 << 20
CHUNK = 1 << 20
LOCK_TIMEOUT = "10s"


class Refused(Exception):
    """A backup or restore is not possible; nothing has been changed. The message has the reason."""


@dataclass(frozen=True)
class Manifest:
    format: str
    version: str  # of the portal
    at: str  # ISO 8601
    migrations: list[list[str]]  # app and name of all applied migrations
    keys: list[str]  # fingerprints of ENCRYPTION_KEYS


def manifest(at: str) -> Manifest:
    applied = sorted(map(list, MigrationLoader(connection).applied_migrations))
    return Manifest(FORMAT, settings.VERSION, at, applied, fingerprints())


def fingerprints() -> list[str]:
    """Fingerprints of the configured keys, from which the keys cannot be derived."""
    return [hashlib.sha256(f"{FORMAT}:{key}".encode()).hexdigest()[:12] for key in settings.ENCRYPTION_KEYS]


def read_manifest(file: IO[bytes]) -> Manifest:
    """Reads the first line, and leaves the file positioned after it. Raises Refused."""
    line = file.readline(LONGEST_LINE)
    try:
        about = Manifest(**json.loads(line))
    except (ValueError, TypeError):
        about = None
    if about is None or about.format != FORMAT:
        raise Refused("This is not a backup of the portal: its first line does not say so.")
    return about


def dump(path: Path, about: Manifest) -> None:
    """Writes the file, readable by its owner only. It gets its name only when it is complete. Raises Refused."""
    options = ["--format=custom", "--no-owner", "--no-privileges", f"--table={_schema()}.*"]
    partial = path.with_name(f"{path.name}.partial")
    try:
        with (
            os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file,
            _Errors() as errors,
        ):
            file.write(json.dumps(asdict(about)).encode() + b"\n")
            # Through a pipe: in a file, pg_dump would store the offset of each table, which our first line would make wrong.
            with _started("pg_dump", options, stdout=subprocess.PIPE, stderr=errors.file) as process:
                assert process.stdout is not None  # noqa: S101
                shutil.copyfileobj(process.stdout, file, CHUNK)
            if process.returncode != 0:
                raise Refused(f"pg_dump failed: {errors.text()}")
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        partial.unlink(missing_ok=True)


def load(file: IO[bytes]) -> None:
    """Replaces all tables with those in the rest of the file, or changes nothing. Raises Refused."""
    tables = [connection.ops.quote_name(name) for name in connection.introspection.table_names()]
    begin = f"SET lock_timeout = '{LOCK_TIMEOUT}'; BEGIN;" + (
        f"DROP TABLE {', '.join(tables)} CASCADE;" if tables else ""
    )
    connection.close()
    quiet = ["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--output=/dev/null"]
    with (
        _Errors() as broken,
        _Errors() as refused,
        _started("psql", quiet, stdin=subprocess.PIPE, stderr=refused.file) as psql,
        _started("pg_restore", None, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=broken.file) as restore,
    ):
        feeder = threading.Thread(target=_copied, args=(file, restore.stdin))
        feeder.start()
        assert psql.stdin is not None and restore.stdout is not None  # noqa: PT018, S101
        with suppress(BrokenPipeError):  # psql has ended, and reports why
            psql.stdin.write(f"{begin}\n".encode())
            # A setting of PostgreSQL 17, which its pg_restore writes for older servers, too.
            psql.stdin.write(restore.stdout.read(CHUNK).replace(b"SET transaction_timeout = 0;\n", b""))
            shutil.copyfileobj(restore.stdout, psql.stdin, CHUNK)
        restore.stdout.close()
        feeder.join()
        if restore.wait() == 0:
            with suppress(BrokenPipeError):
                psql.stdin.write(b"COMMIT;\n")
        with suppress(BrokenPipeError):
            psql.stdin.close()  # without COMMIT all of it is rolled back
        if psql.wait() != 0:
            raise Refused(f"PostgreSQL refused it, and nothing was changed: {refused.text()}")
        if restore.returncode != 0:
            raise Refused(f"The file is damaged or not whole, and nothing was changed: {broken.text()}")


def _copied(source: IO[bytes], target: IO[bytes] | None) -> None:
    with suppress(BrokenPipeError), target or nullcontext():
        shutil.copyfileobj(source, target, CHUNK)  # type: ignore[arg-type]


class _Errors:
    """A program's stderr in a file, since it may exceed a pipe's buffer."""

    def __enter__(self) -> _Errors:
        self.file = tempfile.TemporaryFile()
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def text(self) -> str:
        self.file.seek(0)
        return " ".join(self.file.read().decode(errors="replace").split())[:600] or "it says nothing"


def _started(program: str, options: list[str] | None, **pipes: Any) -> subprocess.Popen[bytes]:
    """Starts one of PostgreSQL's programs with the environment for the database; `options` None: it needs no database. Raises
    Refused."""
    path = shutil.which(program)
    if path is None:
        raise Refused(f"{program} is not installed: it comes with PostgreSQL's client (Debian: postgresql-client).")
    if options is None:
        return subprocess.Popen([path, "--file=-", "--no-owner", "--no-privileges"], **pipes)  # noqa: S603
    (_psql, *where), variables = DatabaseClient.settings_to_cmd_args_env(connection.settings_dict, [])
    database = where.pop()
    command = [path, *where, *options, f"--dbname={database}"]
    return subprocess.Popen(command, env=env.with_own(variables or {}), **pipes)  # noqa: S603


def require_postgres() -> None:
    """Raises Refused on SQLite."""
    if connection.vendor != "postgresql":
        raise Refused(
            "Only PostgreSQL is backed up so. The demo's database is one file: copy it while the demo is stopped."
        )


def other_sessions() -> int:
    """The number of sessions of the same role on this database, except this process's own. Waits a moment for those that are
    ending."""
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
    alone = connections.create_connection(connection.alias)
    options = {name: value for name, value in alone.settings_dict["OPTIONS"].items() if name != "pool"}
    alone.settings_dict = {**alone.settings_dict, "OPTIONS": options}
    sessions = 0
    try:
        for _ in range(20):
            with alone.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user"
                    " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
                sessions = int(cursor.fetchone()[0])
            if not sessions:
                break
            time.sleep(0.1)
    finally:
        alone.close()
    return sessions


def unknown_migrations(about: Manifest) -> list[str]:
    """Migrations that are in the backup, but not in this version."""
    ours = MigrationLoader(None).disk_migrations
    installed = {app.label for app in apps.get_app_configs()}
    return [f"{app}.{name}" for app, name in about.migrations if app in installed and (app, name) not in ours]


def _schema() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        return str(cursor.fetchone()[0])
