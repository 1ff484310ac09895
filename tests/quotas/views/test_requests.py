"""The pages and the API of quota requests, as asker, approver and stranger use them."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.models import Department, InboxItem, Role, User
from portal.notify.notices import sentence
from quotas.models import Pool, Quota, QuotaRequest, RequestState
from tests import builders as make
from tests.clients import ALL, token_of

pytestmark = pytest.mark.django_db(transaction=True)

FORM = {"pool": "a100", "wanted": "guaranteed", "units": "6", "why": "A paper is due."}


@pytest.fixture
def mia(vision: Department) -> User:
    return make.member(vision, Role.MEMBER, "mia")


def page_of(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def program(user: User, department: Department | None = None) -> Client:
    return Client(headers={"Authorization": f"Bearer {token_of(user, department, ALL)[1]}"})


def text_of(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def sent(mia: User) -> QuotaRequest:
    answer = page_of(mia).post("/d/vision/requests/new/", FORM)
    row = QuotaRequest.objects.get()
    assert answer.headers["Location"] == f"/d/vision/requests/{row.public_id}/"
    return row


def test_a_member_asks_an_operator_grants_and_both_read_it(
    vision: Department, pool: Pool, mia: User, root: User
) -> None:
    asker, approver = page_of(mia), page_of(root)
    assert "Decided by: root." in text_of(asker.get("/d/vision/requests/new/?pool=a100&more=2"))
    address = f"/d/vision/requests/{sent(mia).public_id}/"
    assert "Approve or deny" not in text_of(asker.get(address))
    assert "Waiting for your approval" in text_of(approver.get("/requests/"))
    page = text_of(approver.get(address))
    assert "Not guaranteed to any department: 4 cards of 8 cards." in page
    assert "nothing started" in page
    assert "(now: " in page
    panel = text_of(approver.get(f"{address}preview/", {"units": "6", "ends_on": "", "note": "", "version": "1"}))
    assert "No workload is affected now." in panel
    values = {"units": "5", "ends_on": "", "note": "Five are left.", "version": "1", "decision": "approve"}
    assert approver.post(f"{address}decide/", values).status_code == 302
    assert Quota.objects.get(department=vision).guaranteed == 5
    page = text_of(asker.get(address))
    assert "Approved: 5 cards" in page
    assert "(now: " not in page  # what the department has now is the grant itself
    assert "Five are left." in page
    assert "Waiting for your approval" not in text_of(approver.get("/requests/"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"units": "4"}, "4 cards are already guaranteed"),
        ({"units": "many"}, "is not a valid amount here"),
        ({"why": ""}, "This field is required."),
        ({"ends_on": "2020-01-01"}, "The end must be in the future"),
        ({"ends_on": "soon"}, "Enter a valid date."),
        ({"ends_on": "9999-12-31"}, "within the next 20 years"),
        ({"units": "9.5"}, "9.5 is not a whole number of cards"),
        ({"why": "a\u202eb"}, "is invisible"),
    ],
)
def test_a_wrong_form_comes_back_with_all_that_was_typed(
    vision: Department, pool: Pool, mia: User, wrong: dict[str, str], says: str
) -> None:
    answer = page_of(mia).post("/d/vision/requests/new/", FORM | {"why": "Because."} | wrong)
    page = text_of(answer)
    assert answer.status_code == 422
    assert says in page
    assert wrong.get("why", "Because.") in page
    assert not QuotaRequest.objects.exists()


@pytest.mark.parametrize("amount", ["9.5", "8.5 cards", "half"])
def test_the_api_refuses_part_of_a_card_as_the_page_does(
    vision: Department, pool: Pool, mia: User, amount: str
) -> None:
    asked = {"pool": "a100", "amount": amount, "why": "A reading group."}
    url = "/api/v1/departments/vision/quota_requests/"
    answer = program(mia, vision).post(url, asked, content_type="application/json")
    assert answer.status_code == 422
    assert [error["attr"] for error in answer.json()["errors"]] == ["amount"]
    assert "not a whole number of cards" in answer.json()["detail"]
    assert not QuotaRequest.objects.exists()


def test_who_decides_reads_how_much_of_the_pool_is_online(
    vision: Department, pool: Pool, mia: User, root: User
) -> None:
    address, approver = f"/d/vision/requests/{sent(mia).public_id}/", page_of(root)
    assert "online" not in text_of(approver.get(address))
    pool.cards.filter(pk__in=pool.cards.values_list("pk")[:3]).update(healthy=False)
    assert "Only 5 cards of 8 cards are online at present." in text_of(approver.get(address))


def test_who_decides_reads_memory_to_the_mib(vision: Department, mia: User, root: User) -> None:
    pool = make.pool("t4", cards=4, unit="MiB", units_per_card=16384, card_mib=16384, sharing="gpushare", name="T4")
    make.quota(vision, pool, 16384)
    page_of(mia).post("/d/vision/requests/new/", FORM | {"pool": "t4", "units": "20481 MiB"})
    row = QuotaRequest.objects.get()
    for page in ("/requests/", f"/d/vision/requests/{row.public_id}/"):
        assert "20481 MiB" in text_of(page_of(root).get(page))
    assert "20481 MiB" in sentence("quota.requested", InboxItem.objects.filter(user=root).get().data)


def test_a_decision_that_comes_too_late_says_so(vision: Department, pool: Pool, mia: User, root: User) -> None:
    row = sent(mia)
    address, approver = f"/d/vision/requests/{row.public_id}/decide/", page_of(root)
    values = {"units": "6", "ends_on": "", "note": "No.", "version": "1", "decision": "deny"}
    assert approver.post(address, values).status_code == 302
    answer = approver.post(address, values | {"decision": "approve"})
    assert answer.status_code == 422
    assert "This request is no longer open: it is denied." in text_of(answer)
    assert Quota.objects.get(department=vision).guaranteed == 4


def test_a_denial_without_a_reason_and_too_much_are_shown_beside_the_form(
    vision: Department, nlp: Department, pool: Pool, mia: User, root: User
) -> None:
    address, approver = f"/d/vision/requests/{sent(mia).public_id}/decide/", page_of(root)
    values = {"units": "6", "ends_on": "", "note": "", "version": "1"}
    answer = approver.post(address, values | {"decision": "deny"})
    assert (answer.status_code, "Enter the reason" in text_of(answer)) == (422, True)
    answer = approver.post(address, values | {"decision": "approve"})
    assert (answer.status_code, "has only 8 cards" in text_of(answer)) == (422, True)
    assert 'id="id_units_error"' in text_of(answer), "it stands at the amount that was too much"


def test_people_are_shown_by_name_and_a_long_reason_does_not_fill_an_inbox(
    vision: Department, pool: Pool, mia: User, root: User
) -> None:
    User.objects.filter(pk=mia.pk).update(first_name="Mia", last_name="Lang")
    User.objects.filter(pk=root.pk).update(first_name="Ruth", last_name="Ott")
    page_of(mia).post("/d/vision/requests/new/", FORM | {"why": "为什么" * 300})
    address, approver = f"/d/vision/requests/{QuotaRequest.objects.get().public_id}/", page_of(root)
    approver.post(f"{address}comment/", {"text": "Until when?"})
    for page in (page_of(mia).get("/d/vision/requests/new/"), approver.get("/requests/"), approver.get(address)):
        shown = text_of(page)
        assert not re.search(r"[>:,] *(mia|root)\b", shown)
        assert "Mia Lang" in shown or "Ruth Ott" in shown
    assert text_of(approver.get(address)).count("Ruth Ott") >= 2
    assert text_of(approver.get(address)).count("为什么") == 300
    assert 0 < text_of(approver.get("/inbox/")).count("为什么") < 300


def test_comments_withdrawing_and_renewing(vision: Department, pool: Pool, mia: User, root: User) -> None:
    asker, row = page_of(mia), sent(mia)
    address = f"/d/vision/requests/{row.public_id}/"
    assert asker.post(f"{address}comment/", {"text": "<b>please</b>"}).status_code == 302
    assert "&lt;b&gt;please&lt;/b&gt;" in text_of(asker.get(address))
    assert asker.post(f"{address}comment/", {"text": ""}).status_code == 422
    assert asker.post(f"{address}withdraw/").status_code == 302
    assert asker.post(f"{address}withdraw/").status_code == 409
    row.refresh_from_db()
    assert row.state == RequestState.WITHDRAWN
    QuotaRequest.objects.all().delete()
    day = timezone.localdate() + dt.timedelta(days=3)
    asker.post("/d/vision/requests/new/", FORM | {"ends_on": day.isoformat()})
    row = QuotaRequest.objects.get()
    address = f"/d/vision/requests/{row.public_id}/"
    form = {"units": "6", "ends_on": day.isoformat(), "note": "", "version": "1", "decision": "approve"}
    assert page_of(root).post(f"{address}decide/", form).status_code == 302
    assert "Renew" in text_of(asker.get(address))
    assert asker.post(f"{address}renew/").status_code == 302
    assert QuotaRequest.objects.get(renews=row).is_open


def test_programs_do_the_same(vision: Department, pool: Pool, mia: User, root: User) -> None:
    asker, approver = program(mia, vision), program(root)
    wrong = asker.post("/api/v1/departments/vision/quota_requests/", {"pool": "a100"}, content_type="application/json")
    assert (wrong.status_code, {each["attr"] for each in wrong.json()["errors"]}) == (422, {"why"})
    body = {"pool": "a100", "units": 6, "why": "CI"}
    made = asker.post("/api/v1/departments/vision/quota_requests/", body, content_type="application/json")
    assert made.status_code == 201
    address = f"/api/v1/quota_requests/{made.json()['id']}/"
    waiting = approver.get("/api/v1/quota_requests/?to_decide=1").json()["results"]
    assert [row["id"] for row in waiting] == [made.json()["id"]]
    decision = {"approve": True, "version": 1}
    refused = asker.post(f"{address}decision/", decision, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    said = approver.post(f"{address}comments/", {"text": "Fine."}, content_type="application/json")
    assert [each["text"] for each in said.json()["comments"]] == ["Fine."]
    granted = approver.post(f"{address}decision/", decision, content_type="application/json")
    assert (granted.status_code, granted.json()["state"], granted.json()["granted"]) == (200, "granted", 6)
    again = approver.post(f"{address}decision/", decision, content_type="application/json")
    assert (again.status_code, again.json()["code"]) == (409, "already_decided")
    assert asker.delete(address).status_code == 409


def test_a_program_that_grants_more_than_is_left_is_told_what_is(
    vision: Department, nlp: Department, pool: Pool, mia: User, root: User
) -> None:
    body = {"pool": "a100", "units": 8, "why": "CI"}
    asked = (
        program(mia, vision)
        .post("/api/v1/departments/vision/quota_requests/", body, content_type="application/json")
        .json()
    )
    answer = program(root).post(
        f"/api/v1/quota_requests/{asked['id']}/decision/", {"approve": True, "version": 1},
        content_type="application/json",
    )  # fmt: skip
    refused = answer.json()
    assert (answer.status_code, refused["code"], refused["errors"][0]["attr"]) == (409, "over_promised", "units")
    left = pool.nominal - pool.total_guaranteed()
    assert (refused["free"], refused["unit"]) == (left, "card")
    assert (
        f"Free to guarantee: {left} cards. Choose less, or lower another guaranteed quota first." in refused["detail"]
    )


def test_a_grant_that_takes_from_somebody_is_confirmed_by_naming_it(
    vision: Department, nlp: Department, pool: Pool, mia: User, root: User
) -> None:
    """nlp borrows what vision would be guaranteed: its work could be recalled from then on."""
    Quota.objects.filter(department=nlp).update(guaranteed=1)
    make.holding(nlp, pool, own=1, borrowed={None: 3})
    make.claim(vision, pool, 7, preemptible=True)
    address, approver = f"/d/vision/requests/{sent(mia).public_id}/", page_of(root)
    values = {"units": "7", "ends_on": "", "note": "", "version": "1", "decision": "approve"}
    assert "Must release" in text_of(approver.get(f"{address}preview/", values))
    answer = approver.post(f"{address}decide/", values)
    page = answer.content.decode()
    assert (answer.status_code, "Approve the request of Vision for A100?" in page) == (409, True)
    assert Quota.objects.get(department=vision).guaranteed == 4
    program_of_root = program(root)
    body: dict[str, Any] = {"approve": True, "units": 7, "version": 1}
    decision = f"/api/v1/quota_requests/{QuotaRequest.objects.get().public_id}/decision/"
    refused = program_of_root.post(decision, body, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (409, "needs_confirmation")
    mark = re.search(r'name="confirmed" value="([^"]+)"', page)
    assert mark is not None
    assert mark[1] == refused.json()["confirm"]
    assert approver.post(f"{address}decide/", values | {"confirmed": mark[1]}).status_code == 302
    assert Quota.objects.get(department=vision).guaranteed == 7


def test_neither_approving_nor_denying_decides_nothing(vision: Department, pool: Pool, mia: User, root: User) -> None:
    """What a browser sends of a button that was disabled meanwhile."""
    row = sent(mia)
    values = {"units": "6", "ends_on": "", "note": "looks good", "version": "1"}
    answer = page_of(root).post(f"/d/vision/requests/{row.public_id}/decide/", values)
    row.refresh_from_db()
    assert (answer.status_code, "Choose Approve or Deny." in text_of(answer), row.state) == (
        422,
        True,
        RequestState.OPEN,
    )


def test_an_unknown_state_is_refused(vision: Department, pool: Pool, mia: User) -> None:
    assert program(mia, vision).get("/api/v1/quota_requests/?state=bogus").status_code == 422
