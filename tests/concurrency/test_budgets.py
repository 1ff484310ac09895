"""Budgets under races, on a real PostgreSQL.

A budget counts hours that were used, and reserves none. So of two submissions at 99 % both start, as they would one after the
other: neither has used anything yet, and when the budget is used up neither is stopped. Later submissions are held back, even
if two passes plan at the same time.
"""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest

from portal.access import Actor
from portal.errors import Problem
from portal.models import InboxItem, Role
from quotas.budgets.actions import Limits, change_budget, keep
from quotas.models import Budget, Claim, ClaimState, LedgerEntry
from quotas.planning import run_pass
from quotas.spending import budgets
from tests import builders as make
from tests.concurrency.test_planning import SlowReader, in_thread

pytestmark = [pytest.mark.concurrency, pytest.mark.django_db(transaction=True)]
NOW = dt.datetime(2026, 3, 20, 12, tzinfo=dt.UTC)


def at_99_percent() -> tuple[Any, Any]:
    """A department that has used 99 of its 100 GPU-hours and can use 8 cards."""
    pool, vision = make.pool("a100", cards=8), make.department("vision")
    make.quota(vision, pool, 8)
    Budget.objects.create(department=vision, hours=100, action="no_new_work")
    claim = make.claim(vision, pool, 1, ClaimState.RELEASED)
    LedgerEntry.objects.create(
        claim=claim,
        pool=pool,
        department=vision,
        own=True,
        units=1,
        started_at=NOW - dt.timedelta(hours=99),
        ended_at=NOW,
    )
    return pool, vision


def plan_at_once(monkeypatch: pytest.MonkeyPatch, now: dt.datetime, first: Any, second: Any, group: int) -> None:
    """Runs two passes at once: `second` is written and planned while the pass for `first` has read, but not written yet."""
    reader = SlowReader()
    monkeypatch.setattr(run_pass, "load_snapshot", reader)
    first()
    threads = [in_thread(lambda: run_pass.run_pass(group_id=group, now=now))]
    assert reader.has_read.wait(10)
    second()
    threads.append(in_thread(lambda: run_pass.run_pass(group_id=group, now=now)))
    threads[1].join(0.5)
    reader.other_done.set()
    for thread in threads:
        thread.join(20)
    monkeypatch.undo()


def test_two_submissions_at_99_percent_both_start_and_later_ones_are_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, vision = at_99_percent()
    plan_at_once(
        monkeypatch, NOW, lambda: make.claim(vision, pool, 4, name="one", submitted_at=NOW),
        lambda: make.claim(vision, pool, 4, name="two", submitted_at=NOW), pool.group_id,
    )  # fmt: skip
    assert Claim.objects.filter(state=ClaimState.HOLDING).count() == 2
    Claim.objects.filter(name="one").update(state=ClaimState.RELEASED, released_at=NOW)
    LedgerEntry.objects.filter(claim__name="one").update(ended_at=NOW + dt.timedelta(minutes=8))
    late = NOW + dt.timedelta(minutes=8)  # eight cards have used the last hour
    plan_at_once(
        monkeypatch, late, lambda: make.claim(vision, pool, 1, name="three", submitted_at=late),
        lambda: make.claim(vision, pool, 1, name="four", submitted_at=late), pool.group_id,
    )  # fmt: skip
    assert set(Claim.objects.filter(state=ClaimState.PENDING).values_list("name", flat=True)) == {"three", "four"}
    assert Claim.objects.get(name="two").state == ClaimState.HOLDING


def test_two_beats_at_once_notify_once() -> None:
    _pool, vision = at_99_percent()
    make.member(vision, Role.OWNER, "olivia")
    gate = threading.Barrier(2, timeout=10)

    def beat() -> None:
        gate.wait()
        keep(now=NOW)

    threads = [in_thread(beat), in_thread(beat)]
    for thread in threads:
        thread.join(20)
    assert InboxItem.objects.filter(kind="budget.near").count() == 1


def test_one_of_two_changes_at_once_is_refused() -> None:
    _pool, _vision = at_99_percent()
    root, row = make.user("root", is_operator=True), Budget.objects.select_related("department", "person").get()
    gate, refused = threading.Barrier(2, timeout=10), list[str]()

    def change(hours: int) -> None:
        gate.wait()
        try:
            change_budget(actor=Actor(root), budget=row, limits=Limits(hours), expected_version=1)
        except Problem as problem:
            refused.append(problem.code)

    threads = [in_thread(lambda: change(200)), in_thread(lambda: change(300))]
    for thread in threads:
        thread.join(20)
    assert refused == ["stale"]
    assert Budget.objects.get().version == 2


@pytest.mark.parametrize("changed", [False, True])
def test_sum_is_not_remembered_if_the_budget_changed_during_the_count(
    changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remembered sum belongs to the version of the budget for which it was counted."""
    _pool, _vision = at_99_percent()
    root, row = make.user("root", is_operator=True), Budget.objects.select_related("department", "person").get()
    add_up = budgets._add_up

    def slow(*given: Any, **more: Any) -> None:
        add_up(*given, **more)
        if changed:
            change_budget(actor=Actor(root), budget=row, limits=Limits(7, counts="borrowed"), expected_version=1)

    monkeypatch.setattr(budgets, "final_until", lambda _now: NOW)
    monkeypatch.setattr(budgets, "_add_up", slow)
    assert budgets.remember(now=NOW + dt.timedelta(hours=2)) == (0 if changed else 1)
    assert bool(Budget.objects.get().counted) is not changed
