"""A person's calendar feed: its events, who can read it, and how its address is replaced and revoked."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from icalendar import Calendar

from portal.models import AuditEntry, Membership, User
from quotas.models import Claim, Pool
from tests import builders as make
from tests.workloads.estimates.test_keep import HOUR, World
from workloads.estimates import keep
from workloads.models import Attempt, CalendarFeed, StartEstimate, Workload

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    """The waiting and the running workload are ann's, who is a member of both departments."""
    keep._seen.clear()
    world = World()
    ann = make.member(world.departments["nlp"])
    Membership.objects.create(user=ann, department=world.departments["vision"], role="member")
    world.waiting.author = world.running.author = ann
    Workload.objects.filter(pk__in=[world.waiting.pk, world.running.pk]).update(author=ann)
    return world


def address_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    page = client.post(reverse("workloads:calendar"), {}, follow=True).content.decode()
    found = re.search(r"/calendar/[\w-]+\.ics", page)
    assert found
    return found[0]


def events(path: str, **headers: str) -> dict[str, Any]:
    """The feed's events by UID without its host."""
    answer = Client().get(path, **headers)
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/calendar; charset=utf-8")
    return {str(event["uid"]).split("@")[0]: event for event in Calendar.from_ical(answer.content).walk("VEVENT")}


def ann() -> User:
    user = Workload.objects.exclude(author=None).filter(state="running").get().author
    assert user is not None
    return user


def test_feed_shows_expected_starts_promised_times_deadlines_and_recalls(world: World) -> None:
    world.estimate()
    Workload.objects.filter(pk=world.running.pk).update(max_runtime=4 * 3600)
    recall = Claim.objects.create(
        department=world.departments["nlp"], pool=Pool.objects.get(), name="by hand", pods=0, units_per_pod=1,
        until=world.now + 9 * HOUR, promised_at=world.now + HOUR, preemptible=False, own_only=True,
    )  # fmt: skip
    path = address_of(ann())
    found = events(path)
    waits, runs = world.waiting.public_id, world.running.public_id
    assert found.keys() == {f"{waits}-start", f"{runs}-end", f"{recall.public_id}-back", f"{recall.public_id}-end"}
    assert "probably starts" in found[f"{waits}-start"]["summary"]
    assert abs(found[f"{waits}-start"]["dtstart"].dt - (world.now + 1.5 * HOUR)) <= dt.timedelta(minutes=2)
    assert "Estimated start" in found[f"{waits}-start"]["description"]
    assert found[f"{waits}-start"]["url"].endswith(f"/d/nlp/workloads/{waits}/")
    assert abs(found[f"{runs}-end"]["dtstart"].dt - (world.now + 3.5 * HOUR)) <= dt.timedelta(seconds=2)
    Claim.objects.filter(attempt__workload=world.waiting).update(promised_at=world.now + 2 * HOUR)
    Attempt.objects.filter(workload=world.running).update(reclaim_at=world.now + HOUR)
    Workload.objects.filter(pk=world.running.pk).update(state="recalled")
    found = events(path)
    assert "at the latest" in found[f"{waits}-start"]["summary"]
    assert "save by now" in found[f"{runs}-recalled"]["summary"]


def test_feed_is_in_the_language_of_its_owner(world: World) -> None:
    world.estimate()
    user = ann()
    User.objects.filter(pk=user.pk).update(language="zh-hans")
    assert "预计" in events(address_of(user))[f"{world.waiting.public_id}-start"]["summary"]


def test_feed_uses_the_language_of_its_address_if_the_owner_chose_none(world: World) -> None:
    world.estimate()
    client = Client(headers={"accept-language": "zh-CN"})
    client.force_login(ann())
    page = client.post(reverse("workloads:calendar"), {}, follow=True).content.decode()
    found = re.search(r"/calendar/[\w-]+\.ics\?language=zh-hans", page)
    assert found
    start = f"{world.waiting.public_id}-start"
    assert "预计" in events(found[0])[start]["summary"]
    assert "probably" in events(found[0].replace("zh-hans", "tlh"))[start]["summary"]
    User.objects.filter(pk=ann().pk).update(language="en")
    assert "probably" in events(found[0])[start]["summary"]


def test_start_without_an_estimated_range_is_shown_as_latest_time(world: World) -> None:
    world.estimate()
    StartEstimate.objects.update(latest=F("low"), high=F("low"), median=F("low"))
    assert "by now" in events(address_of(ann()))[f"{world.waiting.public_id}-start"]["summary"]


def test_feed_shows_only_what_its_owner_can_see(world: World) -> None:
    world.estimate()
    path, user = address_of(ann()), ann()
    others = address_of(make.member(world.departments["nlp"]))
    assert events(others) == {}  # a colleague's work is not in one's own calendar
    assert events(address_of(make.user("stranger"))) == {}
    Membership.objects.filter(user=user, department=world.departments["nlp"]).delete()
    assert f"{world.waiting.public_id}-start" not in events(path)
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert Client().get(path).status_code == 404


def test_new_address_replaces_the_old_one_and_a_revoked_address_is_not_found(world: World) -> None:
    user = ann()
    old = address_of(user)
    assert CalendarFeed.objects.get().digest not in old
    new = address_of(user)
    assert [Client().get(path).status_code for path in (old, new)] == [404, 200]
    assert CalendarFeed.objects.get().read_at is not None
    client = Client()
    client.force_login(user)
    assert "last read" in client.get(reverse("workloads:calendar")).content.decode()
    assert new not in client.get(reverse("workloads:calendar")).content.decode()  # it is shown once
    client.post(reverse("workloads:calendar_end"))
    assert Client().get(new).status_code == 404
    client.post(reverse("workloads:calendar_end"))
    audited = AuditEntry.objects.filter(action__startswith="calendar").values_list("action", flat=True)
    assert sorted(audited) == ["calendar.created", "calendar.created", "calendar.ended"]


def test_workload_names_cannot_inject_calendar_entries(world: World) -> None:
    Workload.objects.filter(pk=world.running.pk).update(
        name="x\r\nEND:VEVENT\r\nBEGIN:VEVENT", max_runtime=3600, state_since=timezone.now()
    )
    assert len(events(address_of(ann()))) == 1
