"""Scheduled jobs: one run a slot, whoever beats, and a record of how it went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from django.db import IntegrityError, transaction
from django.utils import timezone

from portal.celery import TIMETABLE
from portal.models import JobRun

AHEAD = 60  # s; so far the clocks of several machines may differ
log = structlog.get_logger(__name__)


@contextmanager
def claimed_tick(job: str, *, tick: bool) -> Iterator[bool]:
    """Yields whether to run. A call that is no tick of the beat (a wake-up, a command) always runs and leaves no row."""
    if not tick:
        yield True
        return
    every = TIMETABLE[job]
    slot = int(time.time()) // every * every
    # Claimed by a clock that was ahead: when their time comes, they would keep this job from running.
    JobRun.objects.filter(job=job, slot__gt=slot + 2 * every + AHEAD).delete()
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
