"""The operators' page of the configuration file: export it, preview what a file would change, then apply that."""

from __future__ import annotations

from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods, require_safe

from portal import names
from portal.access import operator_of
from portal.infra import confirm
from workloads.configuration import plan
from workloads.configuration.document import Unreadable

PASTED = "page"  # source in the audit log if the text was pasted


class FileForm(forms.Form):
    file = forms.FileField(label=gettext_lazy("File"), required=False)
    text = forms.CharField(
        label=gettext_lazy("Or its text"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "false", "class": "font-monospace"}),
        help_text=gettext_lazy("YAML. What it does not name stays as it is."),
    )
    source = names.LineInput(required=False, max_length=plan.LONGEST_SOURCE, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        """Sets `text` to the content of the uploaded file, if there is one."""
        data = super().clean() or self.cleaned_data
        file = data.get("file")
        if file is not None:
            data["source"] = names.cleaned(file.name, name=False)[: plan.LONGEST_SOURCE]
            try:
                data["text"] = file.read().decode()
            except UnicodeDecodeError:
                self.add_error("file", _("The file is not UTF-8 text."))
        elif not data.get("text", "").strip():
            self.add_error("file", _("Choose a file, or enter its text."))
        return data


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def configuration(request: HttpRequest) -> HttpResponse:
    """A file is previewed first; the same text, sent again with the mark of its plan, is applied. If the plan has changed in
    between, it is shown again."""
    actor = operator_of(request)
    form, planned = FileForm(request.POST or None, request.FILES or None), None
    if request.method == "POST" and form.is_valid():
        source = form.cleaned_data["source"] or PASTED
        carry_out = partial(plan.apply, actor=actor, text=form.cleaned_data["text"], source=source)
        try:
            try:
                planned = carry_out(dry_run="apply" not in request.POST, confirmed=request.POST.get(confirm.FIELD, ""))
            except plan.PlanChanged as changed:
                form.add_error(None, changed.detail)
                planned = carry_out(dry_run=True)
        except Unreadable as problem:
            form.add_error(None, problem.detail)
        except plan.Refused as refused:
            for each in refused.errors:
                line = _("Line %(line)s") % {"line": each.line}
                form.add_error(None, f"{line}{_(', ')}{each.field}{_(': ')}{each.detail}")
        if planned is not None and planned.applied:
            text = ngettext("%(n)s value was changed.", "%(n)s values were changed.", len(planned.changes))
            messages.success(request, text % {"n": len(planned.changes)})
            return redirect("workloads:configuration")
    context = {"form": form, "plan": planned}
    return render(request, "workloads/operator_configuration.html", context, status=422 if form.errors else 200)


@login_required
@require_safe
def export(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    return HttpResponse(
        plan.export(), content_type="application/yaml; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="gpu-quota-portal.yaml"'},
    )  # fmt: skip
