"""A department with teams recalls its own guarantee, and its teams use the recalled units."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from portal.access import Actor
from portal.models import Department, Role
from quotas.board import usage_now
from quotas.board.usage import pool_usage
from quotas.lending import windows
from quotas.lending.schedule import Window
from quotas.models import WINDOW, Claim, ClaimState, Pool, Quota
from quotas.planning.run_pass import run_pass
from quotas.rules import recalls
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lab(pool: Pool) -> Department:
    """It is guaranteed two cards itself, and its team none."""
    lab = make.department("lab")
    make.quota(lab, pool, 2)
    make.department("team", parent=lab)
    return lab


def a_borrower(pool: Pool) -> Claim:
    """A borrower of all eight cards, with a notice of one minute."""
    guest = make.department("guest")
    place = [{"pod": 0, "node": "a100-n1", "cards": [*range(8)]}]
    return make.holding(guest, pool, borrowed={None: 8}, placement=place, notice=60, grace=5)


def test_team_uses_the_units_that_its_parent_recalled(lab: Department, pool: Pool) -> None:
    borrower, owner = a_borrower(pool), Actor(make.member(lab, Role.OWNER))
    recall = recalls.create_recall(actor=owner, department=lab, pool=pool, units=2, until=None)
    run_pass(group_id=pool.group_id)
    borrower.refresh_from_db()
    assert (borrower.state, borrower.preempted_for) == (ClaimState.LEAVING, recall)
    later = timezone.now() + dt.timedelta(minutes=2)
    Claim.objects.filter(pk=borrower.pk).update(state=ClaimState.RELEASED, released_at=later)
    run_pass(group_id=pool.group_id, now=later)
    recall.refresh_from_db()
    assert recall.state == ClaimState.HOLDING
    work = make.claim(Department.objects.get(slug="team"), pool, 1, submitted_at=later)
    run_pass(group_id=pool.group_id, now=later + dt.timedelta(seconds=10))
    work.refresh_from_db()
    assert work.state == ClaimState.HOLDING
    now = usage_now.read()
    assert usage_now.recalled(now, lab.pk, pool.pk) == 1, "the team uses the other card"
    assert usage_now.free(now, pool.pk) == 8 - 1 - 1
    assert pool_usage(now, lab.pk, pool.pk).held == 1


def test_window_of_a_parent_recalls_its_own_lent_guarantee(lab: Department, pool: Pool) -> None:
    borrower, now = a_borrower(pool), timezone.now()
    always = Window((0, 1, 2, 3, 4, 5, 6), 0, 24 * 60, 0)
    Quota.objects.filter(department=lab).update(windows=[windows.to_json(always)], zone="UTC")
    run_pass(group_id=pool.group_id, now=now)
    borrower.refresh_from_db()
    recall = Claim.objects.get(name=WINDOW)
    assert (recall.department, recall.units_per_pod, borrower.preempted_for) == (lab, 2, recall)
