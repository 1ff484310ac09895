"""Hints to the watcher or to the workers. A message may be lost, duplicated or late: beat runs the same tasks every few seconds
anyway."""

from __future__ import annotations

from functools import partial

import redis
import structlog
from django.db import transaction
from kombu.exceptions import OperationalError

from portal.background import hint_queue
from portal.celery import TIMETABLE, app

WAKES = frozenset(
    {
        "quotas.plan", "workloads.converge", "workloads.converge_all", "workloads.inventory", "workloads.modes",
        "quotas.meter", "portal.deliver", "workloads.backtest", "workloads.estimate_asked",
    }
)  # fmt: skip
# These take long, or wait for other servers.
BY_WORKERS = frozenset(
    {"quotas.meter", "workloads.modes", "portal.deliver", "workloads.backtest", "workloads.estimate_asked"}
)
log = structlog.get_logger(__name__)


def wake(name: str, **ids: int | str) -> None:
    """Sends the task's hint after the surrounding transaction commits; sends nothing if that rolls back."""
    if name not in WAKES:
        raise ValueError(f"{name} is not a task that may be woken: {sorted(WAKES)}")
    transaction.on_commit(partial(_hint, name, ids))


def catch_up() -> None:
    """Sends every scheduled job once: what the last process has left undone does not wait for the next tick."""
    for job in TIMETABLE:
        _send(job, {})


def _hint(name: str, ids: dict[str, int | str]) -> None:
    try:
        if name not in BY_WORKERS and hint_queue.put(name, ids):
            return
    except redis.RedisError as error:
        log.warning("wake.lost", task=name, error=str(error))
        return
    _send(name, ids)


def _send(name: str, ids: dict[str, int | str]) -> None:
    try:
        app.send_task(name, kwargs=ids, retry=False, expires=60)
    except (OperationalError, OSError) as error:  # the broker is unreachable: beat runs the task later
        log.warning("wake.lost", task=name, error=str(error))
