"""Two planning passes at once on a real PostgreSQL: the lock of the pool group keeps them from giving out the same cards
twice.

The negative control removes the lock and must oversell: otherwise these tests would prove nothing.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from quotas.models import OCCUPYING, Claim, PoolGroup
from quotas.planning import run_pass
from quotas.planning.snapshot import load_snapshot
from tests import builders as make
from tests.locks import short_waits

pytestmark = [pytest.mark.concurrency, pytest.mark.django_db(transaction=True)]


class SlowReader:
    """Stops the first pass between reading and writing until a second pass is over, or a second has passed."""

    def __init__(self) -> None:
        self.first = threading.Lock()
        self.has_read, self.other_done = threading.Event(), threading.Event()

    def __call__(self, group: PoolGroup, **kwargs: Any) -> Any:
        snapshot = load_snapshot(group, **kwargs)
        if self.first.acquire(blocking=False):
            self.has_read.set()
            self.other_done.wait(1)
        return snapshot


def in_thread(work: Any) -> threading.Thread:
    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def race(monkeypatch: pytest.MonkeyPatch) -> int:
    """Claims of 8 and 8 for 8 cards, the second one with a higher priority; returns the units occupied in the end."""
    pool = make.pool(cards=8)
    vision = make.department()
    make.quota(vision, pool, 8)
    make.claim(vision, pool, 8)
    reader = SlowReader()
    monkeypatch.setattr(run_pass, "load_snapshot", reader)
    first = in_thread(lambda: run_pass.run_pass(group_id=pool.group_id, now=timezone.now()))
    assert reader.has_read.wait(10)
    make.claim(vision, pool, 8, priority=10)
    second = in_thread(lambda: run_pass.run_pass(group_id=pool.group_id, now=timezone.now()))
    second.join(0.5)
    reader.other_done.set()
    first.join(20)
    second.join(20)
    return sum(claim.units for claim in Claim.objects.filter(pool=pool, state__in=OCCUPYING))


def test_two_passes_at_once_never_oversell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert race(monkeypatch) == 8


def test_two_passes_oversell_without_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_pass, "locked_group", lambda group_id: PoolGroup.objects.get(pk=group_id))
    assert race(monkeypatch) == 16


def test_pass_that_waits_too_long_for_the_lock_is_busy_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import transaction

    from portal.errors import Busy

    pool = make.pool()
    holding, release = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            run_pass.locked_group(pool.group_id)
            holding.set()
            release.wait(10)

    holder = in_thread(hold)
    assert holding.wait(10)
    try:
        with short_waits(), pytest.raises(Busy):
            run_pass.run_pass(group_id=pool.group_id)
    finally:
        release.set()
        holder.join(10)
