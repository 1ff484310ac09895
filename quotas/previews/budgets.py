"""Which claims a budget would keep waiting now, if it were set, changed or removed. Read only; a budget stops no workload."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.access import Actor
from portal.infra.confirm import Break
from portal.models import Department
from portal.text.words import percent
from quotas.engine import types as e
from quotas.engine.reasons import OverBudget
from quotas.engine.what_if import Difference, what_if
from quotas.models import Budget, BudgetAction, Claim, ClaimState, PoolGroup
from quotas.planning.snapshot import load_snapshot
from quotas.previews.effects import Preview, claim_label, effect_of, preview_of, side_of
from quotas.spending.budgets import Spent, spent_of, used_up
from quotas.wording import clock_of

NAMED = 10
"""Claims that the preview names; the others are counted."""


def preview_budget(
    *, actor: Actor, department: Department, budget: Budget | None, instead_of: Budget | None
) -> Preview:
    """`budget`: the budget as it would be, saved or not; None: `instead_of` would be removed. Does not check rights."""
    now = timezone.now()
    others = Budget.objects.exclude(pk=instead_of.pk) if instead_of else Budget.objects.all()
    rows = [*others.select_related("department", "pool", "person"), *([budget] if budget else [])]
    departments = list(Department.objects.all())
    asking = {"pools__claims__department__in": department.with_teams(), "pools__claims__state": ClaimState.PENDING}
    differences = []
    for group in PoolGroup.objects.filter(**asking).distinct().order_by("pk"):
        snapshot = load_snapshot(group, now=now)
        differences.append(what_if(snapshot, with_budgets(snapshot, rows, departments, now=now)))
    held = sorted(claim for each in differences for claim in _newly_held(each))
    spent = next(iter(spent_of([budget], now=now)), None) if budget else None
    lines, breaks = [_so_far(spent)] if budget else [], []
    if held:
        text = ngettext(
            "%(count)s queued workload would be held by the budget.",
            "%(count)s queued workloads would be held by the budget.", len(held),
        )  # fmt: skip
        breaks.append(Break("held", text % {"count": len(held)}))
        claims = Claim.objects.filter(public_id__in=held).select_related("department", "pool").order_by("public_id")
        names = [claim_label(side_of(actor, claim)) for claim in claims[:NAMED]]
        lines += [breaks[0].sentence, *names]
    headline = _blocked(spent) if spent is not None and spent.is_used_up else ""
    return preview_of(effect_of(actor, *differences), lines, breaks, headline=headline)


def with_budgets(
    snapshot: e.Snapshot, budgets: Iterable[Budget], departments: Sequence[Department], *, now: dt.datetime
) -> e.Snapshot:
    """The snapshot with these budgets and no others, and with departments in these places of the tree."""
    binding, pools = used_up(budgets, now=now, departments=departments), {None, *(pool.id for pool in snapshot.pools)}
    by_slug = {
        row.slug: tuple(spent for spent in binding.get(row.pk, ()) if spent.pool in pools) for row in departments
    }
    return replace(
        snapshot, departments=tuple(replace(row, budgets=by_slug.get(row.id, ())) for row in snapshot.departments)
    )


def _newly_held(difference: Difference) -> Iterator[str]:
    for change in difference.changes:
        if _is_held(change.after) and not _is_held(change.before):
            yield change.claim


def _is_held(decision: e.Decision | None) -> bool:
    return decision is not None and any(isinstance(reason, OverBudget) for reason in decision.reasons)


def _so_far(spent: Spent | None) -> str:
    if spent is None:
        return _("Its term is not running: it blocks nothing now.")
    text = _("So far in this period: %(used)s of %(hours)s GPU-hours (%(share)s). It resets at %(at)s.")
    numbers = {"used": f"{spent.hours:,.1f}", "hours": f"{spent.budget.hours:,}", "share": percent(float(spent.share))}
    return text % (numbers | {"at": clock_of(spent.resets_at)})


def _blocked(spent: Spent) -> str:
    """What a budget that is used up already blocks, once it is saved."""
    budget = spent.budget
    text = {
        BudgetAction.NOTHING: _("It is used up already. It only warns: nothing is blocked."),
        BudgetAction.NO_BORROWING: _(
            "It is used up already: once it is saved, %(who)s cannot borrow until %(at)s. What runs is not stopped."
        ),
        BudgetAction.NO_NEW_WORK: _(
            "It is used up already: once it is saved, %(who)s cannot start new work until %(at)s. What runs is not stopped."
        ),
    }[BudgetAction(budget.action)]
    who = budget.person.label if budget.person else budget.department.name
    if budget.pool:
        who = _("%(who)s (in %(pool)s)") % {"who": who, "pool": budget.pool.name}
    return text % {"who": who, "at": clock_of(spent.resets_at)}
