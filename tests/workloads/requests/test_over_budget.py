"""What is said of a used-up budget before a workload is submitted: on the form, by the API, and so by `gpuq verdict`."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.models import Department, Role, User
from quotas.models import Budget, ClaimState, Pool, Quota, UserCap
from quotas.planning.run_pass import run_pass
from tests import builders as make
from tests.clients import person
from workloads.models import Image, Workload

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/api/v1/departments/vision/workloads/"
JOB: dict[str, Any] = {
    "name": "train", "pool": "a100", "image": "python:3.11", "command": ["python", "train.py"], "units_per_pod": 2
}  # fmt: skip
RESETS = "2026-04-01T00:00:00Z"


@pytest.fixture(autouse=True)
def middle_of_a_month(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: dt.datetime(2026, 3, 20, 12, tzinfo=dt.UTC))


@pytest.fixture
def vision() -> Department:
    """It has used 50 GPU-hours, and may use 4 cards, and 4 more that are nobody's."""
    pool, vision = make.pool("a100", cards=8), make.department("vision")
    make.quota(vision, pool, 4)
    Image.objects.create(name="python:3.11", title="Python", interpreter="python")
    begun = timezone.now() - dt.timedelta(hours=50)
    done = make.holding(vision, pool, own=1, state=ClaimState.RELEASED, started_at=begun)
    done.ledger.update(ended_at=timezone.now())
    return vision


@pytest.fixture
def ann(vision: Department) -> User:
    return make.member(vision, Role.MEMBER, "ann")


def test_the_api_names_the_budget_its_numbers_and_when_it_resets(vision: Department, ann: User) -> None:
    Budget.objects.create(department=vision, person=ann, hours=1, action="no_new_work")  # of which she used nothing
    Budget.objects.create(department=vision, hours=50, action="no_new_work")
    told = person(ann).post(URL + "?dry_run=1", JOB).json()
    assert told["headline"] == "waits"
    text = "The budget of Vision is used up (50 of 50 GPU-hours): nothing new starts until"
    assert any(line.startswith(text) for line in told["lines"]), told
    assert told["alternatives"] == []
    assert "Wait until the budget resets, or ask a quota owner for a larger one." in told["advice"]
    made = person(ann).post(URL, JOB)  # it may be queued all the same
    assert made.status_code == 202


def test_where_only_borrowing_is_refused_the_alternative_is_inside_the_guarantee(vision: Department, ann: User) -> None:
    Budget.objects.create(department=vision, hours=50)
    fits = person(ann).post(URL + "?dry_run=1", {**JOB, "units_per_pod": 4}).json()
    assert fits["headline"] == "starts_own"
    told = person(ann).post(URL + "?dry_run=1", {**JOB, "units_per_pod": 5}).json()
    assert told["headline"] == "waits"
    assert [each["units_per_pod"] for each in told["alternatives"]] == [4]


def test_a_request_that_only_waits_for_the_budget_is_not_refused_as_impossible(vision: Department, ann: User) -> None:
    Budget.objects.create(department=vision, hours=50)
    assert person(ann).post(URL, {**JOB, "units_per_pod": 8}).status_code == 202
    assert Workload.objects.get().units_per_pod == 8


def test_the_form_says_it_too_in_both_languages(vision: Department, ann: User) -> None:
    Budget.objects.create(department=vision, hours=50, action="no_new_work")
    client = Client()
    client.force_login(ann, backend="django.contrib.auth.backends.ModelBackend")
    sent = {"kind": "job", "pool": "a100", "image": "python:3.11", "command": "python train.py", "units_per_pod": "2",
            "cpu": "1", "memory_mib": "1 GiB", "priority": "0"}  # fmt: skip
    for language, says in (("en", "The budget of Vision is used up"), ("zh-hans", "Vision 的预算已用完")):
        page = client.post(
            "/d/vision/workloads/new/verdict/", sent | {"name": "train"}, headers={"Accept-Language": language}
        )
        assert says in " ".join(re.sub(r"<[^>]+>", " ", page.content.decode()).split()), page.content.decode()[:3000]


def test_its_page_says_it_while_it_waits(vision: Department, ann: User) -> None:
    Budget.objects.create(department=vision, hours=50, action="no_new_work")
    made = person(ann).post(URL, JOB).json()
    run_pass(group_id=Pool.objects.get().group_id)
    told = person(ann).get(f"/api/v1/workloads/{made['id']}/").json()
    [reason] = [reason for reason in told["reasons"] if reason["code"] == "over_budget"]
    assert (reason["limit"], reason["used"], reason["department"]) == (50, 50, "vision")
    assert reason["resets_at"] == RESETS


def dry_run(of: User, **fields: Any) -> Any:
    return person(of).post(URL + "?dry_run=1", {**JOB, **fields}).json()


def test_no_alternative_is_offered_that_the_person_may_not_start_either(vision: Department, ann: User) -> None:
    """Not for her own budget, which is of all pools, nor for a cap of each user in the other pool."""
    other = make.pool("t4", cards=8)
    make.quota(vision, other, 4)
    make.holding(vision, other, 2, user=ann, started_at=timezone.now() - dt.timedelta(hours=1))
    budget = Budget.objects.create(department=vision, person=ann, hours=1, action="no_new_work")
    told = dry_run(ann)
    assert (told["headline"], told["alternatives"]) == ("waits", [])
    budget.delete()
    make.holding(vision, Pool.objects.get(slug="a100"), 4, borrowed={None: 4})
    assert [each["pool"] for each in dry_run(ann)["alternatives"]] == ["t4"]
    UserCap.objects.create(department=vision, pool=other, units=2)
    assert dry_run(ann)["alternatives"] == []


def test_who_is_held_by_a_budget_is_led_to_the_budgets_not_to_a_request_for_quota(
    vision: Department, ann: User
) -> None:
    client = Client()
    client.force_login(ann, backend="django.contrib.auth.backends.ModelBackend")
    form = {"name": "train", "kind": "job", "pool": "a100", "image": "python:3.11", "command": "train",
            "units_per_pod": "8", "cpu": "1", "memory_mib": "1 GiB", "priority": "0"}  # fmt: skip
    Quota.objects.update(borrow_limit=2)
    asking = "/d/vision/requests/new/?pool=a100&amp;more="
    verdict = client.post("/d/vision/workloads/new/verdict/", form).content.decode()
    assert asking + "8" in verdict
    assert "/d/vision/budgets/" not in verdict
    Budget.objects.create(department=vision, hours=50, action="no_new_work")
    verdict = client.post("/d/vision/workloads/new/verdict/", form | {"units_per_pod": "2"}).content.decode()
    assert "The budget of Vision is used up" in verdict
    assert asking not in verdict
    assert "/d/vision/budgets/" in verdict
    made = person(ann).post(URL, JOB).json()
    run_pass(group_id=Pool.objects.get().group_id)
    page = client.get(f"/d/vision/workloads/{made['id']}/").content.decode()
    now = page[page.index('id="now"') :]
    assert asking not in now
    assert "Show the budgets" in now


def test_from_80_percent_the_verdict_warns_of_every_budget_that_it_would_count_against(
    vision: Department, ann: User
) -> None:
    pool, other = Pool.objects.get(), make.pool("t4", cards=4)
    make.quota(vision, other, 4)
    begun = timezone.now() - dt.timedelta(hours=40)
    done = make.holding(vision, pool, 1, state=ClaimState.RELEASED, started_at=begun, user=ann)
    done.ledger.update(ended_at=timezone.now())
    ben = make.member(vision, Role.MEMBER, "ben")
    Budget.objects.create(department=vision, hours=110, action="no_new_work")  # 90 used
    Budget.objects.create(department=vision, person=ann, hours=50)  # 40 used
    Budget.objects.create(department=vision, person=ben, hours=1, action="nothing")
    of_all = (
        "The budget of Vision: 90 of 110 GPU-hours are used, until 1 Apr 00:00. When it is used up: No new work starts."
    )
    hers = (
        "Your budget in Vision: 40 of 50 GPU-hours are used, until 1 Apr 00:00. When it is used up: No borrowing: only what "
        "fits inside the guaranteed quota starts."
    )
    told = dry_run(ann)
    assert told["headline"] == "starts_own"
    assert {of_all, hers} <= set(told["lines"])
    lines = dry_run(ben)["lines"]
    assert of_all in lines
    assert not any("Your budget" in line for line in lines)
    Budget.objects.update(pool=other)
    assert not any("udget" in line for line in dry_run(ann)["lines"])
    Budget.objects.update(pool=None, hours=1000)
    assert not any("udget" in line for line in dry_run(ann)["lines"])
