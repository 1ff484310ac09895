"""Tokens with GPU-hours: what counts, what is said before, and what is refused when they are used up."""

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


def limited(ann: User, vision: Department, **fields: Any) -> tuple[ApiToken, APIClient]:
    given = {"gpu_hours": 10, "expires_at": NOW + dt.timedelta(days=100), "name": "agent", **fields}
    token, secret = token_of(ann, vision, ["read", "submit", "tokens"], **given)
    return token, APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}")


def used(client: APIClient, hours: float, *, until: dt.datetime = NOW) -> Workload:
    """Submits a job that then had its two cards for so many hours."""
    answer = client.post(URL, JOB)
    assert answer.status_code == 202, answer.content
    claim = Claim.objects.get(workload=answer.json()["id"])
    LedgerEntry.objects.create(
        claim=claim, pool=claim.pool, department=claim.department, own=True, units=2, ended_at=until,
        started_at=until - dt.timedelta(hours=hours),
    )  # fmt: skip
    Claim.objects.filter(pk=claim.pk).update(state=ClaimState.RELEASED, released_at=until)
    return Workload.objects.get(public_id=claim.workload)


def test_what_a_token_submits_counts_to_the_second_and_nothing_else_does(vision: Department, ann: User) -> None:
    token, agent = limited(ann, vision)
    assert used(agent, 1).token == token
    used(person(ann), 3)  # by hand
    used(program(ann, vision, expires_at=NOW + dt.timedelta(days=1)), 3)  # another token
    used(agent, 0.5, until=NOW - dt.timedelta(seconds=1))
    use = use_of(token, now=NOW)
    assert use is not None
    assert use.seconds == 3 * 3600
    sum_hours(now=NOW)  # hours that were summed up are counted alike
    assert use_of(token, now=NOW) == use
    answer = agent.get(f"{API}tokens/{token.prefix}/use/").json()
    assert (answer["gpu_hours"], answer["used"], answer["left"], answer["used_up"]) == (10, 3.0, 7.0, False)
    assert answer["resets_at"] == "2026-04-01T00:00:00Z"


def test_a_verdict_tells_what_is_used_and_what_this_would_use(vision: Department, ann: User) -> None:
    _token, agent = limited(ann, vision)
    used(agent, 2)
    lines = agent.post(URL + "?dry_run=1", {**JOB, "max_runtime": 7200}).json()["lines"]
    assert lines[-2].startswith("Token “agent”: 4.0 of 10 GPU-hours are used, until ")
    assert lines[-1] == "This attempt would use at most 4.0 GPU-hours."
    lines = agent.post(URL + "?dry_run=1", JOB).json()["lines"]
    assert lines[-1] == "It has no maximum runtime, so it may use any number of GPU-hours: set one."
    assert not any("GPU-hours" in line for line in person(ann).post(URL + "?dry_run=1", JOB).json()["lines"])


def test_what_is_used_up_is_refused_with_its_numbers_beforehand_and_when_it_is_sent(
    vision: Department, ann: User, clock: list[dt.datetime]
) -> None:
    _token, agent = limited(ann, vision)
    running = used(agent, 5)
    Workload.objects.filter(pk=running.pk).update(max_runtime=3600)
    for answer in (
        agent.post(URL, JOB),
        agent.post(URL + "?dry_run=1", JOB),
        agent.post(f"{API}workloads/{running.public_id}/rerun/"),
        agent.post(f"{API}workloads/{running.public_id}/extend/", {"seconds": 60}),
    ):
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["limit"], problem["used"]) == (
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


def test_in_all_is_never_given_back(vision: Department, ann: User, clock: list[dt.datetime]) -> None:
    token, agent = limited(ann, vision, gpu_hours_per="total", created_at=NOW - dt.timedelta(days=60))
    used(agent, 5, until=NOW - dt.timedelta(days=40))
    clock.append(NOW + dt.timedelta(days=20))
    answer = agent.post(URL, JOB)
    assert answer.status_code == 422
    assert "10 GPU-hours in all and has used 10.0" in answer.json()["detail"]
    assert agent.get(f"{API}tokens/{token.prefix}/use/").json()["resets_at"] is None


def test_a_token_made_by_it_uses_its_hours(vision: Department, ann: User) -> None:
    token, agent = limited(ann, vision)
    body = {"department": "vision", "name": "child", "scopes": ["read", "submit"], "gpu_hours": 500}
    made = agent.post(API + "tokens/", {**body, "expires_at": (NOW + dt.timedelta(days=9)).isoformat()})
    assert made.status_code == 201, made.content
    child = APIClient(HTTP_AUTHORIZATION=f"Bearer {made.json()['token']}")
    used(child, 5)
    assert child.post(URL, JOB).json()["detail"].startswith("The token “agent” may use 10")
    assert agent.post(URL, JOB).status_code == 422
    use = use_of(token, now=NOW)
    assert use is not None
    assert use.is_used_up


def test_what_runs_is_counted_while_it_runs(vision: Department, ann: User, clock: list[dt.datetime]) -> None:
    token, agent = limited(ann, vision)
    used(agent, 1)
    LedgerEntry.objects.update(ended_at=None)
    clock.append(NOW + dt.timedelta(hours=4))
    use = use_of(token, now=clock[-1])
    assert use is not None
    assert use.seconds == 10 * 3600
    assert agent.post(URL, JOB).status_code == 422


@pytest.mark.parametrize("hours", [0, -1, 10**10, "many"])
def test_hours_that_are_none_are_refused_by_name(vision: Department, ann: User, hours: Any) -> None:
    body = {
        "department": "vision",
        "name": "x",
        "scopes": ["read"],
        "expires_at": (NOW + dt.timedelta(days=9)).isoformat(),
    }
    answer = person(ann).post(API + "tokens/", {**body, "gpu_hours": hours})
    assert answer.status_code in (400, 422)
    assert answer.json()["errors"][0]["attr"] == "gpu_hours"
    assert not ApiToken.objects.exists()


def test_others_do_not_see_what_it_used(vision: Department, ann: User) -> None:
    token, _agent = limited(ann, vision)
    url = f"{API}tokens/{token.prefix}/use/"
    assert person(make.member(vision, Role.MEMBER, "bob")).get(url).status_code == 404
    assert person(make.member(make.department("nlp"), Role.OWNER, "eve")).get(url).status_code == 404
    assert person(make.member(vision, Role.OWNER, "olga")).get(url).status_code == 200
    plain, _secret = token_of(ann, vision)
    assert person(ann).get(f"{API}tokens/{plain.prefix}/use/").status_code == 404  # it has no limit


def test_it_is_made_and_shown_on_the_page_of_tokens(vision: Department, ann: User) -> None:
    client = Client()
    client.force_login(ann, backend="django.contrib.auth.backends.ModelBackend")
    form = {"name": "agent", "department": "vision", "scopes": ["read", "submit"], "days": 30, "gpu_hours": 20}
    assert client.post("/tokens/", form | {"gpu_hours": 0}).status_code == 422
    assert client.post("/tokens/", form | {"gpu_hours_per": "total"}).status_code == 302
    token = ApiToken.objects.get()
    assert (token.gpu_hours, token.gpu_hours_per) == (20, "total")
    assert "Token “agent”: 0.0 of 20 GPU-hours are used." in client.get("/tokens/").content.decode()
    assert AuditEntry.objects.get(action="token.created").after["gpu_hours"] == 20
