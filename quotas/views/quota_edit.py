"""Editing one quota with its lending windows, beside a preview of who is affected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from portal.access import Actor, Right, actor_of, department_for
from portal.errors import Problem
from portal.infra import confirm, versions
from portal.models import Department
from portal.web import conflicts
from portal.web.forms import blame, faults
from quotas.forms.quotas import QuotaForm, WindowForm, WindowForms, ZoneForm
from quotas.lending.windows import schedule_of
from quotas.models import Quota
from quotas.previews.quota import preview_quota
from quotas.rules import quotas
from quotas.rules.quotas import giver_of, may_promise
from quotas.views.quotas import Rule, rule_of


@dataclass(slots=True)
class Forms:
    """The three parts of the form. If the part with the windows was not sent (as by a program), the windows do not change."""

    quota: QuotaForm
    windows: Any  # a formset of WindowForm
    zone: ZoneForm

    @staticmethod
    def of(
        data: Any, actor: Actor, department: Department, rule: Rule, proposed: Mapping[str, str] | None = None
    ) -> Forms:
        """`proposed`: initial values of fields in place of the current ones, if the actor may change them."""
        quota = rule.quota or Quota(department=department, pool=rule.pool)
        initial = {name: getattr(quota, name) for name in ("guaranteed", "borrow_limit", "lend_limit")}
        initial["version"] = quota.version if rule.quota else None
        sent = data if data is not None and "windows-TOTAL_FORMS" in data else None
        rows = [WindowForm.initial_of(window) for window in schedule_of(quota).windows]
        zone = {"zone": quota.zone or timezone.get_current_timezone_name()}
        form = QuotaForm(data, initial=initial, pool=rule.pool, only_lend=not may_promise(actor, department))
        for name, value in (proposed or {}).items():
            if name in initial and name != "version" and not form.fields[name].disabled:
                form.initial[name] = value
        return Forms(
            form,
            WindowForms(sent, initial=rows, prefix="windows", form_kwargs={"pool": rule.pool}),
            ZoneForm(sent, initial=zone),
        )

    @property
    def are_valid(self) -> bool:
        faults = not self.quota.is_valid()
        if self.windows.is_bound:  # every part is validated, so that all errors are shown
            faults |= not self.windows.is_valid()
            faults |= not self.zone.is_valid()
        return not faults

    @property
    def errors(self) -> bool:
        return bool(self.quota.errors or any(self.windows.errors) or self.windows.non_form_errors() or self.zone.errors)

    @property
    def status(self) -> int:
        status = conflicts.status_of(self.quota)
        return 422 if status == 200 and self.errors else status

    def asked(self) -> dict[str, Any]:
        """The values of valid forms, as arguments for set_quota and preview_quota."""
        asked = self.quota.numbers() | {"expected_version": self.quota.cleaned_data["version"]}
        if self.windows.is_bound:
            rows = tuple(window for form in self.windows if (window := form.window()) is not None)
            asked["lending"] = quotas.Lending(rows, self.zone.cleaned_data["zone"])
        return asked

    def blame(self, problem: Problem) -> None:
        blame(self.zone if problem.field == "zone" else self.quota, problem)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, department: str, pool: str) -> HttpResponse:
    """Edit the quota. The form has the `version` that was shown: outdated edits are refused."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    rule = rule_of(dept, pool)
    posted = request.method == "POST"
    forms = Forms.of(request.POST if posted else None, actor, dept, rule, None if posted else request.GET.dict())
    if posted and forms.are_valid:
        why = forms.quota.cleaned_data["why"]
        asked: dict[str, Any] = {"actor": actor, "department": dept, "pool": rule.pool, **forms.asked()}
        try:
            quotas.check_quota(**asked)
            confirm.require(
                preview_quota(**asked).breaks, request.POST.get(confirm.FIELD, ""),
                asks=_("Change the quota of %(department)s in %(pool)s?")
                % {"department": dept.name, "pool": rule.pool.name},
                action=_("Change anyway"),
            )  # fmt: skip
            quotas.set_quota(why=why, **asked)
        except Problem as problem:
            forms.blame(problem)
            if isinstance(problem, versions.Stale):
                rule = rule_of(dept, pool)
        else:
            messages.success(request, _("The quota of %(pool)s was saved.") % {"pool": rule.pool.name})
            return redirect("quotas:quotas", dept.slug)
    context = {
        "department": dept, "rule": rule, "form": forms.quota, "windows": forms.windows, "zone": forms.zone,
        "may_promise": may_promise(actor, dept), "giver": giver_of(actor, dept),
    }  # fmt: skip
    return render(
        request,
        "quotas/quota_edit.html",
        context,
        status=forms.status,
    )


@login_required
@require_safe
def edit_preview(request: HttpRequest, department: str, pool: str) -> HttpResponse:
    """The panel beside the form: who would be affected."""
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    rule = rule_of(dept, pool)
    forms = Forms.of(request.GET, actor, dept, rule)
    context: dict[str, Any] = {"department": dept, "pool": rule.pool}
    if forms.are_valid:
        try:
            context["preview"] = preview_quota(actor=actor, department=dept, pool=rule.pool, **forms.asked())
        except Problem as problem:
            context["problem"] = problem
    else:
        context["faults"] = faults((forms.quota, forms.windows, forms.zone))
    return render(request, "quotas/preview.html", context)
