"""Non-preemptible workloads: they run only within guaranteed quota, and are never victims."""

from __future__ import annotations

import pytest
from django.test import Client

from portal.access import Actor
from portal.models import Department, User
from quotas.engine.what_if import Headline
from quotas.models import Claim, ClaimState, Pool
from quotas.planning.run_pass import run_pass
from tests import builders as make
from tests.clients import person
from workloads.actions import request_of
from workloads.models import Image, Workload
from workloads.requests.as_api_call import body_of
from workloads.requests.request import WorkloadRequest
from workloads.requests.verdict import verdict_of
from workloads.status.status_line import shares_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 4)
    Image.objects.create(name="python:3.11", title="Python", interpreter="python")
    return vision


def body(units: int) -> dict[str, object]:
    return {"name": "x", "kind": "job", "pool": "a100", "image": "python:3.11", "command": ["python"],
            "units_per_pod": units, "preemptible": False}  # fmt: skip


def test_non_preemptible_workload_keeps_the_option_in_reruns_and_is_never_a_victim(
    alice: User, vision: Department, pool: Pool
) -> None:
    url = "/api/v1/departments/vision/workloads/"
    response = person(alice).post(url, body(3))
    assert (response.status_code, response.json()["preemptible"]) == (202, False)
    workload = Workload.objects.get()
    assert (request_of(workload).preemptible, body_of(request_of(workload))["preemptible"]) == (False, False)
    run_pass(group_id=pool.group_id)
    claim = Claim.objects.get()
    assert (claim.state, claim.preemptible) == (ClaimState.HOLDING, False)
    urgent = make.claim(vision, pool, 8, priority=100)
    run_pass(group_id=pool.group_id)
    claim.refresh_from_db()
    urgent.refresh_from_db()
    assert (claim.state, urgent.state) == (ClaimState.HOLDING, ClaimState.PENDING)
    assert shares_of(workload, claim) == ["Runs within guaranteed quota and is non-preemptible: it runs until it ends."]
    too_much = person(alice).post(url, body(5))
    assert (too_much.status_code, too_much.json()["largest"]) == (422, 4)


def test_verdict_explains_non_preemptible(alice: User, vision: Department, pool: Pool) -> None:
    image = Image.objects.get()
    request = WorkloadRequest(
        pool=pool, image=image, kind="job", name="x", command=("python",), units_per_pod=2, preemptible=False
    )
    verdict = verdict_of(actor=Actor(alice), department=vision, request=request)
    assert verdict.headline == Headline.STARTS_OWN
    assert verdict.contract == "Runs within guaranteed quota and is non-preemptible: it runs until it ends."


def test_form_offers_the_non_preemptible_option(client: Client, alice: User, vision: Department, pool: Pool) -> None:
    client.force_login(alice)
    assert 'name="must_stay"' in client.get("/d/vision/workloads/new/").content.decode()
