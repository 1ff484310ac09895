"""Scheduled jobs: one run a slot, whoever beats, and a record of how it went."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from django.db import IntegrityError, transaction
from django.utils import timezone

from portal.celery import TIMETABLE
from portal.models import JobRun

AHEAD = 60  # s; so far the clocks of several machines may differ
LONGEST_REST = dt.timedelta(seconds=30)
log = structlog.get_logger(__name__)


@contextmanager
def claimed_tick(job: str, *, tick: bool, rest: int = 0) -> Iterator[bool]:
    """Yields whether to run. A call that is no tick of the beat (a wake-up, a command) always runs and leaves no row.

    A job that takes long where there is much of everything may `rest` so many times as long as it took before it runs
    again, at most LONGEST_REST; meanwhile ticks are left out."""
    if not tick:
        yield True
        return
    every = TIMETABLE[job]
    slot = int(time.time()) // every * every
    # Claimed by a clock that was ahead: when their time comes, they would keep this job from running.
    JobRun.objects.filter(job=job, slot__gt=slot + 2 * every + AHEAD).delete()
    if rest and _rests(job, rest):
        yield False
        return
    try:
        with transaction.atomic():
            run = JobRun.objects.create(job=job, slot=slot)
    except IntegrityError:
        yield False
        return
    try:
        yield True
    except Exception as error:
        JobRun.objects.filter(pk=run.pk).update(
            finished_at=timezone.now(), error=f"{type(error).__name__}: {error}"[:2000]
        )
        raise
    JobRun.objects.filter(pk=run.pk).update(finished_at=timezone.now())


def _rests(job: str, rest: int) -> bool:
    """Whether its last run has ended a short while ago, or is under way; after LONGEST_REST one without an end is no more."""
    last = JobRun.objects.filter(job=job).order_by("-slot").first()
    if last is None:
        return False
    since, pause = last.started_at, LONGEST_REST
    if last.finished_at is not None:
        since, pause = last.finished_at, min(rest * (last.finished_at - last.started_at), LONGEST_REST)
    return dt.timedelta(0) <= timezone.now() - since < pause  # not for one whose clock was ahead
