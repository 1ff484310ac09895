"""Victims for one place on a node (rule 15), example by example: parts of cards, several shared cards, claims of the own
department."""

import pytest

from quotas.engine.types import BorrowPreempt, Card, Claim, Node, Placed
from tests.engine.builders import a_department, a_policy, a_pool, a_snapshot, answers, holding, nodes, pending

OWNER, GUEST = a_department("a", 100), a_department("b")


def on(id: str, department: str, units: int, node: str, *cards: int, lost: int = 100, **more: int | bool) -> Claim:
    """A claim on these cards that would lose `lost` seconds of work per unit."""
    places = (Placed(0, node, cards),)
    return holding(id, department, units, placement=places, checkpointed_at=-lost, **more)


def victims(*claims: Claim, machines: tuple[Node, ...], guaranteed: int = 100, **pool: object) -> tuple[str, ...]:
    departments = [a_department("a", guaranteed), *(a_department(id) for id in "bcd")]
    return answers(a_snapshot(a_pool(nodes=machines, **pool), departments, claims))["w"].victims


SHARED = {"unit": "MiB", "units_per_card": 8}


def test_shared_card_whose_claims_lose_less_is_freed() -> None:
    claims = [on("h", "b", 4, "n1", 0, lost=20), on("i", "b", 4, "n1", 1, lost=10), pending("w", "a", 8)]
    assert victims(*claims, machines=nodes(2, units=8), **SHARED) == ("i",)


def test_as_many_shared_cards_are_freed_as_whole_cards_are_requested() -> None:
    claims = [
        on("h", "b", 4, "n1", 0, lost=30),
        on("i", "b", 4, "n1", 1, lost=10),
        on("j", "b", 4, "n1", 2, lost=20),
        pending("w", "a", 16),
    ]
    assert victims(*claims, machines=nodes(3, units=8), **SHARED) == ("i", "j")


def test_claim_on_two_cards_frees_both() -> None:
    claims = [
        on("both", "b", 16, "n1", 0, 1, lost=10),
        on("i", "b", 4, "n1", 2, lost=30),
        on("j", "b", 4, "n1", 3, lost=30),
        pending("w", "a", 16),
    ]
    assert victims(*claims, machines=nodes(4, units=8), **SHARED) == ("both",)


def test_node_is_not_skipped_because_its_smallest_claim_is_costly() -> None:
    """Units do not count for a claim inside its guarantee: of n1's two cards the one with the small claim is the costlier."""
    claims = [
        on("cheapest", "b", 8, "n1", 0, lost=50),
        on("small", "b", 1, "n1", 1, lost=500),
        on("beside", "b", 5, "n1", 1, lost=600),
        on("cheap", "b", 8, "n2", 0, lost=55),
        on("dearer", "b", 8, "n3", 0, lost=60),
        on("fixed", "a", 4, "n4", 0, preemptible=False),
        on("fast", "a", 4, "n4", 1, preemptible=False),
        pending("w", "a", 6),
    ]
    assert victims(*claims, machines=nodes(2, 1, 1, 2, units=8), **SHARED) == ("cheapest",)


def test_node_without_candidates_that_lacks_only_compute_is_skipped() -> None:
    """With fair sharing every node is searched: on n1 memory is free but no compute, and the only claim there is
    non-preemptible."""
    claims = [
        on("fixed", "a", 2, "n1", 0, preemptible=False, cores_per_pod=80),
        on("h", "b", 6, "n2", 0, cores_per_pod=80),
        pending("w", "c", 4, cores_per_pod=50),
    ]
    machines = tuple(Node(name, (Card(8, cores=100),)) for name in ("n1", "n2"))
    snapshot = a_snapshot(
        a_pool(nodes=machines, **SHARED), [a_department("a", 2), GUEST, a_department("c")], claims, fair_sharing=True
    )
    assert answers(snapshot)["w"].victims == ("h",)


def test_card_with_too_much_non_preemptible_work_is_skipped() -> None:
    claims = [
        on("h", "b", 2, "n1", 0, lost=10),
        on("fixed", "a", 6, "n1", 0, preemptible=False),
        on("i", "b", 8, "n2", 0, lost=20),
        pending("w", "a", 8),
    ]
    assert victims(*claims, machines=nodes(1, 1, units=8), **SHARED) == ("i",)


def test_node_whose_candidates_free_too_little_cpu_is_skipped() -> None:
    claims = [
        on("h", "b", 2, "n1", 0, 1, lost=10, cpu_milli=1000),
        on("fixed", "a", 1, "n1", 2, preemptible=False, cpu_milli=7000),
        on("i", "b", 2, "n2", 0, 1, lost=20, cpu_milli=4000),
        on("other", "a", 1, "n2", 2, preemptible=False, cpu_milli=4000),
        pending("w", "a", 2, cpu_milli=4000),
    ]
    assert victims(*claims, machines=nodes(3, 3, cpu_milli=8000)) == ("i",)


def test_request_for_one_and_a_half_cards_preempts_nothing() -> None:
    """While the pool is short, it is unknown which cards will come back: the claim waits."""
    claims = [on("h", "b", 8, "n1", 0), on("i", "b", 8, "n1", 1), pending("w", "a", 12)]
    assert victims(*claims, machines=nodes(2, units=8), nominal=200, **SHARED) == ()
    whole = [*claims[:-1], pending("w", "a", 16)]
    assert victims(*whole, machines=nodes(2, units=8), nominal=200, **SHARED) == ("h", "i")


def test_own_victims_needed_for_the_right_also_free_the_place() -> None:
    """Of a's four units two are non-preemptible. `own` is preempted in any case, and on n2 only one more victim is needed."""
    claims = [
        on("fixed", "a", 2, "n1", 0, 1, preemptible=False),
        on("own", "a", 1, "n2", 0, priority=-1),
        on("hb", "b", 1, "n2", 1),
        on("hc", "c", 1, "n3", 0),
        on("hd", "d", 1, "n3", 1),
        pending("w", "a", 2),
    ]
    assert victims(*claims, machines=nodes(2, 2, 2), guaranteed=4) == ("hb", "own")


@pytest.mark.parametrize(("lost", "victim"), [(10, "hb"), (30, "hc")])
def test_place_apart_from_own_victims_is_used_only_if_it_costs_others_less(lost: int, victim: str) -> None:
    """n2, where its own claim is, is searched first, and again in its turn among all nodes."""
    claims = [
        on("fixed", "a", 2, "n1", 0, 1, preemptible=False),
        on("own", "a", 1, "n2", 0, priority=-1),
        on("hb", "b", 2, "n2", 1, 2, lost=lost),
        on("hc", "c", 2, "n3", 0, 1, lost=20),
        pending("w", "a", 2),
    ]
    assert victims(*claims, machines=nodes(2, 3, 2), guaranteed=4) == (victim, "own")


SEVERAL = [("a", 2, 10), ("b", 1, 13), ("four", 4, 5), ("one", 1, 3), ("last", 1, 13)]
SEVERAL += [(f"dear{n:02}", 1, 400) for n in range(20)]
"""`four` and `one` lose least of all sets that free five cards; taking claims one by one, the cheapest, the largest or the
smallest first, ends with others. The claims are too many for the exact search."""


@pytest.mark.parametrize("elsewhere", [0, 4])
def test_best_victims_on_one_node_are_found_where_greedy_orders_fail(elsewhere: int) -> None:
    """What `four` has on another node does not count here."""
    claims, used = [], 0
    for id, units, lost in SEVERAL:
        places = (Placed(0, "n1", tuple(range(used, used + units))),)
        if id == "four" and elsewhere:
            places = (*places, Placed(1, "n2", (0, 1, 2, 3)))
        more = {"pods": len(places), "placement": places, "checkpointed_at": -lost}
        claims.append(holding(id, "b", units, **more))
        used += units
    departments = [a_department("a", 5), GUEST, a_department("c", 2, lend_limit=0)]
    machines = nodes(used, 4 if elsewhere else 2, 2)
    snapshot = a_snapshot(a_pool(nodes=machines), departments, [*claims, pending("w", "a", 5)])
    assert answers(snapshot)["w"].victims == ("four", "one")


@pytest.mark.parametrize("recalled", [False, True])
def test_best_victims_on_many_nodes_are_found_where_only_the_right_is_lacking(recalled: bool) -> None:
    """n1 is empty, but what is free is c's: it keeps that quota, or has recalled it."""
    claims = [on(id, "b", units, f"n{n}", *range(units), lost=lost) for n, (id, units, lost) in enumerate(SEVERAL, 2)]
    claims += [holding("recall", "c", 5, pods=0)] if recalled else []
    departments = [a_department("a", 5), GUEST, a_department("c", 5, lend_limit=None if recalled else 0)]
    pool = a_pool(nodes=nodes(5, *(units for _, units, _ in SEVERAL)))
    assert answers(a_snapshot(pool, departments, [*claims, pending("w", "a", 5)]))["w"].victims == ("four", "one")


def test_own_work_is_preempted_where_that_of_others_cannot_be() -> None:
    claims = [
        on("own", "a", 2, "n1", 0, 1, priority=-1),
        on("fixed", "b", 2, "n2", 0, 1, preemptible=False),
        pending("w", "a", 2),
    ]
    departments = [a_department("a", 4), a_department("b", 2), a_department("c", 1, lend_limit=0)]
    assert answers(a_snapshot(a_pool(nodes=nodes(2, 2, 1)), departments, claims))["w"].victims == ("own",)


def test_victims_for_the_place_and_for_the_right_are_taken_together() -> None:
    """Two of n1's four cards are free, but c keeps two units: `here` gives the place, `there` the right."""
    claims = [on("here", "b", 2, "n1", 0, 1), on("there", "b", 2, "n2", 0, 1, lost=10), pending("w", "a", 4)]
    departments = [a_department("a", 4), GUEST, a_department("c", 2, lend_limit=0)]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 2)), departments, claims))
    assert decided["w"].victims == ("here", "there")


def test_own_work_is_preempted_where_only_a_place_is_lacking() -> None:
    claims = [
        on("own", "a", 2, "n1", 0, 1, priority=-1),
        on("fixed", "a", 2, "n2", 0, 1, preemptible=False),
        pending("w", "a", 4),
    ]
    assert victims(*claims, machines=nodes(4, 4)) == ("own",)


def test_usage_of_the_own_department_gives_no_right_to_more() -> None:
    """Two of n1's four cards are free, but c keeps two units: `there` is preempted for the right, although a uses four units."""
    claims = [
        on("here", "b", 2, "n1", 0, 1),
        on("there", "b", 2, "n2", 0, 1),
        on("fixed", "a", 4, "n3", 0, 1, 2, 3, preemptible=False),
        pending("w", "a", 4),
    ]
    departments = [a_department("a", 8), GUEST, a_department("c", 2, lend_limit=0)]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 2, 4)), departments, claims))
    assert decided["w"].victims == ("here", "there")


def by_priority(*claims: Claim, machines: tuple[Node, ...]) -> tuple[str, ...]:
    """The victims for a claim of a, which has no guarantee and may preempt borrowers of lower priority."""
    departments = [a_department("a", policy=a_policy(borrow_preempt=BorrowPreempt())), GUEST, a_department("c", 1)]
    return answers(a_snapshot(a_pool(nodes=machines), departments, claims))["w"].victims


def test_better_place_is_kept_when_a_later_one_is_not_permitted() -> None:
    """Without either of its claims c would still have its guarantee, without both it would not."""
    claims = [on("h", "b", 2, "n1", 0, 1), on("c1", "c", 1, "n2", 0, lost=10), on("c2", "c", 1, "n2", 1, lost=10)]
    assert by_priority(*claims, pending("w", "a", 4, priority=2), machines=nodes(4, 4)) == ("h",)


def test_better_place_is_kept_when_the_cheapest_claim_elsewhere_frees_too_little_cpu() -> None:
    """`small` would free a card but too little CPU; `large`, which frees enough, costs more than h."""
    claims = [
        on("h", "b", 1, "n1", 0, priority=1, cpu_milli=8000),
        on("small", "c", 1, "n2", 0, cpu_milli=1000),
        on("large", "c", 2, "n2", 1, 2, cpu_milli=7000),
        on("fixed", "b", 1, "n3", 0, cpu_milli=8000, preemptible=False),
        pending("w", "a", 1, priority=2, cpu_milli=4000),
    ]
    assert by_priority(*claims, machines=nodes(1, 3, 2, cpu_milli=8000)) == ("h",)


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_among_places_of_equal_cost_and_surplus_the_smallest_id_is_preempted(names: str) -> None:
    claims = [on(id, "b", 2, node, 0, 1) for id, node in zip(names, ("n1", "n2"), strict=True)]
    assert victims(*claims, pending("w", "a", 2), machines=nodes(2, 2)) == ("a",)


def test_among_equal_victims_on_a_node_the_one_freeing_least_surplus_cpu_is_preempted() -> None:
    claims = [
        on("large", "b", 1, "n1", 0, cpu_milli=4000),
        on("small", "b", 1, "n1", 1, cpu_milli=1000),
        pending("w", "a", 1, cpu_milli=1000),
    ]
    departments = [a_department("a", 1), GUEST]
    decided = answers(a_snapshot(a_pool(nodes=nodes(2, cpu_milli=8000)), departments, claims))
    assert decided["w"].victims == ("small",)


def test_claim_inside_its_guarantee_spares_own_work_whatever_others_lose() -> None:
    own = on("own", "a", 1, "n1", 0, lost=1, priority=-1)
    claims = [own, on("other", "b", 1, "n2", 0, lost=500), pending("w", "a", 1)]
    assert victims(*claims, machines=nodes(1, 1)) == ("other",)


@pytest.mark.parametrize("wasteful", ["h1", "h2"])
def test_among_equal_victims_on_two_nodes_the_one_leaving_no_surplus_is_preempted(wasteful: str) -> None:
    tight = "h2" if wasteful == "h1" else "h1"
    claims = [
        on(wasteful, "b", 4, "n1", 0),
        on("some", "a", 3, "n1", 0, preemptible=False),
        on(tight, "b", 4, "n2", 0),
        on("more", "a", 4, "n2", 0, preemptible=False),
        pending("w", "a", 4),
    ]
    assert victims(*claims, machines=nodes(1, 1, units=8), **SHARED) == (tight,)


def test_cheapest_claim_of_a_node_is_spared_if_the_policy_does_not_permit_it() -> None:
    """One claim would be enough, but the policy permits no preemption, or only of lower priorities."""
    claims = [on("low", "b", 4, "n1", 0), on("high", "b", 4, "n1", 0, priority=1), pending("w", "a", 4, priority=1)]
    for reclaim, expected in (("never", ()), ("lower_priority", ("low",)), ("any", ("low",))):
        departments = [a_department("a", 100, policy=a_policy(reclaim=reclaim)), a_department("b")]
        snapshot = a_snapshot(a_pool(nodes=nodes(1, units=8), **SHARED), departments, claims)
        assert answers(snapshot)["w"].victims == expected
