"""What the rule is, and what would change if it were changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import Actor, NotVisible, Right, actor_of, department_for
from portal.errors import Problem
from portal.forms import blame
from portal.models import AuditEntry, Department
from quotas import actions
from quotas.forms import CapForm, QuotaForm
from quotas.models import Pool, Quota, UserCap
from quotas.previews import preview_quota

HISTORY_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Rule:
    """One pool's quota of one department, and what is left of the pool to promise."""

    pool: Pool
    quota: Quota | None
    promised: int  # to everybody

    @property
    def unpromised(self) -> int:
        return self.pool.nominal - self.promised


@login_required
@require_safe
def quotas(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    here = department_for(actor, department)
    entries = AuditEntry.objects.filter(action="quota.changed", department=here)[:HISTORY_SHOWN]
    context = {
        "department": here,
        "rules": rules_of(here),
        "history": [Change.of(entry) for entry in entries],
        "may_steer": actor.may(Right.STEER, here),
        "may_promise": may_promise(actor, here),
    }
    return render(request, "quotas/quotas.html", context)


def rules_of(department: Department) -> list[Rule]:
    mine = {quota.pool_id: quota for quota in Quota.objects.filter(department=department)}
    pools = Pool.objects.annotate(promised=Sum("quotas__guaranteed", default=0))
    return [Rule(pool, mine.get(pool.pk), pool.promised) for pool in pools]


def may_promise(actor: Actor, department: Department) -> bool:
    """Guarantee and borrow limit: the operator's, or an owner's of the parent, who splits what the parent has."""
    if actor.may(Right.OPERATE, department):
        return True
    return department.parent is not None and actor.may(Right.STEER, department.parent)


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the history: what each number was and became."""

    entry: AuditEntry
    pool: str
    numbers: tuple[tuple[str, Any, Any], ...]  # name, before, after: only what changed
    why: str

    @staticmethod
    def of(entry: AuditEntry) -> Change:
        before, after = entry.before or {}, dict(entry.after or {})
        why = str(after.pop("why", ""))
        names = {"guaranteed": _("guaranteed"), "borrow_limit": _("borrow limit"), "lend_limit": _("lend limit")}
        changed = [
            (label, _number(before.get(name)) if before else "–", _number(after.get(name)))
            for name, label in names.items()
            if not before or before.get(name) != after.get(name)
        ]
        return Change(entry, entry.target.partition("/")[2], tuple(changed), why)


def _number(value: int | None) -> str:
    return _("no limit") if value is None else f"{value:,}"


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, department: str, pool: str) -> HttpResponse:
    """`version` in the form is what the reader saw: an edit of something newer is refused, not overwritten."""
    actor = actor_of(request)
    here = department_for(actor, department, Right.STEER)
    rule = _rule(here, pool)
    form = _form(request.POST or None, actor, here, rule)
    if request.method == "POST" and form.is_valid():
        try:
            actions.set_quota(
                actor=actor,
                department=here,
                pool=rule.pool,
                expected_version=form.cleaned_data["version"],
                why=form.cleaned_data["why"],
                **form.numbers(),
            )
        except Problem as problem:
            blame(form, problem)
            if isinstance(problem, actions.Stale):
                rule = _rule(here, pool)
        else:
            messages.success(request, _("The quota of %(pool)s is changed.") % {"pool": rule.pool.name})
            return redirect("quotas:quotas", here.slug)
    context = {"department": here, "rule": rule, "form": form, "may_promise": may_promise(actor, here)}
    return render(request, "quotas/quota_edit.html", context, status=422 if form.errors else 200)


@login_required
@require_safe
def edit_preview(request: HttpRequest, department: str, pool: str) -> HttpResponse:
    """The panel beside the form: who is affected, before anything is saved."""
    actor = actor_of(request)
    here = department_for(actor, department, Right.STEER)
    rule = _rule(here, pool)
    form = _form(request.GET, actor, here, rule)
    context: dict[str, Any] = {"department": here, "pool": rule.pool, "form": form}
    if form.is_valid():
        try:
            context["preview"] = preview_quota(
                actor=actor,
                department=here,
                pool=rule.pool,
                expected_version=form.cleaned_data["version"],
                **form.numbers(),
            )
        except Problem as problem:
            context["problem"] = problem
    return render(request, "quotas/preview.html", context)


def _rule(department: Department, pool: str) -> Rule:
    found = [rule for rule in rules_of(department) if rule.pool.slug == pool]
    if not found:
        raise NotVisible
    return found[0]


def _form(data: Any, actor: Actor, department: Department, rule: Rule) -> QuotaForm:
    quota = rule.quota or Quota(department=department, pool=rule.pool)
    initial = {name: getattr(quota, name) for name in actions.QUOTA_FIELDS}
    initial["version"] = quota.version if rule.quota else None
    return QuotaForm(data, initial=initial, only_lend=not may_promise(actor, department))


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def caps(request: HttpRequest, department: str) -> HttpResponse:
    """A part of the members page: what each user may hold of each pool."""
    actor = actor_of(request)
    here = department_for(actor, department, Right.STEER if request.method == "POST" else Right.SEE)
    return _caps(request, actor, here, None)


@login_required
@require_POST
def set_cap(request: HttpRequest, department: str, pool: str) -> HttpResponse:
    actor = actor_of(request)
    here = department_for(actor, department, Right.STEER)
    form = CapForm(request.POST, prefix=pool)
    rule = _rule(here, pool)
    if form.is_valid():
        try:
            actions.set_user_cap(actor=actor, department=here, pool=rule.pool, units=form.cleaned_data["units"])
        except Problem as problem:
            blame(form, problem)
    return _caps(request, actor, here, (rule.pool, form))


def _caps(
    request: HttpRequest, actor: Actor, department: Department, sent: tuple[Pool, CapForm] | None
) -> HttpResponse:
    units = dict(UserCap.objects.filter(department=department).values_list("pool_id", "units"))
    bad = sent if sent is not None and sent[1].errors else None
    rows = [
        (
            rule.pool,
            bad[1]
            if bad and bad[0] == rule.pool
            else CapForm(prefix=rule.pool.slug, initial={"units": units.get(rule.pool.pk)}),
            units.get(rule.pool.pk),
        )
        for rule in rules_of(department)
        if rule.quota or rule.pool.pk in units
    ]
    context = {
        "department": department,
        "rows": rows,
        "saved": sent[0] if sent and not bad else None,
        "may_steer": actor.may(Right.STEER, department),
    }
    return render(request, "quotas/caps.html", context, status=422 if bad else 200)
