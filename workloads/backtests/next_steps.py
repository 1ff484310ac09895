"""From a draft to the changes themselves: each by the page that makes or asks for such a change, with its checks and rights."""

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
"""What whoever may not promise it can ask for."""
OWNERS = frozenset({"lend_limit", "windows", "zone"})
"""What each owner sets; a policy is an operator's."""


@dataclass(frozen=True, slots=True)
class Step:
    """A page with the values of the draft filled in, but for lending windows. With `asks` for one of ASKED_FOR somebody else
    decides. `cap`: it is the cap of each user."""

    department: Department
    pool: Pool
    url: str
    asks: str = ""
    windows: bool = False
    cap: bool = False


def steps_for(actor: Actor, row: Backtest) -> list[Step]:
    """Those of departments that the actor steers; none if the draft names what is no longer there."""
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
    """Nobody asks for less."""
    now = Quota.objects.filter(department=department, pool=pool).first()
    try:
        actions.check_amount(pool, name, (wish.values or {})[name], getattr(now, name) if now else 0)
    except Invalid:
        return False
    return True
