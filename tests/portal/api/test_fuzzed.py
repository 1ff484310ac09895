"""Requests that schemathesis generates from the schema get responses that conform to it, as a member and as an operator.

FUZZ_EXAMPLES=100 tries more requests of each operation, and different ones every time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.architecture.doors import World, build
from tests.clients import token_of

MORE = int(os.environ.get("FUZZ_EXAMPLES", "0"))
pytestmark = [pytest.mark.django_db, pytest.mark.timeout(600 if not MORE else 7200)]
BOUNDED = settings(
    max_examples=MORE or 8,
    derandomize=not MORE,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# A schema cannot say which pool counts MiB or which department has teams: what it allows may still be refused.
LEFT_OUT = [positive_data_acceptance]


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> Iterator[World]:
    settings.DATA_DIR, settings.DEBUG, settings.API_RATE_PER_MINUTE = tmp_path, True, 10**6
    for signal in (request_started, request_finished):  # as Django's test client does, to keep the transaction open
        signal.disconnect(close_old_connections)
    yield build()
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.parametrize("role", ["member", "operator"])
def test_every_operation_conforms_to_the_schema(world: World, role: str) -> None:
    _row, secret = token_of(world.people[role], world.vision)
    headers = {"Authorization": f"Bearer {secret}", "Host": "localhost"}
    schema = schemathesis.openapi.from_wsgi("/api/v1/schema/?format=json", get_wsgi_application())
    operations = [found.ok() for found in schema.get_all_operations()]
    wrong: list[str] = []
    tried: set[str] = set()
    for operation in operations:

        @BOUNDED
        @given(case=operation.as_strategy())
        def answers(case: Any) -> None:
            for name in {*(case.path_parameters or {})} & world.values.keys():
                case.path_parameters[name] = world.values[name]
            case.call_and_validate(headers=headers, excluded_checks=LEFT_OUT)
            tried.add(case.operation.label)

        try:
            answers()
        except (Exception, BaseExceptionGroup) as error:
            wrong.append(f"{operation.label}: {error}"[:2000])
    assert wrong == []
    assert tried == {operation.label for operation in operations}
