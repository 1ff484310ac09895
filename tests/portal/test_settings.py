"""Settings say what is wrong with them, by name, before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import sources


def load(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from portal import settings as s; print(s.SECRET_KEY, s.DATABASES['default']['ENGINE'])"],
        cwd=sources.ROOT, env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "SECRET_KEY is not set"),
        ({"DEBUG": "yes"}, "DEBUG must be true or false, not 'yes'"),
        ({"DEBUG": "true", "PORT": "http"}, "PORT must be a whole number, not 'http'"),
        ({"DEBUG": "true", "PORT": "0"}, "PORT must be at least 1, not 0"),
        ({"SECRET_KEY_FILE": "/nowhere/key"}, "SECRET_KEY_FILE names /nowhere/key, which cannot be read"),
    ],
)
def test_a_wrong_value_stops_the_start_with_its_name(environment: dict[str, str], said: str) -> None:
    ran = load(**environment)
    assert ran.returncode != 0
    assert said in ran.stderr.splitlines()[-1]


def test_secrets_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    (tmp_path / "url").write_text("postgres://u:p@db/portal\n")
    ran = load(SECRET_KEY_FILE=str(tmp_path / "key"), DATABASE_URL_FILE=str(tmp_path / "url"))
    assert ran.stdout.split() == ["from-a-file", "django.db.backends.postgresql"]
