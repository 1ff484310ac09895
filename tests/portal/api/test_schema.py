import io
import re
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client
from openapi_spec_validator import validate

from tests import builders as make
from tests.clients import person

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("schema") / "openapi.yml"
    errors = io.StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(file), stderr=errors)
    assert errors.getvalue() == ""
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


def test_the_schema_is_openapi_3_1_and_valid(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    validate(document)


def test_every_operation_documents_its_errors_and_its_security(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert "application/problem+json" in operation["responses"]["default"]["content"], (method, path)
            if not path.endswith(("/ready/", "/schema/")):
                assert {"token": []} in operation["security"], (method, path)


def test_every_list_is_paged(document: dict[str, Any]) -> None:
    lists = {
        path: {p["name"] for p in each["get"]["parameters"]}
        for path, each in document["paths"].items()
        if each.get("get", {}).get("operationId", "").endswith("_list")
    }
    assert len(lists) > 12
    assert all(names >= {"limit", "cursor"} for names in lists.values()), lists


def test_schema_has_the_resources_of_the_contract(document: dict[str, Any]) -> None:
    found = {path.removeprefix("/api/v1/"): set(each) for path, each in document["paths"].items()}
    for path, methods in {
        "departments/": {"get", "post"},
        "departments/{department}/": {"get", "patch", "delete"},
        "departments/{department}/members/": {"get", "post"},
        "departments/{department}/quotas/{pool}/": {"get", "put"},
        "departments/{department}/usage/": {"get"},
        "departments/{department}/workloads/": {"get", "post"},
        "workloads/": {"get"},
        "workloads/{workload}/": {"get", "delete"},
        "workloads/{workload}/rerun/": {"post"},
        "workloads/{workload}/extend/": {"post"},
        "workloads/{workload}/logs/": {"get"},
        "workloads/{workload}/files/{path}": {"get", "put", "delete"},
        "workloads/{workload}/events/": {"get"},
        "workloads/{workload}/ready/": {"post"},
        "events/": {"get"},
        "pools/": {"get"},
        "nodes/": {"get"},
        "decisions/": {"get"},
        "loans/": {"get"},
        "presets/": {"get"},
        "images/": {"get"},
        "tokens/": {"get", "post"},
        "audit/": {"get"},
        "recalls/": {"get", "post"},
        "recalls/{recall}/": {"get", "delete"},
        "clusters/": {"get", "post"},
        "clusters/{cluster}/": {"get", "patch"},
    }.items():
        assert found.get(path, set()) >= methods, path


def test_page_to_try_the_api_has_no_inline_scripts() -> None:
    page = Client().get("/api/v1/docs/try/")
    assert page.status_code == 200
    policy = page["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    html = page.content.decode()
    assert "<script>" not in html
    assert "cdn" not in html


IGNORES_ITS_BODY = {"workloads_ready"}  # called inside a container, often by a shell's one-liner: only its token counts


def test_operation_without_a_body_refuses_every_field_of_one(document: dict[str, Any]) -> None:
    client, ignored, tried = person(make.user("root", is_operator=True)), [], 0
    for path, operations in document["paths"].items():
        for method in {"post", "put", "patch", "delete"} & set(operations):
            name = operations[method]["operationId"]
            if "requestBody" in operations[method] or name in IGNORES_ITS_BODY:
                continue
            tried += 1
            address = re.sub(r"{\w+}", "x1", path)
            answer = getattr(client, method)(address, {"name": "again", "units": 2}, format="json")
            named = {each["attr"] for each in answer.json().get("errors", ())}
            if (answer.status_code, named) != (422, {"name", "units"}):
                ignored.append((name, answer.status_code))
            assert getattr(client, method)(address, {}, format="json").status_code != 422, name
            assert getattr(client, method)(address).status_code != 422, name
    assert ignored == []
    assert tried > 10
