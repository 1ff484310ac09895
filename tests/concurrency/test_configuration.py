"""A configuration file is applied while a page is saved: the second writer sees what the first has written."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from portal.access import SYSTEM
from portal.errors import Problem
from quotas.models import Quota
from quotas.rules import quotas
from tests import builders as make
from tests.concurrency.test_planning import in_thread
from workloads.configuration import plan

pytestmark = [pytest.mark.concurrency, pytest.mark.django_db(transaction=True)]
MORE = f"apiVersion: {plan.API_VERSION}\ndepartments: {{vision: {{quotas: {{a100: {{guaranteed: 12 cards}}}}}}}}"


def test_quota_saved_while_a_file_is_applied_waits_and_is_checked_against_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = make.pool("a100", cards=16)
    vision, nlp = make.department("vision"), make.department("nlp")
    make.quota(vision, pool, 4)
    row = make.quota(nlp, pool, 4)
    has_locked, may_continue, refused = threading.Event(), threading.Event(), list[str]()
    stored, first = plan.stored, threading.Lock()

    def slow(*args: Any) -> Any:
        if first.acquire(blocking=False):
            has_locked.set()
            may_continue.wait(2)
        return stored(*args)

    monkeypatch.setattr(plan, "stored", slow)

    def save() -> None:
        try:
            quotas.set_quota(
                actor=SYSTEM, department=nlp, pool=pool, guaranteed=12, borrow_limit=None, lend_limit=None,
                expected_version=row.version,
            )  # fmt: skip
        except Problem as problem:
            refused.append(problem.code)

    threads = [in_thread(lambda: plan.apply(actor=SYSTEM, text=MORE))]
    assert has_locked.wait(20)
    threads.append(in_thread(save))
    threads[1].join(0.5)
    assert threads[1].is_alive()  # waits for the pool group
    may_continue.set()
    for thread in threads:
        thread.join(20)
    assert dict(Quota.objects.values_list("department__slug", "guaranteed")) == {"vision": 12, "nlp": 4}
    assert refused == ["over_promised"]


def test_two_files_applied_at_once_both_take_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    make.pool("a100", cards=16)
    texts = [
        f"apiVersion: {plan.API_VERSION}\ndepartments: {{{slug}: {{name: {slug}, quotas: {{a100: {{guaranteed: 8 cards}}}}}}}}"
        for slug in ("vision", "nlp")
    ]
    threads = [in_thread(lambda text=text: plan.apply(actor=SYSTEM, text=text)) for text in texts]  # type: ignore[misc]
    for thread in threads:
        thread.join(20)
    assert dict(Quota.objects.values_list("department__slug", "guaranteed")) == {"vision": 8, "nlp": 8}
