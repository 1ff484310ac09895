"""Idle policies before they act: the verdict, the pool's page, and the form with what it would have stopped last week."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.access import Actor
from portal.models import Role, User
from tests import builders as make
from tests.clients import person
from tests.workloads.idle.bed import HOUR, IdleBed
from workloads.idle.policies import rules_of
from workloads.idle.rule import Action, Rule
from workloads.measurement.idle_week import last_week
from workloads.models import Attempt, IdleExemption, IdlePolicy, Image
from workloads.requests.request import WorkloadRequest
from workloads.requests.verdict import verdict_of

pytestmark = pytest.mark.django_db(transaction=True)
POOL, DEPARTMENT = "/operator/pools/a100/idle/", "/d/vision/quotas/a100/idle/"


def browser(who: User) -> Client:
    client = Client()
    client.force_login(who, backend="django.contrib.auth.backends.ModelBackend")
    return client


def filled(version: int = 0, **fields: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"version": version}
    for kind in ("notebook", "job", "distributed", "service"):
        values |= {
            f"{kind}_action": "",
            f"{kind}_below": 5,
            f"{kind}_minutes": 60,
            f"{kind}_countdown": 15,
            f"{kind}_keep": 120,
        }
    return values | fields


@pytest.fixture
def operator() -> Client:
    return browser(make.user("root", is_operator=True))


@pytest.fixture
def owner(idle: IdleBed) -> Client:
    return browser(make.member(idle.vision, Role.OWNER, "olga"))


def test_verdict_states_the_idle_policy_before_submission(idle: IdleBed) -> None:
    idle.set(notebook=HOUR)
    image = Image.objects.create(name="python:3.11", title="Python", interpreter="python")

    def policy_of(kind: str) -> tuple[str, ...]:
        request = WorkloadRequest(kind=kind, name="x", pool=idle.pool, image=image, command=("true",), units_per_pod=1)
        return verdict_of(actor=Actor(idle.alice), department=idle.vision, request=request).idle_policy

    first, second = policy_of("notebook")
    assert first.startswith("Notebooks here are warned after 1 h below 5 % GPU activity and stopped 15 min later.")
    assert second == "A busy kernel, or use of a terminal, counts as activity."
    assert policy_of("job") == ()
    idle.set(idle.vision, notebook=Rule(10, 30, Action.STOP, 5, 60))
    assert "after 30 min below 10 %" in policy_of("notebook")[0], "with what the department adds"
    body = {"name": "x", "kind": "notebook", "pool": "a100", "image": image.name}
    answer = person(idle.alice).post("/api/v1/departments/vision/workloads/?dry_run=1", body, "json")
    assert answer.status_code == 200, answer.content
    assert "after 30 min" in answer.json()["idle_policy"][0]
    form = {"name": "x", "kind": "notebook", "pool": "a100", "image": image.name, "units_per_pod": 1, "cpu": 1,
            "memory_mib": "1", "pods": 1}  # fmt: skip
    panel = browser(idle.alice).post("/d/vision/workloads/new/verdict/", form).content.decode()
    assert "data-idle-policy" in panel, panel


def test_pool_page_shows_the_idle_policy_to_everybody(idle: IdleBed, operator: Client) -> None:
    part = "/pools/a100/idle/"
    assert "nothing is done" in browser(idle.alice).get(part).content.decode()
    idle.set(job=HOUR)
    assert "Jobs here are warned after 1 h" in browser(idle.alice).get(part).content.decode()
    assert POOL in operator.get(part).content.decode()
    assert POOL not in browser(idle.alice).get(part).content.decode()


def test_operator_sets_a_pool_policy_and_an_owner_can_only_tighten_it(
    idle: IdleBed, operator: Client, owner: Client
) -> None:
    assert operator.post(POOL, filled(notebook_action="stop")).status_code == 302
    assert rules_of(IdlePolicy.objects.get(department=None).rules) == {"notebook": Rule(5, 60, Action.STOP, 15, 120)}
    page = owner.get(DEPARTMENT).content.decode()
    assert "Notebooks here are warned after 1 h" in page
    looser = owner.post(DEPARTMENT, filled(notebook_action="stop", notebook_minutes=90))
    assert looser.status_code == 422
    assert "the policy here is 60 minutes" in looser.content.decode()
    assert owner.post(DEPARTMENT, filled(notebook_action="stop", notebook_minutes=30)).status_code == 302
    stale = owner.post(DEPARTMENT, filled(notebook_action="stop", notebook_minutes=20))
    assert stale.status_code == 409
    empty = owner.post(DEPARTMENT, filled(1, job_action="warn", job_minutes=""))
    assert empty.status_code == 422
    assert "Enter a number." in empty.content.decode()
    assert owner.get(POOL).status_code == 404
    assert browser(idle.alice).get(DEPARTMENT).status_code == 403
    assert owner.post(DEPARTMENT, filled(1)).status_code == 302
    assert rules_of(IdlePolicy.objects.get(department=idle.vision).rules) == {}


def of_last_week(idle: IdleBed, quiet_hours: int, **fields: Any) -> Attempt:
    """An attempt that ran for two days, first quiet for these hours and then busy, and ended a day ago."""
    attempt = idle.running(hours=72, **fields)
    end = idle.now - dt.timedelta(days=1)
    idle.measured(attempt, *[0] * (quiet_hours * 12), *[90] * (12 * (48 - quiet_hours)), until=end)
    Attempt.objects.filter(pk=attempt.pk).update(finished_at=end)
    return attempt


def test_last_week_counts_hours_after_the_stop_and_names_only_visible_workloads(
    idle: IdleBed, operator: Client, owner: Client
) -> None:
    long = of_last_week(idle, 10)
    of_last_week(idle, 1)
    nlp = make.department("nlp")
    make.quota(nlp, idle.pool, 2)
    vision, idle.vision = idle.vision, nlp
    foreign = of_last_week(idle, 20)
    idle.vision = vision
    week = last_week(idle.pool, None, {"job": HOUR}, now=idle.now)
    assert {each.attempt.pk for each in week.stops} == {long.pk, foreign.pk}
    assert week.gpu_hours == pytest.approx(2 * (48 - 1.25), abs=0.1)
    assert (week.ran, week.measured, week.stopped) == (3, 3, 2)
    assert last_week(idle.pool, None, {"job": Rule(5, 660, Action.STOP)}, now=idle.now).stopped == 1
    assert last_week(idle.pool, None, {"job": Rule(action=Action.NOTHING)}, now=idle.now).stops == ()
    assert last_week(idle.pool, None, {"job": Rule(5, 60, Action.BORROWED)}, now=idle.now).stops == ()
    query = {"preview": 1, **filled(job_action="stop")}
    panel = operator.get(POOL, query).content.decode()
    assert "2 workloads would have been stopped" in panel
    panel = owner.get(DEPARTMENT, query).content.decode()
    assert "1 workload would have been stopped" in panel
    assert long.workload.name in panel
    assert foreign.workload.name not in panel
    wrong = owner.get(DEPARTMENT, query | {"job_minutes": 5}).content.decode()
    assert "verdict-cannot" in wrong


def test_owner_can_exempt_a_workload_on_its_page_and_end_the_exemption(idle: IdleBed, owner: Client) -> None:
    idle.set(job=HOUR)
    attempt = idle.running()
    page = f"/d/vision/workloads/{attempt.workload.public_id}/"
    assert "Jobs here are warned after 1 h" in owner.get(page).content.decode()
    assert "Exempt it" not in browser(idle.alice).get(page).content.decode()
    assert browser(idle.alice).post(f"{page}exempt/", {"why": "x", "days": 3}).status_code == 403
    assert owner.post(f"{page}exempt/", {"why": "", "days": 3}).status_code == 422
    assert owner.post(f"{page}exempt/", {"why": "x", "days": 91}).status_code == 422
    assert owner.post(f"{page}exempt/", {"why": "Holds a licence", "days": 3}).status_code == 302
    row = IdleExemption.objects.get()
    assert row.until - timezone.now() > dt.timedelta(days=2, hours=23)
    assert "Holds a licence" in browser(idle.alice).get(page).content.decode()
    assert "Holds a licence" in owner.get(DEPARTMENT).content.decode()
    assert owner.post(f"/d/vision/idle-exemptions/{row.public_id}/end/").status_code == 302
    assert "Holds a licence" not in owner.get(page).content.decode()


def test_preview_names_the_kind_of_each_invalid_number(idle: IdleBed, operator: Client) -> None:
    wrong = filled(job_action="stop", job_minutes=5, service_action="stop", service_minutes=6)
    shown = operator.get(POOL, wrong | {"preview": 1}).content.decode()
    for kind in ("Jobs", "Services"):
        assert f"{kind}: For so long (min)</a>: Ensure this value is greater than or equal to 10." in shown
    assert "Notebooks, " not in shown
