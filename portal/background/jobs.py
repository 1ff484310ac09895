"""Scheduled jobs: each slot is run by one process, and its outcome is recorded."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from portal.celery import TIMETABLE
from portal.infra.shared_redis import has_flag, set_flag
from portal.models import JobRun

AHEAD = 60  # s by which the clocks of several machines may differ
LONGEST_REST = dt.timedelta(seconds=30)
LONGEST_RUN = dt.timedelta(minutes=10)  # after that another process may run the job
FLAG_LASTS = 20  # s for which an announcement of a run counts
log = structlog.get_logger(__name__)


def last_runs() -> dict[str, JobRun | None]:
    """Scheduled job → its last run."""
    return {job: _last_run(job) for job in TIMETABLE}


def _last_run(job: str) -> JobRun | None:
    return JobRun.objects.filter(job=job).order_by("-slot").first()  # uses the index, however many rows there are


def ticked(runs: Mapping[str, JobRun | None] | None = None) -> dict[str, dt.datetime]:
    """Job → its last tick, according to `runs` (job → last run; None: read here); for a job that never ran, the first tick of
    any job. Empty if there was none. Ticks come at any time within a slot."""
    first = JobRun.objects.order_by("started_at").values_list("started_at", flat=True).first()
    runs = last_runs() if runs is None else runs
    times = {job: run.started_at if run else first for job, run in runs.items()}
    return {job: time for job, time in times.items() if time}


@contextmanager
def claimed_tick(job: str, *, tick: bool, rest: int = 0) -> Iterator[bool]:
    """Yields whether to run the job now.

    A call that is not a `tick` of the beat (a wake-up, a command) always runs and leaves no row. A job that takes
    long may set `rest`: it then pauses for that many times its last duration, at most LONGEST_REST, and skips the
    ticks meanwhile.
    """
    if not tick:
        yield True
        return
    every = TIMETABLE[job]
    slot = int(time.time()) // every * every
    # Slots claimed by a clock that was ahead would keep this job from running when their time comes.
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
        with _announced_as_running(job, announce=rest > 0):
            yield True
    except Exception as error:
        JobRun.objects.filter(pk=run.pk).update(
            finished_at=timezone.now(), error=f"{type(error).__name__}: {error}"[:2000]
        )
        raise
    JobRun.objects.filter(pk=run.pk).update(finished_at=timezone.now())


@contextmanager
def _announced_as_running(job: str, *, announce: bool) -> Iterator[None]:
    """Announces in Redis that the run continues, so that other processes can distinguish it from a killed one."""
    over = threading.Event()

    def renew() -> None:
        while not over.is_set():
            set_flag(_running_flag(job), FLAG_LASTS)
            over.wait(FLAG_LASTS / 4)

    if announce and settings.REDIS_URL:
        threading.Thread(target=renew, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _rests(job: str, rest: int) -> bool:
    """Whether the job's last run has just ended or is still under way. A run without an end that nobody announces
    counts as killed after LONGEST_REST."""
    last = _last_run(job)
    if last is None:
        return False
    since, pause = last.started_at, LONGEST_REST
    if last.finished_at is not None:
        since, pause = last.finished_at, min(rest * (last.finished_at - last.started_at), LONGEST_REST)
    elif has_flag(_running_flag(job)):
        pause = LONGEST_RUN
    return dt.timedelta(0) <= timezone.now() - since < pause  # negative if the other clock was ahead


def _running_flag(job: str) -> str:
    return f"portal:goes-on:{job}"
