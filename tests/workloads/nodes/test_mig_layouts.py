"""MIG re-layout: every possible layout of a card, and the one that serves the queue best."""

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


def profiles_without_media(product: str) -> list[str]:
    return [name for name, profile in PRODUCTS[product].items() if not profile.media]


def test_a100_has_19_full_placements_without_1g_20gb_and_a30_has_5() -> None:
    assert len(full_placements(A100, [p for p in profiles_without_media(A100) if p != "1g.20gb"])) == 19
    assert len(full_placements(A30, profiles_without_media(A30))) == 5


def test_a100_with_1g_20gb_has_78_full_placements_and_38_layouts() -> None:
    assert len(full_placements(A100, profiles_without_media(A100))) == 78
    assert len(full_layouts(A100)) == 38


@pytest.mark.parametrize("product", PRODUCTS)
def test_full_placements_do_not_overlap_and_have_no_room_for_another_instance(product: str) -> None:
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


def test_layouts_that_nvidias_guide_forbids_do_not_fit() -> None:
    assert fits_one_card(A100, BALANCED)
    assert fits_one_card(A100, layout_of({"4g.40gb": 1, "3g.40gb": 1}))
    assert not fits_one_card(A100, layout_of({"3g.40gb": 2, "1g.10gb": 1}))
    assert not fits_one_card(A100, layout_of({"4g.40gb": 2}))
    assert not fits_one_card(A100, layout_of({"1g.10gb": 8}))
    assert not fits_one_card(A100, layout_of({"9g": 1}))


def test_two_waiting_3g_claims_change_one_card_and_leave_the_other_unchanged() -> None:
    sevens = layout_of({"1g.10gb": 7})
    found = propose(A100, (sevens, sevens), [Demand("3g.40gb", inside=2), Demand("1g.10gb", inside=5)])
    assert (found.inside, len(found.changed)) == (13, 1)
    assert sorted(found.layouts) == sorted([sevens, layout_of({"3g.40gb": 2})])


def test_claim_within_guarantee_outweighs_several_borrowers() -> None:
    found = propose(A100, (BALANCED,), [Demand("7g.80gb", inside=1), Demand("1g.10gb", other=7)])
    assert found.layouts == (layout_of({"7g.80gb": 1}),)
    assert (found.inside, found.other) == (8, 0)


def test_an_empty_queue_changes_nothing() -> None:
    found = propose(A100, (BALANCED, BALANCED), [])
    assert (found.layouts, found.changed) == ((BALANCED, BALANCED), ())


def test_best_named_configuration_for_all_cards_is_proposed() -> None:
    named = {f"all-{p}": uniform_layout(A100, p) for p in profiles_without_media(A100)} | {"all-balanced": BALANCED}
    found = propose_named(A100, (BALANCED,) * 8, [Demand("2g.20gb", inside=20)], named)
    assert (found.config, found.instances) == ("all-2g.20gb", {"2g.20gb": 24})
    assert propose_named(A100, (BALANCED,), [], named).config == "all-balanced"
    with pytest.raises(ValueError, match="no configuration"):
        propose_named(A100, (BALANCED,), [], {})


def test_media_engine_profiles_are_used_only_on_demand() -> None:
    found = propose(A30, (layout_of({"4g.24gb": 1}),), [Demand("1g.6gb+me", inside=1), Demand("1g.6gb", inside=3)])
    assert found.instances == {"1g.6gb": 3, "1g.6gb+me": 1}
    assert all("+me" not in name for layout in full_layouts(A30) for name, _ in layout)


demands = st.lists(
    st.builds(Demand, st.sampled_from(profiles_without_media(A30)), st.integers(0, 3), st.integers(0, 3)),
    max_size=3,
    unique_by=lambda each: each.profile,
)


@settings(max_examples=60, deadline=None)
@given(demands, st.lists(st.sampled_from(full_layouts(A30)), min_size=1, max_size=3))
def test_proposal_serves_as_much_demand_as_exhaustive_search(demand: list[Demand], cards: list[Layout]) -> None:
    """Compared with every combination of layouts, on a product small enough to try them all."""
    found = propose(A30, cards, demand)
    assert all(fits_one_card(A30, layout) for layout in found.layouts)
    best = max(
        served_slices(instance_counts(choice), demand)
        for choice in itertools.product(full_layouts(A30), repeat=len(cards))
    )
    assert (found.inside, found.other) == best == served_slices(instance_counts(found.layouts), demand)


def instance_counts(layouts: tuple[Layout, ...]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for layout in layouts:
        counts.update(dict(layout))
    return counts


def served_slices(counts: Counter[str], demand: list[Demand]) -> tuple[int, int]:
    inside = sum(PRODUCTS[A30][d.profile].size * min(counts[d.profile], d.inside) for d in demand)
    other = sum(PRODUCTS[A30][d.profile].size * min(max(0, counts[d.profile] - d.inside), d.other) for d in demand)
    return inside, other


def test_card_without_a_layout_gets_the_layout_that_the_queue_needs() -> None:
    proposal = mig_layouts.propose("A30", [()], [mig_layouts.Demand("2g.12gb", inside=2)])
    assert proposal.layouts == ((("2g.12gb", 2),),)


def test_search_keeps_the_most_promising_states_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mig_layouts, "STATES", 1)
    demand = [mig_layouts.Demand("1g.6gb", inside=4), mig_layouts.Demand("2g.12gb", other=2)]
    assert mig_layouts.propose("A30", [(), ()], demand).inside == 4
