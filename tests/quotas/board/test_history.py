"""Usage trends from metered hours, and loans between departments."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from quotas.board.history import loans, metered_hours, trend
from quotas.board.usage_now import read
from quotas.models import UsageHour
from quotas.spending.metering import sum_hours
from tests import builders as make

pytestmark = pytest.mark.django_db


def test_the_trend_is_the_mean_of_its_hours():
    pool, vision = make.pool(), make.department()
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - dt.timedelta(hours=2)
    UsageHour.objects.create(department=vision, pool=pool, hour=hour, guaranteed=8 * 3600, own=2 * 3600, lent=1800)
    other = make.department()
    UsageHour.objects.create(department=other, pool=pool, hour=hour, borrowed=1800)
    [point] = trend(metered_hours([pool], departments=[vision.pk]))[pool.pk]
    assert (point.at, point.guaranteed, point.own, point.lent, point.idle) == (hour, 8, 2, 0.5, 5.5)
    [everybody] = trend(metered_hours([pool]))[pool.pk]
    assert everybody.borrowed == 0.5


def test_current_hour_is_the_mean_of_what_is_metered_so_far():
    pool, vision = make.pool(cards=8), make.department()
    make.quota(vision, pool, 6)
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    sum_hours(now=hour + dt.timedelta(minutes=2, seconds=11))
    [point] = trend(metered_hours([pool], departments=[vision.pk]))[pool.pk]
    assert (point.at, point.guaranteed) == (hour, 6)


def test_hours_before_the_period_do_not_count():
    pool, vision = make.pool(), make.department()
    UsageHour.objects.create(department=vision, pool=pool, hour=timezone.now() - dt.timedelta(days=8), own=3600)
    assert trend(metered_hours([pool], days=7)) == {}
    assert len(trend(metered_hours([pool], days=30))[pool.pk]) == 1


def test_loans_are_pairwise_and_equal_for_borrower_and_lender():
    pool, vision, nlp = make.pool(), make.department("vision"), make.department("nlp")
    first = make.holding(vision, pool, own=1, borrowed={nlp: 2})
    make.holding(vision, pool, borrowed={nlp: 1, None: 1}, started_at=timezone.now())
    borrowed = loans(read(), [vision.pk])
    assert [(loan.lender, loan.units) for loan in borrowed] == [(nlp, 3), (None, 1)]
    assert borrowed[0].since == first.started_at
    assert borrowed[0].gpu_hours == pytest.approx(2, abs=0.01)
    [lent] = loans(read(), [nlp.pk])
    assert (lent.borrower, lent.units, lent.gpu_hours) == (vision, 3, pytest.approx(2, abs=0.01))


def test_ended_loan_keeps_its_hours_but_no_units():
    pool, vision, nlp = make.pool(), make.department(), make.department()
    ended = make.holding(vision, pool, borrowed={nlp: 4})
    ended.ledger.update(ended_at=timezone.now())
    [loan] = loans(read(), [nlp.pk])
    assert (loan.units, loan.since, loan.gpu_hours) == (0, None, pytest.approx(4, abs=0.01))


def test_loans_between_teams_are_not_loans_of_their_department():
    pool, vision = make.pool(), make.department()
    left, right = make.department(parent=vision), make.department(parent=vision)
    make.holding(left, pool, borrowed={right: 1})
    assert loans(read(), [vision.pk, left.pk, right.pk]) == []
    assert len(loans(read(), [left.pk])) == 1
