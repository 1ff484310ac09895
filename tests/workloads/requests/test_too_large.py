"""Limits on what one person can submit, so that the portal stays usable for all: commands, variables, queue, lists."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.architecture.doors import World, build
from tests.clients import person
from workloads.models import TEXTS, Workload
from workloads.requests.validation import BESIDE_A_WORD, LARGEST_TEXT, LONGEST_WORD

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(settings: Any, tmp_path: Any) -> World:
    settings.DATA_DIR = tmp_path
    return build()


def submit(world: World, query: str = "", **fields: Any) -> Any:
    body = {
        "kind": "job",
        "name": "big",
        "pool": "a100",
        "image": "python:3.11",
        "units_per_pod": 1,
        "command": ["true"],
    }
    client = person(world.people["member"])
    return client.post(f"/api/v1/departments/vision/workloads/{query}", {**body, **fields}, format="json")


@pytest.mark.parametrize(
    ("fields", "attr", "size"),
    [
        ({"command": ["echo", "x" * (LONGEST_WORD + 1)]}, "command", LONGEST_WORD + 1),
        ({"command": ["echo", "汉" * (LONGEST_WORD // 3 + 1)]}, "command", LONGEST_WORD // 3 * 3 + 3),
        ({"command": ["x" * 1000] * 300}, "command", 300 * 1009),
        ({"command": ["sleep"] + [""] * 100_000}, "command", 100_001 * 9 + 5),
        ({"env": {f"NAME_{n}": "x" * 30_000 for n in range(10)}}, "env", 10 * 30_016 + 13),
        ({"env": {f"NAME_{n}": {"secret": "x" * 30_000} for n in range(10)}}, "env", 10 * 30_016 + 13),
    ],
)
def test_command_and_variables_have_a_maximum_size(world: World, fields: Any, attr: str, size: int) -> None:
    before = Workload.objects.count()
    response = submit(world, **fields)
    assert response.status_code == 422, response.content[:300]
    [fault] = response.json()["errors"]
    assert (fault["attr"], fault["code"]) == (attr, "too_long")
    assert f"{size} bytes" in fault["detail"]
    assert "working directory" in fault["detail"]
    assert Workload.objects.count() == before


def test_command_of_exactly_the_maximum_size_is_accepted(world: World) -> None:
    fits = ["x" * LONGEST_WORD, "y" * (LARGEST_TEXT - LONGEST_WORD - 2 * BESIDE_A_WORD)]
    assert submit(world, command=fits).status_code == 202
    assert submit(world, command=[*fits, ""]).status_code == 422


def test_number_of_queued_workloads_per_person_is_limited(world: World, settings: Any) -> None:
    settings.QUEUED_PER_PERSON = 2
    assert [submit(world).status_code for _ in range(3)] == [202, 202, 422]
    problem = submit(world).json()
    assert (problem["code"], problem["waiting"], problem["most"]) == ("queue_full", 2, 2)
    other = person(world.people["owner"])
    body = {"kind": "job", "name": "o", "pool": "a100", "image": "python:3.11", "units_per_pod": 1, "command": ["true"]}
    assert other.post("/api/v1/departments/vision/workloads/", body, format="json").status_code == 202


@pytest.mark.parametrize(
    "address", ["/api/v1/workloads/", "/api/v1/departments/vision/workloads/", "/d/vision/workloads/", "/"]
)
def test_lists_do_not_read_commands_and_variables_from_the_database(world: World, address: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert world.client("member").get(address).status_code == 200
    read = [
        query["sql"] for query in queries if any(f'"workloads_workload"."{column}"' in query["sql"] for column in TEXTS)
    ]
    assert read == []


@pytest.mark.parametrize(
    ("fields", "attr", "problem"),
    [
        ({"env": {"": "a"}}, "env", "“” is not a valid variable name. Use Latin letters"),
        ({"env": {"A\n": "a"}}, "env", "“A” is not a valid variable name"),
        ({"env": {"Ａ": "a"}}, "env", "“Ａ” is not a valid variable name"),
        ({"env": {"A": "a\0b"}}, "env", "A contains a NUL or an incomplete character"),
        ({"env": {"A": {"secret": "a\0b"}}}, "env", "A contains a NUL or an incomplete character"),
        ({"env": {"A": 1}}, "env", "A: must be a text, or an object with the single key “secret”."),
        ({"env": {"LD_PRELOAD": "x.so"}}, "env", "LD_PRELOAD is reserved: it could change which cards"),
        ({"command": ["", "x"]}, "command", "Enter the command that the job runs."),
        ({"command": [" \t"]}, "command", "Enter the command that the job runs."),
        ({"setup": []}, "setup", "Expected a dictionary"),
    ],
)
def test_invalid_values_are_refused_with_an_explanation(
    world: World, fields: dict[str, Any], attr: str, problem: str
) -> None:
    for query in ("", "?dry_run=1"):
        response = submit(world, query=query, **fields)
        assert (response.status_code, [error["attr"] for error in response.json()["errors"]]) == (422, [attr])
        assert problem in response.json()["errors"][0]["detail"]
        assert "\n" not in response.json()["detail"]
    assert not Workload.objects.filter(name="big").exists()


@pytest.mark.parametrize("body", [[], "x", 3, [{}]])
def test_body_that_is_not_an_object_is_refused_without_naming_a_field(world: World, body: Any) -> None:
    client = person(world.people["member"])
    response = client.post("/api/v1/departments/vision/workloads/", body, format="json")
    assert (response.status_code, [error["attr"] for error in response.json()["errors"]]) == (422, [None])
    assert "non_field" not in response.content.decode()
