"""The steps from a draft to the real changes: for each, the page that makes or requests it, with its own checks and rights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from portal.access import Actor, Right
from portal.errors import Invalid, Problem
from portal.models import Department
from quotas.amounts import written
from quotas.models import Pool, Quota
from quotas.requests import actions
from quotas.rules.quotas import may_promise
from workloads.backtests import draft
from workloads.configuration import plan
from workloads.models import Backtest

ASKED_FOR = ("guaranteed", "borrow_limit")
"""What an owner can request who may not set it."""
OWNERS = frozenset({"lend_limit", "windows", "zone"})
"""What every owner may set; policies are set by operators."""


@dataclass(frozen=True, slots=True)
class Step:
    """A page with the values of the draft filled in, except lending windows. `asks`: the value of ASKED_FOR that the page
    requests from somebody else, or "". `cap`: the page sets the cap of each user."""

    department: Department
    pool: Pool
    url: str
    asks: str = ""
    windows: bool = False
    cap: bool = False


def steps_for(actor: Actor, row: Backtest) -> list[Step]:
    """The steps for the departments that the actor may steer; none if the draft refers to something that no longer exists."""
    try:
        wishes = draft.read(row.draft, row.group)
    except (Problem, plan.Refused):
        return []
    departments = {each.slug: each for each in actor.owned if actor.may(Right.STEER, each.pk)}
    pools = {pool.slug: pool for pool in row.group.pools.all()}
    steps: list[Step] = []
    for wish in wishes:
        if wish.section == "quotas" and wish.key[0] in departments:
            steps += _of_quota(actor, departments[wish.key[0]], pools[wish.key[-1]], wish)
        elif wish.section == "user_caps" and wish.key[0] in departments:
            steps.append(_of_cap(departments[wish.key[0]], pools[wish.key[-1]], wish))
    return steps


def _of_cap(department: Department, pool: Pool, wish: plan.Wish) -> Step:
    units = (wish.values or {})["units"]
    query = urlencode({f"{pool.slug}-units": "" if units is None else written(units, pool)})
    return Step(department, pool, f"{reverse('portal:members', args=[department.slug])}?{query}#caps", cap=True)


def _of_quota(actor: Actor, department: Department, pool: Pool, wish: plan.Wish) -> Iterator[Step]:
    values = {
        name: written(value, pool) if isinstance(value, int) else ""
        for name, value in (wish.values or {}).items()
        if name in (*ASKED_FOR, "lend_limit")
    }
    others = OWNERS & set(wish.values or {})
    if may_promise(actor, department) or others:
        query = urlencode(values)
        url = reverse("quotas:quota_edit", args=[department.slug, pool.slug])
        yield Step(department, pool, f"{url}?{query}" if query else url, windows="windows" in others)
    if not may_promise(actor, department):
        for name in ASKED_FOR:
            if values.get(name) and _is_more(department, pool, name, wish):
                query = urlencode({"pool": pool.slug, "wanted": name, "units": values[name]})
                yield Step(
                    department, pool, f"{reverse('quotas:request_new', args=[department.slug])}?{query}", asks=name
                )


def _is_more(department: Department, pool: Pool, name: str, wish: plan.Wish) -> bool:
    """Whether the draft has more than now: only more can be requested."""
    now = Quota.objects.filter(department=department, pool=pool).first()
    try:
        actions.check_amount(pool, name, (wish.values or {})[name], getattr(now, name) if now else 0)
    except Invalid:
        return False
    return True
