"""Since when units are lent: from the first moment without a gap, however the ledger shares them out meanwhile."""

from __future__ import annotations

import datetime as dt

import pytest
from django.test import Client
from django.utils import timezone

from portal.models import Department
from quotas.board.history import loans
from quotas.board.usage_now import read
from quotas.models import Claim, LedgerEntry, Pool, UsageHour
from quotas.planning.claims import release
from quotas.planning.run_pass import run_pass
from quotas.spending.metering import sum_hours
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)
NOW = timezone.now().replace(minute=30, second=0, microsecond=0) - dt.timedelta(hours=1)


def at(minutes: int) -> dt.datetime:
    return NOW + dt.timedelta(minutes=minutes)


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8)


@pytest.fixture
def biology(pool: Pool) -> Department:
    """It has nothing of its own and borrows 4 of vision's 5."""
    for slug, guaranteed in (("vision", 5), ("speech", 3)):
        make.quota(make.department(slug), pool, guaranteed)
    biology = make.department("biology")
    make.claim(biology, pool, 4)
    run_pass(group_id=pool.group_id, now=at(0))
    return biology


def vision() -> Department:
    return Department.objects.get(slug="vision")


def lent(to: Department) -> dict[str, tuple[int, dt.datetime | None]]:
    """Lender → units now, and since when."""
    return {
        loan.lender.slug: (loan.units, loan.since)
        for loan in loans(read(), [to.pk], days=0)
        if loan.lender and loan.units
    }


def test_a_loan_goes_on_when_the_ledger_pairs_it_anew(pool: Pool, biology: Department) -> None:
    assert lent(biology) == {"vision": (4, at(0))}
    own = make.claim(vision(), pool, 2)
    run_pass(group_id=pool.group_id, now=at(9))
    assert lent(biology) == {"vision": (1, at(0)), "speech": (3, at(9))}
    release(own, now=at(12))
    run_pass(group_id=pool.group_id, now=at(12))
    assert lent(biology) == {"vision": (4, at(0))}


def test_it_goes_on_while_any_claim_uses_it_and_begins_again_after_a_gap(pool: Pool, biology: Department) -> None:
    first = Claim.objects.get()
    second = make.claim(biology, pool, 1)
    run_pass(group_id=pool.group_id, now=at(5))
    make.claim(vision(), pool, 3)
    release(first, now=at(9))
    run_pass(group_id=pool.group_id, now=at(9))
    assert lent(biology) == {"speech": (1, at(5))}
    release(second, now=at(10))
    run_pass(group_id=pool.group_id, now=at(10))
    assert lent(biology) == {}
    make.claim(biology, pool, 2)
    run_pass(group_id=pool.group_id, now=at(15))
    assert lent(biology) == {"speech": (2, at(15))}


def test_the_hours_are_counted_as_before(pool: Pool, biology: Department) -> None:
    make.claim(vision(), pool, 2)
    run_pass(group_id=pool.group_id, now=at(9))
    sum_hours(now=at(20))
    assert sum(row.borrowed for row in UsageHour.objects.all()) == 4 * 20 * 60
    assert sum(row.lent for row in UsageHour.objects.all()) == 4 * 20 * 60
    assert LedgerEntry.objects.filter(ended_at=None, own=False).count() == 2


def test_the_board_says_it(client: Client, pool: Pool, biology: Department) -> None:
    LedgerEntry.objects.update(started_at=timezone.now() - dt.timedelta(minutes=40))
    make.claim(vision(), pool, 2)
    run_pass(group_id=pool.group_id)
    client.force_login(make.member(vision()))
    page = client.get("/d/vision/").content.decode().split('id="now"')[1]
    assert "40 min" in page.split("to Biology")[1].split("</div>")[0]
