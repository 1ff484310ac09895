"""Celery tasks of quotas. No module imports this one; messages carry ids only and may arrive twice."""

from __future__ import annotations

import datetime as dt
from typing import Any

from celery import shared_task
from django.utils import timezone

from portal.background.jobs import claimed_tick
from portal.errors import Busy
from quotas.budgets import actions as budgets
from quotas.health import quarantines
from quotas.models import PoolGroup
from quotas.planning import replay
from quotas.planning.run_pass import run_pass
from quotas.reports.monthly import send_monthly
from quotas.requests import actions as quota_requests
from quotas.rules import recalls
from quotas.spending import balances, metering

PLANNED_WITHIN = dt.timedelta(seconds=4)  # less than the interval of plan_all: a group that was just planned can wait


@shared_task(name="quotas.plan", autoretry_for=(Busy,), retry_backoff=1, retry_kwargs={"max_retries": 3})
def plan(*, group_id: int, **_: Any) -> None:
    run_pass(group_id=group_id)


@shared_task(name="quotas.plan_all")
def plan_all(*, tick: bool = False, **_: Any) -> None:
    """Plan all pool groups, in case a hint was lost; also end recalls and quarantines whose time is over."""
    with claimed_tick("quotas.plan_all", tick=tick) as run:
        if run:
            recalls.end_overdue(now=timezone.now())
            quarantines.keep(now=timezone.now())
            now = timezone.now()
            lately = now - PLANNED_WITHIN, now  # a time in the future comes from a clock that is ahead
            for group_id in (
                PoolGroup.objects.exclude(planned_at__range=lately).order_by("pk").values_list("pk", flat=True)
            ):
                run_pass(group_id=group_id)


@shared_task(name="quotas.meter")
def meter(*, tick: bool = False, **_: Any) -> None:
    with claimed_tick("quotas.meter", tick=tick) as run:
        if run:
            metering.sum_hours(now=timezone.now())
            balances.remember(now=timezone.now())


@shared_task(name="quotas.terms")
def terms(*, tick: bool = False, **_: Any) -> None:
    """Begin, announce and end the terms of granted requests."""
    with claimed_tick("quotas.terms", tick=tick) as run:
        if run:
            quota_requests.run_terms(now=timezone.now())


@shared_task(name="quotas.budgets")
def keep_budgets(*, tick: bool = False, **_: Any) -> None:
    """Notify people of budgets that are nearly or entirely used up."""
    with claimed_tick("quotas.budgets", tick=tick) as run:
        if run:
            budgets.keep(now=timezone.now())


@shared_task(name="quotas.monthly")
def monthly(*, tick: bool = False, **_: Any) -> None:
    """On the first of a month, send owners the report of the month before."""
    with claimed_tick("quotas.monthly", tick=tick) as run:
        if run:
            send_monthly(now=timezone.now())


@shared_task(name="quotas.clean_up")
def clean_up(*, tick: bool = False, **_: Any) -> None:
    """Delete snapshots of old passes, and old metered hours whose days are summed."""
    with claimed_tick("quotas.clean_up", tick=tick) as run:
        if run:
            replay.forget_old(now=timezone.now())
            metering.forget_old_hours(now=timezone.now())
