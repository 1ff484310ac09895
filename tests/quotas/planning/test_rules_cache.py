"""The rules that a process caches always match their rows, whatever changed them; unchanged rules are not read again."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.models import Department
from quotas.engine import types as e
from quotas.models import Card, Claim, ClaimState, LedgerEntry, Node, Pool
from quotas.planning import loan_entries, rules_cache
from quotas.planning.run_pass import run_pass
from quotas.planning.snapshot import load_snapshot
from tests import builders as make

NOW = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def postgresql(db: None) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL: SQLite has no stamps and reads the rules each time")
    return


@pytest.fixture
def pool(db: None) -> Pool:
    return make.pool("a100", cards=32, nodes=4, notice=60, grace=5)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 32)
    return vision


def loaded(pool: Pool) -> e.Snapshot:
    return load_snapshot(pool.group, now=NOW)


def read_anew(pool: Pool) -> e.Snapshot:
    rules_cache._last.clear()
    return loaded(pool)


CHANGES: dict[str, Callable[[Pool], object]] = {
    "a card is quarantined": lambda pool: Card.objects.filter(index=3).update(healthy=False),
    "a card leaves the pool": lambda pool: Card.objects.filter(node__name="a100-n2", index=7).update(pool=None),
    "a node is drained": lambda pool: Node.objects.filter(name="a100-n3").update(drained=True),
    "a node gets a domain": lambda pool: Node.objects.filter(name="a100-n1").update(domain="rack-1"),
    "a node is removed": lambda pool: Node.objects.filter(name="a100-n4").delete(),
    "a claim is released": lambda pool: Claim.objects.filter(name="one").update(
        state=ClaimState.RELEASED, released_at=NOW
    ),
    "a claim has checkpointed": lambda pool: Claim.objects.filter(name="two").update(checkpointed_at=NOW),
    "a claim is submitted": lambda pool: make.claim(Department.objects.get(), pool, 2, submitted_at=NOW, queued_at=NOW),
    "the pool's minimum runtime changes": lambda pool: Pool.objects.update(min_runtime=77),
    "a department is paused": lambda pool: Department.objects.update(paused=True),
}


def fill(pool: Pool, vision: Department) -> None:
    for name in ("one", "two", "three"):
        make.claim(vision, pool, 2, ClaimState.HOLDING, name=name, submitted_at=NOW, queued_at=NOW)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_by_the_next_pass(change: str, pool: Pool, vision: Department) -> None:
    fill(pool, vision)
    before = loaded(pool)
    CHANGES[change](pool)
    after = loaded(pool)
    assert after != before
    assert after == read_anew(pool)


def test_many_changes_in_any_order_and_in_one_transaction_are_seen(pool: Pool, vision: Department) -> None:
    fill(pool, vision)
    chance = random.Random(7)
    for _ in range(40):
        with transaction.atomic():
            for change in chance.sample([c for c in CHANGES if c != "a node is removed"], 2):
                CHANGES[change](pool)
                assert loaded(pool) == loaded(pool)
                Claim.objects.filter(name="three").update(priority=chance.randrange(5))
        remembered = loaded(pool)
        assert remembered == read_anew(pool)


def test_a_change_that_was_rolled_back_is_forgotten(pool: Pool, vision: Department) -> None:
    fill(pool, vision)
    before = loaded(pool)
    with transaction.atomic():
        Claim.objects.filter(name="one").update(priority=9)
        assert loaded(pool) != before
        transaction.set_rollback(True)
    assert loaded(pool) == before == read_anew(pool)


def test_unchanged_rules_are_not_read_again(pool: Pool, vision: Department) -> None:
    fill(pool, vision)
    loaded(pool)
    Claim.objects.filter(name="one").update(priority=1)
    with CaptureQueriesContext(connection) as queries:
        loaded(pool)
    stamp, claims = [query["sql"] for query in queries]
    assert "xmin" in stamp
    assert '"quotas_claim"."units_per_pod"' in claims


@pytest.mark.django_db(transaction=True)
def test_number_of_statements_of_a_pass_does_not_grow_with_the_claims(pool: Pool, vision: Department) -> None:
    counts = []
    for _ in range(3):
        make.claim(vision, pool, 1)
        with CaptureQueriesContext(connection) as queries:
            run_pass(group_id=pool.group_id)
        counts.append(len([query for query in queries if query["sql"].split()[0] in {"SELECT", "INSERT", "UPDATE"}]))
        for _ in range(4):
            make.claim(vision, pool, 1)
        run_pass(group_id=pool.group_id)
    assert counts[0] <= 20, counts  # reads the rules for the first time
    assert max(counts[1:]) <= 15, counts


@pytest.mark.django_db(transaction=True)
def test_after_a_pass_the_ledger_has_nothing_to_settle(pool: Pool, vision: Department) -> None:
    for step in range(4):
        make.claim(vision, pool, 3)
        run_pass(group_id=pool.group_id)
        released = Claim.objects.filter(state=ClaimState.HOLDING).order_by("?").first()
        if step % 2 and released is not None:
            Claim.objects.filter(pk=released.pk).update(state=ClaimState.RELEASED, released_at=timezone.now())
            run_pass(group_id=pool.group_id)
        held = sum(claim.units_per_pod for claim in Claim.objects.filter(state=ClaimState.HOLDING))
        assert sum(LedgerEntry.objects.filter(ended_at=None).values_list("units", flat=True)) == held
        assert loan_entries.settle(pool.group, now=timezone.now()) == 0
