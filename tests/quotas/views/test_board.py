"""The department's board, its quotas and its recalls, as a browser gets them."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.utils import timezone

from portal.models import AuditEntry, Role
from quotas.models import Claim, ClaimState, Quota, UsageHour, UserCap
from tests import builders as make
from tests.clients import confirmed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world(client):
    """vision is guaranteed 4 and lends 3 of them to nlp; a stranger belongs to another department."""
    pool = make.pool("a100", name="A100 cards", cards=8)
    vision, nlp, other = make.department("vision"), make.department("nlp"), make.department("other")
    make.quota(vision, pool, 4, borrow_limit=2)
    make.quota(nlp, pool, 2)
    owner, member = make.member(vision, Role.OWNER, "olga"), make.member(vision, Role.MEMBER, "mia")
    borrower = make.member(nlp, Role.OWNER, "ned")
    make.holding(
        vision, pool, own=1, user=member, name="train-cats", placement=[{"pod": 0, "node": "a100-n1", "cards": [0]}]
    )
    make.holding(
        nlp,
        pool,
        own=2,
        borrowed={vision: 3},
        user=borrower,
        name="secret-llm",
        workload="w-secret",
        notice=60,
        placement=[{"pod": 0, "node": "a100-n1", "cards": [1, 2, 3, 4, 5]}],
    )
    return {
        "pool": pool,
        "vision": vision,
        "nlp": nlp,
        "owner": owner,
        "member": member,
        "borrower": borrower,
        "stranger": make.member(other, Role.OWNER, "sam"),
        "operator": make.user("root", is_operator=True),
    }


def page(client, user, url, status=200, **extra):
    client.force_login(user)
    response = client.get(url, **extra)
    assert response.status_code == status, response.content.decode()[:2000]
    return response.content.decode()


def test_board_shows_guarantees_loans_and_users(client, world):
    text = page(client, world["member"], "/d/vision/")
    for words in ("A100 cards", "4 cards", "3 cards", "to Nlp", "mia", "The queue is empty"):
        assert words in text
    assert "secret-llm" not in text
    assert "ned" not in text
    lender = page(client, world["borrower"], "/d/nlp/")
    assert "from Vision" in lender
    assert "train-cats" not in lender


def test_stranger_gets_404_and_member_sees_no_recall_button(client, world):
    page(client, world["stranger"], "/d/vision/", 404)
    assert "Recall<" not in page(client, world["member"], "/d/vision/")
    assert "Recall<" in page(client, world["owner"], "/d/vision/")
    assert "Recall<" in page(client, world["operator"], "/d/vision/")


def test_htmx_request_gets_only_the_live_part(client, world):
    text = page(client, world["member"], "/d/vision/", HTTP_HX_REQUEST="true")
    assert "<html" not in text
    assert 'id="now"' in text


def test_running_recall_is_shown_without_names_of_other_departments_work(client, world):
    vision, pool = world["vision"], world["pool"]
    by = timezone.now() + dt.timedelta(minutes=5)
    recall = make.claim(
        vision, pool, 3, pods=0, name="recall", reserved={"units": 3, "places": []}, promised_at=by, user=world["owner"]
    )
    Claim.objects.filter(name="secret-llm").update(state=ClaimState.LEAVING, leave_by=by, preempted_for=recall)
    text = page(client, world["owner"], "/d/vision/")
    assert "Recall: 0 of 3 cards of A100 cards returned" in text
    assert f"/d/vision/recalls/{recall.public_id}/withdraw/" in text
    assert "secret-llm" not in text
    assert "secret-llm returns 5 cards of A100 cards" in page(client, world["borrower"], "/d/nlp/")
    assert "/withdraw/" not in page(client, world["member"], "/d/vision/")


def test_queue_shows_why_a_claim_waits(client, world):
    make.claim(
        world["vision"],
        world["pool"],
        4,
        name="big",
        position=1,
        user=world["member"],
        reasons=[{"code": "over_borrow_limit", "limit": 2, "asked": 4}],
    )
    text = page(client, world["member"], "/d/vision/")
    assert "big" in text
    assert "above its borrow limit of 2 cards" in text
    assert "ask an operator for a higher borrow limit" in text
    assert text.index("big") < text.index('class="queue-why"') < text.index("above its borrow limit of 2 cards")


def test_members_of_a_parent_see_amounts_of_its_teams_and_owners_also_names(client, world):
    """A member sees department and amount; an owner also sees workloads and users."""
    lab = make.department("lab")
    world["nlp"].parent = lab
    world["nlp"].save()
    waiting = make.claim(world["nlp"], world["pool"], 2, name="secret-eval", user=world["borrower"])
    waiting.reasons = [{"code": "not_enough", "pool": "a100", "short_by": 2}]
    waiting.save()
    member, owner = make.member(lab, Role.MEMBER, "max"), make.member(lab, Role.OWNER, "lou")
    text = page(client, member, "/d/lab/")
    assert "secret" not in text
    assert world["borrower"].label not in text
    assert "workload of Nlp" in text
    assert "2 cards" in text
    assert 'href="/d/nlp/"' not in text
    text = page(client, owner, "/d/lab/")
    assert "secret-eval" in text
    assert world["borrower"].label in text
    assert 'href="/d/nlp/"' in text


def test_the_trend_is_drawn_with_its_table(client, world):
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - dt.timedelta(hours=3)
    UsageHour.objects.create(
        department=world["vision"], pool=world["pool"], hour=hour, guaranteed=4 * 3600, own=3600, lent=7200
    )
    text = page(client, world["member"], "/d/vision/?days=30")
    assert 'class="quota-own" d="M' in text
    assert "Show as table" in text
    assert re.findall(r'data-label="(?:Guaranteed|Idle)">([^<]+)', text.partition("Mean of each day")[2]) == [
        "4 cards",
        "1 card",
    ]
    assert "No data yet" in page(client, world["borrower"], "/d/nlp/")


def test_owner_can_recall_after_a_preview_and_withdraw_it(client, world):
    client.force_login(world["owner"])
    preview = client.get("/d/vision/recall/preview/?pool=a100&units=3&hours=24").content.decode()
    assert "have to release" in preview
    assert "secret-llm" not in preview
    response = confirmed(client, "/d/vision/recall/", {"pool": "a100", "units": "3", "hours": "4"})
    assert "Recall of 3 cards started." in client.get("/d/vision/").content.decode()
    assert response.headers["Location"] == "/d/vision/"
    recall = Claim.objects.get(pods=0)
    assert (recall.units, recall.department, recall.user) == (3, world["vision"], world["owner"])
    assert recall.until is not None
    assert abs(recall.until - timezone.now() - dt.timedelta(hours=4)) < dt.timedelta(minutes=1)
    client.post(f"/d/vision/recalls/{recall.public_id}/withdraw/")
    recall.refresh_from_db()
    assert recall.state == ClaimState.RELEASED


def test_recall_above_the_guarantee_is_refused_with_the_numbers(client, world):
    client.force_login(world["owner"])
    response = client.post("/d/vision/recall/", {"pool": "a100", "units": "5", "hours": ""})
    assert response.status_code == 422
    assert "at most 4 cards (guaranteed: 4 cards, already being recalled: 0 cards)" in response.content.decode()
    assert not Claim.objects.filter(pods=0).exists()


@pytest.mark.parametrize("units", ["", "0", "-1", "x", "99999999999"])
def test_invalid_amount_is_refused_by_the_form_and_tolerated_by_the_preview(client, world, units):
    client.force_login(world["owner"])
    assert client.post("/d/vision/recall/", {"pool": "a100", "units": units}).status_code == 422
    assert client.get("/d/vision/recall/preview/", {"pool": "a100", "units": units}).status_code == 200


def test_recall_form_takes_the_unit_that_the_page_shows(client, world):
    memory = make.pool("t4", name="T4 memory", cards=2, unit="MiB", units_per_card=15360)
    make.quota(world["vision"], memory, 20480)
    text = page(client, world["owner"], "/d/vision/recall/?pool=t4")
    assert "T4 memory (GiB)" in text
    assert "A100 cards (cards)" in text
    assert 'value="15 GiB"' in text
    preview = client.get("/d/vision/recall/preview/", {"pool": "t4", "units": "10"}).content.decode()
    assert "Vision would have its 10 GiB at once from idle capacity" in preview
    assert client.post("/d/vision/recall/", {"pool": "t4", "units": "10 GiB", "hours": "4"}).status_code == 302
    assert Claim.objects.get(pods=0).units == 10 * 1024
    refused = client.post("/d/vision/recall/", {"pool": "a100", "units": "10 GiB"})
    assert "“10 GiB” is not a valid amount here. Examples: a number of cards: 2." in refused.content.decode()


def test_members_and_strangers_cannot_recall(client, world):
    page(client, world["member"], "/d/vision/recall/", 403)
    page(client, world["stranger"], "/d/vision/recall/", 404)
    recall = make.claim(world["vision"], world["pool"], 3, pods=0, name="recall")
    for user, status in ((world["member"], 403), (world["borrower"], 404)):
        client.force_login(user)
        assert client.post(f"/d/vision/recalls/{recall.public_id}/withdraw/").status_code == status
    client.force_login(world["borrower"])
    assert client.post(f"/d/nlp/recalls/{recall.public_id}/withdraw/").status_code == 404


def quota_form(quota, **fields):
    return {"guaranteed": 4, "borrow_limit": 2, "lend_limit": "", "why": "", "version": quota.version, **fields}


def test_history_shows_who_changed_a_quota_and_why(client, world):
    quota = Quota.objects.get(department=world["vision"])
    type(world["operator"]).objects.filter(pk=world["operator"].pk).update(first_name="Ruth", last_name="Okafor")
    client.force_login(world["operator"])
    data = quota_form(quota, guaranteed=5, lend_limit=1, why="new project")
    assert client.post("/d/vision/quotas/a100/", data).status_code == 302
    quota.refresh_from_db()
    assert (quota.guaranteed, quota.lend_limit, quota.version) == (5, 1, 2)
    text = page(client, world["member"], "/d/vision/quotas/")
    assert "new project" in text
    assert "Ruth Okafor" in text
    assert 'lend limit: <span class="diff-before">all</span> → <strong>1 card</strong>' in text


def test_promising_more_than_the_pool_has_is_refused_with_both_numbers(client, world):
    quota = Quota.objects.get(department=world["vision"])
    client.force_login(world["operator"])
    response = client.post("/d/vision/quotas/a100/", quota_form(quota, guaranteed=7))
    assert response.status_code == 422
    text = response.content.decode()
    assert "add up to 9" in text
    assert "has only 8" in text
    assert 'value="7"' in text
    quota.refresh_from_db()
    assert quota.guaranteed == 4


def test_edit_of_a_stale_version_is_refused(client, world):
    quota = Quota.objects.get(department=world["vision"])
    client.force_login(world["operator"])
    assert client.post("/d/vision/quotas/a100/", quota_form(quota, guaranteed=3)).status_code == 302
    response = client.post("/d/vision/quotas/a100/", quota_form(quota, guaranteed=2))
    assert response.status_code == 409
    assert "version 2" in response.content.decode()
    quota.refresh_from_db()
    assert quota.guaranteed == 3


def test_owner_can_set_only_the_lend_limit(client, world):
    quota = Quota.objects.get(department=world["vision"])
    client.force_login(world["owner"])
    client.post("/d/vision/quotas/a100/", quota_form(quota, guaranteed=6, borrow_limit=6, lend_limit=0))
    quota.refresh_from_db()
    assert (quota.guaranteed, quota.borrow_limit, quota.lend_limit) == (4, 2, 0)
    assert AuditEntry.objects.get(action="quota.changed").actor == world["owner"]


def test_quota_preview_is_for_operators_and_not_for_members(client, world):
    client.force_login(world["operator"])
    text = client.get(
        "/d/vision/quotas/a100/preview/", quota_form(Quota.objects.get(department=world["vision"]))
    ).content.decode()
    assert "Preview" in text
    client.force_login(world["member"])
    assert client.get("/d/vision/quotas/a100/preview/").status_code == 403


def test_caps_are_set_one_by_one(client, world):
    client.force_login(world["owner"])
    response = client.post("/d/vision/caps/a100/", {"a100-units": "2"}, HTTP_HX_REQUEST="true")
    assert response.status_code == 200
    assert "A100 cards was saved." in response.content.decode()
    assert UserCap.objects.get().units == 2
    assert client.post("/d/vision/caps/a100/", {"a100-units": "-2"}).status_code == 422
    client.post("/d/vision/caps/a100/", {"a100-units": ""})
    assert not UserCap.objects.exists()
    client.force_login(world["member"])
    assert client.get("/d/vision/caps/").status_code == 200
    assert client.post("/d/vision/caps/a100/", {"a100-units": "2"}).status_code == 403


def test_only_owners_can_see_the_work_of_a_member(client, world):
    assert "train-cats" in page(client, world["owner"], "/d/vision/work/mia/")
    page(client, world["member"], "/d/vision/work/mia/", 403)
    assert "train-cats" not in page(client, world["borrower"], "/d/nlp/work/mia/")
