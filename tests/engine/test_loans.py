"""Who lends to whom: the ledger's pairs add up."""

from hypothesis import given, settings

from quotas.engine.loans import loans_of
from quotas.engine.types import ClaimState, Snapshot
from tests.engine.builders import a_department, a_pool, a_snapshot, holding
from tests.engine.effort import examples
from tests.engine.strategies import snapshots


def test_who_came_first_has_its_departments_own_units() -> None:
    departments = [a_department("a", 2), a_department("b", 4)]
    claims = [holding("early", "a", 2, started_at=-900), holding("late", "a", 3)]
    (loan,) = loans_of(a_snapshot(a_pool(6), departments, claims), "gpu")  # type: ignore[arg-type]
    assert (loan.claim, loan.borrower, loan.lender, loan.units) == ("late", "a", "b", 3)


def test_a_parents_own_guarantee_is_lent_to_its_teams_by_the_parent() -> None:
    departments = [a_department("lab", 2), a_department("one", 4, parent="lab"), a_department("two", 4, parent="lab")]
    loans = loans_of(a_snapshot(a_pool(10), departments, [holding("x", "one", 10)]), "gpu")  # type: ignore[arg-type]
    assert {loan.lender: loan.units for loan in loans} == {"two": 4, "lab": 2}


def test_what_was_lent_before_a_limit_fell_is_still_the_owners() -> None:
    departments = [a_department("a"), a_department("b", 4, lend_limit=1), a_department("c", 2)]
    loans = loans_of(a_snapshot(a_pool(6), departments, [holding("x", "a", 5)]), "gpu")  # type: ignore[arg-type]
    assert {loan.lender: loan.units for loan in loans} == {"c": 2, "b": 3}


@settings(max_examples=examples(60, 1000), deadline=None)
@given(snapshots())
def test_what_is_borrowed_is_what_departments_use_above_their_guarantee(snapshot: Snapshot) -> None:
    borrowed: dict[str, int] = {}
    for loan in loans_of(snapshot, snapshot.pools[0].id):
        assert loan.borrower != loan.lender
        borrowed[loan.borrower] = borrowed.get(loan.borrower, 0) + loan.units
    for department in snapshot.departments:
        mine = [c.units for c in snapshot.claims if c.department == department.id and c.state is ClaimState.HOLDING]
        assert borrowed.get(department.id, 0) == max(0, sum(mine) - department.quotas["gpu"].guaranteed)
