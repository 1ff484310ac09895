"""What a planning pass stores: answers, the decision log, the ledger."""

from __future__ import annotations

import datetime as dt
import zlib
from typing import Any

import orjson
import pytest
from django.db import connection
from django.utils import timezone

from portal.models import Department, Event
from portal.notify.events import QUEUE_MOVED
from quotas.board.invariants import violations
from quotas.engine.snapshot_json import parse_snapshot, snapshot_to_json
from quotas.models import Claim, ClaimState, Decision, LedgerEntry, PlanPass, Pool, PoolGroup, UsageHour
from quotas.planning import run_pass as passes
from quotas.planning.claims import release
from quotas.planning.loan_entries import settle
from quotas.planning.run_pass import run_pass
from quotas.planning.snapshot import load_snapshot
from quotas.spending.metering import sum_hours
from quotas.tasks import plan_all
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8, notice=60, grace=5)


def reloaded(claim: Claim) -> Claim:
    claim.refresh_from_db()
    return claim


def test_admitted_claim_stores_its_placement_and_the_pools_notice_and_grace(vision: Department, pool: Pool) -> None:
    claim = make.claim(vision, pool, 3)
    run_pass(group_id=pool.group_id)
    assert (reloaded(claim).state, claim.notice, claim.grace, claim.own) == (ClaimState.HOLDING, 60, 5, 3)
    assert claim.placement == [{"pod": 0, "node": "a100-n1", "cards": [0, 1, 2]}]


def test_second_pass_without_a_change_logs_no_decision(vision: Department, pool: Pool) -> None:
    make.claim(vision, pool, 3)
    make.claim(vision, pool, 8)
    run_pass(group_id=pool.group_id)
    before = list(Decision.objects.values_list("kind", flat=True))
    run_pass(group_id=pool.group_id)
    assert list(Decision.objects.values_list("kind", flat=True)) == before


def test_the_logged_snapshot_is_the_one_decided_on(vision: Department, pool: Pool) -> None:
    make.claim(vision, pool, 3)
    now = timezone.now()
    expected = snapshot_to_json(load_snapshot(pool.group, now=now))
    run_pass(group_id=pool.group_id, now=now)
    kept = orjson.loads(zlib.decompress(PlanPass.objects.get().snapshot))
    assert kept == orjson.loads(orjson.dumps(expected))
    assert parse_snapshot(kept) == parsed_after_a_round_trip(kept)


def parsed_after_a_round_trip(data: Any) -> Any:
    return parse_snapshot(orjson.loads(orjson.dumps(snapshot_to_json(parse_snapshot(data)))))


def test_reclaim_recalls_the_victim_and_reserves_what_it_releases(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    victim = make.claim(nlp, pool, 8)
    run_pass(group_id=pool.group_id)
    owner = make.claim(vision, pool, 4)
    now = timezone.now()
    run_pass(group_id=pool.group_id, now=now)
    assert reloaded(victim).state == ClaimState.LEAVING
    assert victim.leave_by == now + dt.timedelta(seconds=60)
    assert victim.preempted_for == owner
    assert reloaded(owner).reserved is not None
    late = make.claim(nlp, pool, 4, priority=100)
    victim.state, victim.released_at = ClaimState.RELEASED, now
    victim.save()
    run_pass(group_id=pool.group_id)
    assert (reloaded(owner).state, reloaded(late).state) == (ClaimState.HOLDING, ClaimState.HOLDING)
    assert reloaded(owner).reserved is None


def test_claim_that_leaves_for_another_reason_is_not_held_for_the_waiting_claim(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    """Otherwise it could stay (on a node that is being emptied, for example) once the waiting claim fits elsewhere."""
    leaver, other = make.claim(nlp, pool, 4), make.claim(nlp, pool, 4)
    run_pass(group_id=pool.group_id)
    now = timezone.now()
    Claim.objects.filter(pk=leaver.pk).update(state=ClaimState.LEAVING, leave_by=now + dt.timedelta(seconds=60))
    Claim.objects.filter(pk=other.pk).update(preemptible=False)
    owner = make.claim(vision, pool, 4)
    run_pass(group_id=pool.group_id, now=now)
    assert reloaded(owner).decision == "reclaim"
    assert reloaded(leaver).preempted_for is None
    release(other, now=now)
    run_pass(group_id=pool.group_id, now=now)
    assert (reloaded(owner).state, reloaded(leaver).state) == (ClaimState.HOLDING, ClaimState.LEAVING)


def test_ledger_follows_the_loans_between_departments(vision: Department, nlp: Department, pool: Pool) -> None:
    borrower = make.claim(nlp, pool, 6)
    run_pass(group_id=pool.group_id)
    assert open_entries() == {("nlp", True, None, 4), ("nlp", False, "vision", 2)}
    Claim.objects.filter(pk=borrower.pk).update(units_per_pod=3)
    settle(pool.group, now=timezone.now())
    assert open_entries() == {("nlp", True, None, 3)}


def test_units_held_by_a_recall_are_not_lent(vision: Department, nlp: Department, pool: Pool) -> None:
    make.claim(vision, pool, 3, ClaimState.HOLDING, pods=0, started_at=timezone.now())
    make.claim(nlp, pool, 5, ClaimState.HOLDING)
    settle(pool.group, now=timezone.now())
    assert open_entries() == {("nlp", True, None, 4), ("nlp", False, "vision", 1)}
    make.claim(nlp, pool, 1, ClaimState.LEAVING)
    settle(pool.group, now=timezone.now())
    assert ("nlp", False, None, 1) in open_entries()  # vision has nothing idle left


def open_entries() -> set[tuple[str, bool, str | None, int]]:
    rows = LedgerEntry.objects.filter(ended_at=None)
    return set(rows.values_list("department__slug", "own", "lender__slug", "units"))


def test_metered_seconds_add_up_to_what_was_allocated(vision: Department, nlp: Department, pool: Pool) -> None:
    now = timezone.now().replace(minute=30, second=0, microsecond=0)
    claim = make.claim(nlp, pool, 6, submitted_at=now - dt.timedelta(hours=2))
    run_pass(group_id=pool.group_id, now=now - dt.timedelta(hours=2))
    LedgerEntry.objects.update(ended_at=now)
    sum_hours(now=now)
    sum_hours(now=now)
    rows = UsageHour.objects.filter(department=nlp)
    assert sum(row.own + row.borrowed for row in rows) == claim.units * 7200
    assert sum(row.lent for row in UsageHour.objects.filter(department=vision)) == 2 * 7200


def test_a_claim_cancelled_during_the_pass_stays_cancelled(
    vision: Department, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = make.claim(vision, pool, 3)
    from quotas.planning import run_pass as passes

    def loading(group: Any, **kwargs: Any) -> Any:
        snapshot = load_snapshot(group, **kwargs)
        Claim.objects.filter(pk=claim.pk).update(state=ClaimState.RELEASED, released_at=timezone.now())
        return snapshot

    monkeypatch.setattr(passes, "load_snapshot", loading)
    run_pass(group_id=pool.group_id)
    assert reloaded(claim).state == ClaimState.RELEASED
    assert not Decision.objects.exists()


def test_a_snapshot_takes_a_constant_number_of_queries(
    vision: Department, nlp: Department, pool: Pool, django_assert_num_queries: Any
) -> None:
    for _ in range(30):
        make.claim(vision, pool, 1)
    first, second = (9, 2) if connection.vendor == "postgresql" else (9, 9)  # quotas/planning/rules_cache.py
    with django_assert_num_queries(first):
        load_snapshot(pool.group, now=timezone.now())
    with django_assert_num_queries(second):
        load_snapshot(pool.group, now=timezone.now())


def test_admitting_many_claims_takes_few_statements_and_gives_each_its_own_card(
    vision: Department, nlp: Department, pool: Pool, django_assert_max_num_queries: Any
) -> None:
    claims = [make.claim(of, pool, 1) for of in (vision, nlp, vision, nlp, vision, nlp)]
    with django_assert_max_num_queries(26):
        run_pass(group_id=pool.group_id)
    places = []
    for claim in map(reloaded, claims):
        assert (claim.state, claim.own, claim.borrowed, claim.notice) == (ClaimState.HOLDING, 1, 0, 60)
        places += [(place["node"], *place["cards"]) for place in claim.placement]
        decision = claim.decisions.get()
        assert (decision.kind, decision.data["placement"][0]["cards"]) == ("admit", claim.placement[0]["cards"])
    assert len(set(places)) == 6


def test_claim_cancelled_while_the_pass_decides_is_not_admitted_with_the_others(
    vision: Department, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [make.claim(vision, pool, 1) for _ in range(6)]
    decide = passes.decide

    def cancelled_meanwhile(snapshot: Any) -> Any:
        Claim.objects.filter(pk=claims[2].pk).update(state=ClaimState.RELEASED, released_at=timezone.now())
        return decide(snapshot)

    monkeypatch.setattr(passes, "decide", cancelled_meanwhile)
    run_pass(group_id=pool.group_id)
    states = [reloaded(claim).state for claim in claims]
    assert states == [ClaimState.HOLDING] * 2 + [ClaimState.RELEASED] + [ClaimState.HOLDING] * 3
    assert not claims[2].decisions.exists()
    assert not LedgerEntry.objects.filter(claim=claims[2]).exists()
    assert LedgerEntry.objects.filter(ended_at=None).count() == 5


def test_long_queue_that_moves_up_takes_few_statements_and_one_event(
    vision: Department, nlp: Department, pool: Pool, django_assert_max_num_queries: Any
) -> None:
    first = make.claim(vision, pool, 8)
    queue = [make.claim(vision, pool, 8, workload=f"w{n}", submitted_at=timezone.now() - dt.timedelta(minutes=40 - n))
            for n in range(40)]  # fmt: skip
    Claim.objects.filter(pk=first.pk).update(submitted_at=timezone.now() - dt.timedelta(hours=1))
    with django_assert_max_num_queries(26):
        run_pass(group_id=pool.group_id)
    assert [reloaded(claim).position for claim in queue] == [*range(1, 41)]
    assert Event.objects.filter(kind="workload.queue").count() == Decision.objects.filter(kind="wait").count() == 40
    release(reloaded(first), now=timezone.now())
    Event.objects.all().delete()
    with django_assert_max_num_queries(26):
        run_pass(group_id=pool.group_id)
    assert [reloaded(claim).position for claim in queue] == [None, *range(1, 40)]
    assert set(reloaded(queue[20]).ahead) == {claim.public_id for claim in queue[1:11]}
    assert [(e.kind, e.department, e.workload) for e in Event.objects.all()] == [(QUEUE_MOVED, vision, "")]
    assert Decision.objects.filter(kind="wait").count() == 40


def test_claim_cancelled_while_the_pass_decides_is_not_updated_with_the_queue(
    vision: Department, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.holding(vision, pool, own=8)
    queue = [make.claim(vision, pool, 8, submitted_at=timezone.now() - dt.timedelta(minutes=9 - n)) for n in range(3)]
    decide = passes.decide

    def cancelled_meanwhile(snapshot: Any) -> Any:
        Claim.objects.filter(pk=queue[1].pk).update(state=ClaimState.RELEASED, released_at=timezone.now())
        return decide(snapshot)

    monkeypatch.setattr(passes, "decide", cancelled_meanwhile)
    run_pass(group_id=pool.group_id)
    assert [reloaded(claim).position for claim in queue] == [1, None, 3]
    assert not queue[1].decisions.exists()


def test_claim_started_by_a_clock_that_was_ahead_can_be_released(pool: Pool, vision: Department) -> None:
    """Its ledger entry begins in an hour: it ends when it begins, and the claim's units are free."""
    ahead = timezone.now() + dt.timedelta(hours=1)
    claim = make.holding(vision, pool, own=4, started_at=ahead)
    assert release(claim, now=timezone.now())
    entry = LedgerEntry.objects.get(claim=claim)
    assert entry.started_at == entry.ended_at == ahead
    assert not list(violations())


@pytest.mark.parametrize(("ahead", "planned"), [(-2, False), (-60, True), (3600, True)])
def test_beat_skips_groups_planned_just_now_unless_a_clock_was_ahead(
    pool: Pool, vision: Department, ahead: int, planned: bool
) -> None:
    claim = make.claim(vision, pool, 1)
    PoolGroup.objects.update(planned_at=timezone.now() + dt.timedelta(seconds=ahead))
    plan_all()
    claim.refresh_from_db()
    assert (claim.state == ClaimState.HOLDING) is planned
