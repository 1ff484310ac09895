"""Estimates of starts in the database, where they are shown, and how they are compared with actual starts."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from structlog.testing import capture_logs

from portal.background import hints
from portal.models import Role
from quotas.models import Claim
from tests import builders as make
from tests.workloads.replay.test_command import Past
from workloads.estimates import ask, calibrate, keep, outcomes
from workloads.estimates.runtimes import ENOUGH
from workloads.estimates.words import IN_A_LIST, NO_ESTIMATE, start_lines
from workloads.models import Attempt, Image, StartEstimate, Workload
from workloads.tasks import estimate_asked

pytestmark = pytest.mark.django_db
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)


class World(Past):
    """Similar workloads ran for two hours each; one has held all cards for half an hour, and one waits."""

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


@pytest.fixture(autouse=True)
def _empty_caches() -> None:
    keep._seen.clear()
    cache.clear()


def test_page_and_api_show_the_estimated_start_of_a_waiting_workload(world: World) -> None:
    estimate = world.estimate()
    assert (estimate.attempt.workload, estimate.why) == (world.waiting, "")
    assert estimate.median is not None
    assert abs(estimate.median - (world.now + 1.5 * HOUR)) <= 2 * MINUTE
    client = Client()
    client.force_login(make.member(world.departments["nlp"]))
    page = client.get(reverse("workloads:detail", args=["nlp", world.waiting.public_id])).content.decode()
    assert "Estimated start: about" in page
    assert "(in 80 % of cases)" in page
    shown = client.get(f"/api/v1/workloads/{world.waiting.public_id}/").json()["estimate"]
    assert (shown["why"], shown["low"] <= shown["median"] <= shown["high"]) == ("", True)
    assert shown["confidence"] == 0.8


def test_every_range_states_in_how_many_cases_it_holds(world: World) -> None:
    estimate = world.estimate()
    ranges = (None, "not before", "90 %"), (world.now + 3 * HOUR, "usually", "80 %"), (estimate.low, "about", "80 %")
    for high, begins, part in ranges:
        estimate.high = high
        [line, *_] = start_lines(estimate)
        assert line.startswith(f"Estimated start: {begins} ")
        assert f"(in {part} of cases)" in line


def test_maximum_runtimes_alone_give_a_latest_start_and_no_range(world: World) -> None:
    Attempt.objects.filter(finished_at__isnull=False).update(started_at=None)
    Claim.objects.filter(workload=world.running.public_id).update(max_runtime=9 * 3600)
    estimate = world.estimate()
    assert (estimate.basis, estimate.low, estimate.latest) == ("limit", estimate.high, estimate.high)
    assert estimate.first_made_at is None, "there is no range that could hold"
    client = Client()
    client.force_login(make.member(world.departments["nlp"]))
    page = client.get(reverse("workloads:detail", args=["nlp", world.waiting.public_id])).content.decode()
    assert "Estimated start: at the latest" in page
    assert "of cases)" not in page
    assert "at the latest</span>" in client.get(reverse("workloads:list", args=["nlp"])).content.decode()
    shown = client.get(f"/api/v1/workloads/{world.waiting.public_id}/").json()["estimate"]
    assert (shown["confidence"], shown["latest"]) == (None, shown["high"])


def test_first_estimate_is_kept_with_the_latest_and_an_old_one_is_hidden(world: World) -> None:
    first = world.estimate()
    world.now += 10 * MINUTE
    later = world.estimate()
    assert (later.first_made_at, later.first_median) == (first.made_at, first.median)
    assert later.made_at == world.now
    StartEstimate.objects.update(made_at=timezone.now() - HOUR)
    client = Client()
    client.force_login(make.member(world.departments["nlp"]))
    assert client.get(f"/api/v1/workloads/{world.waiting.public_id}/").json()["estimate"] is None


def test_fresh_estimate_is_not_computed_again(world: World) -> None:
    first = world.estimate()
    world.now += dt.timedelta(seconds=20)
    assert world.estimate().made_at == first.made_at


def test_missing_estimate_states_its_reason(world: World) -> None:
    Attempt.objects.filter(finished_at__isnull=False).update(started_at=None)
    estimate = world.estimate()
    assert (estimate.why, estimate.median, estimate.first_made_at) == ("runtimes_unknown", None, None)
    client = Client()
    client.force_login(make.member(world.departments["nlp"]))
    page = client.get(reverse("workloads:detail", args=["nlp", world.waiting.public_id])).content.decode()
    assert "A maximum runtime makes it known" in page


def test_only_operators_see_how_well_estimates_held(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.estimate()
    Attempt.objects.filter(workload=world.waiting).update(admitted_at=world.now + 1.5 * HOUR)
    client = Client()
    client.force_login(make.user("olga", is_operator=True))
    page = client.get(reverse("workloads:estimates"))
    assert page.context["rows"]["A100"].held == 1
    assert "too few to judge" in page.content.decode()
    monkeypatch.setattr(outcomes, "ENOUGH", 1)
    judged = client.get(reverse("workloads:estimates")).content.decode()
    assert "100 %" in judged
    assert "Expected and real waits in A100: 1 of 1 in the 80 % range, 0 earlier, 0 later" in judged
    accuracy = client.get("/api/v1/estimates/").json()
    assert accuracy["days"] == 30
    assert [(each["pool"], each["count"], each["held"]) for each in accuracy["pools"]] == [("A100", 1, 1)]
    Attempt.objects.filter(workload=world.waiting).update(admitted_at=None)
    StartEstimate.objects.update(first_high=world.now - HOUR)
    [waiting] = keep.outcomes(now=world.now)["A100"]
    assert waiting.is_later
    client.force_login(make.member(world.departments["nlp"], Role.OWNER))
    assert client.get(reverse("workloads:estimates")).status_code == 404
    assert client.get("/api/v1/estimates/").status_code == 404


def test_lists_and_their_csv_show_the_estimated_start(world: World) -> None:
    estimate = world.estimate()
    client = Client()
    client.force_login(make.member(world.departments["nlp"]))
    page = client.get(reverse("workloads:list", args=["nlp"])).content.decode()
    assert "Expected start" in page
    assert "about " in page
    assert "Estimated start: about" in page  # as the title of the cell
    sheet = b"".join(client.get(reverse("workloads:list", args=["nlp"]), {"format": "csv"}).streaming_content).decode()
    assert estimate.median is not None
    assert estimate.median.isoformat() in sheet
    [row] = client.get("/api/v1/workloads/?state=queued").json()["results"]
    assert row["estimate"]["median"] is not None
    for why, words in IN_A_LIST.items():
        StartEstimate.objects.update(low=None, median=None, high=None, latest=None, why=why)
        page = client.get(reverse("workloads:list", args=["nlp"])).content.decode()
        assert f'title="{NO_ESTIMATE[why]}">{words}<' in page


def test_other_departments_see_no_estimate(world: World) -> None:
    world.estimate()
    client = Client()
    client.force_login(make.member(world.departments["vision"]))
    assert client.get("/api/v1/workloads/?state=queued").json()["results"] == []
    assert client.get(f"/api/v1/workloads/{world.waiting.public_id}/").status_code == 404


def test_estimate_states_the_latest_start_and_the_class_of_its_runtimes(world: World) -> None:
    Claim.objects.filter(workload=world.running.public_id).update(max_runtime=9 * 3600)
    Workload.objects.filter(attempts__finished_at__isnull=False).update(author=make.user("somebody-else"))
    estimate = world.estimate()
    assert estimate.latest is not None
    assert abs(estimate.latest - (world.now + 8.5 * HOUR)) <= 2 * MINUTE
    assert estimate.basis == "department"
    text = " ".join(start_lines(estimate))
    assert "At the latest" in text
    assert "taken from all of their departments" in text


def body(world: World) -> dict[str, Any]:
    return {"name": "later", "pool": "a100", "units_per_pod": 8, "image": Image.objects.get().name,
            "command": ["true"], "kind": "job"}  # fmt: skip


def test_estimate_before_submission_is_computed_by_a_worker_not_in_the_request(
    world: World, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(hints, "_send", lambda name, ids: sent.append((name, ids)))
    client = Client()
    client.force_login(make.member(world.departments["nlp"]))

    def ask() -> dict[str, Any]:
        with django_capture_on_commit_callbacks(execute=True):
            verdict = client.post(
                "/api/v1/departments/nlp/workloads/?dry_run=1", body(world), "application/json"
            ).json()
        assert isinstance(verdict, dict)
        return verdict

    first = ask()
    assert first["headline"] == "waits", first
    assert (first["estimate"]["why"], first["estimate"]["median"]) == ("being_made", None)
    assert ask()["estimate"]["why"] == "being_made"
    assert [name for name, _ in sent] == ["workloads.estimate_asked"]  # one request at a time
    estimate_asked(**sent[0][1])
    verdict = ask()
    assert verdict["estimate"]["why"] == ""
    # behind the waiting workload
    assert dt.datetime.fromisoformat(verdict["estimate"]["median"]) > world.now + 2 * HOUR
    assert any("Estimated start" in line for line in verdict["lines"])
    assert len(sent) == 1
    form = {**body(world), "command": "true", "cpu": 1, "memory_mib": "1 GiB", "max_runtime": "1h"}

    def panel() -> str:
        return client.post(reverse("workloads:verdict", args=["nlp"]), form).content.decode()

    with django_capture_on_commit_callbacks(execute=True):
        assert "data-expected" not in panel(), "on a phone the bar with Submit shows no start that is not known yet"
    estimate_asked(**sent[1][1])
    assert 'data-expected="Expected start: ' in panel()


def test_estimate_that_fails_before_submission_is_answered_and_logged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("an invented fault")

    client = Client()
    client.force_login(make.member(world.departments["nlp"]))

    def asked() -> dict[str, Any]:
        answer = client.post("/api/v1/departments/nlp/workloads/?dry_run=1", body(world), "application/json").json()
        assert isinstance(answer, dict)
        return answer

    monkeypatch.setattr(ask, "played", fails)
    assert asked()["estimate"]["why"] == "being_made"
    with capture_logs() as logs:
        estimate_asked(group=world.pool.group.pk)
    assert [(line["event"], line["log_level"]) for line in logs] == [("starts.estimate_failed", "error")]
    verdict = asked()
    assert (verdict["estimate"]["why"], verdict["estimate"]["median"]) == ("failed", None)
    assert NO_ESTIMATE["failed"] in verdict["lines"]


def test_workload_that_starts_now_has_no_estimate(world: World) -> None:
    Attempt.objects.update(finished_at=world.now)
    Claim.objects.update(state="released", released_at=world.now)
    client = Client()
    client.force_login(make.member(world.departments["nlp"]))
    verdict = client.post(
        "/api/v1/departments/nlp/workloads/?dry_run=1", {**body(world), "units_per_pod": 1}, "application/json"
    ).json()
    assert verdict["headline"].startswith("starts")
    assert verdict["estimate"] is None


def test_past_runs_are_read_again_only_after_ten_minutes(
    world: World, django_assert_max_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[dt.datetime] = []
    read = keep.demand_of
    monkeypatch.setattr(keep, "demand_of", lambda group, begin, end: (reads.append(end), read(group, begin, end))[1])
    for minutes in (0, 1, 9, 11):
        keep.estimate_all(now=world.now + minutes * MINUTE)
    assert reads == [world.now, world.now + 11 * MINUTE]


def test_past_errors_correct_the_estimate_but_not_its_played_times(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All earlier workloads waited twice as long as the play had given."""
    first = world.estimate()
    others = Attempt.objects.exclude(workload=world.waiting)
    for hours, attempt in enumerate(others, 9):
        made = world.now - hours * HOUR
        Attempt.objects.filter(pk=attempt.pk).update(admitted_at=made + 2 * HOUR)
        StartEstimate.objects.create(
            attempt=attempt, made_at=world.now, first_made_at=made, first_played=[3600, 3600, 3600]
        )
    monkeypatch.setattr(calibrate, "ENOUGH", 5)
    world.now += 10 * MINUTE
    keep.estimate_all(now=world.now)
    later = StartEstimate.objects.get(attempt=first.attempt)
    assert first.median is not None
    assert later.median is not None
    assert later.played is not None
    assert abs(later.played[1] - (first.median - world.now).total_seconds()) <= 120
    assert abs((later.median - world.now).total_seconds() - 2 * later.played[1]) <= 120
