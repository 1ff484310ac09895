"""`configuration/`: export and apply over HTTP, for operators and their tokens only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from portal.models import AuditEntry, Department, Role
from quotas.models import Quota
from tests import builders as make
from tests.clients import person, program
from workloads.configuration import document, plan

pytestmark = pytest.mark.django_db
URL = "/api/v1/configuration/"
LESS = f"apiVersion: {plan.API_VERSION}\ndepartments:\n  vision: {{quotas: {{a100: {{guaranteed: 4 cards}}}}}}\n"


@pytest.fixture
def vision() -> Department:
    pool, vision = make.pool("a100", cards=16), make.department("vision")
    make.quota(vision, pool, 8)
    make.holding(vision, pool, own=8, name="train")
    return vision


@pytest.fixture
def root(vision: Department) -> Any:
    return person(make.user("root", is_operator=True))


def send(client: Any, text: str | bytes, query: str = "", kind: str = "application/yaml", **headers: str) -> Any:
    return client.generic("POST", URL + query, text, content_type=kind, **headers)


def test_export_is_yaml_and_applying_it_changes_nothing(root: Any) -> None:
    answer = root.get(URL)
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/yaml; charset=utf-8")
    text = answer.content.decode()
    assert document.read(text).values["departments"]["vision"]["quotas"]["a100"]["guaranteed"] == "8 cards"
    assert send(root, text).json()["changes"] == []
    assert not AuditEntry.objects.exists()


def test_dry_run_returns_the_confirmation_that_applies_its_plan(root: Any) -> None:
    preview = send(root, LESS, "?dry_run=1").json()
    assert preview["changes"] == [
        {"path": "departments.vision.quotas.a100.guaranteed", "before": "8 cards", "after": "4 cards"}
    ]
    assert (preview["applied"], [each["kind"] for each in preview["breaks"]]) == (False, ["recallable"])
    unconfirmed = send(root, LESS)
    assert (unconfirmed.status_code, unconfirmed.json()["code"], unconfirmed.json()["confirm"]) == (
        409,
        "needs_confirmation",
        preview["confirm"],
    )
    stale = send(root, LESS, f"?confirm={'0' * 16}")
    assert (stale.status_code, stale.json()["code"]) == (409, "plan_changed")
    assert Quota.objects.get().guaranteed == 8
    done = send(root, LESS, f"?confirm={preview['confirm']}&source=repo@1", HTTP_IDEMPOTENCY_KEY="once")
    assert (done.status_code, done.json()["applied"]) == (200, True)
    again = send(root, LESS, f"?confirm={preview['confirm']}&source=repo@1", HTTP_IDEMPOTENCY_KEY="once")
    assert (again["Idempotency-Replayed"], again.json()) == ("true", done.json())
    assert AuditEntry.objects.get().source == "repo@1"
    assert root.get("/api/v1/audit/").json()["results"][0]["source"] == "repo@1"


def test_every_error_has_its_path_and_line(root: Any) -> None:
    answer = send(root, LESS.replace("4 cards", "4 GiB") + "  lab: {name: L, weight: 0}\n")
    assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json")
    assert [(each["line"], each["attr"], each["code"]) for each in answer.json()["errors"]] == [
        (3, "departments.vision.quotas.a100.guaranteed", "shape"), (4, "departments.lab.weight", "min_value"),
    ]  # fmt: skip


def test_json_is_accepted_as_yaml_and_other_content_is_rejected(root: Any) -> None:
    body = {"apiVersion": plan.API_VERSION, "departments": {"vision": {"weight": 2, "paused": True, "parent": None}}}
    assert len(send(root, json.dumps(body), kind="application/json").json()["changes"]) == 2
    assert send(root, "a: [").status_code == 422
    assert send(root, b"\xff\xfe\xff").status_code == 422
    assert send(root, "").status_code == 422
    assert send(root, LESS, kind="text/csv").status_code == 415
    for text in ('{"apiVersion": "\\ud800"}', '{"apiVersion": "\\u0000"}'):
        assert send(root, text, kind="application/json").status_code == 422


def test_only_operators_and_their_installation_wide_tokens_have_access(root: Any, vision: Department) -> None:
    owner, oscar = make.member(vision, Role.OWNER), make.member(vision, Role.OWNER, "oscar", is_operator=True)
    biology = make.member(make.department("biology"), Role.OWNER)
    for client, status in (
        (person(owner), 404), (person(biology), 404), (program(owner, vision), 404), (program(oscar, vision), 403),
        (program(oscar, None, ("read", "submit", "quota")), 403),  # type: ignore[arg-type]
    ):  # fmt: skip
        assert [client.get(URL).status_code, send(client, LESS, "?dry_run=1").status_code] == [status, status]
    assert program(oscar, None).get(URL).status_code == 200  # type: ignore[arg-type]
