"""What a planning pass reads: every row as stored, in a constant number of queries; work on absent capacity takes no other."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.models import Department
from quotas.board import usage_now
from quotas.lending import windows
from quotas.lending.schedule import Window
from quotas.models import Card, Claim, ClaimState, Node, Pool, UserCap
from quotas.planning import rules_cache
from quotas.planning.run_pass import run_pass
from quotas.planning.snapshot import claim_of, load_snapshot
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)
NIGHT = windows.to_json(Window((0, 1, 2, 3, 4, 5, 6), 9 * 60, 18 * 60, 2))


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8, nodes=2, min_runtime=30)


def grow(pool: Pool, name: str) -> Department:
    """Adds a department with everything: a quota with a window, a cap, a node, a card, and claims in every state."""
    parent = make.department(f"{name}-parent")
    department = make.department(name, parent=parent)
    make.quota(department, pool, 1, windows=[NIGHT], zone="Asia/Shanghai")
    UserCap.objects.create(department=department, pool=pool, units=4)
    node = Node.objects.create(cluster=pool.group.cluster, name=f"{name}-n")
    Card.objects.create(node=node, pool=pool, index=0, units=1)
    now = timezone.now()
    holder = make.claim(department, pool, 2, user=make.user(), reserved={"units": 2, "places": []}, notice=5)
    make.claim(
        department, pool, 1, ClaimState.LEAVING, preempted_for=holder, leave_by=now, placement=on(f"{name}-n", 0)
    )
    make.claim(department, pool, 1, ClaimState.HOLDING, checkpointed_at=now, min_runtime=60, grace=7, priority=-1)
    make.claim(department, pool, 1, backoff_until=now, max_runtime=9, own_only=True, cpu_milli=5)
    return department


def on(node: str, *cards: int) -> list[dict[str, object]]:
    return [{"pod": 0, "node": node, "cards": list(cards)}]


def queries(pool: Pool) -> int:
    rules_cache._last.clear()  # as in a process that has just started
    with CaptureQueriesContext(connection) as seen:
        load_snapshot(pool.group, now=timezone.now())
    return len(seen)


def test_the_number_of_queries_does_not_grow(pool: Pool) -> None:
    grow(pool, "one")
    few = queries(pool)
    for n in range(12):
        grow(pool, f"more-{n}")
    assert queries(pool) == few


def test_every_claim_is_read_as_stored(pool: Pool) -> None:
    grow(pool, "one")
    rows = {claim.public_id: claim for claim in Claim.objects.all()}
    read = load_snapshot(pool.group, now=timezone.now()).claims
    assert {claim.id: claim for claim in read} == {id: claim_of(row) for id, row in rows.items()}
    assert [claim.id for claim in read] == sorted(rows)
    assert {claim.min_runtime for claim in read} == {30, 60}


def test_work_on_a_drained_node_takes_no_capacity_of_other_nodes(pool: Pool) -> None:
    vision, nlp = make.department("vision"), make.department("nlp")
    for department in (vision, nlp):
        make.quota(department, pool, 4)
    make.holding(nlp, pool, 4, placement=on("a100-n1", 0, 1, 2, 3))
    Node.objects.filter(name="a100-n1").update(drained=True)
    now = usage_now.read([pool])
    assert (usage_now.free(now, pool.pk), usage_now.available(now, vision.pk, pool.pk), now.present(pool.pk)) == (
        4,
        4,
        4,
    )
    claim = make.claim(vision, pool, 4)
    run_pass(group_id=pool.group_id)
    claim.refresh_from_db()
    assert (claim.state, claim.placement) == (ClaimState.HOLDING, on("a100-n2", 0, 1, 2, 3))
    assert usage_now.free(usage_now.read([pool]), pool.pk) == 0


def test_work_on_an_unhealthy_card_takes_no_other_card(pool: Pool) -> None:
    nlp = make.department("nlp")
    make.quota(nlp, pool, 8)
    make.holding(nlp, pool, 1, placement=on("a100-n1", 0))
    Card.objects.filter(node__name="a100-n1", index=0).update(healthy=False)
    now = usage_now.read([pool])
    assert (usage_now.free(now, pool.pk), now.present(pool.pk)) == (7, 7)
    claim = make.claim(nlp, pool, 3)
    run_pass(group_id=pool.group_id)
    claim.refresh_from_db()
    assert (claim.state, claim.placement) == (ClaimState.HOLDING, on("a100-n1", 1, 2, 3))
