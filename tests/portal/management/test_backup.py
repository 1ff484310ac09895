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
def apart() -> Iterator[None]:
    """A database of its own, with all tables: what is dropped and restored is not the one of the other tests."""
    if connection.vendor != "postgresql" or shutil.which("pg_dump") is None:
        cannot("needs PostgreSQL and its programs")
    own = str(connection.settings_dict["NAME"])
    _leave()
    with server() as admin:
        admin.execute(f'CREATE DATABASE "{own}_apart" TEMPLATE "{own}"')
    connection.settings_dict["NAME"] = f"{own}_apart"
    try:
        yield
    finally:
        _leave()
        connection.settings_dict["NAME"] = own
        with server() as admin:
            admin.execute(f'DROP DATABASE "{own}_apart" WITH (FORCE)')


def _leave() -> None:
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


def planned(now: Any) -> str:
    """What the planner makes of what is there, as a digest."""
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


def test_what_was_dropped_is_back_with_every_row_and_plans_the_same(file: Path) -> None:
    before, now = rows(), timezone.now()
    plan = planned(now)
    assert AuditEntry.objects.get(action="backup.made").target == "portal.backup"
    drop_everything()
    call_command("restore", str(file))
    assert rows() == before
    assert planned(now) == plan
    assert decrypt(Cluster.objects.get().connection) == "kubeconfig"
    assert AuditEntry.objects.get(action="backup.restored").target == "portal.backup"
    Department.objects.create(slug="new", name="New")  # its number is a free one
    assert not subprocess.run(["grep", "-c", "kubeconfig", file], capture_output=True, text=True).stdout.startswith("1")
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_there_is_replaced_on_demand_only(file: Path) -> None:
    before = rows()
    Department.objects.create(slug="new", name="New")
    with pytest.raises(CommandError, match="not empty"):
        call_command("restore", str(file))
    assert Department.objects.filter(slug="new").exists()
    call_command("restore", str(file), force=True)
    assert rows() == before


def test_an_installation_in_which_nobody_is_yet_counts_as_empty(file: Path) -> None:
    before = rows()
    drop_everything()
    call_command("migrate", verbosity=0)
    call_command("restore", str(file))
    assert rows() == before


def damaged(file: Path, how: str) -> Path:
    content = file.read_bytes()
    bad = file.with_name("bad.backup")
    head, _, body = content.partition(b"\n")
    half = len(body) // 2
    bad.write_bytes({
        "cut off": content[:-2000],
        "nothing behind the first line": head + b"\n",
        "other bytes in the middle": head + b"\n" + body[:half] + b"x" * 200 + body[half + 200 :],
        "something else": b"hello\n" + body,
        "empty": b"",
    }[how])  # fmt: skip
    return bad


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("cut off", "nothing was changed"),
        ("nothing behind the first line", "nothing was changed"),
        ("other bytes in the middle", "nothing was changed"),
        ("something else", "no backup of the portal"),
        ("empty", "no backup of the portal"),
    ],
)
def test_a_broken_file_changes_nothing(file: Path, how: str, sentence: str) -> None:
    before = rows()
    with pytest.raises(CommandError, match=sentence):
        call_command("restore", str(damaged(file, how)), force=True)
    assert rows() == before
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        call_command("restore", str(file.with_name("nowhere")), force=True)


def test_without_its_keys_it_is_refused_and_says_which(file: Path, settings: Any) -> None:
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


def test_while_somebody_uses_the_database_it_is_not_replaced(file: Path) -> None:
    own = connection.settings_dict
    with (
        psycopg.connect(host=own["HOST"], port=own["PORT"], user=own["USER"], dbname=own["NAME"]),
        pytest.raises(CommandError, match="1 other sessions"),
    ):
        call_command("restore", str(file), force=True)


def test_a_folder_keeps_so_many(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    for hour in range(3):
        (folder / f"gpu-quota-portal-20260101T0{hour}0000Z.backup").touch()
    call_command("backup", str(folder), keep=2)
    kept = sorted(path.name for path in folder.iterdir())
    assert kept[0] == "gpu-quota-portal-20260101T020000Z.backup"
    assert len(kept) == 2
    for wrong in ({"keep": 0}, {"keep": -1}):
        with pytest.raises(CommandError, match="at least 1"):
            call_command("backup", str(folder), **wrong)
    with pytest.raises(CommandError, match="there already"):
        call_command("backup", str(file))
    with pytest.raises(CommandError, match="cannot be written: No such file"):
        call_command("backup", str(tmp_path / "nowhere" / "a.backup"))


def test_without_postgresqls_programs_it_says_what_is_missing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups.shutil, "which", lambda _name: None)
    with pytest.raises(CommandError, match="pg_dump is not installed"):
        call_command("backup", str(file.with_name("other.backup")))
    assert [path.name for path in file.parent.iterdir()] == [file.name]
