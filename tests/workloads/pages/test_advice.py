"""What can be done about a workload that waits: on its page and to programs, each advice once."""

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
    """alice's, of two cards; vision is guaranteed four of eight, of which nlp borrows some."""
    pool, vision, nlp = make.pool("a100"), make.department("vision"), make.department("nlp")
    make.quota(vision, pool, 4, borrow_limit=2)
    Image.objects.create(name="python:3.11", title="Python")
    make.holding(nlp, pool, borrowed={vision: 4})
    job = {"name": "train", "pool": "a100", "image": "python:3.11", "command": ["python"], "units_per_pod": 2}
    answer = person(make.member(vision, username="alice")).post("/api/v1/departments/vision/workloads/", job)
    assert answer.status_code == 202, answer.content
    return str(answer.json()["id"])


def page(workload: str) -> str:
    answer = person(User.objects.get(username="alice")).get(reverse("workloads:detail", args=["vision", workload]))
    return str(answer.content.decode())


def test_it_stands_on_the_page_once_and_beside_each_reason_for_programs(workload: str) -> None:
    told = [SHORT, {**SHORT, "short_by": 3}, {"code": "over_borrow_limit", "limit": 2, "asked": 6}]
    Claim.objects.filter(workload=workload).update(decision="wait", position=1, reasons=told)
    text = page(workload)
    assert text.count(LESS) == text.count(LIMIT) == 1
    seen = person(User.objects.get(username="alice")).get(f"/api/v1/workloads/{workload}/").json()
    assert [reason["advice"] for reason in seen["reasons"]] == [LESS, LESS, LIMIT]
    assert seen["verdict"]["advice"] == [LESS, LIMIT]


def test_a_promised_start_needs_nothing_to_be_done(workload: str) -> None:
    by = Claim.objects.get(workload=workload).queued_at
    Claim.objects.filter(workload=workload).update(decision="reclaim", promised_at=by)
    assert "No action needed: it starts then." in page(workload)


def test_the_page_names_the_policy_that_lets_it_wait(workload: str) -> None:
    Claim.objects.filter(workload=workload).update(decision="wait", position=1, reasons=[SHORT])
    assert "policy" not in page(workload)
    Pool.objects.update(policy=policy_json(e.Policy(reclaim="never")))
    assert "This is the policy of A100; an operator can change it." in page(workload)
