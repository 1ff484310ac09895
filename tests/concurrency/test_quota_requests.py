"""Two approvers at once on a real PostgreSQL: a request is granted once, and no units are promised twice.

The negative control removes the lock of the pool group and must promise more than the pool has.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db.models import Sum

from portal.access import Actor
from portal.errors import Problem
from portal.models import Role, User
from quotas.models import Pool, PoolGroup, Quota, QuotaRequest
from quotas.requests import actions as quota_requests
from quotas.rules import quotas
from tests import builders as make
from tests.concurrency.test_planning import in_thread

pytestmark = [pytest.mark.concurrency, pytest.mark.django_db(transaction=True)]


def request_of(slug: str, pool: Pool, units: int) -> QuotaRequest:
    department = make.department(slug)
    return quota_requests.ask_for_quota(
        actor=Actor(make.member(department, Role.MEMBER)), department=department, pool=pool, wanted="guaranteed",
        units=units, why="tests",
    )  # fmt: skip


def approve_both(monkeypatch: pytest.MonkeyPatch, rows: list[QuotaRequest], root: User) -> list[str]:
    """Approves the second request while the first approval has checked the guarantees and not written yet. Returns the codes
    of refusals."""
    has_read, may_continue, refused = threading.Event(), threading.Event(), list[str]()
    check, first = quotas.check_promises, threading.Lock()

    def slow_check(*args: Any, **kwargs: Any) -> None:
        check(*args, **kwargs)
        if first.acquire(blocking=False):
            has_read.set()
            may_continue.wait(1)

    monkeypatch.setattr(quotas, "check_promises", slow_check)

    def approve(row: QuotaRequest) -> None:
        try:
            quota_requests.approve(
                actor=Actor(root), request=row, units=row.units, ends_at=None, expected_version=row.version
            )
        except Problem as problem:
            refused.append(problem.code)

    threads = [in_thread(lambda: approve(rows[0]))]
    assert has_read.wait(10)
    threads.append(in_thread(lambda: approve(rows[1])))
    threads[1].join(0.5)
    may_continue.set()
    for thread in threads:
        thread.join(20)
    return refused


def promised(pool: Pool) -> int:
    return int(Quota.objects.filter(pool=pool).aggregate(total=Sum("guaranteed"))["total"])


def test_two_approvals_never_promise_the_same_units(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, root = make.pool(cards=8), make.user("root", is_operator=True)
    rows = [request_of("vision", pool, 5), request_of("nlp", pool, 5)]
    assert approve_both(monkeypatch, rows, root) == ["over_promised"]
    assert promised(pool) == 5


def test_two_approvals_promise_the_same_units_without_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, root = make.pool(cards=8), make.user("root", is_operator=True)
    rows = [request_of("vision", pool, 5), request_of("nlp", pool, 5)]
    monkeypatch.setattr(quota_requests, "locked_group", lambda group_id: PoolGroup.objects.get(pk=group_id))
    assert approve_both(monkeypatch, rows, root) == []
    assert promised(pool) == 10


def test_request_that_is_approved_twice_at_once_is_granted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, root = make.pool(cards=8), make.user("root", is_operator=True)
    row = request_of("vision", pool, 3)
    assert approve_both(monkeypatch, [row, row], root) == ["already_decided"]
    assert promised(pool) == 3
