"""Group rules, for operators: which group of a provider gives which role, and what people get by them."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import NotVisible, operator_of
from portal.errors import Problem
from portal.infra import confirm
from portal.infra.confirm import Break
from portal.infra.providers.identity_providers import IdentityProvider
from portal.infra.providers.ldap_client import DirectoryAway
from portal.models import Department, DirectoryReading, GroupRule, MissingProvider, Role
from portal.names import LineInput
from portal.sign_in import directory_job, group_rules
from portal.sign_in.directory_login import directories
from portal.sign_in.identities import label_of
from portal.web.forms import blame
from portal.web.once import once

PER_PAGE = 50
OPERATOR = "operator"


class RuleForm(forms.Form):
    provider = forms.ChoiceField(label=gettext_lazy("Provider"))
    pattern = LineInput(
        label=gettext_lazy("Group"),
        max_length=group_rules.LONGEST,
        help_text=gettext_lazy("The exact name at the provider, or a pattern in which * stands for any characters."),
    )
    role = forms.ChoiceField(label=gettext_lazy("Role"), initial=Role.MEMBER)
    department = forms.ModelChoiceField(
        label=gettext_lazy("Department"),
        queryset=Department.objects.all(),
        required=False,
        help_text=gettext_lazy("Operators need none."),
    )

    def __init__(self, data: QueryDict | None = None) -> None:
        super().__init__(data)
        fields: Any = self.fields
        fields["provider"].choices = [(each.key, each.label) for each in settings.IDENTITY_PROVIDERS]
        fields["role"].choices = [*Role.choices, (OPERATOR, gettext_lazy("operator"))]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("role") == OPERATOR:
            data["department"] = None
        elif "role" in data and not data.get("department") and "department" not in self.errors:
            self.add_error("department", _("Choose the department in which the group has this role."))
        return data

    def rule(self) -> GroupRule:
        return group_rules.checked(**self.cleaned_data)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def rules(request: HttpRequest) -> HttpResponse:
    actor = operator_of(request)
    form = RuleForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            group_rules.add_rule(actor=actor, rule=form.rule())
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("The rule was added and applied."))
            return redirect("portal:operator_groups")
    rows = list(GroupRule.objects.select_related("department"))
    people = group_rules.effects(rows)
    context = {
        "rules": [(row, label_of(row.provider), row.provider in group_rules.configured()) for row in rows],
        "missing": [
            (row.provider, row.since + group_rules.GRACE) for row in MissingProvider.objects.order_by("provider")
        ],
        "page": Paginator(people, PER_PAGE).get_page(request.GET.get("page")),
        "form": form,
        "providers": settings.IDENTITY_PROVIDERS,
        "sources": _sources(),
    }
    return render(request, "portal/operator_groups.html", context, status=422 if form.errors else 200)


def _sources() -> list[tuple[IdentityProvider, DirectoryReading | None]]:
    """Each provider and, for directories, its last reading."""
    readings = {row.provider: row for row in DirectoryReading.objects.all()}
    return [(each, readings.get(each.key)) for each in settings.IDENTITY_PROVIDERS]


@login_required
@require_POST
def read(request: HttpRequest, provider: str) -> HttpResponse:
    """Reads a directory now; if most people would lose all their groups, after a confirmation that lists them."""
    operator_of(request)
    directory = next((each for each in directories() if each.key == provider), None)
    if directory is None:
        raise NotVisible
    try:
        try:
            changed = directory_job.read(directory)
        except directory_job.TooManyLose as held:
            breaks = [
                Break("membership", _("%(name)s no longer has any groups.") % {"name": each.label}, (each.pk,))
                for each in held.people
            ]
            confirm.require(
                breaks, request.POST.get(confirm.FIELD, ""), action=_("Apply"),
                asks=_("Revoke the roles that groups of %(provider)s granted to these people?") % {"provider": directory.label},
            )  # fmt: skip
            changed = directory_job.read(directory, sure=True)
    except DirectoryAway as away:
        messages.error(
            request, _("%(provider)s did not respond: %(why)s") % {"provider": directory.label, "why": str(away)}
        )
    else:
        text = ngettext(
            "Read: %(n)s person has other groups than before.",
            "Read: %(n)s people have other groups than before.",
            changed,
        )
        messages.success(request, text % {"n": changed})
    return redirect("portal:operator_groups")


@login_required
@require_safe
def preview(request: HttpRequest) -> HttpResponse:
    """What the rule in the form would change, as a part of the page."""
    operator_of(request)
    form = RuleForm(request.GET)
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        try:
            rule = form.rule()
        except Problem as problem:
            blame(form, problem)
        else:
            people = group_rules.effects([*GroupRule.objects.all(), rule])
            changed = [each for each in people if each.changes]
            context |= {"effects": changed[:PER_PAGE], "more": max(0, len(changed) - PER_PAGE), "people": len(people)}
    return render(request, "portal/_groups_preview.html", context)


@login_required
@require_POST
def remove(request: HttpRequest, rule: int) -> HttpResponse:
    """Removes a rule, after a confirmation that lists who loses what."""
    actor = operator_of(request)
    row = get_object_or_404(GroupRule.objects.select_related("department"), pk=rule)
    breaks = group_rules.breaks_of_removal(row)
    confirm.require(
        breaks, request.POST.get(confirm.FIELD, ""), asks=_("Remove the rule for %(group)s?") % {"group": row.pattern},
        action=_("Remove"),
    )  # fmt: skip
    group_rules.remove_rule(actor=actor, rule=row)
    messages.success(request, _("The rule was removed, and the roles that only it granted."))
    return redirect("portal:operator_groups")
