"""A department's quotas and their history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import NotVisible, Right, actor_of, department_for
from portal.models import AuditEntry, Department
from portal.text.words import limit_in_words
from quotas.lending import windows
from quotas.lending.schedule import Limit
from quotas.models import Pool, Quota
from quotas.rules.quotas import may_promise
from quotas.wording import window_in_words

HISTORY_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Rule:
    """A department's quota in one pool, and the pool's unassigned capacity."""

    pool: Pool
    quota: Quota | None
    promised: int  # guarantees of all departments

    @property
    def windows(self) -> list[tuple[str, Limit]]:
        """The lending windows: (when, lend limit)."""
        return (
            [(windows.when_of(each), each.lend_limit) for each in windows.schedule_of(self.quota).windows]
            if self.quota
            else []
        )

    @property
    def lends_now(self) -> Limit:
        return windows.schedule_of(self.quota).at(timezone.now()) if self.quota else None

    @property
    def unassigned(self) -> int:
        return self.pool.nominal - self.promised


@login_required
@require_safe
def quotas(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department)
    entries = AuditEntry.objects.filter(action="quota.changed", department=dept).select_related("actor")
    entries = entries[:HISTORY_SHOWN]
    pools = {pool.slug: pool for pool in Pool.objects.all()}
    context = {
        "department": dept,
        "rules": rules_of(dept),
        "history": [Change.of(entry, pools) for entry in entries],
        "may_steer": actor.may(Right.STEER, dept),
        "may_submit": actor.may(Right.SUBMIT, dept),
        "may_promise": may_promise(actor, dept),
    }
    return render(request, "quotas/quotas.html", context)


def rules_of(department: Department) -> list[Rule]:
    by_pool = {quota.pool_id: quota for quota in Quota.objects.filter(department=department)}
    promised = Sum("quotas__guaranteed", default=0)
    pools = Pool.objects.order_by("slug").annotate(promised=promised)  # groups have no order by themselves
    return [Rule(pool, by_pool.get(pool.pk), pool.promised) for pool in pools]


def rule_of(department: Department, pool: str) -> Rule:
    """The department's rule in this pool. Raises NotVisible."""
    matching = [rule for rule in rules_of(department) if rule.pool.slug == pool]
    if not matching:
        raise NotVisible
    return matching[0]


# History --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the history: old and new values."""

    entry: AuditEntry
    pool: str
    numbers: tuple[tuple[str, str, str], ...]  # (name, before, after) of what changed
    why: str

    @staticmethod
    def of(entry: AuditEntry, pools: dict[str, Pool]) -> Change:
        before, after = entry.before or {}, dict(entry.after or {})
        why = str(after.pop("why", ""))
        slug = entry.target.partition("/")[2]
        pool = pools.get(slug)
        facts = [
            (label, _amount_text(name, before, pool) if before else "–", _amount_text(name, after, pool))
            for name, label in _names().items()
            if name in after
        ]
        changed = tuple((label, was, became) for label, was, became in facts if was != became)
        return Change(entry, pool.name if pool else slug, changed, why)


def _names() -> dict[str, str]:
    return {
        "guaranteed": _("guaranteed"),
        "borrow_limit": _("borrow limit"),
        "lend_limit": _("lend limit"),
        "windows": _("lending windows"),
        "zone": _("time zone"),
    }


def _amount_text(name: str, values: dict[str, Any], pool: Pool | None) -> str:
    """A value as text; an amount has no unit if the pool was deleted."""
    value = values.get(name)
    if name == "zone":
        return str(value or "–")
    if name == "windows":
        return _("; ").join(window_in_words(each, pool) for each in map(windows.from_json, value or ())) or "–"
    return limit_in_words(name, value, pool)
