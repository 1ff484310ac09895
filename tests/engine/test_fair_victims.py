"""Victims with fair sharing, example by example: who borrows much gives, first so that nobody ends below the taker."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from quotas.engine.types import Claim, Department, Placed
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, holding, nodes, pending

EVERYBODY = [a_department(id) for id in "abc"]
Victims = Callable[..., tuple[str, ...]]


@pytest.fixture(params=["a pool that counts", "a tree of departments", "a node for each claim"])
def victims(request: pytest.FixtureRequest) -> Victims:
    """Who goes for a claim of three units, or so many: each of these worlds finds its victims in another way."""

    def of(*claims: Claim, departments: list[Department] = EVERYBODY, units: int = 3) -> tuple[str, ...]:
        pool = a_pool(sum(claim.units for claim in claims))
        if request.param == "a node for each claim":
            pool = a_pool(nodes=nodes(*(claim.units for claim in claims), 1))  # one is empty, and too small
            places = (Placed(0, f"n{n}", tuple(range(claim.units))) for n, claim in enumerate(claims, start=1))
            claims = tuple(replace(claim, placement=(place,)) for claim, place in zip(claims, places, strict=True))
        elif request.param == "a tree of departments":
            departments = [*departments, a_department("x"), a_department("y", parent="x")]
        asked = pending("w", "a", units)
        return answers(a_snapshot(pool, departments, [*claims, asked], fair_sharing=True))["w"].victims

    return of


def test_a_department_that_still_borrows_as_much_afterwards_gives_before_one_that_would_borrow_less(
    victims: Victims,
) -> None:
    """Without `all` b would use nothing, less than the taker's 3; without `half` c still uses 5."""
    assert victims(holding("all", "b", 4), holding("half", "c", 5), holding("rest", "c", 5)) == ("half",)


def test_where_nobody_could_give_so_much_who_borrows_more_now_gives(victims: Victims) -> None:
    assert victims(holding("large", "b", 8)) == ("large",)


def test_nobody_gives_to_who_would_borrow_as_much_as_he_does(victims: Victims) -> None:
    assert victims(holding("same", "b", 3), holding("less", "c", 2)) == ()


def test_of_those_who_may_give_as_many_units_the_one_gives_who_borrows_most(victims: Victims) -> None:
    little = [holding(f"c{n}", "c", 2, started_at=-10) for n in range(3)]
    most = [holding(f"b{n}", "b", 2) for n in range(4)]
    (victim,) = victims(*little, *most, units=2)
    assert victim in {claim.id for claim in most}


def test_the_taker_inside_its_guarantee_may_leave_a_borrower_below_itself(victims: Victims) -> None:
    owner = [a_department("a", 3), *EVERYBODY[1:]]
    assert victims(holding("large", "b", 3), holding("small", "c", 2), departments=owner) == ("large",)


def test_who_keeps_a_part_gives_less_by_right_than_it_has_and_still_gives_first() -> None:
    """b, of no weight, borrows most: of its three units one comes back by right, so c's small one goes too. To look only at
    the set without its smallest claim would take `large` for needless, and c's larger one alone."""
    departments = [a_department("a", 2), a_department("b", 2, None, 0, weight=0), a_department("c")]
    claims = [holding("large", "b", 3), holding("small", "c", 1), holding("middle", "c", 2), pending("w", "a", 2)]
    decided = answers(a_snapshot(a_pool(6), departments, claims, fair_sharing=True))
    assert decided["w"].victims == ("large", "small")
