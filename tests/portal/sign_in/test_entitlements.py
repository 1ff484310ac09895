"""Rules and groups → roles: properties of the pure core."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from portal.sign_in.entitlements import RANK, Changes, Entitled, Held, Rule, changes_to, entitled_to, matches

NAMES = st.text("abAB/*.(\n", min_size=1, max_size=5)
ROLES = st.sampled_from(sorted(RANK))
RULES = st.lists(
    st.builds(
        Rule, st.sampled_from(["a", "b"]), NAMES.filter(lambda name: name.strip("*") != ""),
        st.none() | st.integers(1, 4), ROLES,
    )
)  # fmt: skip
GROUPS = st.dictionaries(st.sampled_from(["a", "b"]), st.lists(NAMES, max_size=4))
HELD = st.lists(st.builds(Held, st.integers(1, 4), ROLES, st.booleans()), unique_by=lambda each: each.department)


def after(held: list[Held], changes: Changes) -> list[Held]:
    """Memberships once the changes are written."""
    kept = [each for each in held if each.department not in changes.lost]
    kept = [Held(each.department, changes.changed.get(each.department, each.role), each.from_rules) for each in kept]
    return kept + [Held(department, role, True) for department, role in changes.given.items()]


@given(RULES, GROUPS, HELD)
def test_applied_changes_keep_memberships_by_hand_and_add_those_of_rules(
    rules: list[Rule], groups: dict[str, list[str]], held: list[Held]
) -> None:
    entitled = entitled_to(rules, groups)
    result = after(held, changes_to(entitled, held))
    by_hand = [each for each in held if not each.from_rules]
    assert [each for each in result if not each.from_rules] == by_hand
    by_hand_in = {each.department for each in by_hand}
    assert {each.department: each.role for each in result if each.from_rules} == {
        department: role for department, role in entitled.roles.items() if department not in by_hand_in
    }
    assert not changes_to(entitled, result), "applying them again changes nothing"
    assert len({each.department for each in result}) == len(result)


@given(RULES, GROUPS, GROUPS)
def test_more_groups_never_give_lower_roles(
    rules: list[Rule], groups: dict[str, list[str]], more: dict[str, list[str]]
) -> None:
    both = {name: groups.get(name, []) + more.get(name, []) for name in groups.keys() | more.keys()}
    few, many = entitled_to(rules, groups), entitled_to(rules, both)
    assert all(RANK[many.roles[department]] >= RANK[role] for department, role in few.roles.items())
    assert many.operator >= few.operator


@given(RULES, GROUPS, st.randoms())
def test_order_of_rules_and_groups_does_not_matter(
    rules: list[Rule], groups: dict[str, list[str]], random: object
) -> None:
    shuffled = sorted(rules, key=lambda _rule: random.random())  # type: ignore[attr-defined]
    turned = {name: list(reversed(names)) for name, names in groups.items()}
    assert entitled_to(shuffled, turned) == entitled_to(rules, groups)


@given(HELD)
def test_without_groups_exactly_the_memberships_given_by_rules_are_lost(held: list[Held]) -> None:
    changes = changes_to(Entitled(), held)
    assert changes.lost == {each.department for each in held if each.from_rules}
    assert not changes.given
    assert not changes.changed


@given(NAMES.filter(lambda name: "*" not in name), NAMES)
def test_name_matches_only_itself_at_its_own_provider(name: str, other: str) -> None:
    rule = Rule("a", name, 1)
    assert matches(rule, "a", name)
    assert not matches(rule, "b", name)
    assert matches(rule, "a", other) == (name == other)


def test_star_matches_anything_and_every_other_character_itself() -> None:
    rule = Rule("a", "/gpu/*-users", 1)
    assert matches(rule, "a", "/gpu/vision-users")
    assert matches(rule, "a", "/gpu/a/b-users")
    assert not matches(rule, "a", "x/gpu/vision-users")
    assert not matches(rule, "a", "/gpu/vision-users ")
    assert not matches(Rule("a", "a.c", 1), "a", "abc")
    assert not matches(Rule("a", "GPU", 1), "a", "gpu")
    assert entitled_to(
        [Rule("a", "x", 1, "viewer"), Rule("a", "x*", 1, "owner"), Rule("a", "x", None)], {"a": ["x"]}
    ) == (Entitled({1: "owner"}, operator=True))


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=8))
def test_star_matches_any_characters_as_in_a_shell(pattern: str, name: str) -> None:
    assert matches(Rule("a", pattern, 1), "a", name) == fnmatchcase(name, pattern)


def test_pattern_with_over_a_hundred_stars_is_matched_at_once() -> None:
    assert not matches(Rule("a", "*a" * 120 + "b", 1), "a", "a" * 255)
