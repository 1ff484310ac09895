"""The card map: who uses each card, what still fits, and what is hidden from non-members."""

from __future__ import annotations

import pytest

from quotas.board.card_map import pool_overview
from quotas.board.usage_now import read
from quotas.models import Card, ClaimState, Node
from tests import builders as make

pytestmark = pytest.mark.django_db


def on(node, *cards):
    return [{"pod": 0, "node": node, "cards": list(cards)}]


def test_cells_distinguish_own_borrowed_and_leaving_units():
    pool = make.pool("a100", cards=8, nodes=2)
    vision, nlp = make.department("vision"), make.department("nlp")
    make.quota(vision, pool, 2)
    make.quota(nlp, pool, 4)
    make.holding(vision, pool, own=2, borrowed={nlp: 1}, placement=on("a100-n1", 0, 1, 2))
    make.holding(nlp, pool, own=1, placement=on("a100-n2", 3), state=ClaimState.LEAVING)
    [view] = pool_overview(read([pool]))
    kinds = {(row.node.name, cell.card.index): [s.kind for s in cell.shares] for row in view.rows for cell in row.cells}
    assert kinds["a100-n1", 0] == kinds["a100-n1", 1] == ["own"]
    assert kinds["a100-n1", 2] == ["borrowed"]
    assert kinds["a100-n2", 3] == ["leaving"]
    assert (view.free, view.largest, view.cards_free, view.own, view.borrowed) == (4, 3, 4, 3, 1)


def test_use_of_the_parents_guarantee_counts_as_own():
    pool = make.pool("a100")
    lab, other = make.department("lab"), make.department("other")
    team = make.department("team", parent=lab)
    make.quota(lab, pool, 2)
    make.holding(team, pool, borrowed={lab: 2, other: 1}, placement=on("a100-n1", 0, 1, 2))
    [view] = pool_overview(read([pool]))
    assert [cell.shares[0].kind for cell in view.rows[0].cells if cell.shares] == ["own", "own", "borrowed"]
    assert (view.own, view.borrowed) == (2, 1)


def test_names_are_shown_only_for_visible_departments():
    pool, vision, nlp = make.pool("a100"), make.department("vision"), make.department("nlp")
    alice = make.member(vision, username="alice")
    make.holding(vision, pool, own=1, user=alice, name="secret", workload="w1", placement=on("a100-n1", 0))
    make.holding(nlp, pool, own=1, user=alice, name="hidden", workload="w2", placement=on("a100-n1", 1))
    [view] = pool_overview(read([pool]), seen={vision.pk})
    shown, hidden = view.rows[0].cells[0].shares[0], view.rows[0].cells[1].shares[0]
    assert (shown.name, shown.workload, shown.user) == ("secret", "w1", alice)
    assert (hidden.name, hidden.workload, hidden.user, hidden.department) == ("", "", None, nlp)


def test_a_shared_card_is_split_by_units():
    pool, vision = make.pool("t4", cards=2, units_per_card=16000, unit="MiB"), make.department()
    make.quota(vision, pool, 32000)
    make.holding(vision, pool, own=6000, placement=on("t4-n1", 0))
    make.holding(vision, pool, own=4000, placement=on("t4-n1", 0))
    [view] = pool_overview(read([pool]))
    assert [cell.free for cell in view.rows[0].cells] == [6000, 16000]
    assert (view.free, view.largest) == (22000, 16000)


def test_unhealthy_cards_and_held_back_nodes_count_as_missing_capacity():
    pool, vision = make.pool("a100", cards=8, nodes=2), make.department()
    make.quota(vision, pool, 8)
    Node.objects.filter(name="a100-n1").update(held_back="mig.config failed")
    Card.objects.filter(node__name="a100-n2", index=0).update(healthy=False)
    [view] = pool_overview(read([pool]))
    assert (view.present, view.free, view.largest, view.missing, view.short_by) == (3, 3, 3, 5, 5)


def test_units_without_a_known_card_are_counted_as_unplaced():
    pool, vision = make.pool(), make.department()
    make.holding(vision, pool, borrowed={None: 3})
    [view] = pool_overview(read([pool]))
    assert (view.unplaced, view.free, view.largest) == (3, 5, 5)


def test_mig_card_shows_each_instance_at_its_first_slice():
    pool = make.pool("mig", cards=1, unit="slice", units_per_card=8, sharing="mig", mig="A100-80GB")
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    make.holding(
        vision, pool, own=4, profile="3g.40gb", placement=[{"pod": 0, "node": "mig-n1", "cards": [0], "start": 4}]
    )
    [view] = pool_overview(read([pool]))
    [cell] = view.rows[0].cells
    assert [(box.kind, box.x, box.width) for box in cell.boxes] == [("own", "50.00", "48.00")]
    assert len(cell.slices) == 7


def test_fixed_mig_instances_are_counted_by_profile_because_their_card_is_unknown():
    pool = make.pool("mig", cards=2, unit="slice", units_per_card=8, sharing="mig", mig="A100-80GB")
    Node.objects.update(instances={"1g.10gb": 4, "3g.40gb": 2})
    vision, nlp = make.department("vision"), make.department("nlp")
    make.quota(vision, pool, 8)
    place = [{"pod": 0, "node": "mig-n1", "cards": []}]
    make.holding(vision, pool, own=4, profile="3g.40gb", placement=place, name="secret")
    make.holding(nlp, pool, borrowed={vision: 4}, profile="3g.40gb", placement=place, name="hidden")
    [view] = pool_overview(read([pool]), seen={vision.pk})
    found = {each.profile: each for each in view.rows[0].instances}
    assert [(found[name].total, found[name].free) for name in ("1g.10gb", "3g.40gb")] == [(4, 4), (2, 0)]
    assert sorted((s.kind, s.name) for s in found["3g.40gb"].shares) == [("borrowed", ""), ("own", "secret")]
    assert (view.largest, view.unplaced, view.cards_free) == (1, 0, 0)


def test_limited_compute_has_its_own_bar():
    pool = make.pool("hami", cards=1, unit="MiB", units_per_card=16000)
    Card.objects.update(cores=100)
    vision = make.department("vision")
    make.quota(vision, pool, 16000)
    make.holding(vision, pool, own=12000, cores_per_pod=75, placement=on("hami-n1", 0))
    [view] = pool_overview(read([pool]))
    [cell] = view.rows[0].cells
    assert [(box.x, box.width) for box in cell.core_boxes] == [("2.00", "72.00")]


def test_largest_request_that_fits_accounts_for_cpu_memory_and_pods() -> None:
    pool = make.pool("a100", cards=16, nodes=2, cpu_per_card=8_000, memory_per_card=64_000)
    Node.objects.update(cpu_milli=64_000, memory_mib=512_000, pods=10)
    vision = make.department("vision")
    make.quota(vision, pool, 16)
    for node in ("a100-n1", "a100-n2"):
        make.holding(vision, pool, own=1, placement=on(node, 0), cpu_milli=40_000)
    [view] = pool_overview(read([pool]))
    assert (view.free, view.cards_free, view.largest) == (14, 14, 3)
    Node.objects.filter(name="a100-n1").update(outside={"memory_mib": 400_000})
    Node.objects.filter(name="a100-n2").update(outside={"pods": 9})
    [view] = pool_overview(read([pool]))
    assert view.largest == 1
