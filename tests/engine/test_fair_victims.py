"""Victims with fair sharing (rules 13 and 15), example by example: departments that borrow most are preempted first, at first
only so far that none ends with a smaller share than the preemptor's department."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from quotas.engine import planning_pass
from quotas.engine.planning_pass import decide
from quotas.engine.types import Claim, Department, Placed, Reservation
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, holding, leaving, nodes, pending
from tests.engine.towns import a_town

EVERYBODY = [a_department(id) for id in "abc"]
Victims = Callable[..., tuple[str, ...]]


@pytest.fixture(params=["a pool without nodes", "a tree of departments", "a node for each claim"])
def victims(request: pytest.FixtureRequest) -> Victims:
    """The victims for a claim of three units, or of `units`, in three kinds of pools that search for victims in different
    ways."""

    def of(*claims: Claim, departments: list[Department] = EVERYBODY, units: int = 3) -> tuple[str, ...]:
        pool = a_pool(sum(claim.units for claim in claims))
        if request.param == "a node for each claim":
            pool = a_pool(nodes=nodes(*(claim.units for claim in claims), 1))  # one is empty, and too small
            places = (Placed(0, f"n{n}", tuple(range(claim.units))) for n, claim in enumerate(claims, start=1))
            claims = tuple(replace(claim, placement=(place,)) for claim, place in zip(claims, places, strict=True))
        elif request.param == "a tree of departments":
            departments = [*departments, a_department("x"), a_department("y", parent="x")]
        preemptor = pending("w", "a", units)
        return answers(a_snapshot(pool, departments, [*claims, preemptor], fair_sharing=True))["w"].victims

    return of


def test_departments_whose_share_stays_at_least_the_preemptors_are_preempted_first(
    victims: Victims,
) -> None:
    """Without `all` b would use nothing, less than the preemptor's 3; without `half` c still uses 5."""
    assert victims(holding("all", "b", 4), holding("half", "c", 5), holding("rest", "c", 5)) == ("half",)


def test_otherwise_a_department_with_a_larger_share_before_the_preemption_is_preempted(victims: Victims) -> None:
    assert victims(holding("large", "b", 8)) == ("large",)


def test_department_that_borrows_no_more_than_the_preemptors_is_not_preempted(victims: Victims) -> None:
    assert victims(holding("same", "b", 3), holding("less", "c", 2)) == ()


def test_among_departments_giving_as_many_units_the_one_borrowing_most_is_preempted(victims: Victims) -> None:
    little = [holding(f"c{n}", "c", 2, started_at=-10) for n in range(3)]
    most = [holding(f"b{n}", "b", 2) for n in range(4)]
    (victim,) = victims(*little, *most, units=2)
    assert victim in {claim.id for claim in most}


def test_departments_without_weight_do_not_preempt_each_other_in_turn(victims: Victims) -> None:
    """Otherwise the victim would take the units back, as its department borrows no more for its weight than the other."""
    departments = [a_department(id, weight=0) for id in "abc"]
    assert victims(holding("one", "b", 1), holding("other", "b", 1), departments=departments, units=2) == ()


def test_shares_of_departments_without_weight_compare_by_units(victims: Victims) -> None:
    """b borrows six units, and four without `small`; a would borrow two."""
    departments = [a_department(id, weight=0) for id in "abc"]
    assert victims(holding("small", "b", 2), holding("large", "b", 4), departments=departments, units=2) == ("small",)


def test_preemptor_inside_its_guarantee_can_leave_a_borrower_with_a_smaller_share(victims: Victims) -> None:
    owner = [a_department("a", 3), *EVERYBODY[1:]]
    assert victims(holding("large", "b", 3), holding("small", "c", 2), departments=owner) == ("large",)


def test_own_work_is_not_preempted_only_to_lower_the_preemptors_share(victims: Victims) -> None:
    """Without `large` b uses 2, as much as the preemptor's department would without `own`. But no place needs `own` to go: it
    would start again at once."""
    own, large = holding("own", "a", 1, priority=-1), holding("large", "b", 3)
    assert victims(own, large, holding("rest", "b", 2, preemptible=False), units=2) == ("large",)


def test_notices_are_withdrawn_so_that_no_department_ends_below_the_preemptors() -> None:
    """`large` alone would be enough if the preemptor's department held nothing else; if x and y left, c and d would end below
    it."""
    leavers = [leaving("own", "a", 1), leaving("large", "b", 2), leaving("x", "c", 3), leaving("y", "d", 3)]
    claims = [replace(claim, preempted_for="w") for claim in leavers]  # type: ignore[arg-type]
    claims += [holding("hb", "b", 2), holding("hc", "c", 1), holding("hd", "d", 1)]
    claims += [pending("w", "a", 2, reserved=Reservation(2, ()))]
    plan = decide(a_snapshot(a_pool(13), [a_department(id) for id in "abcd"], claims, fair_sharing=True))
    assert ([d.waiting_on for d in plan.decisions], plan.withdrawn) == ([("large", "own")], ("x", "y"))


def on(id: str, department: str, units: int, node: str, first: int = 0, **more: int) -> Claim:
    return holding(id, department, units, placement=(Placed(0, node, tuple(range(first, first + units))),), **more)


def test_department_that_borrows_most_is_preempted_although_another_loses_less_work() -> None:
    claims = [on(id, id[0], 1, f"n{n}") for n, id in enumerate(("b1", "b2", "b3", "c1", "c2"), start=1)]
    claims = [replace(claim, checkpointed_at=0 if claim.department == "c" else None) for claim in claims]
    snapshot = a_snapshot(
        a_pool(nodes=nodes(1, 1, 1, 1, 1)), EVERYBODY, [*claims, pending("w", "a", 1)], fair_sharing=True
    )
    assert answers(snapshot)["w"].victims == ("b2",), (
        "b1 is before it in line: it was submitted first, and with it b borrows no more"
    )


def test_no_department_ends_below_the_preemptors_where_a_node_lacks_cpu_either() -> None:
    """On n1 `card` frees too little CPU, and `cpu`, which frees enough, would leave c nothing; `other` costs more units."""
    claims = [on("card", "b", 1, "n1", cpu_milli=1000), on("cpu", "c", 2, "n1", 1, cpu_milli=7000)]
    claims += [on("other", "b", 3, "n2", cpu_milli=8000), pending("w", "a", 1, cpu_milli=4000)]
    snapshot = a_snapshot(a_pool(nodes=nodes(3, 3, cpu_milli=8000)), EVERYBODY, claims, fair_sharing=True)
    assert answers(snapshot)["w"].victims == ("other",)


def test_department_that_keeps_quota_is_preempted_first_though_fewer_units_can_be_taken() -> None:
    """b, which has no weight, borrows most. It keeps two of its three units, so that preempting `large` entitles a to only
    one, and `small` must be preempted too. A search that tries only the set without its smallest claim would find `large`
    unnecessary and take `middle` alone."""
    departments = [a_department("a", 2), a_department("b", 2, None, 0, weight=0), a_department("c")]
    claims = [holding("large", "b", 3), holding("small", "c", 1), holding("middle", "c", 2), pending("w", "a", 2)]
    decided = answers(a_snapshot(a_pool(6), departments, claims, fair_sharing=True))
    assert decided["w"].victims == ("large", "small")


def test_department_with_a_victim_borrows_less_and_is_served_earlier() -> None:
    """Once h is preempted for `first`, c would borrow 1 with its next claim, b 2; two units are free."""
    claims = [
        holding("h", "c", 3),
        pending("first", "a", 3, submitted_at=-20),
        pending("b1", "b", 2),
        pending("c1", "c", 1),
    ]
    departments = [a_department("a", 1), a_department("b"), a_department("c")]
    decided = answers(a_snapshot(a_pool(5), departments, claims, fair_sharing=True))
    assert {id: decision.decision for id, decision in decided.items()} == {
        "first": "reclaim",
        "c1": "admit",
        "b1": "wait",
    }


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The claims for which victims were searched."""
    claims: list[str] = []
    choose = planning_pass.choose
    monkeypatch.setattr(planning_pass, "choose", lambda state, claim: claims.append(claim.id) or choose(state, claim))
    return claims


def test_search_is_skipped_for_claims_like_a_borrower_that_found_no_victims(searched: list[str]) -> None:
    crowd = [pending(f"w{n}", "a", 2, submitted_at=n - 60) for n in range(20)]
    other = pending("other", "a", 1, submitted_at=-10)
    decided = answers(a_snapshot(a_pool(2), EVERYBODY, [holding("b1", "b", 2), *crowd, other], fair_sharing=True))
    assert {decision.decision for decision in decided.values()} == {"wait"}
    assert sorted(searched) == ["other", "w0"]


@pytest.mark.parametrize("seed", range(30))
def test_skipped_searches_would_have_found_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    town = a_town(seed)
    town = replace(town, settings=replace(town.settings, fair_sharing=True))
    plan = decide(town)
    monkeypatch.setattr(planning_pass, "_kind", lambda claim: claim.id)
    assert decide(town) == plan
