"""Charts on the workload's page, the hint that cards are hardly used, and the API for measured use."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from portal.models import Role
from portal.text.timeline import HEIGHT, WIDTH
from quotas.models import Claim
from tests import builders as make
from tests.workloads.measurement import bed
from tests.workloads.measurement.bed import World
from workloads.measurement.buckets import BUCKET, HOUR, floor
from workloads.measurement.chart import draw
from workloads.measurement.history import LOW_FOR, low_use, points_of
from workloads.models import Attempt, MeasuredBucket, MeasuredHour, MetricsSource, Workload


@pytest.fixture
def here(db: None) -> World:
    return bed.world("http://127.0.0.1:9")


@pytest.fixture
def member(client: Client, here: World) -> Client:
    client.force_login(make.member(here.vision, Role.MEMBER, "mia"))
    return client


def measured(attempt: Attempt, gpu: float | None, *, rank: int = 0, hours: float = 3, **more: Any) -> None:
    """Buckets of the last hours, each with this activity."""
    Attempt.objects.filter(pk=attempt.pk).update(started_at=timezone.now() - dt.timedelta(hours=hours, minutes=10))
    last = floor(timezone.now(), BUCKET)
    share = None if gpu is None else round(gpu * 1000)
    MeasuredBucket.objects.bulk_create(
        MeasuredBucket(attempt=attempt, rank=rank, at=last - number * BUCKET, gpu=share, **more)
        for number in range(int(hours * 12) + 1)
    )


def page_of(client: Client, workload: Workload, query: str = "") -> str:
    answer = client.get(f"/d/vision/workloads/{workload.public_id}/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def figures(page: str) -> dict[str, str]:
    """Key of each chart → its newest value as text."""
    pairs = re.findall(r'data-figure="(\w+)">.*?</span> <(?:strong|span[^>]*)>(.*?)</', page, re.S)
    return {key: text.strip() for key, text in pairs}


def test_page_shows_measured_values_and_marks_those_not_measured(member: Client, here: World) -> None:
    job = bed.attempt(here)
    measured(job, 0.45, gpu_mib=20480, watts=250, cards=1, cpu_milli=None, memory_mib=512)
    page = page_of(member, job.workload, "?tab=usage")
    assert figures(page) == {"gpu": "45 %", "gpu_mib": "20 GiB", "cpu_milli": "not measured", "memory_mib": "512 MiB"}
    scales = dict(re.findall(r'data-figure="(\w+)">(?:(?!data-figure).)*?<text x="0" y="10">(.*?)</text>', page, re.S))
    assert scales == {"gpu": "100 %", "gpu_mib": "20 GiB", "memory_mib": "2 GiB"}, "what is not measured has no scale"
    assert "250 W" in page
    assert "data-low" not in page
    part = member.get(f"/d/vision/workloads/{job.workload.public_id}/usage/?range=7d")
    assert part.status_code == 200
    assert "<html" not in part.content.decode()


def test_each_rank_of_a_gang_has_charts_and_many_ranks_are_paginated(member: Client, here: World) -> None:
    gang = bed.attempt(here, kind="distributed", pods=10, setup={"template": "generic"})
    measured(gang, 0.2)
    measured(gang, 0.6, rank=9)
    page = page_of(member, gang.workload, "?tab=usage")
    assert page.count('data-figure="gpu"') == 9  # their mean, and the first eight
    assert "Mean of 10 ranks" in page
    assert re.search(r"<strong>40 %</strong>", page)
    rest = page_of(member, gang.workload, "?tab=usage&ranks=8")
    assert re.search(r"Rank 9</h3>.*<strong>60 %</strong>", rest, re.S)
    for odd in ("ranks=99", "ranks=-1", "ranks=x", "range=century"):
        page_of(member, gang.workload, f"?tab=usage&{odd}")


def test_workload_that_has_not_started_has_no_charts(member: Client, here: World) -> None:
    job = bed.attempt(here)
    Attempt.objects.update(started_at=None)
    page = page_of(member, job.workload, "?tab=usage")
    assert "data-figure" not in page
    assert "It has not started yet" in page


def test_page_states_why_nothing_is_measured(member: Client, here: World) -> None:
    job = bed.attempt(here)
    at = timezone.now() - HOUR
    MetricsSource.objects.update(
        measured_at=at, failing_since=timezone.now(), failure={"message": "Broken.", "params": {}}
    )
    page = page_of(member, job.workload, "?tab=usage")
    assert "Not measured since" in page
    assert "Broken." not in page  # the error of the operator's server is shown only to operators
    MetricsSource.objects.all().delete()
    assert "no Prometheus is connected" in page_of(member, job.workload, "?tab=usage")


def test_hardly_used_cards_are_shown_on_the_page_and_in_lists(member: Client, here: World) -> None:
    idle, busy = bed.attempt(here), bed.attempt(here)
    measured(idle, 0.04)
    measured(busy, 0.4)
    assert "It uses 4 % of its card" in page_of(member, idle.workload)
    assert "data-low" not in page_of(member, busy.workload)
    rows = member.get("/d/vision/workloads/").content.decode()
    assert re.findall(r"data-low[^>]*>(.*?)<", rows) == ["GPU 4 %"]


def low_use_of(*attempts: Attempt) -> dict[int, float]:
    rows = list(Attempt.objects.filter(pk__in=[each.pk for each in attempts]).select_related("workload"))
    return low_use([(row.workload, row) for row in rows], now=timezone.now())


@pytest.mark.parametrize(
    ("hours", "gpu", "state"),
    [(1, 0.01, "running"), (3, None, "running"), (3, 0.01, "succeeded"), (3, 0.06, "running"), (2, 0.01, "running")],
)
def test_work_without_three_hours_of_low_use_is_not_called_idle(
    here: World, hours: float, gpu: float | None, state: str
) -> None:
    job = bed.attempt(here)
    measured(job, gpu, hours=hours)
    Workload.objects.update(state=state)
    assert low_use_of(job) == {}


def test_gang_with_a_rank_that_is_not_measured_is_not_called_idle(here: World) -> None:
    gang = bed.attempt(here, kind="distributed", pods=2)
    measured(gang, 0.0)
    assert low_use_of(gang) == {}
    measured(gang, 0.02, rank=1)
    assert low_use_of(gang) == {gang.workload_id: pytest.approx(0.01)}


def test_the_hint_takes_a_constant_number_of_queries(
    here: World, django_assert_max_num_queries: Any
) -> None:  # fmt: skip
    jobs = [bed.attempt(here) for _ in range(5)]
    for job in jobs:
        measured(job, 0.01)
    rows = [(row.workload, row) for row in Attempt.objects.select_related("workload")]
    with django_assert_max_num_queries(1):
        assert len(low_use(rows, now=timezone.now())) == 5
    young = bed.attempt(here)
    Attempt.objects.filter(pk=young.pk).update(started_at=timezone.now())
    young = Attempt.objects.select_related("workload").get(pk=young.pk)
    with django_assert_max_num_queries(0):
        assert low_use([(young.workload, young)], now=timezone.now()) == {}
    assert dt.timedelta(hours=3) == LOW_FOR  # as the sentences of the pages say


def test_api_returns_the_points_of_each_rank(member: Client, here: World) -> None:
    job = bed.attempt(here)
    at = dt.datetime(2026, 5, 4, 10, 0, tzinfo=dt.UTC)
    MeasuredBucket.objects.create(attempt=job, rank=0, at=at, gpu=250, gpu_mib=None, cards=1)
    MeasuredHour.objects.create(attempt=job, rank=0, at=at, gpu=500, seconds=300)
    path = f"/api/v1/workloads/{job.workload.public_id}/usage/"
    answer = member.get(path, {"from": "2026-05-04T10:00:00+02:00", "until": "2026-05-04T10:05:00Z"})
    (rank,) = answer.json()["ranks"]
    assert rank["points"] == [
        {"at": "2026-05-04T10:00:00Z", "gpu": 0.25, "gpu_mib": None, "watts": None, "cpu_milli": None, "memory_mib": None,
         "cards": 1}
    ]  # fmt: skip
    hourly = member.get(path, {"from": "2026-05-04", "until": "2026-05-05", "step": "3600"}).json()
    assert [point["gpu"] for point in hourly["ranks"][0]["points"]] == [0.5]
    assert member.get(path).json()["ranks"] == []


@pytest.mark.parametrize(
    ("field", "query"),
    [
        ("step", {"step": "60"}), ("step", {"step": "0"}), ("step", {"step": "x"}), ("from", {"from": "yesterday"}),
        ("until", {"until": "9999-99-99"}), ("until", {"until": "0001-01-01"}),
        ("from", {"from": "2026-05-05", "until": "2026-05-04"}), ("from", {"from": "2016-05-05", "until": "2026-05-04"}),
    ],
)  # fmt: skip
def test_api_rejects_invalid_parameters_with_their_field(
    member: Client, here: World, field: str, query: dict[str, str]
) -> None:
    job = bed.attempt(here)
    answer = member.get(f"/api/v1/workloads/{job.workload.public_id}/usage/", query)
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"][0]["attr"] == field
    steps = "step can be 300 / 3600 seconds, not" in answer.json()["detail"]
    assert steps == (field == "step"), "the possible steps are listed whatever the value was"
    assert ("out of range" in answer.json()["detail"]) == (query.get("until") == "0001-01-01")


def test_other_departments_cannot_see_measured_use(client: Client, here: World) -> None:
    job = bed.attempt(here)
    client.force_login(make.member(make.department("biology"), Role.OWNER, "bea"))
    for path in (
        f"/api/v1/workloads/{job.workload.public_id}/usage/",
        f"/d/vision/workloads/{job.workload.public_id}/usage/",
    ):
        assert client.get(path).status_code == 404


def test_later_one_of_two_attempts_in_a_bucket_counts(here: World) -> None:
    job = bed.attempt(here)
    Attempt.objects.update(finished_at=timezone.now())
    claim = make.holding(here.vision, here.pool, own=1)
    second = Attempt.objects.create(workload=job.workload, number=2, claim=claim, cluster=here.cluster, run_name="w-2")
    at = dt.datetime(2026, 5, 4, 10, 0, tzinfo=dt.UTC)
    for attempt, gpu in ((job, 100), (second, 900)):
        MeasuredBucket.objects.create(attempt=attempt, rank=0, at=at, gpu=gpu)
    ((point,),) = points_of(job.workload, at, at + HOUR, 300).values()
    assert point.gpu == 0.9


BEGIN = dt.datetime(2026, 5, 4, tzinfo=dt.UTC)
VALUES = st.dictionaries(st.integers(-3, 40), st.none() | st.floats(0, 1e9), max_size=30)


@given(VALUES, st.none() | st.floats(0.1, 1e6))
def test_chart_stays_in_its_frame_and_shows_gaps_for_any_values(values: Any, limit: float | None) -> None:
    end = BEGIN + 36 * BUCKET
    points = [(BEGIN + number * BUCKET, value) for number, value in sorted(values.items())]
    chart = draw(points, begin=BEGIN, end=end, step=BUCKET, limit=limit)
    numbers = [float(text) for text in re.findall(r"[MVH ](-?\d+(?:\.\d+)?)", chart.area + chart.gaps + chart.limit)]
    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers)
    known = {number for number, value in values.items() if value is not None and -1 < number < 36}
    assert chart.is_empty == (not known)
    assert chart.area.count("M") == len(known)
    width = sum(float(b) - float(a) for a, b in re.findall(r"M([\d.]+) 100\.0V0\.0H([\d.]+)V", chart.gaps))
    assert width == pytest.approx((36 - len(known)) / 36 * WIDTH, abs=1)


def test_chart_without_measurements_is_one_gap_and_not_zero() -> None:
    chart = draw([], begin=BEGIN, end=BEGIN + HOUR, step=BUCKET, limit=1.0)
    assert (chart.area, chart.last, chart.is_empty) == ("", None, True)
    assert chart.gaps == f"M0.0 {HEIGHT:.1f}V0.0H{WIDTH:.1f}V{HEIGHT:.1f}Z"


def test_chart_has_no_gap_before_the_start(member: Client, here: World) -> None:
    chart = draw([], begin=BEGIN, end=BEGIN + HOUR, step=BUCKET, ran=[(BEGIN + HOUR / 2, BEGIN + HOUR)])
    assert chart.gaps == f"M{WIDTH / 2:.1f} {HEIGHT:.1f}V0.0H{WIDTH:.1f}V{HEIGHT:.1f}Z"
    job = bed.attempt(here)
    Attempt.objects.update(started_at=timezone.now() - dt.timedelta(minutes=2))
    page = page_of(member, job.workload, "?tab=usage&range=30d")
    assert 'class="use-gap" d=' not in page  # of the hour that is not over


def placed(attempt: Attempt, *places: dict[str, Any]) -> None:
    Claim.objects.filter(pk=attempt.claim_id).update(placement=list(places))


def activities(text: str) -> list[str]:
    """The activity that the map shows of each card, in order."""
    return re.findall(r'class="map-busy">(.*?)</small>', text)


def test_card_map_shows_the_activity_of_its_cards(member: Client, here: World) -> None:
    gang, job, old = bed.attempt(here, kind="distributed", pods=2), bed.attempt(here), bed.attempt(here)
    placed(gang, {"pod": 0, "node": "a100-n1", "cards": [0]}, {"pod": 1, "node": "a100-n1", "cards": [1]})
    placed(job, {"pod": 0, "node": "a100-n1", "cards": [2]})
    placed(old, {"pod": 0, "node": "a100-n1", "cards": [3]})
    assert "No workload that you can see is measured here at present." in member.get("/card-map/").content.decode()
    measured(gang, 0.25)
    measured(gang, 0.0, rank=1)
    MeasuredBucket.objects.create(attempt=old, rank=0, at=timezone.now() - HOUR, gpu=900)
    text = member.get("/card-map/").content.decode()
    assert activities(text)[:5] == ["25 %", "0 %", "not measured", "not measured", "–"]
    parts = re.findall(r'<path class="\w+ d\d (h.)"', text.partition("map-nodes")[2])
    assert parts == ["h2", "h0", "hn", "hn"], "not measured is not drawn as 0 %"


def test_workloads_that_share_a_card_are_drawn_separately_with_their_sum(member: Client, here: World) -> None:
    parts = make.pool("parts", cards=1, unit="MiB", units_per_card=1000, sharing="hami", group=here.pool.group)
    first, second = (bed.attempt(here, pool=parts, units=500) for _ in range(2))
    for each, gpu in ((first, 1.0), (second, 0.5)):
        placed(each, {"pod": 0, "node": "parts-n1", "cards": [0]})
        measured(each, gpu)
    text = member.get("/card-map/?pool=parts").content.decode()
    assert activities(text) == ["75 %"]
    assert re.findall(r'<path class="\w+ d\d (h.)"', text.partition("map-nodes")[2]) == ["h4", "h3"]


def test_activity_of_other_departments_cards_is_not_shown(client: Client, here: World) -> None:
    job = bed.attempt(here)
    placed(job, {"pod": 0, "node": "a100-n1", "cards": [0]})
    measured(job, 0.25)
    client.force_login(make.member(make.department("biology"), Role.OWNER, "bea"))
    node = here.pool.group.cluster.nodes.get(name="a100-n1")
    for address in ("/card-map/", f"/card-map/nodes/{node.pk}/"):
        text = client.get(address).content.decode()
        assert "another department" in text
        assert "25 %" not in text.partition("map-nodes")[2]
        assert "computes" not in text
    assert "hx" in client.get("/card-map/").content.decode()
