"""Invalid settings are reported by name before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests import builders as make
from tests.architecture import sources


def load(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from portal import settings as s; print(s.SECRET_KEY, s.DATABASES['default']['ENGINE'])"],
        cwd=sources.ROOT, env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "SECRET_KEY is not set"),
        ({"DEBUG": "yes"}, "DEBUG must be true or false, not 'yes'"),
        ({"DEBUG": "true", "PORT": "http"}, "PORT must be a whole number, not 'http'"),
        ({"DEBUG": "true", "PORT": "0"}, "PORT must be at least 1, not 0"),
        ({"SECRET_KEY_FILE": "/nowhere/key"}, "SECRET_KEY_FILE names /nowhere/key, which cannot be read"),
    ],
)
def test_invalid_value_stops_the_start_and_its_variable_is_named(environment: dict[str, str], message: str) -> None:
    ran = load(**environment)
    assert ran.returncode != 0
    assert message in ran.stderr.splitlines()[-1]


def test_secrets_can_be_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    (tmp_path / "url").write_text("postgres://u:p@db/portal\n")
    ran = load(SECRET_KEY_FILE=str(tmp_path / "key"), DATABASE_URL_FILE=str(tmp_path / "url"))
    assert ran.stdout.split() == ["from-a-file", "django.db.backends.postgresql"]


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("https://gpu.example.org", "__Host-sessionid __Host-csrftoken True True"),
        ("http://127.0.0.1:8000", "sessionid csrftoken False False"),
    ],
)
def test_over_https_no_other_host_can_set_the_portals_cookies(address: str, names: str, tmp_path: Path) -> None:
    """A page of a host below or beside the portal's can set cookies with `domain=`, but none whose name begins with `__Host-`."""
    code = (
        "from portal import settings as s;"
        " print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME, s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE)"
    )
    environment = {"PATH": os.environ["PATH"], "DEBUG": "true", "DATA_DIR": str(tmp_path), "BASE_URL": address}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=sources.ROOT, env=environment, capture_output=True, text=True
    )
    assert ran.stdout.strip() == names, ran.stderr


def test_session_cookie_is_limited_to_this_host(settings: Any, db: None) -> None:
    settings.SESSION_COOKIE_NAME, settings.SESSION_COOKIE_SECURE = "__Host-sessionid", True
    mia = make.user("mia")
    mia.set_password("correct horse battery")
    mia.save()
    answer = Client().post("/login/", {"username": "mia", "password": "correct horse battery"})
    assert answer.status_code == 302
    cookie = answer.cookies["__Host-sessionid"]
    assert (cookie["path"], cookie["domain"], cookie["secure"], cookie["httponly"]) == ("/", "", True, True)
