"""If the preemptor is cancelled before the deadline, the victim keeps running, whatever else waits."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone

from portal.models import Department
from quotas.models import Claim, ClaimState, Decision, Pool, Quota
from quotas.planning.claims import release
from quotas.planning.replay import replay
from quotas.planning.run_pass import run_pass
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def bio(pool: Pool) -> Department:
    return make.department("bio")


def preempted(vision: Department, nlp: Department, pool: Pool, **fields: Any) -> tuple[Claim, Claim]:
    """The victim, work of nlp on all eight cards, and the preemptor, a claim of vision."""
    victim = make.claim(nlp, pool, 8, ClaimState.HOLDING, notice=60, **fields)
    preemptor = make.claim(vision, pool, 4)
    run_pass(group_id=pool.group_id)
    victim.refresh_from_db()
    assert (victim.state, victim.preempted_for) == (ClaimState.LEAVING, preemptor)
    return victim, preemptor


def test_preemption_is_withdrawn_even_if_a_borrower_waits(
    vision: Department, nlp: Department, bio: Department, pool: Pool
) -> None:
    victim, preemptor = preempted(vision, nlp, pool)
    sweep = make.claim(bio, pool, 2, priority=9)
    release(preemptor, now=timezone.now())
    run_pass(group_id=pool.group_id)
    for claim in (victim, sweep):
        claim.refresh_from_db()
    assert (victim.state, victim.leave_by, victim.preempted_for) == (ClaimState.HOLDING, None, None)
    assert (sweep.state, sweep.decision) == (ClaimState.PENDING, "wait")
    row = Decision.objects.get(kind="withdraw")
    assert row.claim == victim
    assert replay(row.plan_pass).same, "the pass is stored with the snapshot that it decided on"


def test_victim_leaves_for_another_claim_within_the_guarantee(vision: Department, nlp: Department, pool: Pool) -> None:
    victim, preemptor = preempted(vision, nlp, pool)
    other = make.claim(vision, pool, 3)
    release(preemptor, now=timezone.now())
    run_pass(group_id=pool.group_id)
    victim.refresh_from_db()
    assert (victim.state, victim.preempted_for) == (ClaimState.LEAVING, other)


def test_preemption_is_not_withdrawn_while_another_claim_waits_for_the_victim(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    victim, preemptor = preempted(vision, nlp, pool)
    other = make.claim(nlp, pool, 2)  # it waits for the rest of what the victim releases
    run_pass(group_id=pool.group_id)
    other.refresh_from_db()
    assert other.waiting_on == [victim.public_id]
    release(preemptor, now=timezone.now())
    run_pass(group_id=pool.group_id)
    victim.refresh_from_db()
    assert victim.state == ClaimState.LEAVING


@pytest.mark.parametrize("late", [{"leave_by": 0}, {"term_at": 0}])
def test_preemption_is_not_withdrawn_after_the_deadline(
    vision: Department, nlp: Department, bio: Department, pool: Pool, late: dict[str, int]
) -> None:
    victim, preemptor = preempted(vision, nlp, pool)
    now = timezone.now()
    Claim.objects.filter(pk=victim.pk).update(**{name: now + dt.timedelta(seconds=n) for name, n in late.items()})
    make.claim(bio, pool, 2)
    release(preemptor, now=now)
    run_pass(group_id=pool.group_id, now=now)
    victim.refresh_from_db()
    assert victim.state == ClaimState.LEAVING


def test_preemption_is_not_withdrawn_if_the_victim_no_longer_fits_its_quota(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    """The quota of its department is smaller now: with the victim, the department would exceed its maximum."""
    victim, preemptor = preempted(vision, nlp, pool)
    Quota.objects.filter(department=nlp, pool=pool).update(guaranteed=0, borrow_limit=2)
    release(preemptor, now=timezone.now())
    run_pass(group_id=pool.group_id)
    victim.refresh_from_db()
    assert victim.state == ClaimState.LEAVING
