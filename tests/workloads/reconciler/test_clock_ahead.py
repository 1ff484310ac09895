"""A machine whose clock was an hour ahead for a while: the times that it stored delay nothing by that hour."""

from __future__ import annotations

import datetime as dt
import time

import pytest
import time_machine
from django.utils import timezone

from portal.background.jobs import claimed_tick
from portal.models import JobRun
from quotas.models import Claim
from quotas.planning.run_pass import run_pass
from tests.workloads.conftest import Bed
from tests.workloads.reconciler.test_main_path import FOREVER
from workloads.reconciler import deadlines

HOUR = dt.timedelta(hours=1)


def test_notice_dated_an_hour_ahead_ends_on_time(bed: Bed) -> None:
    borrower = bed.submit(bed.bob, bed.nlp, FOREVER, cards=4)
    bed.until(lambda: bed.state(borrower) == "running")
    owner = bed.submit(bed.alice, bed.vision, FOREVER, cards=2)
    with time_machine.travel(timezone.now() + HOUR, tick=True):
        run_pass(group_id=bed.pool.group_id)
    late = Claim.objects.get(workload=borrower.public_id).leave_by
    assert late is not None
    assert late > timezone.now() + HOUR / 2
    bed.until(lambda: bed.state(owner) == "running")
    first = borrower.attempts.get(number=1)
    assert first.outcome == "recalled"
    assert first.reclaim_at < timezone.now()


def test_claim_queued_an_hour_ahead_does_not_wait_longer(bed: Bed) -> None:
    with time_machine.travel(timezone.now() + HOUR, tick=True):
        job = bed.submit(bed.alice, bed.vision, FOREVER)
        Claim.objects.update(queued_at=timezone.now(), backoff_until=timezone.now() + dt.timedelta(seconds=30))
    deadlines.keep(now=timezone.now())
    claim = Claim.objects.get()
    assert (claim.queued_at <= timezone.now(), claim.backoff_until) == (True, None)
    bed.until(lambda: bed.state(job) == "running")


@pytest.mark.django_db(transaction=True)
def test_ticks_recorded_an_hour_ahead_do_not_stop_a_background_job() -> None:
    soon = timezone.now() + HOUR
    with time_machine.travel(soon, tick=False), claimed_tick("workloads.deadlines", tick=True) as ran:
        assert ran
    with claimed_tick("workloads.deadlines", tick=True) as ran:
        assert ran
    assert JobRun.objects.get().slot <= time.time()
    with time_machine.travel(soon, tick=False), claimed_tick("workloads.deadlines", tick=True) as ran:
        assert ran
    with time_machine.travel(soon, tick=False), claimed_tick("workloads.deadlines", tick=True) as ran:
        assert not ran, "each tick runs once"
