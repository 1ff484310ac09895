"""`manage.py check_invariants` passes on a consistent database and prints one line for each violated invariant."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from portal.models import Department
from quotas.health import quarantines
from quotas.models import Card, Claim, ClaimState, Cluster, LedgerEntry, Node, Pool, Quarantine, Quota
from tests import builders as make
from tests.architecture.doors import workload_of
from workloads.management.commands.check_invariants import violations
from workloads.models import Attempt, Workload

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=4)


@pytest.fixture
def workload(vision: Department, pool: Pool) -> Workload:
    created = workload_of(vision, pool, make.member(vision))
    Claim.objects.update(placement=[{"pod": 0, "node": "a100-n1", "cards": [0]}])
    return created


def test_consistent_database_has_no_violations(workload: Workload, capsys: Any) -> None:
    call_command("check_invariants")
    assert "all invariants hold" in capsys.readouterr().out


def test_the_command_fails_with_a_line_for_each_violation(workload: Workload, capsys: Any) -> None:
    LedgerEntry.objects.all().delete()
    with pytest.raises(CommandError, match="1 violations"):
        call_command("check_invariants")
    assert "holds 1 units but the ledger has 0" in capsys.readouterr().err


def test_claim_that_overstays_its_deadline_is_a_violation(workload: Workload) -> None:
    now = timezone.now()
    Attempt.objects.update(grace=60)
    for minutes, tolerated in ((9, True), (12, False)):
        Claim.objects.update(state=ClaimState.LEAVING, leave_by=now - dt.timedelta(minutes=minutes))
        assert (violations() == []) is tolerated
    [found] = violations()
    assert "still has its capacity" in found
    Node.objects.update(held_back_by=[{"message": "not ready", "params": {}}])  # it can still run there, unseen
    assert violations() == []
    Node.objects.update(held_back_by=[])
    Cluster.objects.update(unreachable_since=now)
    assert violations() == []


def test_two_pods_on_one_card_are_a_violation(vision: Department, pool: Pool, workload: Workload) -> None:
    make.holding(vision, pool, own=1, placement=[{"pod": 0, "node": "a100-n1", "cards": [0]}])
    assert violations() == ["card 0 of a100-n1 holds 2 units and has 1"]


def test_more_pods_than_mig_instances_are_a_violation(vision: Department) -> None:
    mig = make.pool("mig", cards=1, unit="slice", units_per_card=8, mig="A100-80GB")
    Node.objects.filter(name="mig-n1").update(instances={"1g.10gb": 1})
    Card.objects.filter(pool=mig).update(units=8)
    for _ in range(2):
        make.holding(vision, mig, own=1, profile="1g.10gb", placement=[{"pod": 0, "node": "mig-n1", "cards": [0]}])
    assert violations() == ["2 pods use 1g.10gb on mig-n1, which has 1"]


def test_holding_more_than_the_pool_has_is_a_violation(vision: Department, pool: Pool) -> None:
    make.holding(vision, pool, own=5)
    assert violations() == ["5 card of a100 are held, and 4 are there"]


def test_promising_more_than_the_pool_has_is_a_violation(vision: Department, pool: Pool) -> None:
    Quota.objects.update(guaranteed=5)
    assert violations() == ["5 card of a100 are promised, and it has 4"]


def test_non_preemptible_claim_on_borrowed_cards_is_a_violation(vision: Department, pool: Pool) -> None:
    claim = make.holding(vision, pool, borrowed={None: 1}, preemptible=False)
    assert violations() == [f"{claim.public_id} is non-preemptible, but uses borrowed capacity"]


def test_leaving_for_an_ended_claim_is_a_violation(vision: Department, pool: Pool) -> None:
    gone = make.claim(vision, pool, 1, ClaimState.RELEASED)
    leaving = make.holding(vision, pool, own=1, state=ClaimState.LEAVING, preempted_for=gone)
    assert violations() == [f"{leaving.public_id} is leaving for {gone.public_id}, which has ended"]


def test_open_ledger_entry_of_a_released_claim_is_a_violation(workload: Workload) -> None:
    Claim.objects.update(state=ClaimState.RELEASED, released_at="2026-01-01T00:00Z")
    claim = Claim.objects.get()
    assert violations() == [
        f"the ledger still counts 1 units of {claim.public_id}, which has ended",
        f"{workload.public_id} is running and its claim is released",
    ]


def test_workload_state_that_contradicts_its_attempts_is_a_violation(workload: Workload) -> None:
    Workload.objects.update(state="succeeded")
    assert violations() == [f"{workload.public_id} is succeeded and has a live attempt"]
    Workload.objects.update(state="running")
    Attempt.objects.update(finished_at="2026-01-01T00:00Z")
    assert violations() == [
        f"{workload.public_id} is running and has 0 live attempts",
        f"w-{workload.public_id}-1 is over and its claim is holding",
    ]


def test_quarantine_and_mark_that_disagree_are_a_violation(pool: Pool) -> None:
    card = pool.cards.select_related("node").first()
    assert card is not None
    Card.objects.filter(pk=card.pk).update(quarantined=True)
    Quarantine.objects.create(node=card.node, why="fan")
    found = [line for line in map(str, violations()) if "quarantined" in line]
    assert sorted(found) == sorted(
        f"{place} is quarantined in one record and not in the other"
        for place in (card.node.name, f"{card.node.name}/{card.index}")
    )
    quarantines.mark(card.node)
    assert not [line for line in map(str, violations()) if "quarantined" in line]
