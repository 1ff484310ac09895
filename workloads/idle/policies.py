"""Idle policies: those of pools, set by operators, and those of departments in pools, which can only be stricter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from django.db.models import F

from portal import audit
from portal.access import Actor, Right
from portal.errors import N_, Invalid
from portal.infra.locks import durable
from portal.infra.versions import check_fresh
from portal.models import Department
from portal.notify.events import emit
from quotas.models import Pool
from quotas.tree import upwards
from workloads.idle.names import action_name
from workloads.idle.rule import DEFAULT, LIMITS, Action, Looser, Rule, combined, looser_than
from workloads.models import ASKED_HERE, IdlePolicy, Kind

Rules = Mapping[str, Rule]
"""Kind of workload → its rule. Missing kinds have no rule here."""


class Loosens(Invalid):
    """A department's rule allows more than the wider one."""

    code = "looser_than_pool"
    message = N_("A department can only tighten an idle policy.")


LOOSER = {
    "below": N_(
        "For the kind %(kind)s the policy here counts activity below %(wider)s %% as idle. A department can only raise "
        "that, not lower it to %(own)s %%."
    ),
    "minutes": N_(
        "For the kind %(kind)s the policy here is %(wider)s minutes. A department can only choose fewer, not %(own)s."
    ),
    "countdown": N_(
        "For the kind %(kind)s the policy here stops %(wider)s minutes after the warning. A department can only choose "
        "fewer, not %(own)s."
    ),
    "keep": N_(
        'For the kind %(kind)s “Keep it” gives %(wider)s minutes here. A department can only choose fewer, not %(own)s.'
    ),
    "action": N_(
        "For the kind %(kind)s the action here is “%(wider)s”. A department can only choose a stricter one, not "
        "“%(own)s”."
    ),
}  # fmt: skip


class Policies:
    """All idle policies, read once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int | None], Rules] = {
            (pool, department): rules_of(rules)
            for pool, department, rules in IdlePolicy.objects.values_list("pool", "department", "rules")
        }

    @cached_property
    def _tree(self) -> dict[int, Department]:
        return Department.objects.in_bulk()

    def own(self, pool: int, department: int | None) -> Rules:
        """The rules set for exactly this pool and department."""
        return self._rows.get((pool, department), {})

    def wider(self, pool: int, department: int, kind: str) -> Rule | None:
        """The rule that applies without the department's own policy: from the pool and the departments above it."""
        above = [row.pk for row in upwards(self._tree, department) if row.pk != department]
        return combined(self._at(pool, kind, [None, *above]))

    def effective(self, pool: int, department: int | None, kind: str) -> Rule | None:
        """The rule in force; None if none is set for this kind."""
        if department is None or not self._rows:
            return self.own(pool, None).get(kind)
        return combined(self._at(pool, kind, [None, *(row.pk for row in upwards(self._tree, department))]))

    def definition(self, pool: int, department: int, kind: str) -> Rule:
        """The rule in force, or DEFAULT, which does nothing, if none is set."""
        return self.effective(pool, department, kind) or DEFAULT

    def _at(self, pool: int, kind: str, places: list[int | None]) -> Iterator[Rule]:
        for place in places:
            if kind in (rules := self.own(pool, place)):
                yield rules[kind]


def rules_of(stored: Mapping[str, Any]) -> dict[str, Rule]:
    return {kind: Rule.from_json(values) for kind, values in stored.items() if kind in ASKED_HERE}


def as_json(rules: Rules) -> dict[str, dict[str, Any]]:
    return {kind: rule.as_json() for kind, rule in sorted(rules.items())}


def row_of(pool: Pool, department: Department | None) -> IdlePolicy:
    """The stored policy; if none was ever set, an unsaved one with version 0."""
    stored = IdlePolicy.objects.filter(pool=pool, department=department).first()
    return stored or IdlePolicy(pool=pool, department=department, version=0)


def check_rules(pool: Pool, department: Department | None, rules: Rules) -> None:
    """Raises Invalid for numbers out of range, Loosens for a department's rule that is looser than the wider one."""
    for kind, rule in rules.items():
        if kind not in ASKED_HERE:
            raise Invalid(
                N_("%(kind)s is not a kind of workload. Use one of %(known)s."),
                field="rules",
                kind=kind,
                known=", ".join(ASKED_HERE),
            )
        for name, (least, most) in LIMITS.items():
            if not least <= getattr(rule, name) <= most:
                raise Invalid(
                    N_("Enter a number from %(least)s to %(most)s."),
                    field=f"rules.{kind}.{name}",
                    least=least,
                    most=most,
                )
    if department is None:
        return
    policies = Policies()
    for kind, rule in rules.items():
        wider = policies.wider(pool.pk, department.pk, kind)
        for each in looser_than(wider, rule) if wider else ():
            raise _loosens(kind, each)


def _loosens(kind: str, looser: Looser) -> Loosens:
    field = f"rules.{kind}.{looser.field}"
    own, wider = (action_name(each) if isinstance(each, Action) else each for each in (looser.own, looser.wider))
    return Loosens(LOOSER[looser.field], field=field, kind=str(Kind(kind).label), own=own, wider=wider)


def require_right(actor: Actor, department: Department | None) -> None:
    """Operators set a pool's policy, owners their department's. Raises NotVisible, Forbidden."""
    if department is None:
        actor.require_operator()
    else:
        actor.require(Right.STEER, department)


def set_policy(
    *, actor: Actor, pool: Pool, department: Department | None, rules: Rules, expected_version: int
) -> IdlePolicy:
    """Sets the policy of a pool, or of a department in it; with empty `rules` only the wider policy applies. Workloads that are
    already warned keep their time. Raises Stale, Invalid, Loosens, NotVisible, Forbidden."""
    require_right(actor, department)
    with durable():
        Pool.objects.select_for_update(no_key=True).get(pk=pool.pk)
        row = row_of(pool, department)
        check_fresh(row.version, expected_version)
        check_rules(pool, department, rules)
        before, after = row.rules, as_json(rules)
        if not row.version:
            row = IdlePolicy.objects.create(pool=pool, department=department, rules=after)
        else:
            IdlePolicy.objects.filter(pk=row.pk).update(rules=after, version=F("version") + 1)
            row.refresh_from_db()
        target = "/".join(each.slug for each in (department, pool) if each is not None)
        audit.record(
            actor, "idle_policy.changed", target, department=department,
            before={"idle_policy": before}, after={"idle_policy": after},
        )  # fmt: skip
        emit("idle_policy.changed", department=department, pool=pool.slug)
    return row
