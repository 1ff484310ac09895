"""Tokens limited in GPU-hours: what counts, what a verdict says, and what is refused when they are used up."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from portal.models import ApiToken, AuditEntry, Department, Role, User
from quotas.models import Claim, ClaimState, LedgerEntry
from quotas.spending.metering import sum_hours
from tests import builders as make
from tests.clients import person, program, token_of
from workloads.models import Image, Workload
from workloads.requests.token_budgets import use_of

pytestmark = pytest.mark.django_db(transaction=True)
API = "/api/v1/"
URL = API + "departments/vision/workloads/"
JOB: dict[str, Any] = {
    "name": "train", "pool": "a100", "image": "python:3.11", "command": ["python", "train.py"], "units_per_pod": 2
}  # fmt: skip
NOW = dt.datetime(2026, 3, 20, 12, tzinfo=dt.UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[dt.datetime]:
    times = [NOW]
    monkeypatch.setattr(timezone, "now", lambda: times[-1])
    return times


@pytest.fixture
def vision(clock: list[dt.datetime]) -> Department:
    vision = make.department("vision")
    make.quota(vision, make.pool("a100", cards=8), 8)
    Image.objects.create(name="python:3.11", title="Python", interpreter="python")
    return vision


@pytest.fixture
def ann(vision: Department) -> User:
    return make.member(vision, Role.MEMBER, "ann")


def limited_token(ann: User, vision: Department, **fields: Any) -> tuple[ApiToken, APIClient]:
    given = {"gpu_hours": 10, "expires_at": NOW + dt.timedelta(days=100), "name": "agent", **fields}
    token, secret = token_of(ann, vision, ["read", "submit", "tokens"], **given)
    return token, APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}")


def submit_and_use(client: APIClient, hours: float, *, until: dt.datetime = NOW) -> Workload:
    """Submits a job and records that it held its two cards for that many hours."""
    response = client.post(URL, JOB)
    assert response.status_code == 202, response.content
    claim = Claim.objects.get(workload=response.json()["id"])
    LedgerEntry.objects.create(
        claim=claim, pool=claim.pool, department=claim.department, own=True, units=2, ended_at=until,
        started_at=until - dt.timedelta(hours=hours),
    )  # fmt: skip
    Claim.objects.filter(pk=claim.pk).update(state=ClaimState.RELEASED, released_at=until)
    return Workload.objects.get(public_id=claim.workload)


def test_only_what_a_token_submits_counts_and_to_the_second(vision: Department, ann: User) -> None:
    token, agent = limited_token(ann, vision)
    assert submit_and_use(agent, 1).token == token
    submit_and_use(person(ann), 3)  # without a token
    submit_and_use(program(ann, vision, expires_at=NOW + dt.timedelta(days=1)), 3)  # another token
    submit_and_use(agent, 0.5, until=NOW - dt.timedelta(seconds=1))
    use = use_of(token, now=NOW)
    assert use is not None
    assert use.seconds == 3 * 3600
    sum_hours(now=NOW)  # hours that are already summed up count the same
    assert use_of(token, now=NOW) == use
    body = agent.get(f"{API}tokens/{token.prefix}/use/").json()
    assert (body["gpu_hours"], body["used"], body["left"], body["used_up"]) == (10, 3.0, 7.0, False)
    assert body["resets_at"] == "2026-04-01T00:00:00Z"


def test_verdict_shows_used_hours_and_what_this_attempt_would_use(vision: Department, ann: User) -> None:
    _token, agent = limited_token(ann, vision)
    submit_and_use(agent, 2)
    lines = agent.post(URL + "?dry_run=1", {**JOB, "max_runtime": 7200}).json()["lines"]
    assert lines[-2].startswith("Token “agent”: 4.0 of 10 GPU-hours are used, until ")
    assert lines[-1] == "This attempt would use at most 4.0 GPU-hours."
    lines = agent.post(URL + "?dry_run=1", JOB).json()["lines"]
    assert lines[-1] == "It has no maximum runtime, so it may use any number of GPU-hours: set one."
    assert not any("GPU-hours" in line for line in person(ann).post(URL + "?dry_run=1", JOB).json()["lines"])


def test_used_up_token_is_refused_with_its_numbers_for_verdicts_and_submissions(
    vision: Department, ann: User, clock: list[dt.datetime]
) -> None:
    _token, agent = limited_token(ann, vision)
    running = submit_and_use(agent, 5)
    Workload.objects.filter(pk=running.pk).update(max_runtime=3600)
    for response in (
        agent.post(URL, JOB),
        agent.post(URL + "?dry_run=1", JOB),
        agent.post(f"{API}workloads/{running.public_id}/rerun/"),
        agent.post(f"{API}workloads/{running.public_id}/extend/", {"seconds": 60}),
    ):
        problem = response.json()
        assert (response.status_code, problem["code"], problem["limit"], problem["used"]) == (
            422,
            "token_used_up",
            10,
            10,
        )
        assert problem["resets_at"] == "2026-04-01T00:00:00Z"
        assert problem["detail"] == (
            "The token “agent” may use 10 GPU-hours each month and has used 10.0: it submits and extends nothing more until "
            "1 Apr 00:00. Its holder can make another token."
        )
    assert Workload.objects.count() == 1
    assert person(ann).post(URL, JOB).status_code == 202  # the person has a limit of their own, if any
    clock.append(NOW + dt.timedelta(days=20))  # in April
    assert agent.post(URL, JOB).status_code == 202


def test_total_hours_never_reset(vision: Department, ann: User, clock: list[dt.datetime]) -> None:
    token, agent = limited_token(ann, vision, gpu_hours_per="total", created_at=NOW - dt.timedelta(days=60))
    submit_and_use(agent, 5, until=NOW - dt.timedelta(days=40))
    clock.append(NOW + dt.timedelta(days=20))
    response = agent.post(URL, JOB)
    assert response.status_code == 422
    assert "10 GPU-hours in all and has used 10.0" in response.json()["detail"]
    assert agent.get(f"{API}tokens/{token.prefix}/use/").json()["resets_at"] is None


def test_token_created_by_a_limited_token_uses_its_hours(vision: Department, ann: User) -> None:
    token, agent = limited_token(ann, vision)
    body = {"department": "vision", "name": "child", "scopes": ["read", "submit"], "gpu_hours": 500}
    created = agent.post(API + "tokens/", {**body, "expires_at": (NOW + dt.timedelta(days=9)).isoformat()})
    assert created.status_code == 201, created.content
    child = APIClient(HTTP_AUTHORIZATION=f"Bearer {created.json()['token']}")
    submit_and_use(child, 5)
    assert child.post(URL, JOB).json()["detail"].startswith("The token “agent” may use 10")
    assert agent.post(URL, JOB).status_code == 422
    use = use_of(token, now=NOW)
    assert use is not None
    assert use.is_used_up


def test_running_workloads_count_while_they_run(vision: Department, ann: User, clock: list[dt.datetime]) -> None:
    token, agent = limited_token(ann, vision)
    submit_and_use(agent, 1)
    LedgerEntry.objects.update(ended_at=None)
    clock.append(NOW + dt.timedelta(hours=4))
    use = use_of(token, now=clock[-1])
    assert use is not None
    assert use.seconds == 10 * 3600
    assert agent.post(URL, JOB).status_code == 422


@pytest.mark.parametrize("hours", [0, -1, 10**10, "many"])
def test_invalid_gpu_hours_are_refused_with_their_field(vision: Department, ann: User, hours: Any) -> None:
    body = {
        "department": "vision",
        "name": "x",
        "scopes": ["read"],
        "expires_at": (NOW + dt.timedelta(days=9)).isoformat(),
    }
    response = person(ann).post(API + "tokens/", {**body, "gpu_hours": hours})
    assert response.status_code in (400, 422)
    assert response.json()["errors"][0]["attr"] == "gpu_hours"
    assert not ApiToken.objects.exists()


def test_only_the_holder_and_department_owners_see_the_use_of_a_token(vision: Department, ann: User) -> None:
    token, _agent = limited_token(ann, vision)
    url = f"{API}tokens/{token.prefix}/use/"
    assert person(make.member(vision, Role.MEMBER, "bob")).get(url).status_code == 404
    assert person(make.member(make.department("nlp"), Role.OWNER, "eve")).get(url).status_code == 404
    assert person(make.member(vision, Role.OWNER, "olga")).get(url).status_code == 200
    unlimited, _secret = token_of(ann, vision)
    assert person(ann).get(f"{API}tokens/{unlimited.prefix}/use/").status_code == 404  # it has no limit


def test_limited_token_can_be_created_and_is_shown_on_the_token_page(vision: Department, ann: User) -> None:
    client = Client()
    client.force_login(ann, backend="django.contrib.auth.backends.ModelBackend")
    form = {"name": "agent", "department": "vision", "scopes": ["read", "submit"], "days": 30, "gpu_hours": 20}
    assert client.post("/tokens/", form | {"gpu_hours": 0}).status_code == 422
    assert client.post("/tokens/", form | {"gpu_hours_per": "total"}).status_code == 302
    token = ApiToken.objects.get()
    assert (token.gpu_hours, token.gpu_hours_per) == (20, "total")
    assert "Token “agent”: 0.0 of 20 GPU-hours are used." in client.get("/tokens/").content.decode()
    assert AuditEntry.objects.get(action="token.created").after["gpu_hours"] == 20
