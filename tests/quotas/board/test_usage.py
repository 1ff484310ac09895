"""The usage of a department as its board shows it."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from quotas.board import usage, usage_now
from quotas.models import ClaimState, Node, UserCap
from tests import builders as make

pytestmark = pytest.mark.django_db


def usage_of(department, pool):
    [row] = usage.department_usage(department, [pool], seen=[department.pk])
    return row


def test_a_department_without_quota_or_claims_has_no_row():
    assert usage.department_usage(make.department(), [make.pool()]) == []


def test_own_borrowed_and_lent_come_from_the_open_ledger():
    pool = make.pool(cards=16)
    vision, nlp, speech = make.department("vision"), make.department("nlp"), make.department("speech")
    make.quota(vision, pool, 8, borrow_limit=4)
    make.quota(nlp, pool, 4)
    make.quota(speech, pool, 2)
    make.holding(vision, pool, own=8, borrowed={nlp: 2, None: 1})
    make.holding(speech, pool, own=1)
    row = usage_of(vision, pool)
    assert (row.own, row.borrowed, row.lent, row.idle) == (8, 3, 0, 0)
    assert row.borrowed_from == {"nlp": 2, "": 1}
    assert row.ceiling == 12
    assert row.free_now == 1  # the borrow limit binds, although 4 cards are free
    assert row.borrow_left == 1
    lender = usage_of(nlp, pool)
    assert (lender.own, lender.lent, lender.lent_to, lender.idle) == (0, 2, {"vision": 2}, 2)
    assert lender.free_now == 4


def test_closed_ledger_entry_no_longer_counts():
    pool, vision = make.pool(), make.department()
    make.quota(vision, pool, 8)
    done = make.holding(vision, pool, own=4)
    done.ledger.update(ended_at=timezone.now())
    done.state, done.released_at = ClaimState.RELEASED, timezone.now()
    done.save()
    row = usage_of(vision, pool)
    assert (row.own, row.free_now, row.per_user) == (0, 8, ())


def test_leaving_units_count_as_used_and_as_leaving():
    pool, vision, nlp = make.pool(), make.department(), make.department("nlp")
    make.quota(nlp, pool, 8)
    make.quota(vision, pool, 0)
    asking = make.claim(nlp, pool, 6, reserved={"units": 6, "places": []})
    make.holding(vision, pool, borrowed={nlp: 4}, state=ClaimState.LEAVING, preempted_for=asking)
    row = usage_of(vision, pool)
    assert (row.borrowed, row.leaving, row.free_now) == (4, 4, 2)  # 4 cards are free, 2 of them wait for nlp's claim
    owner = usage_of(nlp, pool)
    assert (owner.held, owner.queue_len, owner.queue_units, owner.lent) == (6, 1, 6, 4)
    assert owner.free_now == 2
    assert (owner.coming, owner.held_here, owner.idle) == (4, 2, 2)  # the 4 it lent are counted as lent, not twice


def test_a_recall_holds_only_what_its_department_does_not_use_yet():
    pool, nlp, other = make.pool(), make.department("nlp"), make.department()
    make.quota(nlp, pool, 6)
    make.quota(other, pool, 2)
    now = timezone.now()
    make.holding(nlp, pool, own=1, started_at=now - dt.timedelta(hours=2))
    make.claim(nlp, pool, 4, ClaimState.HOLDING, pods=0, started_at=now - dt.timedelta(hours=1))
    assert usage_of(nlp, pool).held == 4
    assert usage_of(other, pool).free_now == 3
    make.holding(nlp, pool, own=3, started_at=now)
    row = usage_of(nlp, pool)
    assert (row.held, row.own, row.free_now) == (1, 4, 4)
    assert usage_of(other, pool).free_now == 3  # using recalled units takes nothing more from the pool


def test_users_are_sorted_by_use_and_shown_with_their_cap():
    pool, vision = make.pool(), make.department("vision")
    make.quota(vision, pool, 3)
    UserCap.objects.create(department=vision, pool=pool, units=5)
    alice, bob = make.member(vision, username="alice"), make.member(vision, username="bob")
    make.holding(vision, pool, own=1, user=alice)
    make.holding(vision, pool, own=2, borrowed={None: 2}, user=bob)
    rows = usage_of(vision, pool).per_user
    assert [(row.user.username, row.own, row.borrowed, row.cap) for row in rows] == [
        ("bob", 2, 2, 5),
        ("alice", 1, 0, 5),
    ]


def test_a_loan_between_two_teams_is_own_use_of_their_department():
    pool = make.pool()
    vision, nlp = make.department("vision"), make.department("nlp")
    left, right = make.department("left", parent=vision), make.department("right", parent=vision)
    make.quota(left, pool, 2)
    make.quota(right, pool, 3)
    make.quota(nlp, pool, 3)
    make.holding(left, pool, own=2, borrowed={right: 1, nlp: 1})
    whole = usage_of(vision, pool)
    assert (whole.guaranteed, whole.own, whole.borrowed, whole.borrowed_from) == (5, 3, 1, {"nlp": 1})
    assert whole.lent == 0
    assert usage_of(left, pool).borrowed == 2
    assert usage_of(right, pool).lent_to == {"left": 1}


def test_units_above_the_lend_limit_are_not_free_for_others():
    pool, vision, nlp = make.pool(), make.department("vision"), make.department("nlp")
    make.quota(vision, pool, 6, lend_limit=2)
    make.quota(nlp, pool, 2)
    assert usage_of(nlp, pool).free_now == 4
    assert usage_of(nlp, pool).ceiling == 4
    assert usage_of(vision, pool).free_now == 8


def test_unavailable_cards_are_not_free_but_count_in_the_ceiling():
    pool, vision = make.pool(cards=8, nodes=2), make.department("vision")
    make.quota(vision, pool, 8)
    Node.objects.filter(name=f"{pool.slug}-n2").update(held_back="mig.config failed")
    row = usage_of(vision, pool)
    assert (row.free_now, row.ceiling) == (4, 8)


def test_a_fixed_mig_geometry_counts_its_instances():
    pool, vision = make.pool("mig", cards=2, unit="slice", units_per_card=8, mig="A100-80GB"), make.department("vision")
    make.quota(vision, pool, 4)
    Node.objects.update(instances={"1g.10gb": 14})
    assert usage_of(vision, pool).free_now == 14


def test_the_number_of_queries_does_not_grow(django_assert_num_queries):
    pools = [make.pool(cards=32) for _ in range(3)]
    departments = [make.department() for _ in range(8)]
    for pool in pools:
        for department in departments:
            make.quota(department, pool, 4)
            make.holding(department, pool, own=1, user=make.member(department))
    with django_assert_num_queries(9):
        live = usage_now.read()
        rows = [row for department in live.departments for row in usage.usages(live, department)]
    assert len(rows) == 24
    with django_assert_num_queries(8):
        usage.department_usage(departments[0], pools)
