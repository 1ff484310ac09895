"""The pages and the API of quota requests, as requester and approver use them."""

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


def text_of(response: Any) -> str:
    return " ".join(response.content.decode().split())


def submit_request(mia: User) -> QuotaRequest:
    response = page_of(mia).post("/d/vision/requests/new/", FORM)
    row = QuotaRequest.objects.get()
    assert response.headers["Location"] == f"/d/vision/requests/{row.public_id}/"
    return row


def test_member_requests_operator_approves_and_both_see_the_result(
    vision: Department, pool: Pool, mia: User, root: User
) -> None:
    requester, approver = page_of(mia), page_of(root)
    assert "Decided by: root." in text_of(requester.get("/d/vision/requests/new/?pool=a100&more=2"))
    address = f"/d/vision/requests/{submit_request(mia).public_id}/"
    assert "Approve or deny" not in text_of(requester.get(address))
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
    page = text_of(requester.get(address))
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
def test_invalid_form_is_refused_and_keeps_its_input(
    vision: Department, pool: Pool, mia: User, wrong: dict[str, str], says: str
) -> None:
    response = page_of(mia).post("/d/vision/requests/new/", FORM | {"why": "Because."} | wrong)
    page = text_of(response)
    assert response.status_code == 422
    assert says in page
    assert wrong.get("why", "Because.") in page
    assert not QuotaRequest.objects.exists()


@pytest.mark.parametrize("amount", ["9.5", "8.5 cards", "half"])
def test_the_api_refuses_part_of_a_card_as_the_page_does(
    vision: Department, pool: Pool, mia: User, amount: str
) -> None:
    body = {"pool": "a100", "amount": amount, "why": "A reading group."}
    url = "/api/v1/departments/vision/quota_requests/"
    response = program(mia, vision).post(url, body, content_type="application/json")
    assert response.status_code == 422
    assert [error["attr"] for error in response.json()["errors"]] == ["amount"]
    assert "not a whole number of cards" in response.json()["detail"]
    assert not QuotaRequest.objects.exists()


def test_decider_sees_how_much_of_the_pool_is_online(vision: Department, pool: Pool, mia: User, root: User) -> None:
    address, approver = f"/d/vision/requests/{submit_request(mia).public_id}/", page_of(root)
    assert "online" not in text_of(approver.get(address))
    pool.cards.filter(pk__in=pool.cards.values_list("pk")[:3]).update(healthy=False)
    assert "Only 5 cards of 8 cards are online at present." in text_of(approver.get(address))


def test_decider_sees_memory_to_the_mib(vision: Department, mia: User, root: User) -> None:
    pool = make.pool("t4", cards=4, unit="MiB", units_per_card=16384, card_mib=16384, sharing="gpushare", name="T4")
    make.quota(vision, pool, 16384)
    page_of(mia).post("/d/vision/requests/new/", FORM | {"pool": "t4", "units": "20481 MiB"})
    row = QuotaRequest.objects.get()
    for page in ("/requests/", f"/d/vision/requests/{row.public_id}/"):
        assert "20481 MiB" in text_of(page_of(root).get(page))
    assert "20481 MiB" in sentence("quota.requested", InboxItem.objects.filter(user=root).get().data)


def test_decision_on_a_closed_request_is_refused(vision: Department, pool: Pool, mia: User, root: User) -> None:
    row = submit_request(mia)
    address, approver = f"/d/vision/requests/{row.public_id}/decide/", page_of(root)
    values = {"units": "6", "ends_on": "", "note": "No.", "version": "1", "decision": "deny"}
    assert approver.post(address, values).status_code == 302
    response = approver.post(address, values | {"decision": "approve"})
    assert response.status_code == 422
    assert "This request is no longer open: it is denied." in text_of(response)
    assert Quota.objects.get(department=vision).guaranteed == 4


def test_denial_without_a_reason_and_excessive_grant_are_refused_in_the_form(
    vision: Department, nlp: Department, pool: Pool, mia: User, root: User
) -> None:
    address, approver = f"/d/vision/requests/{submit_request(mia).public_id}/decide/", page_of(root)
    values = {"units": "6", "ends_on": "", "note": "", "version": "1"}
    response = approver.post(address, values | {"decision": "deny"})
    assert (response.status_code, "Enter the reason" in text_of(response)) == (422, True)
    response = approver.post(address, values | {"decision": "approve"})
    assert (response.status_code, "has only 8 cards" in text_of(response)) == (422, True)
    assert 'id="id_units_error"' in text_of(response), "the error is shown at the amount"


def test_users_are_shown_by_full_name_and_long_reasons_are_cut_in_the_inbox(
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


def test_requester_can_comment_withdraw_and_renew(vision: Department, pool: Pool, mia: User, root: User) -> None:
    requester, row = page_of(mia), submit_request(mia)
    address = f"/d/vision/requests/{row.public_id}/"
    assert requester.post(f"{address}comment/", {"text": "<b>please</b>"}).status_code == 302
    assert "&lt;b&gt;please&lt;/b&gt;" in text_of(requester.get(address))
    assert requester.post(f"{address}comment/", {"text": ""}).status_code == 422
    assert requester.post(f"{address}withdraw/").status_code == 302
    assert requester.post(f"{address}withdraw/").status_code == 409
    row.refresh_from_db()
    assert row.state == RequestState.WITHDRAWN
    QuotaRequest.objects.all().delete()
    day = timezone.localdate() + dt.timedelta(days=3)
    requester.post("/d/vision/requests/new/", FORM | {"ends_on": day.isoformat()})
    row = QuotaRequest.objects.get()
    address = f"/d/vision/requests/{row.public_id}/"
    form = {"units": "6", "ends_on": day.isoformat(), "note": "", "version": "1", "decision": "approve"}
    assert page_of(root).post(f"{address}decide/", form).status_code == 302
    assert "Renew" in text_of(requester.get(address))
    assert requester.post(f"{address}renew/").status_code == 302
    assert QuotaRequest.objects.get(renews=row).is_open


def test_request_can_be_created_and_decided_by_api(vision: Department, pool: Pool, mia: User, root: User) -> None:
    requester, approver = program(mia, vision), program(root)
    wrong = requester.post(
        "/api/v1/departments/vision/quota_requests/", {"pool": "a100"}, content_type="application/json"
    )
    assert (wrong.status_code, {each["attr"] for each in wrong.json()["errors"]}) == (422, {"why"})
    body = {"pool": "a100", "units": 6, "why": "CI"}
    created = requester.post("/api/v1/departments/vision/quota_requests/", body, content_type="application/json")
    assert created.status_code == 201
    address = f"/api/v1/quota_requests/{created.json()['id']}/"
    waiting = approver.get("/api/v1/quota_requests/?to_decide=1").json()["results"]
    assert [row["id"] for row in waiting] == [created.json()["id"]]
    decision = {"approve": True, "version": 1}
    refused = requester.post(f"{address}decision/", decision, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    commented = approver.post(f"{address}comments/", {"text": "Fine."}, content_type="application/json")
    assert [each["text"] for each in commented.json()["comments"]] == ["Fine."]
    granted = approver.post(f"{address}decision/", decision, content_type="application/json")
    assert (granted.status_code, granted.json()["state"], granted.json()["granted"]) == (200, "granted", 6)
    second = approver.post(f"{address}decision/", decision, content_type="application/json")
    assert (second.status_code, second.json()["code"]) == (409, "already_decided")
    assert requester.delete(address).status_code == 409


def test_api_refuses_an_excessive_grant_with_the_free_amount(
    vision: Department, nlp: Department, pool: Pool, mia: User, root: User
) -> None:
    body = {"pool": "a100", "units": 8, "why": "CI"}
    created = (
        program(mia, vision)
        .post("/api/v1/departments/vision/quota_requests/", body, content_type="application/json")
        .json()
    )
    response = program(root).post(
        f"/api/v1/quota_requests/{created['id']}/decision/", {"approve": True, "version": 1},
        content_type="application/json",
    )  # fmt: skip
    refused = response.json()
    assert (response.status_code, refused["code"], refused["errors"][0]["attr"]) == (409, "over_promised", "units")
    available = pool.nominal - pool.total_guaranteed()
    assert (refused["free"], refused["unit"]) == (available, "card")
    assert (
        f"Free to guarantee: {available} cards. Choose less, or lower another guaranteed quota first."
        in refused["detail"]
    )


def test_grant_that_takes_from_others_must_be_confirmed(
    vision: Department, nlp: Department, pool: Pool, mia: User, root: User
) -> None:
    """nlp borrows what vision would be guaranteed: its work could be recalled from then on."""
    Quota.objects.filter(department=nlp).update(guaranteed=1)
    make.holding(nlp, pool, own=1, borrowed={None: 3})
    make.claim(vision, pool, 7, preemptible=True)
    address, approver = f"/d/vision/requests/{submit_request(mia).public_id}/", page_of(root)
    values = {"units": "7", "ends_on": "", "note": "", "version": "1", "decision": "approve"}
    assert "Must release" in text_of(approver.get(f"{address}preview/", values))
    response = approver.post(f"{address}decide/", values)
    page = response.content.decode()
    assert (response.status_code, "Approve the request of Vision for A100?" in page) == (409, True)
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


def test_preview_of_a_refused_grant_withdraws_the_invitation_to_approve(
    vision: Department, pool: Pool, mia: User, root: User
) -> None:
    """static/portal.js does so while the panel has `data-refused`; tests/e2e/one_demo/test_forms.py is in a browser."""
    address, approver = f"/d/vision/requests/{submit_request(mia).public_id}/", page_of(root)
    assert "Approving would be refused now" in text_of(approver.get(address))
    for units, is_refused in (("6", False), ("9", True), ("many", True)):
        panel = text_of(approver.get(f"{address}preview/", {"units": units, "version": "1"}))
        assert ("data-refused" in panel, "verdict-cannot" in panel) == (is_refused, is_refused), units


def test_form_without_a_decision_is_refused(vision: Department, pool: Pool, mia: User, root: User) -> None:
    """A browser sends such a form if the button was disabled in the meantime."""
    row = submit_request(mia)
    values = {"units": "6", "ends_on": "", "note": "looks good", "version": "1"}
    response = page_of(root).post(f"/d/vision/requests/{row.public_id}/decide/", values)
    row.refresh_from_db()
    assert (response.status_code, "Choose Approve or Deny." in text_of(response), row.state) == (
        422,
        True,
        RequestState.OPEN,
    )


def test_an_unknown_state_is_refused(vision: Department, pool: Pool, mia: User) -> None:
    assert program(mia, vision).get("/api/v1/quota_requests/?state=bogus").status_code == 422
