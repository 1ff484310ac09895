"""Every test runs on a real PostgreSQL (one database per worker); tests that cannot run here are skipped, with the reason."""

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

# The duration of an example depends on the machine's load; tests that hang are ended by `timeout` in pyproject.toml.
hypothesis.settings.register_profile(
    "busy", hypothesis.settings.default, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the catalogs: a new checkout has none, and a process that did not find them stays without translations."""
    if not hasattr(config, "workerinput"):  # in the controller only, since all workers would write the same files
        for language in catalogs.LANGUAGES:
            catalogs.compile_one(language)


def pytest_report_header() -> list[str]:
    database = os.environ["DATABASE_URL"].split(":")[0]
    left_out = (
        [] if database == "postgres" else ["PostgreSQL is not installed: running on SQLite, concurrency tests left out"]
    )
    if not os.environ["TEST_REDIS_URL"]:
        left_out.append("Redis is not installed: tests that need it are left out")
    return [f"database: {database}", *left_out]


ONE_BY_ONE = {
    "tests/faults/": "faults",  # on a cluster of its own
    "tests/clusters/": "cluster",  # only one per machine
    "tests/e2e/test_production.py": "cluster",
    "tests/e2e/test_helm.py": "cluster",
    "tests/e2e/test_demo.py": "demo",
    "tests/e2e/test_keycloak.py": "keycloak",
    "tests/e2e/test_saml.py": "keycloak",  # one Keycloak at a time
    "tests/e2e/": "browser",
}  # path → what its tests use one at a time. In this order they start first: they take longest, and mostly wait.


def group_of(nodeid: str) -> str:
    """The group of tests that one worker runs: a file, or all tests that use something that exists only once."""
    file = nodeid.split("::", 1)[0]
    return next((group for start, group in ONE_BY_ONE.items() if file.startswith(start)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers, the tests of a group run on one worker."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False  # the order is that of the items, below
    return ByGroup(config, log)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """The order for several workers: first the groups of ONE_BY_ONE, then files by their number of tests, so that small ones
    fill the end."""
    count = Counter(group_of(item.nodeid) for item in items)
    groups = list(dict.fromkeys(ONE_BY_ONE.values()))
    first = {group: index - len(groups) for index, group in enumerate(groups)}
    return sorted(items, key=lambda item: (first.get(group := group_of(item.nodeid), 0), -count[group], group))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In CI a test that cannot run is a failure, elsewhere it is skipped with a reason."""
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
    """With the same algorithm at its lowest cost: the usual cost of 0.2 s of two cores for each password only protects
    against guessing."""
    from django.contrib.auth.hashers import Argon2PasswordHasher as Argon2

    Argon2.time_cost, Argon2.memory_cost, Argon2.parallelism = 1, 8, 1


@pytest.fixture(autouse=True)
def verdict_cache_is_empty() -> None:
    """Clears a cache that lasts for seconds: its entries come from the database of another test."""
    verdicts = sys.modules.get("workloads.requests.verdict")
    if verdicts is not None:
        verdicts._possible.clear()


@pytest.fixture
def with_redis(settings: Any) -> Any:
    """An empty Redis, which the processes share."""
    if not os.environ["TEST_REDIS_URL"]:
        cannot("needs Redis")
    settings.REDIS_URL = os.environ["TEST_REDIS_URL"].rpartition("/")[0] + "/5"
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        yield client


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite database for demos, which saves a third of their start. tests/e2e/test_demo.py tests starts
    without one, also after a kill during the migrations."""
    file = tmp_path_factory.mktemp("migrated") / "portal.sqlite3"
    environment = {**os.environ, "DATA_DIR": str(file.parent), "DATABASE_URL": f"sqlite:///{file}", "REDIS_URL": ""}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment, check=True)
    return file
