"""What pages, the API and gpuq show of an idle workload, and *Keep it* there."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.access import Actor
from portal.models import Role
from tests import builders as make
from tests.clients import person
from tests.workloads.idle.bed import HOUR, IdleBed, state_of
from workloads.idle import spells
from workloads.idle.rule import Action, Activity, Rule
from workloads.models import Attempt, IdleSpell
from workloads.reconciler import transitions

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def warned(idle: IdleBed) -> Attempt:
    idle.set(notebook=HOUR)
    attempt = idle.running("notebook")
    idle.quiet(attempt)
    idle.activity[attempt.pk] = Activity(busy=False)
    idle.round()
    return attempt


def page_of(attempt: Attempt) -> str:
    return f"/d/vision/workloads/{attempt.workload.public_id}/"


def browser(who: Any) -> Client:
    client = Client()
    client.force_login(who, backend="django.contrib.auth.backends.ModelBackend")
    return client


def test_workload_page_explains_the_idle_warning_and_keeps_it_once(idle: IdleBed, warned: Attempt) -> None:
    alice = browser(idle.alice)
    page = alice.get(page_of(warned)).content.decode()
    assert "its GPU activity is below 5 %. It is stopped unless it becomes active." in page
    assert "until it is stopped" in page
    assert f"{page_of(warned)}keep/" in page
    assert "data-idle" in alice.get("/mine/").content.decode()
    assert "data-idle" in alice.get("/d/vision/workloads/").content.decode()
    answer = alice.post(f"{page_of(warned)}keep/", follow=True).content.decode()
    assert "Kept until" in answer
    assert "chose “Keep it”" in answer
    assert f"{page_of(warned)}keep/" not in answer
    again = alice.post(f"{page_of(warned)}keep/", follow=True).content.decode()
    assert "It was already kept once" in again


def test_home_shows_the_countdown_until_it_is_kept_and_again_before_the_stop(idle: IdleBed, warned: Attempt) -> None:
    alice = browser(idle.alice)

    def banner() -> str:
        home = alice.get("/mine/").content.decode()
        return home.partition("data-warned")[2].partition("</div>")[0]

    text = banner()
    assert "is idle, and is stopped unless it becomes active or you keep it." in text
    assert f'action="{page_of(warned)}keep/"' in text
    assert "data-time" in text
    assert "data-warned" not in browser(make.member(idle.vision)).get("/mine/").content.decode()
    spells.keep(actor=Actor(idle.alice), workload=warned.workload, now=idle.now)
    assert banner() == ""
    assert "data-idle" in alice.get("/mine/").content.decode(), "its row says until when it is kept"
    idle.pass_by(105, warned)
    text = banner()
    assert "It was already kept once." in text
    assert "keep/" not in text


def test_only_author_and_owner_can_keep_an_idle_workload(idle: IdleBed, warned: Attempt) -> None:
    bob = browser(make.member(idle.vision))
    assert f"{page_of(warned)}keep/" not in bob.get(page_of(warned)).content.decode()
    assert bob.post(f"{page_of(warned)}keep/").status_code == 403
    assert browser(make.member(make.department("nlp"))).post(f"{page_of(warned)}keep/").status_code == 404
    assert IdleSpell.objects.get().kept_at is None
    owner = browser(make.member(idle.vision, Role.OWNER))
    assert f"{page_of(warned)}keep/" in owner.get(page_of(warned)).content.decode()


def test_api_shows_and_keeps_an_idle_workload(idle: IdleBed, warned: Attempt) -> None:
    client, address = person(idle.alice), f"/api/v1/workloads/{warned.workload.public_id}/"
    spell = client.get(address).json()["idle"]
    assert (spell["may_keep"], spell["kept_at"]) == (True, None)
    assert dt.datetime.fromisoformat(spell["stops_at"]) == idle.now + dt.timedelta(minutes=15)
    [row] = client.get("/api/v1/workloads/").json()["results"]
    assert row["idle"] == spell
    kept = client.post(f"{address}keep/")
    assert kept.status_code == 200, kept.content
    assert (kept.json()["idle"]["may_keep"], kept.json()["idle"]["kept_by"]) == (False, "alice")
    refused = client.post(f"{address}keep/")
    assert (refused.status_code, refused.json()["code"]) == (409, "kept_already")
    other = idle.running()
    nothing = client.post(f"/api/v1/workloads/{other.workload.public_id}/keep/")
    assert (nothing.status_code, nothing.json()["code"]) == (409, "cannot_keep")


def test_workload_under_a_warn_only_policy_cannot_be_kept(idle: IdleBed) -> None:
    idle.set(job=Rule(5, 60, Action.WARN))
    attempt = idle.running()
    idle.quiet(attempt)
    idle.round()
    page = browser(idle.alice).get(page_of(attempt)).content.decode()
    assert "Stop it if it is not needed." in page
    assert f"{page_of(attempt)}keep/" not in page
    assert person(idle.alice).get(f"/api/v1/workloads/{attempt.workload.public_id}/").json()["idle"]["stops_at"] is None


def test_page_of_a_workload_stopped_for_idleness_explains_it(idle: IdleBed) -> None:
    idle.set(job=HOUR)
    attempt = idle.running()
    idle.quiet(attempt)
    idle.pass_by(20, attempt)
    stopping = browser(idle.alice).get(page_of(attempt)).content.decode()
    assert "Stopping: it was idle." in stopping
    row = Attempt.objects.select_related("workload__pool", "workload__author", "claim").get(pk=attempt.pk)
    transitions.record_event(row, transitions.Event.GONE_IDLE, now=timezone.now())
    assert state_of(attempt) == "cancelled"
    page = browser(idle.alice).get(page_of(attempt)).content.decode()
    assert "Stopped because it was idle." in page
    assert "Its GPU activity was below 5 % since" in page
    assert "Run again" in page
    events = browser(idle.alice).get(page_of(attempt) + "?tab=events").content.decode()
    assert "Idle, will be stopped" in events
