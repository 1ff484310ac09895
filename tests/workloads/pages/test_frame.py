"""The live frame around every page, opening inbox messages, and links to the decision that recalled a workload."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.models import Department, InboxItem, User
from quotas.models import Claim, ClaimState, Decision, PlanPass, Pool
from tests import builders as make
from workloads.models import Attempt, Image, Workload

pytestmark = pytest.mark.django_db(transaction=True)
SOON = dt.timedelta(seconds=90)


@pytest.fixture
def vision(db: None) -> Department:
    return make.department("vision")


def as_(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def recalled_workload(author: User, department: Department, pool: Pool, name: str, at: dt.datetime | None) -> Workload:
    image, _made = Image.objects.get_or_create(
        name="python:3.11", defaults={"title": "Python", "interpreter": "python"}
    )
    workload = Workload.objects.create(
        department=department, author=author, kind="job", name=name, pool=pool, image=image, command=["python"],
        units_per_pod=1, state="recalled", attempts_made=1, max_runtime=3600,
    )  # fmt: skip
    claim = make.holding(department, pool, own=1, workload=workload.public_id, user=author, state=ClaimState.LEAVING)
    Attempt.objects.create(
        workload=workload, number=1, claim=claim, cluster=pool.group.cluster, run_name=f"w-{workload.public_id}-1",
        started_at=timezone.now(), recalled_at=timezone.now(), reclaim_at=at,
    )  # fmt: skip
    return workload


def inbox_item(user: User, **fields: Any) -> InboxItem:
    data = fields.pop("data", {"name": "train"})
    return InboxItem.objects.create(
        user=user, kind="workload.succeeded", data=data, created_at=timezone.now(), **fields
    )


def frame(user: User) -> dict[str, Any]:
    response = as_(user).get("/mine/frame/")
    assert response.headers["Cache-Control"] == "no-store"
    found: dict[str, Any] = response.json()
    return found


def test_frame_shows_unread_messages_and_the_users_next_recall_deadline(
    pool: Pool, vision: Department, alice: User
) -> None:
    carol = make.member(vision, username="carol")
    assert (frame(alice)["unread"], frame(alice)["newest"], frame(alice)["goes_back"]) == (0, None, None)
    now = timezone.now()
    recalled_workload(alice, vision, pool, "later", now + 2 * SOON)
    first = recalled_workload(alice, vision, pool, "first", now + SOON)
    recalled_workload(carol, vision, pool, "hers", now + SOON / 2)
    saved = recalled_workload(alice, vision, pool, "saved", now + SOON / 3)
    saved.attempts.update(ready_at=now)
    inbox_item(alice, read_at=now)
    inbox_item(alice)
    newest = inbox_item(alice, department=vision, workload=first.public_id)
    inbox_item(carol)
    found = frame(alice)
    assert (found["unread"], found["unread_label"]) == (2, "2 unread")
    assert found["newest"] == {"id": newest.pk, "text": "train succeeded.", "url": f"/inbox/{newest.pk}/"}
    assert found["goes_back"]["name"] == "first"
    assert found["goes_back"]["url"] == f"/d/vision/workloads/{first.public_id}/"
    vision.memberships.filter(user=alice).delete()  # workloads that the user can no longer see have no countdown
    assert frame(alice)["goes_back"] is None


def test_opening_a_message_marks_it_read_and_redirects_to_its_target(
    pool: Pool, vision: Department, alice: User
) -> None:
    workload = recalled_workload(alice, vision, pool, "train", None)
    item, gone = inbox_item(alice, department=vision, workload=workload.public_id), inbox_item(alice)
    client = as_(alice)
    assert f'href="/inbox/{item.pk}/"' in client.get("/inbox/").content.decode()
    client.get(f"/inbox/{item.pk}/", headers={"Sec-Purpose": "prefetch;prerender"})
    client.head(f"/inbox/{item.pk}/")
    assert frame(alice)["unread"] == 2  # prefetching is not reading
    response = client.get(f"/inbox/{item.pk}/")
    assert response.headers["Location"] == f"/d/vision/workloads/{workload.public_id}/"
    assert frame(alice)["unread"] == 1
    assert client.get(f"/inbox/{gone.pk}/").headers["Location"] == "/inbox/"
    assert frame(alice)["unread"] == 0
    theirs = inbox_item(make.member(vision, username="carol"))
    assert client.get(f"/inbox/{theirs.pk}/").status_code == 404
    theirs.refresh_from_db()
    assert theirs.read_at is None


def decision_of(taker: Claim, *victims: Claim) -> Decision:
    plan_pass = PlanPass.objects.create(group=taker.pool.group, snapshot=b"")
    decision = Decision.objects.create(
        plan_pass=plan_pass, kind="reclaim", claim=taker, department=taker.department, pool=taker.pool, data={}
    )
    decision.victims.set(victims)
    return decision


def test_page_of_a_victim_links_the_decision_that_recalled_it(pool: Pool, vision: Department, alice: User) -> None:
    nlp = make.department("nlp")
    workload = recalled_workload(alice, vision, pool, "train", timezone.now() + SOON)
    claim = workload.attempts.get().claim
    decision_of(make.claim(nlp, pool, 1), claim)  # withdrawn since
    last = decision_of(make.claim(nlp, pool, 2), claim)
    other = decision_of(make.claim(nlp, pool, 1), make.holding(nlp, pool, own=1))
    address = f"/d/vision/workloads/{workload.public_id}/"
    for client in (as_(alice), as_(make.user("oscar", is_operator=True))):
        page = client.get(address).content.decode()
        assert page.count(f'href="/decisions/{last.public_id}/"') == 2  # beside the countdown, and with the attempt
        assert other.public_id not in page
        assert client.get(f"/decisions/{last.public_id}/").status_code == 200
    workload.attempts.update(finished_at=timezone.now(), outcome="recalled")
    Workload.objects.update(state="queued")
    assert as_(alice).get(address).content.decode().count(last.public_id) == 1


@pytest.mark.parametrize("state", ["rejected", "cancelled", "failed", "succeeded"])
def test_ended_workload_has_no_queue_position(pool: Pool, vision: Department, alice: User, state: str) -> None:
    workload = recalled_workload(alice, vision, pool, "train", None)
    Claim.objects.update(state=ClaimState.PENDING, position=3)
    Workload.objects.update(state="queued")
    client = as_(alice)
    pages = ("/d/vision/workloads/", "/mine/")
    assert [page for page in pages if "position 3" in client.get(page).content.decode()] == list(pages)
    Workload.objects.update(state=state, finished_at=timezone.now())
    assert [page for page in pages if "position 3" in client.get(page).content.decode()] == []
    decision = decision_of(workload.attempts.get().claim)
    Decision.objects.update(kind="impossible", data={"position": 3})
    assert "Position" not in client.get(f"/decisions/{decision.public_id}/").content.decode()
