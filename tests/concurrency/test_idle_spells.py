"""Idle spells on a real PostgreSQL: two rounds at once, and *Keep it* at the moment of the stop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from portal.access import SYSTEM
from portal.models import InboxItem
from tests import builders as make
from tests.concurrency.test_planning import in_thread
from tests.workloads.idle.bed import HOUR, IdleBed, state_of
from workloads.idle import spells
from workloads.idle.spells import CannotKeep
from workloads.models import IdleSpell, Workload

pytestmark = [pytest.mark.concurrency, pytest.mark.django_db(transaction=True)]


def a_bed() -> IdleBed:
    vision, pool = make.department("vision"), make.pool("a100", cards=8)
    make.quota(vision, pool, 4)
    return IdleBed(pool, vision, make.member(vision, username="alice", email="alice@example.org"))


def test_two_rounds_at_once_warn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bed, barrier, original = a_bed(), threading.Barrier(2), spells.warn
    bed.set(job=HOUR)
    bed.quiet(bed.running())

    def together(*arguments: Any, **named: Any) -> bool:
        barrier.wait(10)  # both have read that it is idle and not warned yet
        return original(*arguments, **named)

    monkeypatch.setattr(spells, "warn", together)
    changed: list[int] = []
    threads = [in_thread(lambda: changed.append(bed.round())) for _ in range(2)]
    for thread in threads:
        thread.join(20)
    assert sorted(changed) == [0, 1]
    assert IdleSpell.objects.count() == InboxItem.objects.count() == 1


@pytest.mark.parametrize("first", ["keep", "stop"])
def test_keep_it_and_the_stop_never_both_take_effect(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """The round has read a spell that is due; the first writer wins."""
    bed, original = a_bed(), spells.decide_stop
    bed.set(job=HOUR)
    attempt = bed.running()
    bed.quiet(attempt)
    bed.round()
    bed.pass_by(10, attempt)
    workload = Workload.objects.get(pk=attempt.workload_id)
    refused: list[CannotKeep] = []

    def keep() -> None:
        try:
            spells.keep(actor=SYSTEM, workload=workload, now=bed.now)
        except CannotKeep as error:
            refused.append(error)

    def kept_meanwhile(spell: IdleSpell, **named: Any) -> bool:
        if first == "keep":
            in_thread(keep).join(20)
            return original(spell, **named)
        decided = original(spell, **named)
        in_thread(keep).join(20)
        return decided

    monkeypatch.setattr(spells, "decide_stop", kept_meanwhile)
    bed.pass_by(5, attempt)
    if first == "keep":
        assert (refused, state_of(attempt)) == ([], "running")
        assert IdleSpell.objects.get().kept_at == bed.now
    else:
        assert (refused[0].code, state_of(attempt)) == ("too_late", "stopping")
