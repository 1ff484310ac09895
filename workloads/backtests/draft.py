"""A draft: wanted changes as a piece of a configuration file, and the rules of a pool group with them.

A draft changes nothing. So, unlike the change itself, it is not checked against the workloads that run now, but only against the
capacity that can be guaranteed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from portal.errors import N_, Invalid
from portal.models import Department
from portal.text.words import exact
from quotas.lending import windows
from quotas.models import Pool, PoolGroup, Quota, UserCap
from workloads.configuration import document, plan
from workloads.configuration.plan import Change, Wish
from workloads.replay.history import Terms

OF_POOLS = frozenset({"notice", "grace", "min_runtime", "max_reclaims", "balance_half_life", "policy"})
OF_GROUPS = frozenset({"fair_sharing", "starvation_after", "restart_cost"})
PARTS = {
    "quotas": frozenset({"guaranteed", "borrow_limit", "lend_limit", "windows", "zone", "policy"}),
    "user_caps": frozenset({"units"}),
    "departments": frozenset({"weight", "policy"}),
    "pools": OF_POOLS | OF_GROUPS,
}
"""Section of the file → values that a replay takes into account."""
FIELD = "configuration"
"""The field of a draft, in the form and in the API."""
LONGEST = 100_000  # characters; parsing takes a second


class OtherPool(Invalid):
    code = "other_pool"
    message = N_("%(pool)s is not planned together with %(asked)s. Ask for one of them at a time.")


class PromisedTooMuch(Invalid):
    code = "promised_too_much"
    message = N_(
        "Departments would be guaranteed %(promised_size)s of %(pool)s together, which has %(nominal_size)s. Lower another "
        "guarantee too."
    )


class NothingChanges(Invalid):
    code = "nothing_changes"
    message = N_("Nothing would be different: change at least one value.")


def text_of(values: Mapping[str, Any]) -> str:
    """A draft with these sections, as text."""
    return document.write({"apiVersion": plan.API_VERSION} | dict(values))


def read(text: str, group: PoolGroup) -> list[Wish]:
    """The wishes of a draft. Raises Refused and, with FIELD as their field, Unreadable, OtherPool, PromisedTooMuch and the errors
    of windows.check."""
    try:
        return _read(text, group)
    except Invalid as problem:
        problem.field = FIELD
        raise


def _read(text: str, group: PoolGroup) -> list[Wish]:
    wishes = plan.proposed(text, PARTS)
    pools = {pool.slug: pool for pool in group.pools.all()}
    for wish in wishes:
        pool = wish.key[-1] if wish.section != "departments" else None
        if pool is not None and pool not in pools:
            raise OtherPool(pool=pool, asked=", ".join(sorted(pools)))
    then = terms_of(group, wishes)
    wished = {(wish.key[0], wish.key[-1]) for wish in wishes if wish.section == "quotas"}
    for row in then.rows.quotas:
        if (row.department.slug, row.pool.slug) in wished:  # the draft may set only one of the two
            windows.check(tuple(map(windows.from_json, row.windows)), row.zone or "UTC")
    _check_promises(Terms.of(group), then)
    return wishes


def changes_of(wishes: Sequence[Wish]) -> list[Change]:
    """The values that the wishes change. Raises NothingChanges if there are none."""
    changes = plan.differences(wishes)
    if not changes:
        raise NothingChanges(field=FIELD)
    return changes


def _check_promises(now: Terms, then: Terms) -> None:
    """Raises PromisedTooMuch if more than the capacity of a pool would be guaranteed, and more than now."""
    for pool in then.pools.values():
        before, promised = (
            sum(row.guaranteed for row in terms.rows.quotas if row.pool_id == pool.pk) for terms in (now, then)
        )
        if promised > max(before, pool.nominal):
            sizes = {"promised_size": exact(promised, pool), "nominal_size": exact(pool.nominal, pool)}
            raise PromisedTooMuch(pool=pool.name, promised=promised, nominal=pool.nominal, **sizes)


def terms_of(group: PoolGroup, wishes: Sequence[Wish]) -> Terms:
    """The group's present rules with the wishes applied."""
    terms = Terms.of(group)
    pools = {pool.slug: pool for pool in terms.rows.pools}
    departments = {row.slug: row for row in terms.rows.departments}
    quotas = {(row.department.slug, row.pool.slug): row for row in terms.rows.quotas}
    caps = {(row.department.slug, row.pool.slug): row for row in terms.rows.caps}
    for wish in wishes:
        values, key = wish.values or {}, (wish.key[0], wish.key[-1])
        match wish.section:
            case "pools":
                _set(terms.group, {name: value for name, value in values.items() if name in OF_GROUPS})
                _set(pools[wish.key[0]], {name: value for name, value in values.items() if name in OF_POOLS})
            case "departments":
                _set(departments[wish.key[0]], values)
            case "quotas":
                row = quotas.setdefault(key, Quota(department=departments[key[0]], pool=pools[key[1]]))
                _set(row, values)
            case _:
                caps.pop(key, None)
                if values["units"] is not None:
                    caps[key] = UserCap(department=departments[key[0]], pool=pools[key[1]], units=values["units"])
    rows = replace(terms.rows, quotas=tuple(quotas.values()), caps=tuple(caps.values()))
    return replace(terms, rows=rows)


def _set(row: Department | Quota | Pool | PoolGroup, values: Mapping[str, Any]) -> None:
    """Sets values of the configuration on a row, converted to the form in which rows store them."""
    for name, value in values.items():
        if name == "windows":
            setattr(row, name, [windows.to_json(window) for window in value])
        else:
            setattr(row, name, value or {} if name == "policy" else value)
