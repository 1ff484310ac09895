from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, connection
from django.test import Client
from rest_framework.test import APIClient

from portal.models import Department, Role, User
from tests import builders
from tests.clients import person

pytestmark = pytest.mark.django_db
STANDARD = {"type", "title", "status", "detail", "instance", "code", "errors"}


@pytest.fixture
def olga() -> User:
    return builders.member(builders.department("vision"), Role.OWNER, "olga")


def check(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert set(document) >= STANDARD
    assert (document["status"], document["code"]) == (status, code)
    assert document["type"] == f"urn:portal:problem:{code}"
    assert document["detail"]
    return document


def test_request_without_a_token_gets_401_at_every_address() -> None:
    for path in ("departments/", "departments/vision/", "departments/nothing/", "workloads/x/", "clusters/"):
        check(APIClient().get(f"/api/v1/{path}"), 401, "not_authenticated")


def test_hidden_department_gets_the_same_404_as_a_missing_one(olga: User) -> None:
    builders.department("secret")
    hidden = check(person(olga).get("/api/v1/departments/secret/"), 404, "not_found")
    absent = check(person(olga).get("/api/v1/departments/absent/"), 404, "not_found")
    assert {k: v for k, v in hidden.items() if k != "instance"} == {k: v for k, v in absent.items() if k != "instance"}


def test_unknown_address_gets_a_problem_document() -> None:
    check(Client().get("/api/v1/nothing/here/"), 404, "not_found")


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_change_without_the_trailing_slash_is_refused_and_not_redirected(
    olga: User, settings: Any, method: str, debug: bool
) -> None:
    settings.DEBUG = debug
    answer = getattr(person(olga), method)("/api/v1/departments/vision/members", {})
    assert check(answer, 404, "not_found")["detail"] == "Not found. The address must end with a slash."
    read = person(olga).get("/api/v1/departments/vision/members")
    assert (read.status_code, read["Location"]) == (301, "/api/v1/departments/vision/members/")
    assert getattr(Client(), method)("/login").status_code == 404


def test_problem_names_the_missing_role(olga: User) -> None:
    viewer = builders.member(Department.objects.get(), Role.VIEWER)
    answer = person(viewer).post("/api/v1/departments/vision/members/", {"username": "x"})
    assert check(answer, 403, "forbidden")["role"] == "owner"


def test_malformed_json_is_400(olga: User) -> None:
    answer = person(olga).post("/api/v1/departments/vision/members/", "{", content_type="application/json")
    check(answer, 400, "parse_error")


def test_unsupported_media_type_is_415(olga: User) -> None:
    answer = person(olga).post("/api/v1/departments/vision/members/", "a=b", content_type="text/csv")
    check(answer, 415, "unsupported_media_type")


def test_unsupported_method_is_405(olga: User) -> None:
    check(person(olga).put("/api/v1/departments/vision/members/", {}), 405, "method_not_allowed")


def test_problem_names_every_field_at_fault(olga: User) -> None:
    answer = person(olga).post("/api/v1/departments/vision/members/", {"role": "king", "colour": "red"})
    assert [each["attr"] for each in check(answer, 422, "invalid")["errors"]] == ["colour"]
    answer = person(olga).post("/api/v1/departments/vision/members/", {"role": "king"})
    assert {each["attr"] for each in check(answer, 422, "invalid")["errors"]} == {"role", "username"}


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "cursor=nonsense", "cursor=cD0lMDA="])
def test_invalid_limit_or_cursor_is_422(olga: User, query: str) -> None:
    answer = person(olga).get(f"/api/v1/departments/?{query}")
    assert check(answer, 422, "invalid")["errors"][0]["attr"] == query.split("=")[0]


def test_null_character_in_an_address_is_400(olga: User) -> None:
    check(person(olga).get("/api/v1/audit/?actor=a%00b"), 400, "null_character")


def test_list_is_read_by_cursor_to_its_end(olga: User) -> None:
    for n in range(7):
        Department.objects.create(slug=f"team-{n}", name="T", parent=Department.objects.get(slug="vision"))
    ids: list[str] = []
    url: str | None = "/api/v1/departments/?limit=3"
    while url:
        page = person(olga).get(url).json()
        assert set(page) == {"results", "next"}
        ids += [each["id"] for each in page["results"]]
        url = page["next"]
    assert ids == sorted(ids)
    assert len(ids) == 8


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OperationalError("server closed the connection"), 503, "busy"),
        (InterfaceError("connection already closed"), 503, "busy"),
        (IntegrityError("UNIQUE constraint failed"), 409, "already_exists"),
        (IntegrityError("FOREIGN KEY constraint failed"), 409, "in_use"),
    ],
)
def test_database_error_is_never_500(
    olga: User, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    def fails(**_: Any) -> None:
        raise error

    monkeypatch.setattr("portal.api.departments.members.add_member", fails)
    answer = person(olga).post("/api/v1/departments/vision/members/", {"username": "x"})
    check(answer, status, code)
    assert (answer.headers.get("Retry-After") is not None) == (status == 503)


def test_unreachable_database_is_503_even_before_the_view(olga: User, monkeypatch: pytest.MonkeyPatch) -> None:
    client = person(olga)
    client.raise_request_exception = False

    def unreachable(*_: Any, **__: Any) -> None:
        raise OperationalError("connection refused") from psycopg.OperationalError("connection refused")

    with connection.execute_wrapper(unreachable):
        answer = client.get("/api/v1/departments/")
    check(answer, 503, "busy")
    assert answer["Retry-After"] == "3"


def test_unexpected_error_is_a_problem_with_the_request_id(olga: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("portal.api.departments.members.add_member", fails)
    client = person(olga)
    client.raise_request_exception = False
    answer = client.post("/api/v1/departments/vision/members/", {"username": "x"})
    document = check(answer, 500, "internal_error")
    assert document["request_id"] == answer["X-Request-ID"]
    assert "ZeroDivision" not in answer.content.decode()


def test_problem_is_in_the_readers_language(olga: User) -> None:
    answer = person(olga).get("/api/v1/departments/nothing/", headers={"Accept-Language": "zh-hans"})
    assert answer["Content-Language"] == "zh-hans"


def test_requests_above_the_rate_limit_get_429_with_the_time_to_wait(olga: User, settings: Any) -> None:
    from django.core.cache import cache

    cache.clear()
    settings.API_RATE_PER_MINUTE = 3
    client = person(olga)
    answers = [client.get("/api/v1/departments/") for _ in range(4)]
    assert [a.status_code for a in answers[:3]] == [200, 200, 200]
    assert [a["RateLimit-Remaining"] for a in answers[:3]] == ["2", "1", "0"]
    check(answers[3], 429, "throttled")
    assert 1 <= int(answers[3]["Retry-After"]) <= 61
    other = builders.member(Department.objects.get(), Role.MEMBER)
    assert person(other).get("/api/v1/departments/").status_code == 200, "another holder has a limit of its own"
    cache.clear()
