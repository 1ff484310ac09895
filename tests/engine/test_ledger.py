"""The arithmetic of quotas (docs/quota-rules-reference.md, "The arithmetic"): trees, limits, lending windows, ceilings and
shares."""

from dataclasses import replace
from fractions import Fraction

from quotas.engine.quota_tree import Ledger, share
from quotas.engine.types import Department, Quota
from tests.engine.builders import POOL, a_department, a_pool, a_snapshot, answers, is_overdrawn


def a_tree() -> Ledger:
    """lab (2 own, lends 3) over one (4, keeps 3) and two (4, borrows at most 1); a guest with nothing; 2 unassigned."""
    departments = [
        a_department("lab", 2, lend_limit=3),
        a_department("one", 4, lend_limit=1, parent="lab"),
        a_department("two", 4, borrow_limit=1, parent="lab"),
        a_department("guest"),
    ]
    return Ledger(a_pool(12), departments)


def numbers(ledger: Ledger, name: str) -> dict[str, int | None]:
    account = ledger.accounts.get(name, ledger.root)  # type: ignore[call-overload]
    return {
        key: getattr(account, key) for key in ("guaranteed", "promised", "kept", "usage", "ceiling", "present_ceiling")
    }


def test_all_numbers_of_an_unused_tree() -> None:
    ledger = a_tree()
    one = {"guaranteed": 4, "promised": 4, "kept": 3, "usage": 0, "ceiling": 12, "present_ceiling": 12}
    two = {"guaranteed": 4, "promised": 4, "kept": 0, "usage": 0, "ceiling": 5, "present_ceiling": 5}
    lab = {"guaranteed": 2, "promised": 7, "kept": 4, "usage": 0, "ceiling": 9, "present_ceiling": 9}
    guest = {"guaranteed": 0, "promised": 0, "kept": 0, "usage": 0, "ceiling": 5, "present_ceiling": 5}
    root = {"guaranteed": 2, "promised": 5, "kept": 0, "usage": 0, "ceiling": 5, "present_ceiling": 5}
    assert [numbers(ledger, name) for name in ("one", "two", "lab", "guest", "")] == [one, two, lab, guest, root]
    assert not ledger.flat
    assert [account.id for account in ledger.keepers] == ["lab", "one"]


def test_usage_above_what_a_department_keeps_counts_in_its_parent() -> None:
    ledger = a_tree()
    ledger.add("one", 4)  # type: ignore[arg-type]
    assert [numbers(ledger, name)["usage"] for name in ("one", "lab", "")] == [4, 1, 0]
    ledger.add("one", 5)  # type: ignore[arg-type]
    assert [numbers(ledger, name)["usage"] for name in ("one", "lab", "")] == [9, 6, 2]
    assert [ledger.available(name) for name in ("one", "two", "guest")] == [3, 3, 3]  # type: ignore[arg-type]
    assert ledger.above == {"one"}
    ledger.remove("one", 5)  # type: ignore[arg-type]
    assert [numbers(ledger, name)["usage"] for name in ("one", "lab", "")] == [4, 1, 0]
    assert ledger.above == set()
    assert [ledger.available(name) for name in ("one", "two", "guest")] == [8, 5, 5]  # type: ignore[arg-type]


def test_available_is_negative_once_a_borrow_limit_is_exceeded() -> None:
    ledger = Ledger(a_pool(8), [a_department("a", 2, borrow_limit=1), a_department("b", 4)])
    ledger.add("a", 5)  # type: ignore[arg-type]
    assert ledger.available("a") == -2  # type: ignore[arg-type]
    assert ledger["a"].borrowable == -2  # type: ignore[index]
    assert ledger["b"].borrowable is None  # type: ignore[index]


def test_department_is_overdrawn_if_it_or_one_above_it_exceeds_a_limit() -> None:
    ledger = a_tree()
    names = ["one", "two", "lab", "guest"]
    ledger.add("two", 5)  # type: ignore[arg-type]
    assert [name for name in names if is_overdrawn(ledger, name)] == []
    ledger.add("two", 1)  # type: ignore[arg-type]
    assert [name for name in names if is_overdrawn(ledger, name)] == ["two"]
    ledger.add("two", -6)  # type: ignore[arg-type]
    ledger.add("guest", 5)  # type: ignore[arg-type]
    assert [name for name in names if is_overdrawn(ledger, name)] == []
    ledger.add("guest", 1)  # type: ignore[arg-type]
    assert ledger.available("one") >= 0  # type: ignore[arg-type]
    assert [name for name in names if is_overdrawn(ledger, name)] == names


def test_claim_is_inside_up_to_the_guarantee() -> None:
    ledger = Ledger(a_pool(8), [a_department("a", 3)])
    ledger.add("a", 1)  # type: ignore[arg-type]
    assert (ledger.inside("a", 2), ledger.inside("a", 3)) == (True, False)  # type: ignore[arg-type]


def test_ledger_notes_departments_whose_usage_changed() -> None:
    ledger = a_tree()
    ledger.add("two", 1)  # type: ignore[arg-type]
    ledger.moved.clear()
    ledger.remove("guest", 1)  # type: ignore[arg-type]
    assert ledger.moved == {"guest"}


def test_share_is_exact_and_divided_by_the_weight() -> None:
    ledger = Ledger(a_pool(9), [a_department("a", 2, weight=3), a_department("b", 1, weight=0), a_department("c", 0)])
    assert (ledger.capacity, ledger.nominal, ledger.root.guaranteed) == (9, 9, 6)
    a, b, c = ledger["a"], ledger["b"], ledger["c"]  # type: ignore[index]
    assert share(a, 2) == share(b, 1) == share(ledger.root, 99) == 0
    assert (share(a, 3), share(a, 5), share(c, 1), share(c, 2)) == (1, 3, 3, 6)
    assert share(b, 3) > share(b, 2) > share(a, 1000)
    ledger.add("a", 2)  # type: ignore[arg-type]
    assert share(a, a.usage + 4) == 4
    nothing = Ledger(a_pool(0), [a_department("a")])
    assert share(nothing["a"], 2) > share(nothing["a"], 1) > 0  # type: ignore[index]


def test_shares_of_different_parents_and_weights_have_a_common_unit() -> None:
    half = Fraction(1, 2)
    ledger = Ledger(
        a_pool(9),
        [
            a_department("lab", borrow_limit=4),
            a_department("a", parent="lab", weight=half),
            a_department("b", weight=half * 3),
        ],
    )
    lab, a, b = ledger["lab"], ledger["a"], ledger["b"]  # type: ignore[index]
    assert (lab.ceiling, share(lab, 1), share(a, 1), share(b, 1)) == (4, 6, 27, 4)  # of 1/9, 1/2 and 2/27


def test_ceilings_are_computed_for_nominal_and_for_present_capacity() -> None:
    ledger = Ledger(a_pool(5, nominal=8), [a_department("a", 2), a_department("b", 4)])
    assert (ledger["a"].ceiling, ledger["a"].present_ceiling) == (8, 5)  # type: ignore[index]
    assert (ledger.root.ceiling, ledger.root.present_ceiling) == (8, 5)
    assert ledger.flat


def owner(lend_limit: int | None, most: int | None) -> Department:
    quota = Quota(8, lend_limit=lend_limit, lend_limit_most=most)
    return replace(a_department("owner"), quotas={POOL: quota})  # type: ignore[dict-item]


def test_a_ceiling_counts_every_lending_window_at_its_widest() -> None:
    guest, keeper = a_department("guest"), a_department("keeper", 4, lend_limit=1)

    def ceiling_of_a_guest(*owners: Department) -> int:
        return Ledger(a_pool(12), [*owners, keeper, guest])["guest"].ceiling  # type: ignore[index]

    assert ceiling_of_a_guest(owner(2, None)) == 3
    assert ceiling_of_a_guest(owner(2, 6)) == 7
    assert ceiling_of_a_guest(owner(None, None)) == 9
    ledger = Ledger(a_pool(12), [owner(2, 6), keeper, guest])
    assert (ledger.root.ceiling, ledger.root.promised) == (7, 3)
    assert [ledger[name].kept for name in ("owner", "keeper")] == [6, 3]  # type: ignore[index]
    assert ledger.available("guest") == 3  # type: ignore[arg-type]


def test_lending_window_of_one_pool_does_not_affect_other_pools_of_the_department() -> None:
    quotas = {POOL: Quota(4, lend_limit=0, lend_limit_most=4), "other": Quota(4, lend_limit=2)}
    both = replace(a_department("owner"), quotas=quotas)  # type: ignore[arg-type]
    guest = replace(a_department("guest"), quotas={})
    assert Ledger(a_pool(4), [both, guest])["guest"].ceiling == 4  # type: ignore[index]
    assert Ledger(a_pool(4, id="other"), [both, guest])["guest"].ceiling == 2  # type: ignore[index]


def test_stranded_units_are_charged_but_are_no_capacity_for_others() -> None:
    """Two of the five units are on a node that is gone: a's claim there uses them, and no other claim could have them."""
    ledger = Ledger(a_pool(3, nominal=5), [a_department("a", 2), a_department("b", 1)], stranded=2)
    ledger.add("a", 2)  # type: ignore[arg-type]
    assert (ledger.root.guaranteed, ledger.available("b")) == (2, 3)  # type: ignore[arg-type]
    assert (ledger["b"].present_ceiling, ledger["b"].ceiling) == (3, 5)  # type: ignore[index]


def test_department_that_keeps_quota_borrows_only_above_its_guarantee() -> None:
    ledger = Ledger(a_pool(12, nominal=13), [a_department("a", 4, borrow_limit=1, lend_limit=1)])
    assert (ledger["a"].kept, ledger["a"].ceiling, ledger["a"].present_ceiling) == (3, 5, 5)  # type: ignore[index]
    for used, available in ((0, 5), (2, 3), (2, 1)):  # of the three units that it keeps, idle are: all, one, none
        ledger.add("a", used)  # type: ignore[arg-type]
        assert ledger.available("a") == available  # type: ignore[arg-type]


def test_borrow_limits_leave_idle_kept_quota_and_the_limit_at_each_level() -> None:
    """a keeps all of its four units, of which two are idle, and may borrow one; its group keeps three idle units and may
    borrow one."""
    departments = [
        a_department("group", 3, borrow_limit=1, lend_limit=0),
        a_department("a", 4, borrow_limit=1, lend_limit=0, parent="group"),
        a_department("b", 0, borrow_limit=9, parent="group"),
    ]
    ledger = Ledger(a_pool(20), departments)
    ledger.add("a", 2)  # type: ignore[arg-type]
    assert [ledger.passed_limit("a", units) is None for units in (3, 4)] == [True, False]  # type: ignore[arg-type]
    assert [ledger.passed_limit("b", units) is None for units in (4, 5)] == [True, False]  # type: ignore[arg-type]
    wider = [departments[0], a_department("a", 4, borrow_limit=9, lend_limit=0, parent="group")]
    ledger = Ledger(a_pool(20), wider)
    ledger.add("a", 2)  # type: ignore[arg-type]
    assert [ledger.passed_limit("a", units) is None for units in (6, 7)] == [True, False]  # type: ignore[arg-type]


def test_available_adds_up_what_is_kept_at_every_level() -> None:
    ledger = a_tree()
    assert [ledger.available(name) for name in ("one", "two", "lab", "guest")] == [12, 5, 9, 5]  # type: ignore[arg-type]
    ledger.add("one", 2)  # type: ignore[arg-type]
    assert ledger.available("one") == 10  # type: ignore[arg-type]


def test_shares_are_exact_for_weights_below_one() -> None:
    weights = Fraction(2, 3), Fraction(3, 5)
    ledger = Ledger(a_pool(1), [a_department(name, weight=weight) for name, weight in zip("ab", weights, strict=True)])
    assert [share(ledger[name], 1) for name in "ab"] == [9, 10]  # type: ignore[index]


def test_pool_without_any_quota_can_be_planned() -> None:
    ledger = Ledger(a_pool(4), [])
    assert (ledger.capacity, ledger.root.guaranteed, ledger.keepers) == (4, 4, [])
    assert answers(a_snapshot(a_pool(4), [], [])) == {}
