"""Estimates of starts in the database, where they are told, and how they are compared with what happened."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.models import Role
from quotas.models import Claim
from tests import builders as make
from tests.workloads.replay.test_command import Past
from workloads.estimates import keep
from workloads.estimates.runtimes import ENOUGH
from workloads.models import Attempt, StartEstimate, Workload

pytestmark = pytest.mark.django_db
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)


class World(Past):
    """Eight like it have run for two hours each; one holds all cards since half an hour, and one waits."""

    def __init__(self) -> None:
        super().__init__()
        for day in range(ENOUGH):
            self.attempt(self.workload("vision", 8, 24 * day + 10), 1, 24 * day + 10, 24 * day + 8, outcome="succeeded")
        Workload.objects.filter(attempts__finished_at__isnull=False).update(
            state="succeeded", finished_at=self.now - HOUR
        )
        self.running = self.workload("vision", 8, 0.5)
        self.attempt(self.running, 1, 0.5, None)
        Workload.objects.filter(pk=self.running.pk).update(state="running")
        self.waiting = self.workload("nlp", 8, 0.1)
        self.attempt(self.waiting, 1, None, None)
        Attempt.objects.filter(workload=self.waiting).update(finished_at=None)
        Claim.objects.filter(attempt__workload=self.waiting).update(position=1)

    def estimate(self) -> StartEstimate:
        keep.estimate_all(now=self.now)
        return StartEstimate.objects.get()


@pytest.fixture
def world() -> World:
    return World()


def test_what_waits_is_told_when_it_will_probably_start_by_page_and_api(world: World) -> None:
    estimate = world.estimate()
    assert (estimate.attempt.workload, estimate.why) == (world.waiting, "")
    assert estimate.median is not None
    assert abs(estimate.median - (world.now + 1.5 * HOUR)) <= 2 * MINUTE
    client = Client()
    client.force_login(make.member(world.departments["nlp"]))
    page = client.get(reverse("workloads:detail", args=["nlp", world.waiting.public_id])).content.decode()
    assert "Estimated start: about" in page
    told = client.get(f"/api/v1/workloads/{world.waiting.public_id}/").json()["estimate"]
    assert (told["why"], told["low"] <= told["median"] <= told["high"]) == ("", True)


def test_the_first_estimate_stays_beside_the_last_and_an_old_one_is_not_told(world: World) -> None:
    first = world.estimate()
    world.now += 10 * MINUTE
    later = world.estimate()
    assert (later.first_made_at, later.first_median) == (first.made_at, first.median)
    assert later.made_at == world.now
    StartEstimate.objects.update(made_at=timezone.now() - HOUR)
    client = Client()
    client.force_login(make.member(world.departments["nlp"]))
    assert client.get(f"/api/v1/workloads/{world.waiting.public_id}/").json()["estimate"] is None


def test_a_fresh_estimate_is_not_made_again(world: World) -> None:
    made = world.estimate()
    world.now += dt.timedelta(seconds=20)
    assert world.estimate().made_at == made.made_at


def test_where_nothing_is_known_it_says_why(world: World) -> None:
    Attempt.objects.filter(finished_at__isnull=False).update(started_at=None)
    estimate = world.estimate()
    assert (estimate.why, estimate.median, estimate.first_made_at) == ("runtimes_unknown", None, None)
    client = Client()
    client.force_login(make.member(world.departments["nlp"]))
    page = client.get(reverse("workloads:detail", args=["nlp", world.waiting.public_id])).content.decode()
    assert "A maximum runtime makes it known" in page


def row(low: int, middle: int, high: int | None, start: int) -> tuple[Any, ...]:
    """Minutes after the estimate was made."""
    made = dt.datetime(2026, 5, 4, tzinfo=dt.UTC)
    return (made, *(None if at is None else made + at * MINUTE for at in (low, middle, high, start)))


def test_first_estimates_are_compared_with_starts() -> None:
    rows = [row(10, 20, 30, 31), row(10, 20, 30, 8), row(10, 20, 30, 40), row(10, 20, None, 500)]
    found = keep.compare(rows)
    assert (found.count, found.held, found.earlier, found.later, found.held_percent) == (4, 2, 1, 1, 50)
    assert found.error_seconds == pytest.approx((12 + 20) / 2 * 60)
    assert keep.compare([]).held_percent == 0


def test_operators_see_how_well_estimates_held_and_nobody_else(world: World) -> None:
    world.estimate()
    Attempt.objects.filter(workload=world.waiting).update(admitted_at=world.now + 1.5 * HOUR)
    client = Client()
    client.force_login(make.user("olga", is_operator=True))
    page = client.get(reverse("workloads:estimates"))
    assert page.context["rows"]["A100"].held == 1
    assert "100 %" in page.content.decode()
    client.force_login(make.member(world.departments["nlp"], Role.OWNER))
    assert client.get(reverse("workloads:estimates")).status_code == 404
