"""What users learn about a used-up budget before they submit: from the form, the API, and so from `gpuq verdict`."""

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
    """It has used 50 GPU-hours; it has 4 guaranteed cards and can borrow 4 that are unassigned."""
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


def test_api_names_the_used_up_budget_with_its_numbers_and_reset_time(vision: Department, ann: User) -> None:
    Budget.objects.create(department=vision, person=ann, hours=1, action="no_new_work")  # of which nothing is used
    Budget.objects.create(department=vision, hours=50, action="no_new_work")
    verdict = person(ann).post(URL + "?dry_run=1", JOB).json()
    assert verdict["headline"] == "waits"
    text = "The budget of Vision is used up (50 of 50 GPU-hours): nothing new starts until"
    assert any(line.startswith(text) for line in verdict["lines"]), verdict
    assert verdict["alternatives"] == []
    assert "Wait until the budget resets, or ask a quota owner for a larger one." in verdict["advice"]
    created = person(ann).post(URL, JOB)  # it can be queued all the same
    assert created.status_code == 202


def test_alternative_is_within_the_guarantee_if_the_budget_only_forbids_borrowing(
    vision: Department, ann: User
) -> None:
    Budget.objects.create(department=vision, hours=50)
    fits = person(ann).post(URL + "?dry_run=1", {**JOB, "units_per_pod": 4}).json()
    assert fits["headline"] == "starts_own"
    too_large = person(ann).post(URL + "?dry_run=1", {**JOB, "units_per_pod": 5}).json()
    assert too_large["headline"] == "waits"
    assert [each["units_per_pod"] for each in too_large["alternatives"]] == [4]


def test_request_that_waits_only_for_the_budget_is_not_refused_as_impossible(vision: Department, ann: User) -> None:
    Budget.objects.create(department=vision, hours=50)
    assert person(ann).post(URL, {**JOB, "units_per_pod": 8}).status_code == 202
    assert Workload.objects.get().units_per_pod == 8


def test_form_names_the_used_up_budget_in_both_languages(vision: Department, ann: User) -> None:
    Budget.objects.create(department=vision, hours=50, action="no_new_work")
    client = Client()
    client.force_login(ann, backend="django.contrib.auth.backends.ModelBackend")
    form = {"kind": "job", "pool": "a100", "image": "python:3.11", "command": "python train.py", "units_per_pod": "2",
            "cpu": "1", "memory_mib": "1 GiB", "priority": "0"}  # fmt: skip
    for language, sentence in (("en", "The budget of Vision is used up"), ("zh-hans", "Vision 的预算已用完")):
        page = client.post(
            "/d/vision/workloads/new/verdict/", form | {"name": "train"}, headers={"Accept-Language": language}
        )
        assert sentence in " ".join(re.sub(r"<[^>]+>", " ", page.content.decode()).split()), page.content.decode()[
            :3000
        ]


def test_waiting_workload_gives_the_used_up_budget_as_its_reason(vision: Department, ann: User) -> None:
    Budget.objects.create(department=vision, hours=50, action="no_new_work")
    created = person(ann).post(URL, JOB).json()
    run_pass(group_id=Pool.objects.get().group_id)
    workload = person(ann).get(f"/api/v1/workloads/{created['id']}/").json()
    [reason] = [reason for reason in workload["reasons"] if reason["code"] == "over_budget"]
    assert (reason["limit"], reason["used"], reason["department"]) == (50, 50, "vision")
    assert reason["resets_at"] == RESETS


def dry_run(user: User, **fields: Any) -> Any:
    return person(user).post(URL + "?dry_run=1", {**JOB, **fields}).json()


def test_alternatives_that_another_limit_would_hold_back_are_not_offered(vision: Department, ann: User) -> None:
    """The other limits are the person's own budget, which covers all pools, and a cap on each user in the other pool."""
    other = make.pool("t4", cards=8)
    make.quota(vision, other, 4)
    make.holding(vision, other, 2, user=ann, started_at=timezone.now() - dt.timedelta(hours=1))
    budget = Budget.objects.create(department=vision, person=ann, hours=1, action="no_new_work")
    verdict = dry_run(ann)
    assert (verdict["headline"], verdict["alternatives"]) == ("waits", [])
    budget.delete()
    make.holding(vision, Pool.objects.get(slug="a100"), 4, borrowed={None: 4})
    assert [each["pool"] for each in dry_run(ann)["alternatives"]] == ["t4"]
    UserCap.objects.create(department=vision, pool=other, units=2)
    assert dry_run(ann)["alternatives"] == []


def test_verdict_held_back_by_a_budget_links_to_budgets_instead_of_a_quota_request(
    vision: Department, ann: User
) -> None:
    client = Client()
    client.force_login(ann, backend="django.contrib.auth.backends.ModelBackend")
    form = {"name": "train", "kind": "job", "pool": "a100", "image": "python:3.11", "command": "train",
            "units_per_pod": "8", "cpu": "1", "memory_mib": "1 GiB", "priority": "0"}  # fmt: skip
    Quota.objects.update(borrow_limit=2)
    quota_request = "/d/vision/requests/new/?pool=a100&amp;more="
    verdict = client.post("/d/vision/workloads/new/verdict/", form).content.decode()
    assert quota_request + "8" in verdict
    assert "/d/vision/budgets/" not in verdict
    Budget.objects.create(department=vision, hours=50, action="no_new_work")
    verdict = client.post("/d/vision/workloads/new/verdict/", form | {"units_per_pod": "2"}).content.decode()
    assert "The budget of Vision is used up" in verdict
    assert quota_request not in verdict
    assert "/d/vision/budgets/" in verdict
    created = person(ann).post(URL, JOB).json()
    run_pass(group_id=Pool.objects.get().group_id)
    page = client.get(f"/d/vision/workloads/{created['id']}/").content.decode()
    now = page[page.index('id="now"') :]
    assert quota_request not in now
    assert "Show the budgets" in now


def test_verdict_warns_of_every_budget_it_would_count_against_from_80_percent(vision: Department, ann: User) -> None:
    pool, other = Pool.objects.get(), make.pool("t4", cards=4)
    make.quota(vision, other, 4)
    begun = timezone.now() - dt.timedelta(hours=40)
    done = make.holding(vision, pool, 1, state=ClaimState.RELEASED, started_at=begun, user=ann)
    done.ledger.update(ended_at=timezone.now())
    ben = make.member(vision, Role.MEMBER, "ben")
    Budget.objects.create(department=vision, hours=110, action="no_new_work")  # 90 used
    Budget.objects.create(department=vision, person=ann, hours=50)  # 40 used
    Budget.objects.create(department=vision, person=ben, hours=1, action="nothing")
    for_department = (
        "The budget of Vision: 90 of 110 GPU-hours are used, until 1 Apr 00:00. When it is used up: No new work starts."
    )
    for_person = (
        "Your budget in Vision: 40 of 50 GPU-hours are used, until 1 Apr 00:00. When it is used up: No borrowing: only what "
        "fits inside the guaranteed quota starts."
    )
    verdict = dry_run(ann)
    assert verdict["headline"] == "starts_own"
    assert {for_department, for_person} <= set(verdict["lines"])
    lines = dry_run(ben)["lines"]
    assert for_department in lines
    assert not any("Your budget" in line for line in lines)
    Budget.objects.update(pool=other)
    assert not any("udget" in line for line in dry_run(ann)["lines"])
    Budget.objects.update(pool=None, hours=1000)
    assert not any("udget" in line for line in dry_run(ann)["lines"])
