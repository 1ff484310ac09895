"""Victims for one place of a node, example by example: shared cards, several of them, own claims among them."""

import pytest

from quotas.engine.types import BorrowPreempt, Card, Claim, Node, Placed
from tests.engine.builders import a_department, a_policy, a_pool, a_snapshot, answers, holding, nodes, pending

OWNER, GUEST = a_department("a", 100), a_department("b")


def on(id: str, department: str, units: int, node: str, *cards: int, lost: int = 100, **more: int | bool) -> Claim:
    """A claim there that would lose so many seconds of work."""
    places = (Placed(0, node, cards),)
    return holding(id, department, units, placement=places, checkpointed_at=-lost, **more)


def victims(*claims: Claim, machines: tuple[Node, ...], guaranteed: int = 100, **pool: object) -> tuple[str, ...]:
    departments = [a_department("a", guaranteed), *(a_department(id) for id in "bcd")]
    return answers(a_snapshot(a_pool(nodes=machines, **pool), departments, claims))["w"].victims


SHARED = {"unit": "MiB", "units_per_card": 8}


def test_of_two_shared_cards_the_one_is_freed_whose_claims_lose_less() -> None:
    claims = [on("h", "b", 4, "n1", 0, lost=20), on("i", "b", 4, "n1", 1, lost=10), pending("w", "a", 8)]
    assert victims(*claims, machines=nodes(2, units=8), **SHARED) == ("i",)


def test_of_many_shared_cards_as_many_are_freed_as_are_asked_whole() -> None:
    claims = [
        on("h", "b", 4, "n1", 0, lost=30),
        on("i", "b", 4, "n1", 1, lost=10),
        on("j", "b", 4, "n1", 2, lost=20),
        pending("w", "a", 16),
    ]
    assert victims(*claims, machines=nodes(3, units=8), **SHARED) == ("i", "j")


def test_a_claim_that_stands_on_both_of_two_cards_gives_both() -> None:
    claims = [
        on("both", "b", 16, "n1", 0, 1, lost=10),
        on("i", "b", 4, "n1", 2, lost=30),
        on("j", "b", 4, "n1", 3, lost=30),
        pending("w", "a", 16),
    ]
    assert victims(*claims, machines=nodes(4, units=8), **SHARED) == ("both",)


def test_no_node_is_passed_over_because_its_smallest_claim_is_dear() -> None:
    """For who is inside its guarantee units do not count: of the cards of n1 that with the small claims is the dearer one."""
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


def test_a_node_where_nobody_may_go_and_only_compute_is_lacking_is_passed_over() -> None:
    """With fair sharing every node is looked at: on n1 memory is free, but no compute, and nobody there may be stopped."""
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


def test_a_card_on_which_too_much_may_not_go_is_left_alone() -> None:
    claims = [
        on("h", "b", 2, "n1", 0, lost=10),
        on("fixed", "a", 6, "n1", 0, preemptible=False),
        on("i", "b", 8, "n2", 0, lost=20),
        pending("w", "a", 8),
    ]
    assert victims(*claims, machines=nodes(1, 1, units=8), **SHARED) == ("i",)


def test_a_node_whose_claims_have_too_little_cpu_to_give_is_left_alone() -> None:
    claims = [
        on("h", "b", 2, "n1", 0, 1, lost=10, cpu_milli=1000),
        on("fixed", "a", 1, "n1", 2, preemptible=False, cpu_milli=7000),
        on("i", "b", 2, "n2", 0, 1, lost=20, cpu_milli=4000),
        on("other", "a", 1, "n2", 2, preemptible=False, cpu_milli=4000),
        pending("w", "a", 2, cpu_milli=4000),
    ]
    assert victims(*claims, machines=nodes(3, 3, cpu_milli=8000)) == ("i",)


def test_nobody_goes_for_what_is_neither_a_part_of_a_card_nor_whole_ones() -> None:
    """While capacity is missing nobody knows what cards there will be: it waits."""
    claims = [on("h", "b", 8, "n1", 0), on("i", "b", 8, "n1", 1), pending("w", "a", 12)]
    assert victims(*claims, machines=nodes(2, units=8), nominal=200, **SHARED) == ()
    whole = [*claims[:-1], pending("w", "a", 16)]
    assert victims(*whole, machines=nodes(2, units=8), nominal=200, **SHARED) == ("h", "i")


def test_own_claims_that_must_go_for_the_right_go_where_they_also_give_the_place() -> None:
    """Of a's four, two are fixed: its small one goes in any case, and on n2 only one other has to."""
    claims = [
        on("fixed", "a", 2, "n1", 0, 1, preemptible=False),
        on("own", "a", 1, "n2", 0, priority=-1),
        on("hb", "b", 1, "n2", 1),
        on("hc", "c", 1, "n3", 0),
        on("hd", "d", 1, "n3", 1),
        pending("w", "a", 2),
    ]
    assert victims(*claims, machines=nodes(2, 2, 2), guaranteed=4) == ("hb", "own")


@pytest.mark.parametrize(("lost", "gone"), [(10, "hb"), (30, "hc")])
def test_own_claims_go_elsewhere_only_where_that_costs_others_less(lost: int, gone: str) -> None:
    """n2, where its own claim stands, is looked at first, and again in its turn among all nodes."""
    claims = [
        on("fixed", "a", 2, "n1", 0, 1, preemptible=False),
        on("own", "a", 1, "n2", 0, priority=-1),
        on("hb", "b", 2, "n2", 1, 2, lost=lost),
        on("hc", "c", 2, "n3", 0, 1, lost=20),
        pending("w", "a", 2),
    ]
    assert victims(*claims, machines=nodes(2, 3, 2), guaranteed=4) == (gone, "own")


SEVERAL = [("a", 2, 10), ("b", 1, 13), ("four", 4, 5), ("one", 1, 3), ("last", 1, 13)]
SEVERAL += [(f"dear{n:02}", 1, 400) for n in range(20)]
"""`four` and `one` lose least of what gives five cards; whoever takes claims one by one, the cheapest, the largest or the
smallest first, ends with others. And they are more than a search looks at sets of."""


@pytest.mark.parametrize("elsewhere", [0, 4])
def test_the_best_of_many_claims_is_found_on_a_node_though_no_order_of_taking_leads_to_it(elsewhere: int) -> None:
    """Of what `four` has on another node nothing counts here."""
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
def test_the_best_of_many_claims_is_found_over_all_nodes_where_the_place_is_there(recalled: bool) -> None:
    """n1 is empty, but what is free is c's: kept for it, or recalled."""
    claims = [on(id, "b", units, f"n{n}", *range(units), lost=lost) for n, (id, units, lost) in enumerate(SEVERAL, 2)]
    claims += [holding("recall", "c", 5, pods=0)] if recalled else []
    departments = [a_department("a", 5), GUEST, a_department("c", 5, lend_limit=None if recalled else 0)]
    pool = a_pool(nodes=nodes(5, *(units for _, units, _ in SEVERAL)))
    assert answers(a_snapshot(pool, departments, [*claims, pending("w", "a", 5)]))["w"].victims == ("four", "one")


def test_its_own_goes_where_nobody_elses_can() -> None:
    claims = [
        on("own", "a", 2, "n1", 0, 1, priority=-1),
        on("fixed", "b", 2, "n2", 0, 1, preemptible=False),
        pending("w", "a", 2),
    ]
    departments = [a_department("a", 4), a_department("b", 2), a_department("c", 1, lend_limit=0)]
    assert answers(a_snapshot(a_pool(nodes=nodes(2, 2, 1)), departments, claims))["w"].victims == ("own",)


def test_who_lacks_a_place_here_and_the_right_elsewhere_takes_both() -> None:
    """Two of n1's four cards are free, but what is free is c's: the two others here give the place, two more the right."""
    claims = [on("here", "b", 2, "n1", 0, 1), on("there", "b", 2, "n2", 0, 1, lost=10), pending("w", "a", 4)]
    departments = [a_department("a", 4), GUEST, a_department("c", 2, lend_limit=0)]
    decided = answers(a_snapshot(a_pool(nodes=nodes(4, 2)), departments, claims))
    assert decided["w"].victims == ("here", "there")


def test_its_own_goes_where_a_place_is_all_that_is_lacking() -> None:
    claims = [
        on("own", "a", 2, "n1", 0, 1, priority=-1),
        on("fixed", "a", 2, "n2", 0, 1, preemptible=False),
        pending("w", "a", 4),
    ]
    assert victims(*claims, machines=nodes(4, 4)) == ("own",)


def test_what_its_own_department_uses_already_is_no_right_to_more() -> None:
    """Two of n1's four cards are free, but they are c's: `there` goes for the right, though a uses four units."""
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
    """Who goes for a claim of a, which is promised nothing and may take from borrowers of lower priority."""
    departments = [a_department("a", policy=a_policy(borrow_preempt=BorrowPreempt())), GUEST, a_department("c", 1)]
    return answers(a_snapshot(a_pool(nodes=machines), departments, claims))["w"].victims


def test_a_better_place_is_not_forgotten_for_one_that_is_looked_at_later() -> None:
    """Each of c's two alone would leave c what it is promised; both together do not."""
    claims = [on("h", "b", 2, "n1", 0, 1), on("c1", "c", 1, "n2", 0, lost=10), on("c2", "c", 1, "n2", 1, lost=10)]
    assert by_priority(*claims, pending("w", "a", 4, priority=2), machines=nodes(4, 4)) == ("h",)


def test_a_better_place_is_not_forgotten_for_one_where_the_machine_is_too_small_for_the_cheapest() -> None:
    """`small` would free a card, but not the CPU; `large`, which gives it, is dearer than h."""
    claims = [
        on("h", "b", 1, "n1", 0, priority=1, cpu_milli=8000),
        on("small", "c", 1, "n2", 0, cpu_milli=1000),
        on("large", "c", 2, "n2", 1, 2, cpu_milli=7000),
        on("fixed", "b", 1, "n3", 0, cpu_milli=8000, preemptible=False),
        pending("w", "a", 1, priority=2, cpu_milli=4000),
    ]
    assert by_priority(*claims, machines=nodes(1, 3, 2, cpu_milli=8000)) == ("h",)


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_places_that_cost_and_waste_the_same_the_first_by_name_is_taken(names: str) -> None:
    claims = [on(id, "b", 2, node, 0, 1) for id, node in zip(names, ("n1", "n2"), strict=True)]
    assert victims(*claims, pending("w", "a", 2), machines=nodes(2, 2)) == ("a",)


def test_of_claims_of_one_node_that_cost_the_same_the_one_goes_that_leaves_less_cpu_without_a_card() -> None:
    claims = [
        on("large", "b", 1, "n1", 0, cpu_milli=4000),
        on("small", "b", 1, "n1", 1, cpu_milli=1000),
        pending("w", "a", 1, cpu_milli=1000),
    ]
    departments = [a_department("a", 1), GUEST]
    decided = answers(a_snapshot(a_pool(nodes=nodes(2, cpu_milli=8000)), departments, claims))
    assert decided["w"].victims == ("small",)


def test_who_is_inside_its_guarantee_spares_its_own_whatever_they_lose() -> None:
    own = on("own", "a", 1, "n1", 0, lost=1, priority=-1)
    claims = [own, on("other", "b", 1, "n2", 0, lost=500), pending("w", "a", 1)]
    assert victims(*claims, machines=nodes(1, 1)) == ("other",)


@pytest.mark.parametrize("wasteful", ["h1", "h2"])
def test_of_claims_that_cost_the_same_on_two_nodes_the_one_goes_that_leaves_nothing_over(wasteful: str) -> None:
    tight = "h2" if wasteful == "h1" else "h1"
    claims = [
        on(wasteful, "b", 4, "n1", 0),
        on("some", "a", 3, "n1", 0, preemptible=False),
        on(tight, "b", 4, "n2", 0),
        on("more", "a", 4, "n2", 0, preemptible=False),
        pending("w", "a", 4),
    ]
    assert victims(*claims, machines=nodes(1, 1, units=8), **SHARED) == (tight,)


def test_the_cheapest_claim_of_a_node_is_left_to_who_may_not_take_it() -> None:
    """One claim would be enough, but the policy lets nobody take it, or none of its priority."""
    claims = [on("low", "b", 4, "n1", 0), on("high", "b", 4, "n1", 0, priority=1), pending("w", "a", 4, priority=1)]
    for reclaim, gone in (("never", ()), ("lower_priority", ("low",)), ("any", ("low",))):
        departments = [a_department("a", 100, policy=a_policy(reclaim=reclaim)), a_department("b")]
        snapshot = a_snapshot(a_pool(nodes=nodes(1, units=8), **SHARED), departments, claims)
        assert answers(snapshot)["w"].victims == gone
