"""The start of a loan: since when its units are lent without a gap, however the ledger pairs borrowers and lenders."""

from __future__ import annotations

import datetime as dt
import html
import random
import re

import pytest
from django.test import Client
from django.utils import timezone

from portal.models import Department
from quotas.board.history import A_WHILE, loans
from quotas.board.usage_now import read
from quotas.models import Claim, LedgerEntry, Pool, Quota, UsageHour
from quotas.planning.claims import release
from quotas.planning.run_pass import run_pass
from quotas.spending.metering import sum_hours
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)
LAST_MINUTE = 20
NOW = timezone.now().replace(minute=30, second=0, microsecond=0) - dt.timedelta(hours=1)


def at(minutes: int) -> dt.datetime:
    return NOW + dt.timedelta(minutes=minutes)


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8)


@pytest.fixture
def biology(pool: Pool) -> Department:
    """It has no guarantee and borrows 4 of vision's 5."""
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


def test_loan_keeps_its_start_when_the_ledger_reassigns_lenders(pool: Pool, biology: Department) -> None:
    assert lent(biology) == {"vision": (4, at(0))}
    own = make.claim(vision(), pool, 2)
    run_pass(group_id=pool.group_id, now=at(9))
    assert lent(biology) == {"vision": (1, at(0)), "speech": (3, at(9))}
    release(own, now=at(12))
    run_pass(group_id=pool.group_id, now=at(12))
    assert lent(biology) == {"vision": (4, at(0))}


def test_loan_lasts_while_any_claim_uses_it_and_restarts_after_a_gap(pool: Pool, biology: Department) -> None:
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


def latest(to: Department) -> tuple[int, dt.datetime] | None:
    [loan] = [loan for loan in loans(read(), [to.pk], days=0) if loan.units]
    return loan.latest


def test_units_that_were_returned_and_lent_again_are_younger_than_the_loan(pool: Pool, biology: Department) -> None:
    """The oldest part is what was lent all the time, whichever claims use it; the latest is what was lent again last."""
    assert latest(biology) is None
    own = make.claim(vision(), pool, 2)
    run_pass(group_id=pool.group_id, now=at(9))
    release(own, now=at(12))
    run_pass(group_id=pool.group_id, now=at(12))
    assert lent(biology) == {"vision": (4, at(0))}
    assert latest(biology) == (3, at(12)), "1 card was lent all the time"


def test_units_lent_within_a_minute_of_the_start_are_as_old_as_the_loan(pool: Pool, biology: Department) -> None:
    for seconds, expected in ((59, None), (60, (1, at(1)))):
        LedgerEntry.objects.all().delete()
        Claim.objects.all().delete()
        for cards, moment in ((1, at(0)), (1, at(0) + dt.timedelta(seconds=seconds))):
            make.claim(biology, pool, cards)
            run_pass(group_id=pool.group_id, now=moment)
        assert lent(biology) == {"vision": (2, at(0))}
        assert latest(biology) == expected


@pytest.mark.parametrize("seed", range(12))
def test_latest_units_are_those_added_since_less_was_last_lent(pool: Pool, biology: Department, seed: int) -> None:
    """Random claims, compared with what was lent at each minute."""
    chance = random.Random(seed)
    each_minute = [lent(biology)]
    for minute in range(1, LAST_MINUTE + 1):
        for claim in Claim.objects.filter(state="holding"):
            if chance.random() < 0.2:
                release(claim, now=at(minute))
        make.claim(chance.choice([vision(), biology, biology]), pool, chance.randint(1, 2))
        run_pass(group_id=pool.group_id, now=at(minute))
        each_minute.append(lent(biology))
    for loan in loans(read(), [biology.pk], days=0):
        if not loan.units or not loan.lender or not loan.since:
            continue
        lent_before = [minute.get(loan.lender.slug, (0, None))[0] for minute in each_minute]
        less = [minute for minute in range(1, LAST_MINUTE + 1) if lent_before[minute - 1] < loan.units]
        expected = (loan.units - lent_before[less[-1] - 1], at(less[-1])) if less else None
        assert loan.latest == (expected if expected and expected[1] - loan.since >= A_WHILE else None), lent_before


def test_metered_hours_are_unaffected_by_a_change_of_lender(pool: Pool, biology: Department) -> None:
    make.claim(vision(), pool, 2)
    run_pass(group_id=pool.group_id, now=at(9))
    sum_hours(now=at(20))
    assert sum(row.borrowed for row in UsageHour.objects.all()) == 4 * 20 * 60
    assert sum(row.lent for row in UsageHour.objects.all()) == 4 * 20 * 60
    assert LedgerEntry.objects.filter(ended_at=None, own=False).count() == 2


def test_board_shows_the_age_of_a_loan_and_of_its_latest_units(client: Client, pool: Pool, biology: Department) -> None:
    """Of the four cards lent for 40 minutes, three were returned, and lent again a minute ago."""
    now = timezone.now()
    LedgerEntry.objects.update(started_at=now - dt.timedelta(minutes=40))
    own = make.claim(vision(), pool, 3)
    run_pass(group_id=pool.group_id, now=now - dt.timedelta(minutes=10))
    reader = make.member(vision())
    client.force_login(reader)
    assert re.search(r"1 card to Biology 40 min", board_text(client))
    release(own, now=now - dt.timedelta(minutes=1))
    run_pass(group_id=pool.group_id, now=now - dt.timedelta(minutes=1))
    page = client.get("/d/vision/").content.decode()
    assert re.search(r"4 cards to Biology up to 40 min( \d+ s)?, the last 3 cards 1 min", board_text(client))
    assert re.search(r"4 cards 40 min( \d+ s)? ago the last 3 cards 1 min( \d+ s)? ago", board_text(client))
    assert page.count('data-time="since"') == 2, "both are updated live"
    reader.language = "zh-hans"
    reader.save()
    assert re.search(r"最长 40 分钟( \d+ 秒)?，最后 3 张卡 1 分钟", board_text(client))
    assert re.search(r"最后 3 张卡 1 分钟( \d+ 秒)?前", board_text(client))


def board_text(client: Client) -> str:
    """The text of the board from its table on."""
    page = client.get("/d/vision/").content.decode().split('id="now"')[1]
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", re.sub("</?time[^>]*>", "", page))).split())


def test_shares_of_a_claim_follow_the_ledger_after_admission(pool: Pool, biology: Department) -> None:
    borrower, first = Claim.objects.get(), make.claim(vision(), pool, 3)
    run_pass(group_id=pool.group_id, now=at(1))
    assert shares(borrower, first) == [(0, 4), (3, 0)]
    Quota.objects.filter(department=vision()).update(guaranteed=1)
    make.quota(biology, pool, 2)
    run_pass(group_id=pool.group_id, now=at(2))
    assert shares(borrower, first) == [(2, 2), (1, 2)]
    Quota.objects.filter(department=vision()).update(guaranteed=5)
    run_pass(group_id=pool.group_id, now=at(3))
    assert shares(borrower, first) == [(2, 2), (3, 0)]
    for claim in (borrower, first):
        entries = LedgerEntry.objects.filter(claim=claim, ended_at=None)
        assert sum(entry.units for entry in entries if not entry.own) == claim.borrowed


def shares(*claims: Claim) -> list[tuple[int, int]]:
    """(own, borrowed) of each, as stored."""
    for claim in claims:
        claim.refresh_from_db()
    return [(claim.own, claim.borrowed) for claim in claims]
