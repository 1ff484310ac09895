"""Advice for a waiting workload: on its page and in the API, each advice once."""

from __future__ import annotations

import pytest
from django.urls import reverse

from portal.models import User
from quotas.engine import types as e
from quotas.models import Claim, Pool
from quotas.rules.policies import policy_json
from tests import builders as make
from tests.clients import person
from workloads.models import Image

pytestmark = pytest.mark.django_db(transaction=True)
SHORT = {"code": "not_enough", "pool": "a100", "short_by": 2}
LESS = "Request less, or wait until another workload ends."
LIMIT = "Wait until the department uses less, or ask an operator for a higher borrow limit."


@pytest.fixture
def workload() -> str:
    """A workload of alice with two cards; vision has four of eight cards guaranteed, and nlp borrows them."""
    pool, vision, nlp = make.pool("a100"), make.department("vision"), make.department("nlp")
    make.quota(vision, pool, 4, borrow_limit=2)
    Image.objects.create(name="python:3.11", title="Python")
    make.holding(nlp, pool, borrowed={vision: 4})
    job = {"name": "train", "pool": "a100", "image": "python:3.11", "command": ["python"], "units_per_pod": 2}
    response = person(make.member(vision, username="alice")).post("/api/v1/departments/vision/workloads/", job)
    assert response.status_code == 202, response.content
    return str(response.json()["id"])


def page(workload: str) -> str:
    response = person(User.objects.get(username="alice")).get(reverse("workloads:detail", args=["vision", workload]))
    return str(response.content.decode())


def test_advice_appears_once_on_the_page_and_with_each_reason_in_the_api(workload: str) -> None:
    reasons = [SHORT, {**SHORT, "short_by": 3}, {"code": "over_borrow_limit", "limit": 2, "asked": 6}]
    Claim.objects.filter(workload=workload).update(decision="wait", position=1, reasons=reasons)
    text = page(workload)
    assert text.count(LESS) == text.count(LIMIT) == 1
    body = person(User.objects.get(username="alice")).get(f"/api/v1/workloads/{workload}/").json()
    assert [reason["advice"] for reason in body["reasons"]] == [LESS, LESS, LIMIT]
    assert body["verdict"]["advice"] == [LESS, LIMIT]


def test_promised_start_needs_no_action(workload: str) -> None:
    by = Claim.objects.get(workload=workload).queued_at
    Claim.objects.filter(workload=workload).update(decision="reclaim", promised_at=by)
    assert "No action needed: it starts then." in page(workload)


def test_page_names_the_policy_that_makes_the_workload_wait(workload: str) -> None:
    Claim.objects.filter(workload=workload).update(decision="wait", position=1, reasons=[SHORT])
    assert "policy" not in page(workload)
    Pool.objects.update(policy=policy_json(e.Policy(reclaim="never")))
    assert "This is the policy of A100; an operator can change it." in page(workload)
