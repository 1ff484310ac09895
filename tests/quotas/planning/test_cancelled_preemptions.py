"""The owner withdraws before the deadline: whose work was called back goes on, whoever else waits."""

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


def called_back(vision: Department, nlp: Department, pool: Pool, **fields: Any) -> tuple[Claim, Claim]:
    """nlp's work on all eight cards, told to leave for a claim of vision."""
    victim = make.claim(nlp, pool, 8, ClaimState.HOLDING, notice=60, **fields)
    owner = make.claim(vision, pool, 4)
    run_pass(group_id=pool.group_id)
    victim.refresh_from_db()
    assert (victim.state, victim.held_for) == (ClaimState.LEAVING, owner)
    return victim, owner


def test_a_borrower_who_waits_does_not_end_it(vision: Department, nlp: Department, bio: Department, pool: Pool) -> None:
    victim, owner = called_back(vision, nlp, pool)
    sweep = make.claim(bio, pool, 2, priority=9)
    release(owner, now=timezone.now())
    run_pass(group_id=pool.group_id)
    for claim in (victim, sweep):
        claim.refresh_from_db()
    assert (victim.state, victim.leave_by, victim.held_for) == (ClaimState.HOLDING, None, None)
    assert (sweep.state, sweep.decision) == (ClaimState.PENDING, "wait")
    row = Decision.objects.get(kind="withdraw")
    assert row.claim == victim
    assert replay(row.plan_pass).same, "the pass is kept with what it decided on"


def test_an_owner_who_still_needs_it_calls_it_back_again(vision: Department, nlp: Department, pool: Pool) -> None:
    victim, owner = called_back(vision, nlp, pool)
    other = make.claim(vision, pool, 3)
    release(owner, now=timezone.now())
    run_pass(group_id=pool.group_id)
    victim.refresh_from_db()
    assert (victim.state, victim.held_for) == (ClaimState.LEAVING, other)


def test_who_is_waited_for_by_another_too_leaves(vision: Department, nlp: Department, pool: Pool) -> None:
    victim, owner = called_back(vision, nlp, pool)
    other = make.claim(nlp, pool, 2)  # it waits for what the victim leaves over
    run_pass(group_id=pool.group_id)
    other.refresh_from_db()
    assert other.waiting_on == [victim.public_id]
    release(owner, now=timezone.now())
    run_pass(group_id=pool.group_id)
    victim.refresh_from_db()
    assert victim.state == ClaimState.LEAVING


@pytest.mark.parametrize("late", [{"leave_by": 0}, {"term_at": 0}])
def test_after_the_deadline_it_leaves(
    vision: Department, nlp: Department, bio: Department, pool: Pool, late: dict[str, int]
) -> None:
    victim, owner = called_back(vision, nlp, pool)
    now = timezone.now()
    Claim.objects.filter(pk=victim.pk).update(**{name: now + dt.timedelta(seconds=n) for name, n in late.items()})
    make.claim(bio, pool, 2)
    release(owner, now=now)
    run_pass(group_id=pool.group_id, now=now)
    victim.refresh_from_db()
    assert victim.state == ClaimState.LEAVING


def test_what_its_department_took_meanwhile_is_not_taken_away(vision: Department, nlp: Department, pool: Pool) -> None:
    """Its quota is smaller now: with it the department would stand above what it may have."""
    victim, owner = called_back(vision, nlp, pool)
    Quota.objects.filter(department=nlp, pool=pool).update(guaranteed=0, borrow_limit=2)
    release(owner, now=timezone.now())
    run_pass(group_id=pool.group_id)
    victim.refresh_from_db()
    assert victim.state == ClaimState.LEAVING
