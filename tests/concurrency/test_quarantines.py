"""Quarantines on a real PostgreSQL: two checks at once, a planning pass under way, and a process that dies halfway."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.utils import timezone

from portal.models import AuditEntry
from quotas.health import quarantines
from quotas.health.quarantines import Answer
from quotas.health.signs import Sign
from quotas.models import Claim, ClaimState, Node, Quarantine
from quotas.planning import run_pass
from tests import builders as make
from tests.concurrency.test_planning import SlowReader, in_thread

pytestmark = [pytest.mark.concurrency, pytest.mark.django_db(transaction=True)]
XID = Sign("node/condition/SysLogsXIDError")
WHY = {"message": "node condition %(condition)s is %(status)s", "params": {"condition": "X", "status": "True"}}


def judge() -> int:
    node = Node.objects.select_related("cluster").get()
    return quarantines.judge(node.cluster, "node", {node.pk: Answer({XID: WHY}, {None})}, now=timezone.now())


def test_two_checks_at_once_begin_one_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    make.pool(cards=4)
    barrier, original = threading.Barrier(2), quarantines._judge_node

    def together(*args: Any, **kwargs: Any) -> bool:
        barrier.wait(10)  # both have read that there is something to do
        return original(*args, **kwargs)

    monkeypatch.setattr(quarantines, "_judge_node", together)
    began: list[int] = []
    threads = [in_thread(lambda: began.append(judge())) for _ in range(2)]
    for thread in threads:
        thread.join(20)
    assert sorted(began) == [0, 1]
    assert Quarantine.objects.count() == AuditEntry.objects.filter(action="node.quarantined").count() == 1


def test_claim_admitted_at_the_same_time_gets_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass has read the node as usable; the quarantine waits for its lock and then sees the claim that it placed there."""
    pool = make.pool(cards=4, notice=600)
    vision = make.department()
    make.quota(vision, pool, 4)
    make.claim(vision, pool, 4)
    reader = SlowReader()
    monkeypatch.setattr(run_pass, "load_snapshot", reader)
    planning = in_thread(lambda: run_pass.run_pass(group_id=pool.group_id, now=timezone.now()))
    assert reader.has_read.wait(10)
    judging = in_thread(judge)
    judging.join(0.5)
    assert judging.is_alive(), "it waits for the lock"
    reader.other_done.set()
    planning.join(20)
    judging.join(20)
    claim = Claim.objects.get()
    assert (claim.state, Quarantine.objects.get().deadlines.keys()) == (ClaimState.LEAVING, {claim.public_id})


def test_process_that_dies_halfway_leaves_no_partial_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make.pool(cards=4, notice=600)
    vision = make.department()
    make.quota(vision, pool, 4)
    node = Node.objects.get()
    claim = make.holding(vision, pool, own=1, placement=[{"pod": 0, "node": node.name, "cards": [0]}], notice=600)

    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(quarantines, "wake", die)  # the last step
        with pytest.raises(Killed):
            judge()
    node.refresh_from_db()
    assert (node.quarantined, Quarantine.objects.exists(), Claim.objects.get().state) == (
        False,
        False,
        ClaimState.HOLDING,
    )
    assert judge() == 1
    claim.refresh_from_db()
    assert claim.state == ClaimState.LEAVING
