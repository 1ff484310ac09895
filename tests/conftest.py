"""Every test runs on a real PostgreSQL (one database per worker); what cannot run here is skipped by name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis

from portal.text import catalogs
from tests.clusters.realcluster import ROOT, cannot

# How long an example takes says what else the machine does; what takes too long for everybody meets `timeout` in pyproject.toml.
hypothesis.settings.register_profile(
    "busy", hypothesis.settings.default, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    """A new checkout has no compiled catalogs, and a process that missed them once stays without translations."""
    if not hasattr(config, "workerinput"):  # before there are workers, which would all write them
        for language in catalogs.LANGUAGES:
            catalogs.compile_one(language)


def pytest_report_header() -> list[str]:
    database = os.environ["DATABASE_URL"].split(":")[0]
    left_out = (
        [] if database == "postgres" else ["PostgreSQL is not here: running on SQLite, concurrency tests left out"]
    )
    if not os.environ["TEST_REDIS_URL"]:
        left_out.append("Redis is not here: tests that need it are left out")
    return [f"database: {database}", *left_out]


ONE_BY_ONE = {
    "tests/faults/": "faults",  # on a cluster of its own
    "tests/clusters/": "cluster",  # the machine has one
    "tests/e2e/test_production.py": "cluster",
    "tests/e2e/test_helm.py": "cluster",
    "tests/e2e/test_demo.py": "demo",
    "tests/e2e/test_keycloak.py": "keycloak",
    "tests/e2e/test_saml.py": "keycloak",  # one Keycloak at a time
    "tests/e2e/": "browser",
}  # where a file lies → what goes one by one. In the order in which they begin: they take longest, and mostly wait.


def room_of(nodeid: str) -> str:
    """What is run by one worker: a file, or all that uses what the machine has once."""
    file = nodeid.split("::", 1)[0]
    return next((room for start, room in ONE_BY_ONE.items() if file.startswith(start)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers a file stays together, and what takes the whole machine goes one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByRoom(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return room_of(nodeid)

    config.option.loadscopereorder = False  # the order is that of the items, below
    return ByRoom(config, log)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """For several workers: what goes one by one first, then the files with the most tests; the small ones fill the end."""
    count = Counter(room_of(item.nodeid) for item in items)
    rooms = list(dict.fromkeys(ONE_BY_ONE.values()))
    first = {room: index - len(rooms) for index, room in enumerate(rooms)}
    return sorted(items, key=lambda item: (first.get(room := room_of(item.nodeid), 0), -count[room], room))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In CI a test that cannot run is a failure, elsewhere it is skipped and said."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = in_order(items)
    if os.environ["DATABASE_URL"].startswith("postgres") or os.environ.get("CI"):
        return
    for item in items:
        if item.get_closest_marker("concurrency"):
            item.add_marker(pytest.mark.skip(reason="needs PostgreSQL"))


@pytest.fixture(scope="session", autouse=True)
def committed_rows_are_deleted() -> None:
    """After each test with `django_db(transaction=True)`."""
    from django.test import TransactionTestCase

    from tests import database

    TransactionTestCase._fixture_teardown = database.teardown  # type: ignore[method-assign]


@pytest.fixture(scope="session", autouse=True)
def passwords_are_hashed_with_little_work() -> None:
    """By the same method as ever, with the least that it takes: 0.2 s of both cores for each password are for guessers."""
    from django.contrib.auth.hashers import Argon2PasswordHasher as Argon2

    Argon2.time_cost, Argon2.memory_cost, Argon2.parallelism = 1, 8, 1


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> None:
    """What this process remembers for seconds belongs to another test's database."""
    verdicts = sys.modules.get("workloads.requests.verdict")
    if verdicts is not None:
        verdicts._possible.clear()


@pytest.fixture
def with_redis(settings: Any) -> Any:
    """An empty one, by which processes know of each other."""
    if not os.environ["TEST_REDIS_URL"]:
        cannot("needs Redis")
    settings.REDIS_URL = os.environ["TEST_REDIS_URL"].rpartition("/")[0] + "/5"
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        yield client


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with all tables and nobody in it, for demos to begin with: a third of what their start takes.
    That a demo begins without one, also when killed meanwhile, is what tests/e2e/test_demo.py tries."""
    file = tmp_path_factory.mktemp("migrated") / "portal.sqlite3"
    environment = {**os.environ, "DATA_DIR": str(file.parent), "DATABASE_URL": f"sqlite:///{file}", "REDIS_URL": ""}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment, check=True)
    return file
