"""The largest request that could run (named for an impossible one, rule 5), in every shape: what trying all smaller ones
finds."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quotas.engine.mig_profiles import PRODUCTS
from quotas.engine.pass_state import PassState
from quotas.engine.placement import rooms_of
from quotas.engine.reservations import initial_state
from quotas.engine.types import Card, Claim, DecisionKind, Node, Pool, Snapshot
from quotas.engine.units import resized
from quotas.engine.waiting import largest
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, nodes, pending


def the_state(pool: Pool, claim: Claim, **department: Any) -> PassState:
    snapshot = a_snapshot(pool, [a_department("a", **({"guaranteed": 100} | department))], [claim])
    return initial_state(snapshot, snapshot.pools[0], *rooms_of(snapshot))


def tried(state: PassState, claim: Claim, limit: int) -> int:
    """The largest of all requests with no more pods and no more units in each that would fit into the empty pool."""
    profiles = {None: 0} if state.pool.mig is None else {n: p.size for n, p in PRODUCTS[state.pool.mig].items()}
    like = [
        replace(claim, pods=pods, units_per_pod=size or units, profile=profile)
        for pods in range(1, claim.pods + 1)
        for profile, size in profiles.items()
        for units in range(1, claim.units_per_pod + 1)
        if size <= claim.units_per_pod
    ]
    return max((c.units for c in like if c.units <= limit and state.fits_when_empty(c)), default=0)


machines = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(machines, st.sampled_from([1, 4]), st.integers(1, 5), st.integers(1, 9), st.integers(0, 20), st.booleans())
def test_largest_request_of_cards_and_parts_of_cards(
    cards: list[int], units: int, pods: int, per_pod: int, limit: int, together: bool
) -> None:
    machines = tuple(
        Node(f"n{index}", (Card(units),) * count, domain=f"d{index % 2}", cpu_milli=4)
        for index, count in enumerate(cards)
    )
    claim = pending("w", "a", per_pod, pods=pods, cpu_milli=1, same_domain=together, own_only=True)
    pool = a_pool(nodes=machines, unit="card" if units == 1 else "MiB", cpu_per_card=0)  # CPU is not charged
    state = the_state(pool, claim, guaranteed=limit)
    assert largest(state, claim) == tried(state, claim, min(limit, state.ledger.root.ceiling))


@settings(max_examples=60, deadline=None)
@given(
    machines, st.integers(1, 4), st.sampled_from(["1g.5gb", "3g.20gb", "7g.40gb"]), st.integers(0, 30), st.booleans()
)
def test_largest_request_of_mig_profiles(cards: list[int], pods: int, profile: str, limit: int, fixed: bool) -> None:
    geometry = {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1} if fixed else None
    machines = tuple(Node(f"n{i}", (Card(8),) * count, geometry) for i, count in enumerate(cards))
    claim = pending("w", "a", PRODUCTS["A100-40GB"][profile].size, pods=pods, profile=profile, own_only=True)
    state = the_state(Pool("gpu", "slice", machines, mig="A100-40GB"), claim, guaranteed=limit)  # type: ignore[arg-type]
    assume(state.ledger.root.ceiling > 0)
    assert largest(state, claim) == tried(state, claim, min(limit, state.ledger.root.ceiling))


def test_largest_request_charged_for_cpu_takes_less_cpu_with_smaller_parts() -> None:
    """A card of 4 MiB comes with 8 CPUs. Five pods with 8 each would need 40 of 32: they could have half of it, with 2 MiB
    each."""
    pool = a_pool(nodes=(Node("n1", (Card(4),) * 4, cpu_milli=32_000),), unit="MiB")
    claim = resized(pending("w", "a", 0, pods=5, cpu_milli=8_000), 4, pool)
    snapshot = a_snapshot(pool, [a_department("a", 16)], [claim])
    assert answer_of(snapshot)[2] == 16
    smaller = resized(pending("w", "a", 0, pods=5, cpu_milli=4_000), 2, pool)
    assert answers(a_snapshot(pool, [a_department("a", 16)], [smaller]))["w"].decision is DecisionKind.ADMIT


def answer_of(snapshot: Snapshot, id: str = "w") -> tuple[str, tuple[str, ...], int | None]:
    decision = answers(snapshot)[id]
    assert decision.decision is DecisionKind.IMPOSSIBLE
    return decision.decision.value, tuple(reason.code for reason in decision.reasons), decision.largest


def test_largest_request_takes_at_most_the_compute_of_a_card() -> None:
    pool = a_pool(nodes=(Node("n1", (Card(80, cores=100),) * 2),), unit="MiB")
    snapshot = a_snapshot(pool, [a_department("a", 160)], [resized(pending("w", "a", 40, cores_per_pod=120), 40, pool)])
    assert answer_of(snapshot) == ("impossible", ("fragmented",), 80)
    pods = a_snapshot(
        pool, [a_department("a", 160)], [resized(pending("w", "a", 30, pods=4, cores_per_pod=60), 30, pool)]
    )
    assert answer_of(pods) == ("impossible", ("above_ceiling",), 160), (
        "four of 40 MiB with half of a card's compute each"
    )


def test_largest_gang_has_fewer_pods_or_smaller_pods() -> None:
    departments = [a_department("a", 32)]
    wide = a_snapshot(a_pool(nodes=nodes(8, 8, 8, 8)), departments, [pending("w", "a", 8, pods=5)])
    assert answer_of(wide) == ("impossible", ("above_ceiling",), 32)
    small = a_snapshot(a_pool(nodes=nodes(4, 4, 4, 4)), [a_department("a", 16)], [pending("w", "a", 5, pods=3)])
    assert answer_of(small) == ("impossible", ("fragmented",), 12)


def test_unknown_profile_names_the_largest_existing_one_that_can_run() -> None:
    pool = a_pool(nodes=nodes(2, units=8), unit="slice", mig="A100-40GB")
    snapshot = a_snapshot(
        pool, [a_department("a", 5), a_department("b", 11, lend_limit=0)], [pending("w", "a", 0, profile="9g")]
    )
    assert answer_of(snapshot) == ("impossible", ("no_such_profile",), 4)
    assert answer_of(a_snapshot(a_pool(8), [a_department("a", 8)], [pending("w", "a", 1, profile="9g")]))[2] == 0


@pytest.mark.parametrize(("own_only", "expected"), [(False, 6), (True, 4)])
def test_largest_is_the_guarantee_for_own_quota_only_and_the_ceiling_otherwise(own_only: bool, expected: int) -> None:
    departments = [a_department("a", 4, borrow_limit=2), a_department("b", 12)]
    snapshot = a_snapshot(a_pool(nodes=nodes(8, 8)), departments, [pending("w", "a", 8, own_only=own_only)])
    assert answer_of(snapshot)[2] == expected


def test_largest_in_a_tree_respects_the_ceiling_of_the_branch() -> None:
    tree = [a_department("x", 2, borrow_limit=3), a_department("a", 4, parent="x", lend_limit=1), a_department("b", 10)]
    snapshot = a_snapshot(a_pool(nodes=nodes(8, 8)), tree, [pending("w", "a", 16)])
    assert answer_of(snapshot) == ("impossible", ("above_ceiling", "fragmented"), 8)  # 9 by quota, 8 on a machine


def test_largest_respects_the_user_cap_except_for_recalls() -> None:
    departments = [a_department("a", 4, user_caps={"gpu": 3})]
    assert answer_of(a_snapshot(a_pool(4), departments, [pending("w", "a", 8)]))[2] == 3
    assert answer_of(a_snapshot(a_pool(4), departments, [pending("w", "a", 8, pods=0)]))[2] == 4
