from typing import Any

import pytest

from portal.models import AuditEntry, Department, Membership, Role, User
from tests import builders as make
from tests.clients import person, program

pytestmark = pytest.mark.django_db
URL = "/api/v1/departments/"


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


@pytest.fixture
def root() -> User:
    return make.user("root", is_operator=True)


@pytest.fixture
def olga(vision: Department) -> User:
    return make.member(vision, Role.OWNER, "olga")


def test_users_see_their_departments_and_their_rights_there(vision: Department, olga: User, root: User) -> None:
    team = make.department("vision-lab", parent=vision)
    make.department("nlp")
    mia = make.member(team, Role.MEMBER)
    assert [d["id"] for d in person(olga).get(URL).json()["results"]] == ["vision", "vision-lab"], (
        "an owner's role reaches down"
    )
    [lab] = person(mia).get(URL).json()["results"]
    assert (lab["parent"], lab["role"], lab["rights"]) == ("vision", "member", ["read", "submit", "tokens"])
    assert [d["id"] for d in person(root).get(URL).json()["results"]] == ["nlp", "vision", "vision-lab"]
    assert [d["id"] for d in person(root).get(URL + "?parent=vision").json()["results"]] == ["vision-lab"]


def test_operator_creates_changes_and_removes_departments(root: User) -> None:
    client = person(root)
    created = client.post(URL, {"id": "nlp", "name": "NLP", "weight": 2})
    assert (created.status_code, created["Location"], created["ETag"]) == (201, "/api/v1/departments/nlp/", '"1"')
    changed = client.patch(f"{URL}nlp/", {"name": "Language"}, headers={"If-Match": created["ETag"]})
    assert (changed.status_code, changed.json()["name"], changed["ETag"]) == (200, "Language", '"2"')
    stale = client.patch(f"{URL}nlp/", {"weight": 5}, headers={"If-Match": created["ETag"]})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    assert client.patch(f"{URL}nlp/", {"weight": 5}).status_code == 428
    assert client.patch(f"{URL}nlp/", {"weight": 5}, headers={"If-Match": "yesterday"}).status_code == 422
    assert client.delete(f"{URL}nlp/").status_code == 204
    assert list(AuditEntry.objects.order_by("id").values_list("action", flat=True)) == [
        "department.created", "department.changed", "department.removed",
    ]  # fmt: skip


def test_department_in_use_cannot_be_removed(root: User, vision: Department) -> None:
    make.quota(vision, make.pool("a100"), 1)
    assert person(root).delete(f"{URL}vision/").json()["code"] == "in_use"
    assert Department.objects.filter(slug="vision").exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"id": "No Spaces", "name": "x"}, "id"),
        ({"id": "vision", "name": "x"}, "id"),
        ({"id": "nlp", "name": "x", "parent": "nowhere"}, "parent"),
        ({"id": "nlp", "name": "x", "weight": 0}, "weight"),
        ({"id": "nlp", "name": "x", "wheight": 1}, "wheight"),
        ({"name": "x"}, "id"),
    ],
)
def test_invalid_department_is_refused_with_the_field_at_fault(
    root: User, vision: Department, body: Any, field: str
) -> None:
    answer = person(root).post(URL, body)
    assert (answer.status_code, answer.json()["errors"][0]["attr"]) == (422, field)


def test_owners_can_pause_but_not_rename_their_department(vision: Department, olga: User) -> None:
    client = person(olga)
    paused = client.patch(f"{URL}vision/", {"paused": True}, headers={"If-Match": '"1"'})
    assert (paused.status_code, paused.json()["paused"]) == (200, True)
    assert client.patch(f"{URL}vision/", {"name": "X"}, headers={"If-Match": '"2"'}).status_code == 403
    assert client.post(URL, {"id": "x", "name": "x"}).status_code == 404
    assert client.delete(f"{URL}vision/").status_code == 403


def test_owners_add_change_and_remove_members(vision: Department, olga: User) -> None:
    make.user("bob")
    client, members = person(olga), f"{URL}vision/members/"
    added = client.post(members, {"username": "bob"})
    assert (added.status_code, added.json()["role"], added["Location"]) == (201, "member", f"{members}bob/")
    assert client.post(members, {"username": "bob"}).json()["code"] == "already_member"
    assert client.post(members, {"username": "nobody"}).json()["errors"][0]["attr"] == "username"
    assert client.patch(f"{members}bob/", {"role": "viewer"}).json()["role"] == "viewer"
    assert [m["username"] for m in client.get(members).json()["results"]] == ["bob", "olga"]
    assert client.delete(f"{members}bob/").status_code == 204
    assert client.get(f"{members}bob/").status_code == 404
    assert client.delete(f"{members}olga/").json()["code"] == "last_owner"
    assert Membership.objects.get().user == olga


OPERATIONS = [
    ("get", "departments/vision/"),
    ("patch", "departments/vision/"),
    ("delete", "departments/vision/"),
    ("get", "departments/vision/members/"),
    ("post", "departments/vision/members/"),
    ("get", "departments/vision/members/olga/"),
    ("patch", "departments/vision/members/olga/"),
    ("delete", "departments/vision/members/olga/"),
    ("get", "departments/vision/service_accounts/"),
    ("post", "departments/vision/service_accounts/"),
    ("delete", "departments/vision/service_accounts/x/"),
    ("get", "audit/?department=vision"),
    ("get", "tokens/?department=vision"),
]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_strangers_get_404_and_viewers_cannot_change_anything(
    vision: Department, olga: User, method: str, path: str
) -> None:
    stranger = make.member(make.department("nlp"), Role.OWNER)
    assert getattr(person(stranger), method)(f"/api/v1/{path}", {}).status_code == 404
    viewer = person(make.member(vision, Role.VIEWER))
    if method != "get":
        assert getattr(viewer, method)(f"/api/v1/{path}", {}).status_code == 403
    reader = program(olga, vision, ["read"])
    if method != "get":
        answer = getattr(reader, method)(f"/api/v1/{path}", {})
        assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
    assert Membership.objects.filter(department=vision).count() == 2


def test_owners_read_the_audit_log_of_their_departments_and_operators_all(
    vision: Department, olga: User, root: User
) -> None:
    make.user("bob")
    program(olga, vision).post(f"{URL}vision/members/", {"username": "bob"})
    person(root).post(URL, {"id": "nlp", "name": "NLP"})
    [entry] = person(olga).get("/api/v1/audit/").json()["results"]
    assert (entry["actor"], entry["token"], entry["action"]) == ("olga", "olga-ci", "member.added")
    assert len(person(root).get("/api/v1/audit/").json()["results"]) == 2
    assert len(person(root).get("/api/v1/audit/?action=department.").json()["results"]) == 1
    assert person(User.objects.get(username="bob")).get("/api/v1/audit/").json()["results"] == []
