"""A POST that is sent twice is carried out once, even if its process dies at the worst moment."""

from __future__ import annotations

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from portal.models import Department, IdempotencyKey, Membership, Role, User
from quotas.models import Claim, Pool
from tests import builders as make
from tests.clients import person, program
from workloads.models import Image, Workload


@pytest.fixture
def pool(db: None) -> Pool:
    return make.pool("a100", cards=8)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 4)
    Image.objects.create(name="python:3.11", title="Python")
    return vision


@pytest.fixture
def alice(vision: Department) -> User:
    return make.member(vision, Role.MEMBER, "alice")


URL = "/api/v1/departments/vision/workloads/"
JOB = {"name": "train", "pool": "a100", "image": "python:3.11", "command": ["python", "-V"], "units_per_pod": 2}


def submit(client: Any, key: str = "k1", body: Any = None) -> Any:
    return client.post(URL, body or JOB, headers={"Idempotency-Key": key})


def test_the_same_key_and_body_get_the_stored_answer(alice: User) -> None:
    first, again = submit(person(alice)), submit(person(alice))
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    assert again["Location"] == first["Location"] == f"/api/v1/workloads/{first.json()['id']}/"
    assert again["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    assert Workload.objects.count() == 1


def test_every_post_without_a_key_is_carried_out(alice: User) -> None:
    client = person(alice)
    assert [client.post(URL, JOB).status_code for _ in range(2)] == [202, 202]
    assert Workload.objects.count() == 2


def test_the_same_key_with_another_body_is_refused(alice: User) -> None:
    submit(person(alice))
    answer = submit(person(alice), body={**JOB, "units_per_pod": 1})
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


def test_keys_of_different_holders_are_independent(alice: User, vision: Department) -> None:
    bob = make.member(vision, Role.MEMBER, "bob")
    clients = [person(alice), person(bob), program(alice, vision), program(alice, vision)]
    assert len({submit(client).json()["id"] for client in clients}) == 4


def test_a_refusal_is_stored_like_any_answer(alice: User, pool: Pool) -> None:
    first = submit(person(alice), body={**JOB, "units_per_pod": 99})
    assert (first.status_code, first.json()["largest"]) == (422, 8)
    again = submit(person(alice), body={**JOB, "units_per_pod": 99})
    assert again.json() == first.json()
    assert again["Content-Type"] == "application/problem+json"
    assert again["Idempotency-Replayed"] == "true"


def test_server_error_is_not_stored(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(**_: Any) -> None:
        raise ZeroDivisionError

    client = person(alice)
    client.raise_request_exception = False
    with monkeypatch.context() as patch:
        patch.setattr("workloads.api.resources.actions.submit", breaks)
        assert submit(client).status_code == 500
    assert not IdempotencyKey.objects.exists()
    assert submit(client).status_code == 202


def test_key_in_flight_gets_409_with_the_time_to_wait(alice: User) -> None:
    submit(person(alice))
    IdempotencyKey.objects.update(status=None)
    answer = submit(person(alice))
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_in_flight")
    assert answer["Retry-After"] == "2"


def test_key_of_a_process_that_died_before_its_commit_expires_after_a_minute(alice: User) -> None:
    submit(person(alice))
    IdempotencyKey.objects.update(status=None, created_at=timezone.now() - dt.timedelta(seconds=61))
    assert submit(person(alice)).status_code == 202


def test_keys_expire_after_a_day(alice: User) -> None:
    first = submit(person(alice)).json()["id"]
    IdempotencyKey.objects.update(created_at=timezone.now() - dt.timedelta(hours=24, seconds=1))
    assert submit(person(alice)).json()["id"] != first


@pytest.mark.parametrize("key", ["", "x" * 256, "schlüssel"])
def test_invalid_key_is_refused(alice: User, key: str) -> None:
    assert submit(person(alice), key).status_code == 422
    assert not Workload.objects.exists()


def test_secret_in_a_stored_answer_is_not_kept_in_plain_text(alice: User) -> None:
    soon = (timezone.now() + dt.timedelta(days=1)).isoformat()
    body = {"department": "vision", "name": "ci", "scopes": ["read"], "expires_at": soon}
    first = person(alice).post("/api/v1/tokens/", body, headers={"Idempotency-Key": "k"})
    again = person(alice).post("/api/v1/tokens/", body, headers={"Idempotency-Key": "k"})
    assert again.json()["token"] == first.json()["token"]
    assert first.json()["token"] not in IdempotencyKey.objects.get().body


# With real commits ----------------------------------------------------------------------------------------------------


def in_threads(count: int, work: Any) -> list[Any]:
    start = threading.Barrier(count)

    def one(n: int) -> Any:
        start.wait()
        try:
            return work(n)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


@pytest.mark.concurrency
@pytest.mark.django_db(transaction=True)
def test_twelve_concurrent_posts_with_one_key_create_one_workload(alice: User) -> None:
    client = person(alice)
    for round in range(3):
        answers = in_threads(12, lambda n, key=f"race-{round}": submit(client, key))
        codes = {answer.status_code for answer in answers}
        assert codes <= {202, 409}, codes
        assert len({answer.json()["id"] for answer in answers if answer.status_code == 202}) == 1
        assert Workload.objects.count() == Claim.objects.count() == round + 1


@pytest.mark.concurrency
@pytest.mark.django_db(transaction=True)
def test_twelve_concurrent_posts_without_keys_create_twelve_workloads(alice: User) -> None:
    """The negative control: the race in the test above is real."""
    client = person(alice)
    answers = in_threads(12, lambda n: client.post(URL, JOB))
    assert [answer.status_code for answer in answers] == [202] * 12
    assert Workload.objects.count() == 12


@pytest.mark.django_db(transaction=True)
def test_answer_is_stored_even_if_the_process_dies_after_its_commit(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The death is simulated by an exception that nothing in the view can catch, right after the commit."""

    class Killed(BaseException):
        pass

    from workloads import actions

    real = actions.submit

    def submit_and_die(**arguments: Any) -> None:
        real(**arguments)
        raise Killed

    client = person(alice)
    with monkeypatch.context() as patch:
        patch.setattr(actions, "submit", submit_and_die)
        with pytest.raises(Killed):
            submit(client)
    [workload] = Workload.objects.all()
    answer = submit(client)
    assert (answer.status_code, answer.json()["id"]) == (202, workload.public_id)
    assert Workload.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_slow_request_cannot_commit_after_another_took_over_its_key(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow request is held between taking the key and writing the workload; meanwhile its minute passes."""
    from workloads import actions

    real, client, answers = actions.submit, person(alice), []

    def slow(**arguments: Any) -> Any:
        monkeypatch.setattr(actions, "submit", real)
        IdempotencyKey.objects.update(created_at=timezone.now() - dt.timedelta(seconds=61))
        answers.append(submit(client))
        return real(**arguments)

    monkeypatch.setattr(actions, "submit", slow)
    late = submit(client)
    assert (late.status_code, answers[0].status_code) == (409, 202)
    assert [w.public_id for w in Workload.objects.all()] == [answers[0].json()["id"]]
    assert submit(client).json() == answers[0].json()


@pytest.mark.concurrency
@pytest.mark.django_db(transaction=True)
def test_concurrent_additions_of_one_member_add_it_once(vision: Department) -> None:
    owner = make.member(vision, Role.OWNER)
    make.user("carol")
    client = person(owner)

    def add(n: int) -> Any:
        return client.post(
            "/api/v1/departments/vision/members/", {"username": "carol"}, headers={"Idempotency-Key": "c"}
        )

    assert {answer.status_code for answer in in_threads(8, add)} <= {201, 409}
    assert Membership.objects.filter(user__username="carol").count() == 1
