"""`manage.py backup` and `manage.py restore` on a real PostgreSQL, with its own programs."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from portal.infra.crypt import decrypt, encrypt
from portal.management import backups
from portal.models import AuditEntry, Department, User
from quotas.engine.planning_pass import decide
from quotas.models import Cluster, Pool
from quotas.planning.snapshot import load_snapshot
from tests.architecture.doors import build
from tests.clusters.realcluster import cannot

pytestmark = pytest.mark.django_db(transaction=True)


def server() -> psycopg.Connection[Any]:
    own = connection.settings_dict
    return psycopg.connect(host=own["HOST"], port=own["PORT"], user=own["USER"], dbname="postgres", autocommit=True)


@pytest.fixture(autouse=True)
def separate_database() -> Iterator[None]:
    """A separate database with all tables: the one of the other tests is neither dropped nor restored."""
    if connection.vendor != "postgresql" or shutil.which("pg_dump") is None:
        cannot("needs PostgreSQL and its programs")
    own = str(connection.settings_dict["NAME"])
    _disconnect()
    with server() as admin:
        admin.execute(f'CREATE DATABASE "{own}_apart" TEMPLATE "{own}"')
    connection.settings_dict["NAME"] = f"{own}_apart"
    try:
        yield
    finally:
        _disconnect()
        connection.settings_dict["NAME"] = own
        with server() as admin:
            admin.execute(f'DROP DATABASE "{own}_apart" WITH (FORCE)')


def _disconnect() -> None:
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]


def rows() -> dict[str, str]:
    """Table → a digest of all its rows, without what the commands themselves write."""
    digests = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            own = "WHERE action NOT LIKE 'backup.%%'" if table == AuditEntry._meta.db_table else ""
            cursor.execute(f'SELECT t::text FROM "{table}" t {own} ORDER BY 1')
            digests[table] = hashlib.sha256(repr(cursor.fetchall()).encode()).hexdigest()
    return digests


def plan_digest(now: Any) -> str:
    """A digest of the plan for the current state."""
    group = Pool.objects.get(slug="a100").group
    return hashlib.sha256(repr(decide(load_snapshot(group, now=now))).encode()).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A backup of an installation with one of everything."""
    build()
    Cluster.objects.update(connection=encrypt("kubeconfig"))
    call_command("backup", str(tmp_path / "portal.backup"))
    return tmp_path / "portal.backup"


def drop_everything() -> None:
    with connection.cursor() as cursor:
        names = ", ".join(f'"{name}"' for name in connection.introspection.table_names())
        cursor.execute(f"DROP TABLE {names} CASCADE")


def test_restore_brings_back_every_row_and_the_same_plan(file: Path) -> None:
    before, now = rows(), timezone.now()
    plan = plan_digest(now)
    assert AuditEntry.objects.get(action="backup.made").target == "portal.backup"
    drop_everything()
    call_command("restore", str(file))
    assert rows() == before
    assert plan_digest(now) == plan
    assert decrypt(Cluster.objects.get().connection) == "kubeconfig"
    assert AuditEntry.objects.get(action="backup.restored").target == "portal.backup"
    Department.objects.create(slug="new", name="New")  # its primary key is not taken
    assert not subprocess.run(["grep", "-c", "kubeconfig", file], capture_output=True, text=True).stdout.startswith("1")
    assert file.stat().st_mode & 0o777 == 0o600


def test_existing_data_is_replaced_only_with_force(file: Path) -> None:
    before = rows()
    Department.objects.create(slug="new", name="New")
    with pytest.raises(CommandError, match="not empty"):
        call_command("restore", str(file))
    assert Department.objects.filter(slug="new").exists()
    call_command("restore", str(file), force=True)
    assert rows() == before


def test_migrated_database_without_users_counts_as_empty(file: Path) -> None:
    before = rows()
    drop_everything()
    call_command("migrate", verbosity=0)
    call_command("restore", str(file))
    assert rows() == before


def damaged(file: Path, damage: str) -> Path:
    content = file.read_bytes()
    bad = file.with_name("bad.backup")
    head, _, body = content.partition(b"\n")
    half = len(body) // 2
    bad.write_bytes({
        "cut off": content[:-2000],
        "first line only": head + b"\n",
        "overwritten in the middle": head + b"\n" + body[:half] + b"x" * 200 + body[half + 200 :],
        "another kind of file": b"hello\n" + body,
        "empty": b"",
    }[damage])  # fmt: skip
    return bad


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("cut off", "nothing was changed"),
        ("first line only", "nothing was changed"),
        ("overwritten in the middle", "nothing was changed"),
        ("another kind of file", "not a backup of the portal"),
        ("empty", "not a backup of the portal"),
    ],
)
def test_damaged_or_missing_file_changes_nothing(file: Path, damage: str, sentence: str) -> None:
    before = rows()
    with pytest.raises(CommandError, match=sentence):
        call_command("restore", str(damaged(file, damage)), force=True)
    assert rows() == before
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        call_command("restore", str(file.with_name("nowhere")), force=True)


def test_restore_without_the_encryption_keys_is_refused_and_names_them(file: Path, settings: Any) -> None:
    key = backups.fingerprints()[0]
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(CommandError, match=rf"not in ENCRYPTION_KEYS: {key}"):
        call_command("restore", str(file), force=True)
    call_command("restore", str(file), force=True, other_keys=True)
    assert User.objects.filter(username="owner").exists()


def test_a_backup_of_a_newer_version_is_refused(file: Path) -> None:
    head, _, body = file.read_bytes().partition(b"\n")
    about = json.loads(head)
    about["migrations"].append(["portal", "9999_of_tomorrow"])
    file.write_bytes(json.dumps(about).encode() + b"\n" + body)
    with pytest.raises(CommandError, match=r"newer than this one.*portal\.9999_of_tomorrow"):
        call_command("restore", str(file), force=True)


def test_database_in_use_is_not_replaced(file: Path) -> None:
    own = connection.settings_dict
    with (
        psycopg.connect(host=own["HOST"], port=own["PORT"], user=own["USER"], dbname=own["NAME"]),
        pytest.raises(CommandError, match="1 other sessions"),
    ):
        call_command("restore", str(file), force=True)


def test_folder_keeps_the_given_number_of_backups(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    for hour in range(3):
        (folder / f"gpu-quota-portal-20260101T0{hour}0000Z.backup").touch()
    call_command("backup", str(folder), keep=2)
    kept = sorted(path.name for path in folder.iterdir())
    assert kept[0] == "gpu-quota-portal-20260101T020000Z.backup"
    assert len(kept) == 2
    for invalid in ({"keep": 0}, {"keep": -1}):
        with pytest.raises(CommandError, match="at least 1"):
            call_command("backup", str(folder), **invalid)
    with pytest.raises(CommandError, match="there already"):
        call_command("backup", str(file))
    with pytest.raises(CommandError, match="cannot be written: No such file"):
        call_command("backup", str(tmp_path / "nowhere" / "a.backup"))


def test_missing_postgresql_program_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups.shutil, "which", lambda _name: None)
    with pytest.raises(CommandError, match="pg_dump is not installed"):
        call_command("backup", str(file.with_name("other.backup")))
    assert [path.name for path in file.parent.iterdir()] == [file.name]
