"""Cards are never partitioned outside their geometry and never given out twice, in any sequence of requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine import types as e
from quotas.engine.mig_profiles import PRODUCTS, Profile
from quotas.engine.placement import Room, Space, find_places
from tests.sharing.table import NODES
from workloads import sharing
from workloads.sharing import SYSTEMS, NodeInfo, Request, Settings, charge

Placement = tuple[str, int]  # profile, start
CARD_OF_EIGHT = sorted(name for name, table in PRODUCTS.items() if table.slices == 8)


def covered(profiles: Mapping[str, Profile], placement: Placement) -> set[int]:
    name, start = placement
    return set(range(start, start + profiles[name].size))


def full_layouts(profiles: Mapping[str, Profile]) -> set[frozenset[Placement]]:
    """Every way to partition a card so that nothing can be added, computed without the engine's search."""
    every = [(name, start) for name, profile in profiles.items() for start in profile.starts]

    def fitting(layout: frozenset[Placement]) -> list[Placement]:
        taken = {slice_ for placement in layout for slice_ in covered(profiles, placement)}
        media = any(profiles[name].media for name, _ in layout)
        return [p for p in every if not covered(profiles, p) & taken and not (media and profiles[p[0]].media)]

    def grow(layout: frozenset[Placement]) -> Iterator[frozenset[Placement]]:
        more = fitting(layout)
        if not more:
            yield layout
        first = min((start for _, start in more), default=0)
        last = min((max(covered(profiles, p)) for p in more), default=0)
        for placement in more:
            if first <= placement[1] <= last:  # in every full layout something covers or blocks the first free slice
                yield from grow(layout | {placement})

    return set(grow(frozenset()))


def common_profiles(product: str) -> dict[str, Profile]:
    """Without media extensions and the 1g of double memory."""
    one = min(p.size for p in PRODUCTS[product].values())
    return {
        name: p for name, p in PRODUCTS[product].items() if not p.media and not (name.startswith("1g") and p.size > one)
    }


@pytest.mark.parametrize("product", CARD_OF_EIGHT)
def test_card_of_eight_slices_has_19_full_layouts_without_the_1g_of_double_memory(product: str) -> None:
    assert len(full_layouts(common_profiles(product))) == 19


def test_an_a30_has_five_full_layouts() -> None:
    assert len(full_layouts(common_profiles("A30"))) == 5


def test_layouts_agree_with_the_mig_user_guide() -> None:
    layouts = [sorted(name for name, _ in layout) for layout in full_layouts(common_profiles("A100-40GB"))]
    assert ["3g.20gb", "3g.20gb"] in layouts
    assert ["3g.20gb", "4g.20gb"] in layouts
    assert ["1g.5gb"] * 7 in layouts
    assert ["1g.5gb", "2g.10gb", "2g.10gb", "2g.10gb"] in layouts
    assert ["1g.5gb", "3g.20gb", "3g.20gb"] not in layouts


def claim(number: int, **fields: Any) -> e.Claim:
    return e.Claim(
        e.ClaimId(f"c{number}"),
        e.DepartmentId("d"),
        e.PoolId("p"),
        state=e.ClaimState.PENDING,
        submitted_at=0,
        **fields,
    )


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=60)


@settings(max_examples=60)
@given(st.sampled_from(sorted(PRODUCTS)), st.integers(1, 3), STEPS)
def test_mig_instances_cut_in_any_sequence_stay_inside_the_geometry(
    product: str, cards: int, steps: list[tuple[bool, int, int]]
) -> None:
    profiles = PRODUCTS[product]
    names, size = sorted(profiles), max(p.size for p in profiles.values())
    pool = e.Pool(
        e.PoolId("p"),
        unit="slice",
        nodes=(e.Node("n", cards=(e.Card(size),) * cards),),
        units_per_card=size,
        mig=product,
    )
    free, running = Room(Space((pool,))), {}
    for number, (leaves, which, other) in enumerate(steps):
        if leaves and running:
            ended = sorted(running)[which % len(running)]
            old, places = running.pop(ended)
            free.add(free.space.taken(old, places))
            continue
        name = names[other % len(names)]
        request = claim(number, units_per_pod=profiles[name].size, profile=name)
        places = find_places(request, pool, free)
        if places is None:
            continue
        free.add(free.space.taken(request, places), -1)
        running[number] = (request, places)
        check_geometry(profiles, running)


def check_geometry(profiles: Mapping[str, Profile], running: Mapping[int, Any]) -> None:
    by_card: dict[int, list[Placement]] = {}
    for request, (placed,) in running.values():
        by_card.setdefault(placed.cards[0], []).append((request.profile, placed.start))
    for card in by_card.values():
        slices = [slice_ for placement in card for slice_ in covered(profiles, placement)]
        assert len(slices) == len(set(slices)), card
        assert all(start in profiles[name].starts for name, start in card)
        assert sum(profiles[name].media for name, _ in card) <= 1


SHARED = [
    "t4x4-timeslice-shared", "h100x8-mps-10", "gpushare-v100x4", "ack-cgpu-core-mem-v100x4", "gpumanager-t4x4", "qgpu-t4x4",
    "hami-a100-40", "volcano-gpushare-1080tix8", "volcano-vgpu-t4x4", "kubeshare-v100x4", "kai-a100-80",
]  # fmt: skip
SETTINGS = Settings(pins={"kai-a100-80": "kai"}, cards={"kubeshare-v100x4": 4})


def pool_of(info: NodeInfo) -> e.Pool:
    cards = tuple(e.Card(card.units if card.healthy else 0, card.cores) for card in info.cards)
    return e.Pool(
        e.PoolId("p"), unit=info.unit, nodes=(e.Node(info.name, cards=cards),), units_per_card=info.units_per_card
    )


@settings(max_examples=120)
@given(st.sampled_from(SHARED), STEPS)
def test_memory_and_compute_of_a_shared_card_are_never_given_out_twice(
    name: str, steps: list[tuple[bool, int, int]]
) -> None:
    info = sharing.discover(NODES[name], SETTINGS)
    assert info is not None
    system, pool = SYSTEMS[info.sharing], pool_of(info)
    free, running = Room(Space((pool,))), {}
    for number, (leaves, which, other) in enumerate(steps):
        if leaves and running:
            old, _, places = running.pop(sorted(running)[which % len(running)])
            free.add(free.space.taken(old, places))
            continue
        request = a_request(info, which, other)
        if system.validate(request, SETTINGS):
            continue
        one = claim(number, units_per_pod=charge(request, system.ABOUT), cores_per_pod=request.cores)
        places = find_places(one, pool, free)
        if places is None:
            continue
        free.add(free.space.taken(one, places), -1)
        running[number] = (one, request, places)
        check_cards(info, running)


def a_request(info: NodeInfo, which: int, other: int) -> Request:
    """A request that this node might get: parts of a card of any size, and sometimes whole cards."""
    about, card = SYSTEMS[info.sharing].ABOUT, info.units_per_card
    units = (1 + which % 3) * card if which % 7 == 0 else max(about.step, which % card // about.step * about.step)
    cores = None if about.cores == "none" else max(about.cores_step, other % 100 // about.cores_step * about.cores_step)
    return Request(info.product, units, cores=100 if units > card and cores else cores, units_per_card=card)


def check_cards(info: NodeInfo, running: Mapping[int, Any]) -> None:
    units, cores = [0] * len(info.cards), [0] * len(info.cards)
    for _, request, (placed,) in running.values():
        for index in placed.cards:
            units[index] += request.units // len(placed.cards)
            cores[index] += request.cores or 0
        assert len(placed.cards) == request.cards
    for card in info.cards:
        assert units[card.index] <= card.units
        assert cores[card.index] <= (card.cores or 10**9)
