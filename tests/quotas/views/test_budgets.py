"""Budgets on pages and in the API: set, changed in two tabs, removed, shown."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.models import Department, Role, User
from quotas.models import Budget, ClaimState, Pool
from tests import builders as make
from tests.clients import confirmed, person, program

pytestmark = pytest.mark.django_db(transaction=True)
API = "/api/v1/"
FORM = {
    "person": "",
    "pool": "",
    "hours": "100",
    "counts": "all",
    "action": "no_borrowing",
    "starts_on": "",
    "ends_on": "",
}


@pytest.fixture(autouse=True)
def middle_of_a_month(monkeypatch: pytest.MonkeyPatch) -> dt.datetime:
    """Fixes the time, so that work of some hours ago is in the same month."""
    now = dt.datetime(2026, 3, 20, 12, tzinfo=dt.UTC)
    monkeypatch.setattr(timezone, "now", lambda: now)
    return now


@pytest.fixture
def olivia(vision: Department) -> User:
    return make.member(vision, Role.OWNER, "olivia")


@pytest.fixture
def ann(vision: Department) -> User:
    return make.member(vision, Role.MEMBER, "ann")


def page_of(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def text_of(response: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def busy(department: Department, pool: Pool, hours: int, **more: Any) -> None:
    """Uses one card for that many hours until now."""
    make.holding(department, pool, own=1, started_at=timezone.now() - dt.timedelta(hours=hours), **more)


# Pages ----------------------------------------------------------------------------------------------------------------


def test_operator_can_set_a_departments_budget_and_its_members_see_it(
    vision: Department, pool: Pool, root: User, ann: User, olivia: User
) -> None:
    busy(vision, pool, 85)
    page = page_of(root)
    assert "The department Vision and its teams" in text_of(page.get("/d/vision/budgets/new/"))
    panel = text_of(page.get("/d/vision/budgets/preview/", FORM))
    assert "So far in this period: 85.0 of 100 GPU-hours (85 %)." in panel
    assert page.post("/d/vision/budgets/new/", FORM).headers["Location"] == "/d/vision/budgets/"
    row = Budget.objects.get()
    assert (row.hours, row.person, row.pool, row.action) == (100, None, None, "no_borrowing")
    for user in (ann, olivia, root):
        text = text_of(page_of(user).get("/d/vision/budgets/"))
        assert "85.0 of 100 GPU-hours (85 %)" in text
        assert "nearly used up" in text
        assert ("Edit" in text) is (user == root)
        for part in ("?department=vision", "?all=1", ""):
            assert "85.0 of 100 GPU-hours" in text_of(page_of(user).get(f"/budgets/bars/{part}")) or (user, part) == (
                root,
                "",
            )


def test_owner_can_set_only_budgets_of_users(vision: Department, pool: Pool, ann: User, olivia: User) -> None:
    page = page_of(olivia)
    assert "The department Vision and its teams" not in text_of(page.get("/d/vision/budgets/new/"))
    refused = page.post("/d/vision/budgets/new/", FORM)
    assert (refused.status_code, Budget.objects.count()) == (422, 0)
    assert page.post("/d/vision/budgets/new/", FORM | {"person": "ann", "pool": "a100"}).status_code == 302
    assert Budget.objects.get().person == ann
    ben = make.member(vision, Role.MEMBER, "ben")
    assert "ann" in text_of(page_of(ann).get("/budgets/bars/"))
    assert "ann" not in text_of(page_of(ben).get("/d/vision/budgets/"))
    address = f"/d/vision/budgets/{Budget.objects.get().public_id}/"
    assert [page_of(user).get(address).status_code for user in (olivia, ann, ben)] == [200, 403, 404]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"hours": "0"}, "greater than or equal to 1"),
        ({"hours": "1.5"}, "Enter a whole number."),
        ({"hours": "lots"}, "Enter a whole number."),
        ({"hours": "9999999999"}, "less than or equal to 1000000000"),
        ({"action": "stop"}, "Select a valid choice."),
        ({"starts_on": "2026-04-01"}, "A term needs both days"),
        ({"starts_on": "2026-04-02", "ends_on": "2026-04-01"}, "The last day is before the first."),
        ({"starts_on": "soon", "ends_on": "2026-04-01"}, "Enter a valid date."),
        ({"starts_on": "2026-01-01", "ends_on": "2026-01-31"}, "The term has already ended"),
        ({"person": "nobody"}, "Select a valid choice."),
        ({"pool": "nothing"}, "Select a valid choice."),
    ],
)
def test_invalid_form_is_shown_again_with_its_error(
    wrong: dict[str, str], says: str, vision: Department, root: User
) -> None:
    response = page_of(root).post("/d/vision/budgets/new/", FORM | wrong)
    assert (response.status_code, Budget.objects.count()) == (422, 0)
    assert says in text_of(response)
    assert page_of(root).get("/d/vision/budgets/preview/", FORM | wrong).status_code == 200


def test_budget_that_holds_workloads_names_them_and_must_be_confirmed(
    vision: Department, pool: Pool, root: User
) -> None:
    busy(vision, pool, 50)
    make.claim(vision, pool, 2, name="train")
    page, tight = page_of(root), FORM | {"hours": "40", "action": "no_new_work"}
    response = page.post("/d/vision/budgets/new/", tight)
    assert (response.status_code, Budget.objects.count()) == (409, 0)
    assert "1 queued workload would be held by the budget." in text_of(response)
    panel = text_of(page.get("/d/vision/budgets/preview/", tight))
    assert "Vision: train, 2 cards" in panel
    assert confirmed(page, "/d/vision/budgets/new/", tight).status_code == 302
    row = Budget.objects.get()
    roomy = FORM | {"hours": "90", "version": "1"}
    assert page.post(f"/d/vision/budgets/{row.public_id}/", roomy).status_code == 302
    assert page.post(f"/d/vision/budgets/{row.public_id}/", tight | {"version": "2"}).status_code == 409
    assert Budget.objects.get().hours == 90


def test_confirmation_names_what_is_done_to_the_budget_and_for_whom(
    vision: Department, pool: Pool, root: User, ann: User
) -> None:
    ann.first_name, ann.last_name = "Ann", "Lee"
    ann.save()
    busy(vision, pool, 50, user=ann)
    make.claim(vision, pool, 2, name="train", user=ann)
    page, tight = page_of(root), FORM | {"hours": "40", "action": "no_new_work"}
    for name, who in (("", "Vision"), ("ann", "Ann Lee")):
        asked = text_of(page.post("/d/vision/budgets/new/", tight | {"person": name}))
        assert f"Set this budget for {who}?" in asked
        assert "Set anyway" in asked
        assert "Change" not in asked
        row = Budget.objects.create(department=vision, person=ann if name else None, hours=90)
        changed = page.post(f"/d/vision/budgets/{row.public_id}/", tight | {"version": "1"})
        assert f"Change the budget of {who}?" in text_of(changed)
        row.delete()


def test_stale_edit_is_refused_and_shows_both_versions(vision: Department, root: User) -> None:
    row = Budget.objects.create(department=vision, hours=50)
    page, address = page_of(root), f"/d/vision/budgets/{row.public_id}/"
    assert page.post(address, FORM | {"hours": "60", "version": "1"}).status_code == 302
    stale = page.post(address, FORM | {"hours": "70", "version": "1"})
    assert stale.status_code == 409
    assert "Stored now" in text_of(stale)
    assert Budget.objects.get().hours == 60
    assert page.post(address, FORM | {"hours": "70", "version": "2"}).status_code == 302
    assert page.post(f"{address}remove/", {"version": "2"}).status_code == 409
    assert page.post(f"{address}remove/", {"version": "3"}).status_code == 302
    assert not Budget.objects.exists()


def test_budget_is_found_only_at_its_departments_address(vision: Department, nlp: Department, root: User) -> None:
    row = Budget.objects.create(department=vision, hours=50)
    assert page_of(root).get(f"/d/nlp/budgets/{row.public_id}/").status_code == 404


def test_times_are_in_the_readers_zone_and_the_page_names_the_installations_zone(
    vision: Department, root: User, settings: Any
) -> None:
    settings.TIME_ZONE = "Asia/Shanghai"
    root.time_zone = "America/New_York"
    root.save()
    Budget.objects.create(department=vision, hours=50)
    page = page_of(root).get("/d/vision/budgets/")
    assert "2026-03-31T16:00:00" in page.content.decode()  # 1 April in Shanghai, in UTC
    assert "midnight in Asia/Shanghai" in text_of(page)
    assert "12:00" in text_of(page)  # the same moment in New York


def test_number_of_queries_for_the_bars_does_not_grow_with_the_budgets(
    vision: Department, pool: Pool, root: User
) -> None:
    client, counts = page_of(root), []
    for several in (range(2), range(2, 25)):
        for number in several:
            Budget.objects.create(department=vision, person=make.member(vision, username=f"p{number}"), hours=50)
        with CaptureQueriesContext(connection) as queries:
            page = client.get("/budgets/bars/?all=1")
        counts.append(len(queries))
    assert counts[1] <= counts[0]
    assert "5 more budgets are further from being used up." in text_of(page)


# The API --------------------------------------------------------------------------------------------------------------


def test_budget_can_be_created_read_changed_and_removed_by_api(
    vision: Department, pool: Pool, root: User, ann: User
) -> None:
    busy(vision, pool, 30, user=ann)
    client = person(root)
    created = client.post(
        f"{API}departments/vision/budgets/", {"hours": 60, "person": "ann", "pool": "a100"}, format="json"
    )
    assert created.status_code == 201, created.json()
    data = created.json()
    assert created["Location"] == f"{API}budgets/{data['id']}/"
    expected = {
        "department": "vision", "person": "ann", "pool": "a100", "hours": 60, "counts": "all", "action": "no_borrowing",
        "used": 30.0, "unit_seconds": {"a100": 30 * 3600}, "stage": "fine", "holds": False, "version": 1,
        "start": "2026-03-01T00:00:00Z", "resets_at": "2026-04-01T00:00:00Z", "zone": "UTC", "starts_on": None,
    }  # fmt: skip
    assert {name: data[name] for name in expected} == expected
    assert data["expected"] == 30 + 11.5 * 24
    report = person(root).get(f"{API}usage/?range=this_month&person=ann&pool=a100").json()
    assert report["totals"][0]["unit_seconds"]["own"] == data["unit_seconds"]["a100"]
    address = f"{API}budgets/{data['id']}/"
    body = {"hours": 25, "action": "no_new_work"}
    assert client.put(address, body, format="json").status_code == 428
    changed = client.put(address, body, headers={"If-Match": '"1"'}, format="json")
    assert (changed.status_code, changed.json()["stage"], changed.json()["holds"]) == (200, "used_up", True)
    assert client.put(address, body, headers={"If-Match": '"1"'}, format="json").status_code == 412
    mine = person(ann).get(f"{API}budgets/?mine=1").json()["results"]
    assert [row["id"] for row in mine] == [data["id"]]
    assert person(ann).put(address, body, headers={"If-Match": '"2"'}, format="json").status_code == 403
    assert person(make.user("stranger")).get(address).status_code == 404
    assert client.delete(address, headers={"If-Match": '"2"'}).status_code == 204
    assert client.get(address).status_code == 404


@pytest.mark.parametrize(
    ("wrong", "status", "field"),
    [
        ({"hours": 0}, 422, "hours"),
        ({"hours": 1.5}, 422, "hours"),
        ({"hours": True}, 422, "hours"),
        ({"hours": 10**30}, 422, "hours"),
        ({"hours": 1, "person": "nobody"}, 422, "person"),
        ({"hours": 1, "pool": "nothing"}, 404, None),
        ({"hours": 1, "action": "stop"}, 422, "action"),
        ({"hours": 1, "limit": 2}, 422, "limit"),
        ({"hours": 1, "starts_on": "2026-04-01"}, 422, "ends_on"),
        ({"hours": 1, "starts_on": "2026-02-30", "ends_on": "2026-04-01"}, 422, "starts_on"),
        ({"hours": 1, "starts_on": "2026-01-01", "ends_on": "2026-01-02"}, 422, "ends_on"),
        ({}, 422, "hours"),
    ],
)
def test_invalid_body_is_refused_with_its_field(
    wrong: dict[str, Any], status: int, field: str | None, vision: Department, root: User
) -> None:
    refused = person(root).post(f"{API}departments/vision/budgets/", wrong, format="json")
    assert refused.status_code == status, refused.json()
    assert refused["Content-Type"] == "application/problem+json"
    assert field is None or [error["attr"] for error in refused.json()["errors"]] == [field]
    assert not Budget.objects.exists()


def test_api_write_that_holds_workloads_must_be_confirmed(vision: Department, pool: Pool, root: User) -> None:
    busy(vision, pool, 50)
    make.claim(vision, pool, 1)
    client, address, body = person(root), f"{API}departments/vision/budgets/", {"hours": 40, "action": "no_new_work"}
    shown = client.post(f"{address}?dry_run=1", body, format="json").json()
    refused = client.post(address, body, format="json")
    assert (refused.status_code, refused.json()["code"]) == (409, "needs_confirmation")
    assert {each["kind"] for each in refused.json()["breaks"]} == {"waits", "held"}
    assert (refused.json()["confirm"], Budget.objects.count()) == (shown["confirm"], 0)
    assert client.post(f"{address}?confirm={shown['confirm']}", body, format="json").status_code == 201
    assert client.post(address, body, format="json").json()["code"] == "budget_exists"
    row = Budget.objects.get()
    one, fresh = f"{API}budgets/{row.public_id}/", {"If-Match": '"1"'}
    roomy = client.put(f"{one}?dry_run=1", {"hours": 90}, headers=fresh, format="json")
    assert (roomy.status_code, roomy.json()["confirm"]) == (200, None)
    assert client.delete(f"{one}?dry_run=1", headers=fresh).status_code == 200
    assert Budget.objects.get().version == 1


def test_removal_that_leads_to_preemptions_must_be_confirmed(
    vision: Department, nlp: Department, pool: Pool, root: User
) -> None:
    make.holding(
        nlp, pool, own=4, borrowed={vision: 4}, notice=60, grace=30,
        placement=[{"pod": 0, "node": "a100-n1", "cards": list(range(8))}],
    )  # fmt: skip
    done = make.holding(
        vision, pool, own=1, state=ClaimState.RELEASED, started_at=timezone.now() - dt.timedelta(hours=9)
    )
    done.ledger.update(ended_at=timezone.now())
    make.claim(vision, pool, 4)
    row = Budget.objects.create(department=vision, hours=5, action="no_new_work")
    address, fresh = f"{API}budgets/{row.public_id}/", {"If-Match": '"1"'}
    refused = person(root).delete(address, headers=fresh)
    assert (refused.status_code, [each["kind"] for each in refused.json()["breaks"]]) == (409, ["stopped"])
    confirm = refused.json()["confirm"]
    assert person(root).delete(f"{address}?confirm={confirm}", headers=fresh).status_code == 204


def test_token_sees_only_the_budgets_of_its_department(vision: Department, nlp: Department, olivia: User) -> None:
    make.member(nlp, Role.OWNER, "nora")
    Budget.objects.create(department=nlp, person=olivia, hours=1)
    mine = Budget.objects.create(department=vision, hours=1)
    rows = program(olivia, vision, ("read",)).get(f"{API}budgets/").json()["results"]
    assert [row["id"] for row in rows] == [mine.public_id]
    assert program(olivia, vision, ("submit",)).get(f"{API}budgets/").json()["results"] == []


def test_preview_of_an_incomplete_form_reports_no_missing_fields(
    vision: Department, pool: Pool, root: User, olivia: User
) -> None:
    for user, missing in ((root, {"hours": ""}), (olivia, {"hours": "", "person": ""})):
        shown = text_of(page_of(user).get("/d/vision/budgets/preview/", FORM | missing))
        assert "It appears here when the form is filled in." in shown
        assert "required" not in shown
    shown = text_of(page_of(root).get("/d/vision/budgets/preview/", FORM | {"hours": "-1"}))
    assert "GPU-hours : Ensure this value is greater than or equal to 1." in shown
