"""Compose file, image and variables of an installation agree with the code."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.architecture import compose, sources
from tests.portal.infra.test_env_example import named

FILE = sources.ROOT / "docker-compose.yml"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(compose.load(FILE)["services"])


def test_the_compose_file_is_valid() -> None:
    assert compose.faults(FILE) == []


def test_compose_file_has_every_process(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "redis", "migrate", "web", "worker", "beat", "watcher"}


def test_compose_file_sets_only_variables_that_exist(services: dict[str, Any]) -> None:
    for name in ("migrate", "web", "worker", "beat", "watcher"):
        given = {variable.removesuffix("_FILE") for variable in services[name]["environment"]}
        assert given <= set(named())


def test_no_process_runs_as_root_or_can_become_root(services: dict[str, Any]) -> None:
    assert re.search(r"^USER 10001:10001$", (sources.ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for name in ("migrate", "web", "worker", "beat", "watcher"):
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["security_opt"] == ["no-new-privileges:true"]


def test_compose_file_contains_no_secret() -> None:
    assert not re.search(
        r"(?i)(password|secret|key|token)\w*:\s*[\"']?(?!/run/secrets/)[A-Za-z0-9+/_=-]{16,}", FILE.read_text()
    )


def test_the_image_has_every_folder_that_is_imported_or_served() -> None:
    copied = set(re.findall(r"^COPY (\w+) \w+$", (sources.ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert copied == {"portal", "quotas", "workloads", "templates", "static", "locale", "docs"}
    ignored = (sources.ROOT / ".dockerignore").read_text().splitlines()
    assert all(f"!{folder}" in ignored for folder in copied)
