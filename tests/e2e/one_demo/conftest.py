"""Fixtures for journeys that recall no cards and change no quotas, so that they can share one demo and one browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import browser, running_demo


@pytest.fixture(scope="package")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="package")
def demo(demo_folder: Path, migrated: Path) -> Iterator[str]:
    with running_demo(demo_folder, migrated) as address:
        yield address


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    with browser() as launched:
        yield launched
