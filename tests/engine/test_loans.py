"""Loans (rule 3): which department lends to which, and that the pairs of the ledger add up."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quotas.engine.planning_pass import decide
from quotas.engine.quota_tree import Account, Ledger, Loan, loans_of, usage_of
from quotas.engine.snapshot_json import decision_to_json, parse_snapshot
from quotas.engine.types import UNASSIGNED, ClaimState, Department, Snapshot
from tests.engine.builders import a_department, a_pool, a_snapshot, holding, is_overdrawn
from tests.engine.effort import examples
from tests.engine.forward import GPU, World, a_crowd
from tests.engine.strategies import snapshots


def test_earlier_claim_uses_the_departments_own_units() -> None:
    departments = [a_department("a", 2), a_department("b", 4)]
    claims = [holding("early", "a", 2, started_at=-900), holding("late", "a", 3)]
    (loan,) = loans_of(a_snapshot(a_pool(6), departments, claims), "gpu")  # type: ignore[arg-type]
    assert (loan.claim, loan.borrower, loan.lender, loan.units) == ("late", "a", "b", 3)


def test_a_parents_own_guarantee_is_lent_to_its_teams_by_the_parent() -> None:
    departments = [a_department("lab", 2), a_department("one", 4, parent="lab"), a_department("two", 4, parent="lab")]
    loans = loans_of(a_snapshot(a_pool(10), departments, [holding("x", "one", 10)]), "gpu")  # type: ignore[arg-type]
    assert {loan.lender: loan.units for loan in loans} == {"two": 4, "lab": 2}


def test_loan_from_before_a_lend_limit_was_lowered_keeps_its_lender() -> None:
    departments = [a_department("a"), a_department("b", 4, lend_limit=1), a_department("c", 2)]
    loans = loans_of(a_snapshot(a_pool(6), departments, [holding("x", "a", 5)]), "gpu")  # type: ignore[arg-type]
    assert {loan.lender: loan.units for loan in loans} == {"c": 2, "b": 3}


CASES = Path(__file__).parent / "cases" / "field" / "ledger-in-trees-names-the-wrong-lender.jsonl"


@pytest.mark.parametrize("line", CASES.read_text().splitlines(), ids=lambda line: json.loads(line)["id"])
def test_a_decision_names_the_nearest_lender(line: str) -> None:
    expected = json.loads(CASES.with_suffix(".expected.json").read_text())[json.loads(line)["id"]]
    decided = {
        decision.claim: decision_to_json(decision) for decision in decide(parse_snapshot(json.loads(line))).decisions
    }
    for claim, facts in expected.items():
        assert {fact: decided[claim][fact] for fact in facts} == facts  # type: ignore[index]


def lenders_of(departments: list[Department], capacity: int, *borrowed: tuple[str, int]) -> dict[str, int]:
    claims = [holding(f"x{n}", department, units) for n, (department, units) in enumerate(borrowed)]
    units_by_lender: dict[str, int] = {}
    for loan in loans_of(a_snapshot(a_pool(capacity), departments, claims), GPU):
        units_by_lender[loan.lender] = units_by_lender.get(loan.lender, 0) + loan.units
    return units_by_lender


LAB = [a_department("lab", 2), a_department("one", 1, parent="lab"), a_department("two", 2, parent="lab")]


def test_team_borrows_from_the_nearest_first_and_unassigned_capacity_last() -> None:
    """The two units of its sibling, the two of its parent, the four of another department, and only then the rest."""
    departments = [*LAB, a_department("guest", 4)]
    for units, lenders in (
        (3, {"two": 2}),
        (5, {"two": 2, "lab": 2}),
        (9, {"two": 2, "lab": 2, "guest": 4}),
        (12, {"two": 2, "lab": 2, "guest": 4, "": 3}),
    ):
        assert lenders_of(departments, 12, ("one", units)) == lenders


def test_a_department_without_parent_borrows_unassigned_capacity_first() -> None:
    assert lenders_of([*LAB, a_department("guest")], 8, ("guest", 5)) == {"": 3, "lab": 2}


def test_lend_limit_of_a_department_covers_all_its_teams_together() -> None:
    """Each team alone would lend its guarantee; all teams and the department's own guarantee together lend two."""
    lab = [a_department("lab", 2, lend_limit=2), *LAB[1:]]
    departments = [*lab, a_department("guest"), a_department("other", 4)]
    assert lenders_of(departments, 9, ("guest", 6)) == {"other": 4, "lab": 2}


def test_team_borrows_inside_its_department_even_if_an_outside_borrower_started_earlier() -> None:
    """`guest` started earlier: of lab's five units it has the three that lab's teams do not use themselves."""
    departments = [*LAB, a_department("guest")]
    claims = [holding("g", "guest", 3, started_at=-900), holding("x", "one", 3)]
    loans = loans_of(a_snapshot(a_pool(6), departments, claims), GPU)
    assert sum(loan.units for loan in loans if loan.borrower == "one" and loan.lender in ("two", "lab")) == 2


@settings(max_examples=examples(300, 5000), deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_loans_in_trees_respect_limits_and_use_nearer_idle_quota_first(seed: int, placed: bool) -> None:
    """While no limit is exceeded: a department and its teams borrow exactly what they use above their guarantees, and lend
    neither more than they leave idle nor more than their lend limit."""
    snapshot = a_crowd(seed, World(fair=False, nested=True, placed=placed))
    ledger, loans = usage_of(snapshot, GPU), loans_of(snapshot, GPU)
    assume(not any(is_overdrawn(ledger, id) for id in ledger.accounts) and ledger.root.guaranteed >= 0)
    for account in ledger.accounts.values():
        inside = _inside(account)
        lent = sum(loan.units for loan in loans if loan.lender in inside and loan.borrower not in inside)
        borrowed = sum(loan.units for loan in loans if loan.borrower in inside and loan.lender not in inside)
        limit = account.quota.lend_limit
        idle = account.promised - max(account.usage, account.kept)
        assert lent <= max(0, idle)
        assert limit is None or lent <= limit
        assert borrowed == max(0, account.usage - account.promised)
        own = sum(loan.units for loan in loans if loan.lender == account.id)
        assert own <= max(0, account.guaranteed - account.direct)
    assert sum(loan.units for loan in loans if loan.lender == UNASSIGNED) <= ledger.root.guaranteed
    assert all(_nearer_quota_is_used_up(ledger, loans, loan) for loan in loans)


def _inside(account: Account) -> set[str]:
    return {str(account.id)}.union(*(_inside(child) for child in account.children))


def _nearer_quota_is_used_up(ledger: Ledger, loans: tuple[Loan, ...], loan: Loan) -> bool:
    """Whether every parent of the borrower that is nearer than the lender has lent all of its own guarantee."""
    above = ledger[loan.borrower].parent
    while above is not None and above.parent is not None and str(loan.lender) not in _inside(above):
        lent = sum(other.units for other in loans if other.lender == above.id)
        if lent < above.guaranteed - above.direct:
            return False
        above = above.parent
    return True


@settings(max_examples=examples(60, 1000), deadline=None)
@given(snapshots() | snapshots(nested=True))
def test_departments_borrow_exactly_what_they_use_above_their_guarantee(snapshot: Snapshot) -> None:
    borrowed: dict[str, int] = {}
    for loan in loans_of(snapshot, snapshot.pools[0].id):
        assert loan.borrower != loan.lender
        borrowed[loan.borrower] = borrowed.get(loan.borrower, 0) + loan.units
    for department in snapshot.departments:
        held = [c.units for c in snapshot.claims if c.department == department.id and c.state is ClaimState.HOLDING]
        assert borrowed.get(department.id, 0) == max(0, sum(held) - department.quotas["gpu"].guaranteed)
