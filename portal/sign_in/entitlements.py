"""What group rules give: rules and groups → roles in departments. Pure: neither database nor clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

RANK = {"viewer": 0, "member": 1, "owner": 2}


@dataclass(frozen=True, slots=True)
class Rule:
    """People in the group at the provider get `role` in the department; `department` None: they become operators.

    `pattern` is the group's exact name, or has `*` for any characters.
    """

    provider: str
    pattern: str
    department: int | None
    role: str = "member"


@dataclass(frozen=True, slots=True)
class Entitled:
    """`roles`: department id → the highest role that a rule gives."""

    roles: Mapping[int, str] = field(default_factory=dict)
    operator: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """An existing membership. `from_rules` False: given by hand, so rules do not change it."""

    department: int
    role: str
    from_rules: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """`given`: department id → role, of new memberships; `changed`: the same, of those whose role changes; `lost`: department
    ids."""

    given: Mapping[int, str]
    changed: Mapping[int, str]
    lost: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.given or self.changed or self.lost)


def matches(rule: Rule, provider: str, group: str) -> bool:
    """Whether the rule matches this group. Each part of the pattern is matched at its first place, so a pattern of a hundred
    stars costs no more than one."""
    if rule.provider != provider:
        return False
    first, *parts = rule.pattern.split("*")
    if not parts:
        return group == first
    *parts, last = parts
    if not group.startswith(first) or len(group) < len(first) + len(last) or not group.endswith(last):
        return False
    begin, end = len(first), len(group) - len(last)
    for part in parts:
        at = group.find(part, begin, end)
        if at < 0:
            return False
        begin = at + len(part)
    return True


def entitled_to(rules: Iterable[Rule], groups: Mapping[str, Iterable[str]]) -> Entitled:
    """What the rules give to somebody with these groups (provider → names)."""
    roles: dict[int, str] = {}
    operator = False
    pairs = [(provider, group) for provider, names in groups.items() for group in names]
    for rule in rules:
        if not any(matches(rule, provider, group) for provider, group in pairs):
            continue
        if rule.department is None:
            operator = True
        elif RANK[rule.role] >= RANK[roles.get(rule.department, "viewer")]:
            roles[rule.department] = rule.role
    return Entitled(roles, operator)


def changes_to(entitled: Entitled, held: Sequence[Held]) -> Changes:
    """The changes that turn the memberships from rules into what the rules give; those given by hand stay as they are."""
    by_hand = {each.department for each in held if not each.from_rules}
    before = {each.department: each.role for each in held if each.from_rules}
    after = {department: role for department, role in entitled.roles.items() if department not in by_hand}
    return Changes(
        given={department: role for department, role in after.items() if department not in before},
        changed={department: role for department, role in after.items() if before.get(department, role) != role},
        lost=frozenset(before.keys() - after.keys()),
    )
