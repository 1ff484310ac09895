"""What a pass writes down: answers, the decision log, the ledger."""

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


def again(claim: Claim) -> Claim:
    claim.refresh_from_db()
    return claim


def test_an_admitted_claim_holds_its_place_and_its_notice_is_frozen(vision: Department, pool: Pool) -> None:
    claim = make.claim(vision, pool, 3)
    run_pass(group_id=pool.group_id)
    assert (again(claim).state, claim.notice, claim.grace, claim.own) == (ClaimState.HOLDING, 60, 5, 3)
    assert claim.placement == [{"pod": 0, "node": "a100-n1", "cards": [0, 1, 2]}]


def test_a_second_pass_writes_nothing(vision: Department, pool: Pool) -> None:
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
    assert parse_snapshot(kept) == load_without_changes(kept)


def load_without_changes(data: Any) -> Any:
    return parse_snapshot(orjson.loads(orjson.dumps(snapshot_to_json(parse_snapshot(data)))))


def test_reclaim_tells_the_victim_and_holds_what_it_frees(vision: Department, nlp: Department, pool: Pool) -> None:
    victim = make.claim(nlp, pool, 8)
    run_pass(group_id=pool.group_id)
    owner = make.claim(vision, pool, 4)
    now = timezone.now()
    run_pass(group_id=pool.group_id, now=now)
    assert again(victim).state == ClaimState.LEAVING
    assert victim.leave_by == now + dt.timedelta(seconds=60)
    assert victim.held_for == owner
    assert again(owner).reserved is not None
    late = make.claim(nlp, pool, 4, priority=100)
    victim.state, victim.released_at = ClaimState.RELEASED, now
    victim.save()
    run_pass(group_id=pool.group_id)
    assert (again(owner).state, again(late).state) == (ClaimState.HOLDING, ClaimState.HOLDING)
    assert again(owner).reserved is None


def test_who_leaves_of_itself_is_not_held_for_whoever_waits_for_it(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    """Else it would be let stay as soon as that one found another place, on a node that is being emptied, say."""
    leaver, other = make.claim(nlp, pool, 4), make.claim(nlp, pool, 4)
    run_pass(group_id=pool.group_id)
    now = timezone.now()
    Claim.objects.filter(pk=leaver.pk).update(state=ClaimState.LEAVING, leave_by=now + dt.timedelta(seconds=60))
    Claim.objects.filter(pk=other.pk).update(preemptible=False)
    owner = make.claim(vision, pool, 4)
    run_pass(group_id=pool.group_id, now=now)
    assert again(owner).decision == "reclaim"
    assert again(leaver).held_for is None
    release(other, now=now)
    run_pass(group_id=pool.group_id, now=now)
    assert (again(owner).state, again(leaver).state) == (ClaimState.HOLDING, ClaimState.LEAVING)


def test_the_ledger_follows_who_borrows_from_whom(vision: Department, nlp: Department, pool: Pool) -> None:
    borrower = make.claim(nlp, pool, 6)
    run_pass(group_id=pool.group_id)
    assert open_entries() == {("nlp", True, None, 4), ("nlp", False, "vision", 2)}
    Claim.objects.filter(pk=borrower.pk).update(units_per_pod=3)
    settle(pool.group, now=timezone.now())
    assert open_entries() == {("nlp", True, None, 3)}


def test_what_a_recall_holds_is_lent_by_nobody(vision: Department, nlp: Department, pool: Pool) -> None:
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
    assert again(claim).state == ClaimState.RELEASED
    assert not Decision.objects.exists()


def test_a_snapshot_takes_a_constant_number_of_queries(
    vision: Department, nlp: Department, pool: Pool, django_assert_num_queries: Any
) -> None:
    for _ in range(30):
        make.claim(vision, pool, 1)
    first, again = (9, 2) if connection.vendor == "postgresql" else (9, 9)  # quotas/planning/rules_cache.py
    with django_assert_num_queries(first):
        load_snapshot(pool.group, now=timezone.now())
    with django_assert_num_queries(again):
        load_snapshot(pool.group, now=timezone.now())


def test_many_admitted_at_once_are_a_few_statements_and_each_has_its_own_place(
    vision: Department, nlp: Department, pool: Pool, django_assert_max_num_queries: Any
) -> None:
    claims = [make.claim(of, pool, 1) for of in (vision, nlp, vision, nlp, vision, nlp)]
    with django_assert_max_num_queries(26):
        run_pass(group_id=pool.group_id)
    places = []
    for claim in map(again, claims):
        assert (claim.state, claim.own, claim.borrowed, claim.notice) == (ClaimState.HOLDING, 1, 0, 60)
        places += [(place["node"], *place["cards"]) for place in claim.placement]
        decision = claim.decisions.get()
        assert (decision.kind, decision.data["placement"][0]["cards"]) == ("admit", claim.placement[0]["cards"])
    assert len(set(places)) == 6


def test_one_of_many_that_was_cancelled_while_the_pass_thought_keeps_its_own_fate(
    vision: Department, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [make.claim(vision, pool, 1) for _ in range(6)]
    think = passes.decide

    def cancelled_meanwhile(snapshot: Any) -> Any:
        Claim.objects.filter(pk=claims[2].pk).update(state=ClaimState.RELEASED, released_at=timezone.now())
        return think(snapshot)

    monkeypatch.setattr(passes, "decide", cancelled_meanwhile)
    run_pass(group_id=pool.group_id)
    states = [again(claim).state for claim in claims]
    assert states == [ClaimState.HOLDING] * 2 + [ClaimState.RELEASED] + [ClaimState.HOLDING] * 3
    assert not claims[2].decisions.exists()
    assert not LedgerEntry.objects.filter(claim=claims[2]).exists()
    assert LedgerEntry.objects.filter(ended_at=None).count() == 5


def test_a_long_line_that_moves_up_is_one_statement_and_one_event_for_its_department(
    vision: Department, nlp: Department, pool: Pool, django_assert_max_num_queries: Any
) -> None:
    first = make.claim(vision, pool, 8)
    line = [make.claim(vision, pool, 8, workload=f"w{n}", submitted_at=timezone.now() - dt.timedelta(minutes=40 - n))
            for n in range(40)]  # fmt: skip
    Claim.objects.filter(pk=first.pk).update(submitted_at=timezone.now() - dt.timedelta(hours=1))
    with django_assert_max_num_queries(26):
        run_pass(group_id=pool.group_id)
    assert [again(claim).position for claim in line] == [*range(1, 41)]
    assert Event.objects.filter(kind="workload.queue").count() == Decision.objects.filter(kind="wait").count() == 40
    release(again(first), now=timezone.now())
    Event.objects.all().delete()
    with django_assert_max_num_queries(26):
        run_pass(group_id=pool.group_id)
    assert [again(claim).position for claim in line] == [None, *range(1, 40)]
    assert set(again(line[20]).ahead) == {claim.public_id for claim in line[1:11]}
    assert [(e.kind, e.department, e.workload) for e in Event.objects.all()] == [(QUEUE_MOVED, vision, "")]
    assert Decision.objects.filter(kind="wait").count() == 40


def test_one_that_was_cancelled_while_the_pass_thought_is_not_written_to_though_the_line_moves_up(
    vision: Department, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.holding(vision, pool, own=8)
    line = [make.claim(vision, pool, 8, submitted_at=timezone.now() - dt.timedelta(minutes=9 - n)) for n in range(3)]
    think = passes.decide

    def cancelled_meanwhile(snapshot: Any) -> Any:
        Claim.objects.filter(pk=line[1].pk).update(state=ClaimState.RELEASED, released_at=timezone.now())
        return think(snapshot)

    monkeypatch.setattr(passes, "decide", cancelled_meanwhile)
    run_pass(group_id=pool.group_id)
    assert [again(claim).position for claim in line] == [1, None, 3]
    assert not line[1].decisions.exists()


def test_what_a_clock_that_was_ahead_began_ends_all_the_same(pool: Pool, vision: Department) -> None:
    """Its ledger entry begins in an hour; it ends where it began, and what it held is free."""
    ahead = timezone.now() + dt.timedelta(hours=1)
    claim = make.holding(vision, pool, own=4, started_at=ahead)
    assert release(claim, now=timezone.now())
    entry = LedgerEntry.objects.get(claim=claim)
    assert entry.started_at == entry.ended_at == ahead
    assert not list(violations())


@pytest.mark.parametrize(("ahead", "planned"), [(-2, False), (-60, True), (3600, True)])
def test_the_beat_leaves_out_what_was_planned_right_now_but_nothing_that_a_clock_ahead_planned(
    pool: Pool, vision: Department, ahead: int, planned: bool
) -> None:
    claim = make.claim(vision, pool, 1)
    PoolGroup.objects.update(planned_at=timezone.now() + dt.timedelta(seconds=ahead))
    plan_all()
    claim.refresh_from_db()
    assert (claim.state == ClaimState.HOLDING) is planned
