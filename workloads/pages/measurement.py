"""The operator's page that connects a cluster's Prometheus."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from portal.access import operator_of
from portal.errors import Problem
from portal.names import LineInput
from portal.web import conflicts
from portal.web.forms import blame
from quotas.models import Cluster, ClusterKind
from workloads.measurement import sources
from workloads.measurement.series import EXPORTERS
from workloads.models import MetricsAuth, MetricsSource

EXPORTER_NAMES = {
    "dcgm": gettext_lazy("NVIDIA DCGM exporter, with pod mapping"),
    "hami": gettext_lazy("HAMi: parts of cards"),
    "cadvisor": gettext_lazy("cAdvisor (kubelet): CPU and memory"),
}


class SourceForm(forms.Form):
    url = LineInput(
        label=gettext_lazy("Address of Prometheus"), max_length=500,
        help_text=gettext_lazy("For example http://prometheus.monitoring.svc:9090; an address inside the cluster is allowed."),
    )  # fmt: skip
    auth = forms.ChoiceField(label=gettext_lazy("Authorization"), choices=MetricsAuth.choices)
    username = LineInput(label=gettext_lazy("User name"), max_length=200, required=False)
    secret = forms.CharField(
        label=gettext_lazy("Token or password"), required=False, max_length=8000,
        widget=forms.PasswordInput(render_value=True, attrs={"autocomplete": "off"}),
        help_text=gettext_lazy("Stored encrypted, never shown again. Leave empty to keep the stored one."),
    )  # fmt: skip
    ca = forms.CharField(
        label=gettext_lazy("CA certificate"), required=False, max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "font-monospace"}),
        help_text=gettext_lazy("PEM. Leave empty to trust the certificates of the system."),
    )  # fmt: skip
    exporters = forms.MultipleChoiceField(
        label=gettext_lazy("Exporters"), choices=list(EXPORTER_NAMES.items()), widget=forms.CheckboxSelectMultiple
    )
    selector = LineInput(
        label=gettext_lazy("Label matchers"), required=False, max_length=300,
        widget=forms.TextInput(attrs={"spellcheck": "false", "class": "font-monospace"}),
        help_text=gettext_lazy('Added to every query. Where one Prometheus has several clusters: cluster="a".'),
    )  # fmt: skip
    seen = conflicts.SeenField()

    @property
    def wish(self) -> sources.Wish:
        data = self.cleaned_data
        names = ("url", "auth", "username", "ca", "exporters", "selector")
        return sources.Wish(**{name: data[name] for name in names}, secret=data["secret"] or None)


@sensitive_post_parameters("secret")
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def source(request: HttpRequest, cluster: str) -> HttpResponse:
    """Shows, tests, saves or removes the connection to Prometheus. Saving tests first; testing stores nothing."""
    actor = operator_of(request)
    row = get_object_or_404(Cluster, name=cluster)
    stored = sources.source_of(row)
    form = SourceForm(request.POST or None, initial=initial(stored))
    findings = None
    if request.method == "POST" and "remove" in request.POST:
        sources.remove_source(actor=actor, cluster=row, seen=request.POST.get("seen", ""))
        messages.success(
            request, _("Prometheus of %(name)s was disconnected; what was measured is kept.") % {"name": row.name}
        )
        return redirect("workloads:clusters")
    if request.method == "POST" and form.is_valid():
        try:
            if "test" in request.POST:
                findings = sources.try_source(actor=actor, cluster=row, wish=form.wish)
            else:
                sources.set_source(actor=actor, cluster=row, wish=form.wish, seen=form.cleaned_data["seen"])
                messages.success(request, _("%(name)s was saved.") % {"name": row.name})
                return redirect("workloads:metrics", row.name)
        except Problem as problem:
            blame(form, problem)
    context = {
        "cluster": row, "form": form, "source": stored, "found": findings, "names": EXPORTER_NAMES,
        "embedded": row.kind == ClusterKind.EMBEDDED, "connected": bool(stored and stored.url),
        "failure": sources.failure_text(stored.failure) if stored else "",
    }  # fmt: skip
    return render(request, "workloads/operator_metrics.html", context, status=conflicts.status_of(form))


def initial(stored: MetricsSource | None) -> dict[str, Any]:
    values = sources.settings_of(stored)
    return {"exporters": list(EXPORTERS), "auth": MetricsAuth.NONE} | values | {"seen": sources.mark_of(stored)}
