"""When guaranteed units cannot be recalled: why, which policy forbids it, and what can be done."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from portal.access import Actor
from portal.models import Department, Role
from quotas.engine import types as e
from quotas.models import Claim, ClaimState, Pool
from quotas.planning.run_pass import run_pass
from quotas.previews.blocking_policy import barred_in_queue
from quotas.previews.recall import preview_recall
from quotas.rules.policies import policy_json
from tests import builders as make
from workloads.models import Image
from workloads.requests.request import WorkloadRequest
from workloads.requests.verdict import verdict_of

pytestmark = pytest.mark.django_db(transaction=True)
NEVER = policy_json(e.Policy(reclaim="never"))
RULE = "Within its guaranteed quota, it reclaims nothing: it waits until borrowers end. This is the policy of "
ANYWAY = "If you recall anyway, the recall waits and takes capacity as it becomes free."


def place(first: int, cards: int) -> list[dict[str, object]]:
    return [{"pod": 0, "node": "a100-n1", "cards": list(range(first, first + cards))}]


@pytest.fixture
def owner(vision: Department) -> Actor:
    return Actor(make.member(vision, Role.OWNER))


@pytest.fixture
def borrowers(vision: Department, nlp: Department, pool: Pool) -> list[Claim]:
    """nlp uses its four cards, and borrows two of the four of vision, which uses one."""
    make.holding(vision, pool, own=1, placement=place(0, 1))
    return [
        make.holding(nlp, pool, own=4, placement=place(1, 4)),
        make.holding(nlp, pool, borrowed={vision: 2}, placement=place(5, 2)),
    ]


@pytest.mark.parametrize("where", ["department", "pool", "quota"])
def test_a_recall_that_a_policy_forbids_names_the_rule_and_where_it_is_set(
    owner: Actor, borrowers: list[Claim], vision: Department, pool: Pool, where: str
) -> None:
    carrier = {"department": vision, "pool": pool, "quota": vision.quotas.get()}[where]
    carrier.policy = NEVER
    carrier.save()
    preview = preview_recall(actor=owner, department=vision, pool=pool, units=3)
    assert preview.sentence == "3 cards cannot be recalled now: a policy does not allow Vision to reclaim them."
    whose = {"department": "Vision", "pool": "A100", "quota": "Vision in A100"}[where]
    assert preview.lines == (f"{RULE}{whose}; an operator can change it.", ANYWAY)


def test_recall_of_units_in_own_use_states_the_most_that_can_be_recalled(
    owner: Actor, borrowers: list[Claim], vision: Department, pool: Pool
) -> None:
    vision.policy = NEVER
    vision.save()
    preview = preview_recall(actor=owner, department=vision, pool=pool, units=4)
    assert preview.sentence == "4 cards cannot be recalled now: Vision itself uses 1 card of its 4 cards."
    assert preview.lines == ("At most 3 cards can be recalled.", ANYWAY)


def test_recall_that_no_policy_forbids_gives_the_planners_reason(
    owner: Actor, borrowers: list[Claim], vision: Department, pool: Pool
) -> None:
    Claim.objects.update(preemptible=False)
    preview = preview_recall(actor=owner, department=vision, pool=pool, units=3)
    assert preview.sentence == "3 cards cannot be recalled now, although Vision uses only 1 card of its 4 cards."
    assert preview.lines == ("Not enough free capacity: A100 is short of 2 cards.", ANYWAY)


def test_a_verdict_and_a_waiting_claim_name_the_policy(borrowers: list[Claim], vision: Department, pool: Pool) -> None:
    image = Image.objects.create(name="python:3.11", title="Python")
    request = WorkloadRequest(kind="job", name="train", pool=pool, image=image, command=("python",), units_per_pod=3)
    alice = Actor(make.member(vision))
    explanation = RULE + "Vision; an operator can change it."
    assert explanation not in verdict_of(actor=alice, department=vision, request=request).lines
    Department.objects.filter(pk=vision.pk).update(policy=NEVER)
    lines = verdict_of(actor=alice, department=Department.objects.get(pk=vision.pk), request=request).lines
    assert lines[:2] == ("Not enough free capacity: A100 is short of 2 cards.", explanation)
    waiting = make.claim(vision, pool, 3)
    run_pass(group_id=pool.group_id)
    rule = barred_in_queue(Claim.objects.get(pk=waiting.pk))
    assert rule is not None
    assert rule.sentence(vision, pool) == explanation
    Claim.objects.filter(pk=waiting.pk).update(state=ClaimState.PENDING, units_per_pod=4)
    assert barred_in_queue(Claim.objects.get(pk=waiting.pk)) is None  # with this claim vision would borrow


def test_strict_policy_is_not_mentioned_when_it_is_not_the_cause(
    owner: Actor, vision: Department, nlp: Department, pool: Pool
) -> None:
    now = timezone.now()
    vision.policy = NEVER
    vision.save()
    for first in (0, 4):
        make.holding(
            nlp, pool, own=4, placement=place(first, 4), preemptible=False, started_at=now - dt.timedelta(hours=1)
        )
    preview = preview_recall(actor=owner, department=vision, pool=pool, units=2)
    assert "policy" not in " ".join((preview.sentence, *preview.lines))
