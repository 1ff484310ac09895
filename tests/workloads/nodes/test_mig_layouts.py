"""Cutting MIG cards anew: every layout that is possible, and the one that serves the queue best."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.mig_profiles import PRODUCTS
from workloads.nodes.modes import mig_layouts
from workloads.nodes.modes.mig_layouts import (
    Demand,
    Layout,
    fits_one_card,
    full_layouts,
    full_placements,
    layout_of,
    propose,
    propose_named,
    uniform_layout,
)

A100, A30 = "A100-80GB", "A30"
BALANCED = layout_of({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1})


def plain(product: str) -> list[str]:
    return [name for name, profile in PRODUCTS[product].items() if not profile.media]


def test_an_a100_has_nineteen_full_placements_without_the_double_1g_and_an_a30_five() -> None:
    assert len(full_placements(A100, [p for p in plain(A100) if p != "1g.20gb"])) == 19
    assert len(full_placements(A30, plain(A30))) == 5


def test_with_the_double_1g_there_are_seventy_eight_of_thirty_eight_kinds() -> None:
    assert len(full_placements(A100, plain(A100))) == 78
    assert len(full_layouts(A100)) == 38


@pytest.mark.parametrize("product", PRODUCTS)
def test_no_placement_overlaps_and_nothing_can_be_added(product: str) -> None:
    table = PRODUCTS[product]
    for places in full_placements(product, table):
        covered = [s for name, start in places for s in range(start, start + table[name].size)]
        assert len(covered) == len(set(covered))
        assert sum(table[name].media for name, _ in places) <= 1
        for name, profile in table.items():
            for start in profile.starts:
                free = not set(range(start, start + profile.size)) & set(covered)
                second = profile.media and any(table[other].media for other, _ in places)
                assert not free or second, (places, name, start)


def test_what_the_guide_forbids_may_not_stand() -> None:
    assert fits_one_card(A100, BALANCED)
    assert fits_one_card(A100, layout_of({"4g.40gb": 1, "3g.40gb": 1}))
    assert not fits_one_card(A100, layout_of({"3g.40gb": 2, "1g.10gb": 1}))
    assert not fits_one_card(A100, layout_of({"4g.40gb": 2}))
    assert not fits_one_card(A100, layout_of({"1g.10gb": 8}))
    assert not fits_one_card(A100, layout_of({"9g": 1}))


def test_two_waiting_3g_cut_one_card_in_halves_and_leave_the_others_alone() -> None:
    sevens = layout_of({"1g.10gb": 7})
    found = propose(A100, (sevens, sevens), [Demand("3g.40gb", inside=2), Demand("1g.10gb", inside=5)])
    assert (found.inside, len(found.changed)) == (13, 1)
    assert sorted(found.layouts) == sorted([sevens, layout_of({"3g.40gb": 2})])


def test_a_claim_inside_its_guarantee_outweighs_more_of_those_that_borrow() -> None:
    found = propose(A100, (BALANCED,), [Demand("7g.80gb", inside=1), Demand("1g.10gb", other=7)])
    assert found.layouts == (layout_of({"7g.80gb": 1}),)
    assert (found.inside, found.other) == (8, 0)


def test_an_empty_queue_changes_nothing() -> None:
    found = propose(A100, (BALANCED, BALANCED), [])
    assert (found.layouts, found.changed) == ((BALANCED, BALANCED), ())


def test_of_named_configurations_the_best_for_all_cards_is_taken() -> None:
    named = {f"all-{p}": uniform_layout(A100, p) for p in plain(A100)} | {"all-balanced": BALANCED}
    found = propose_named(A100, (BALANCED,) * 8, [Demand("2g.20gb", inside=20)], named)
    assert (found.config, found.instances) == ("all-2g.20gb", {"2g.20gb": 24})
    assert propose_named(A100, (BALANCED,), [], named).config == "all-balanced"
    with pytest.raises(ValueError, match="no configuration"):
        propose_named(A100, (BALANCED,), [], {})


def test_the_media_engine_is_cut_only_where_it_is_asked_for() -> None:
    found = propose(A30, (layout_of({"4g.24gb": 1}),), [Demand("1g.6gb+me", inside=1), Demand("1g.6gb", inside=3)])
    assert found.instances == {"1g.6gb": 3, "1g.6gb+me": 1}
    assert all("+me" not in name for layout in full_layouts(A30) for name, _ in layout)


demands = st.lists(
    st.builds(Demand, st.sampled_from(plain(A30)), st.integers(0, 3), st.integers(0, 3)),
    max_size=3,
    unique_by=lambda each: each.profile,
)


@settings(max_examples=60, deadline=None)
@given(demands, st.lists(st.sampled_from(full_layouts(A30)), min_size=1, max_size=3))
def test_no_other_choice_of_layouts_serves_more(demand: list[Demand], cards: list[Layout]) -> None:
    """Against every combination, on the product small enough to try them all."""
    found = propose(A30, cards, demand)
    assert all(fits_one_card(A30, layout) for layout in found.layouts)
    best = max(worth(total(choice), demand) for choice in itertools.product(full_layouts(A30), repeat=len(cards)))
    assert (found.inside, found.other) == best == worth(total(found.layouts), demand)


def total(layouts: tuple[Layout, ...]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for layout in layouts:
        counts.update(dict(layout))
    return counts


def worth(counts: Counter[str], demand: list[Demand]) -> tuple[int, int]:
    inside = sum(PRODUCTS[A30][d.profile].size * min(counts[d.profile], d.inside) for d in demand)
    other = sum(PRODUCTS[A30][d.profile].size * min(max(0, counts[d.profile] - d.inside), d.other) for d in demand)
    return inside, other


def test_a_card_that_is_not_cut_yet_is_cut_as_the_queue_wants() -> None:
    made = mig_layouts.propose("A30", [()], [mig_layouts.Demand("2g.12gb", inside=2)])
    assert made.layouts == ((("2g.12gb", 2),),)


def test_of_too_many_states_the_most_promising_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mig_layouts, "STATES", 1)
    demand = [mig_layouts.Demand("1g.6gb", inside=4), mig_layouts.Demand("2g.12gb", other=2)]
    assert mig_layouts.propose("A30", [(), ()], demand).inside == 4
