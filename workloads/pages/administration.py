"""The operator's pages about clusters, images and presets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from portal.access import operator_of
from portal.errors import Problem
from portal.infra import confirm, versions
from portal.names import LineInput
from portal.web import conflicts
from portal.web.forms import JsonField, blame
from portal.web.once import once
from quotas.amounts import LONGEST, check_not_little, units_of, written
from quotas.forms.durations import DurationField
from quotas.forms.quotas import PoolField, PoolSelect
from quotas.models import Cluster, ClusterKind, Pool
from workloads.models import CHOICES, Image, Preset
from workloads.nodes import cluster_registry
from workloads.pages import cluster_options
from workloads.requests import images_and_presets
from workloads.requests.setup_fields import SetupFields, first_setup
from workloads.requests.text_fields import CommandField, CoresField, MemoryField


class ClusterForm(forms.Form):
    name = forms.SlugField(label=gettext_lazy("Name"), max_length=40)
    kubeconfig = forms.CharField(
        label="kubeconfig",
        required=False,
        max_length=200_000,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "autocomplete": "off"}),
        help_text=gettext_lazy(
            "Stored encrypted, never shown again. Leave empty to use the portal's own service account."
        ),
    )
    options = JsonField(
        label=gettext_lazy("Options"),
        required=False,
        initial=dict,  # without it the field would read "null"
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "font-monospace"}),
        help_text=gettext_lazy('JSON, for example {"namespace_prefix": "gpu-"}. Leave empty for the defaults.'),
    )

    def clean_options(self) -> dict[str, Any]:
        options = self.cleaned_data["options"]
        if options not in (None, "") and not isinstance(options, dict):
            raise forms.ValidationError(_("Must be a JSON object."))
        return options or {}


class ClusterChange(ClusterForm):
    name = None  # type: ignore[assignment]  # stays
    seen = conflicts.SeenField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["kubeconfig"].help_text = _(
            "Stored encrypted, never shown again. Leave empty to keep the stored one."
        )
        self.fields["options"].widget.attrs["rows"] = 16


@sensitive_post_parameters("kubeconfig")
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def clusters(request: HttpRequest) -> HttpResponse:
    """Lists and adds clusters. Adding tests the connection first; "Test only" stores nothing."""
    actor = operator_of(request)
    form = ClusterForm(request.POST or None)
    nodes = None
    if request.method == "POST" and form.is_valid():
        try:
            if "test" in request.POST:
                nodes = cluster_registry.try_connection(actor=actor, **form.cleaned_data)
            else:
                made = cluster_registry.add_cluster(actor=actor, **form.cleaned_data)
                messages.success(request, _("%(name)s was added; its nodes appear in a moment.") % {"name": made.name})
                return redirect("workloads:clusters")
        except Problem as problem:
            blame(form, problem)
    rows = Cluster.objects.select_related("metrics_source").prefetch_related("nodes")
    context = {
        "clusters": [(each, cluster_registry.mark_of(each)) for each in rows],
        "form": form,
        "found": nodes,
    }
    return render(request, "workloads/operator_clusters.html", context, status=422 if form.errors else 200)


@sensitive_post_parameters("kubeconfig")
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def cluster(request: HttpRequest, cluster: str) -> HttpResponse:
    """Shows and changes the options; tests the stored connection; enables or disables the cluster."""
    actor = operator_of(request)
    row = get_object_or_404(Cluster, name=cluster)
    if request.method != "POST" or "options" in request.POST:
        return _options(request, row)
    if "active" in request.POST:
        cluster_registry.check_seen(row, request.POST.get(versions.FIELD, ""))  # before a confirmation is requested
        if row.active and not request.POST["active"]:
            confirm.require(
                cluster_registry.breaks_of(row), request.POST.get(confirm.FIELD, ""), action=_("Disable"),
                asks=_("Disable %(name)s?") % {"name": row.name},
            )  # fmt: skip
        seen = request.POST.get(versions.FIELD, "")
        cluster_registry.change_cluster(actor=actor, cluster=row, active=bool(request.POST["active"]), seen=seen)
        messages.success(request, _("%(name)s was saved.") % {"name": row.name})
        return redirect("workloads:clusters")
    try:
        nodes = cluster_registry.nodes_of(row)
    except Problem as problem:
        messages.error(request, problem.detail)
    else:
        text = ngettext(
            "%(name)s responds and reports %(n)s GPU node.",
            "%(name)s responds and reports %(n)s GPU nodes.",
            len(nodes),
        )
        messages.success(request, text % {"name": row.name, "n": len(nodes)})
    return redirect("workloads:clusters")


def _options(request: HttpRequest, row: Cluster) -> HttpResponse:
    stored = row.options
    first = {"options": stored, versions.FIELD: cluster_registry.mark_of(row)}
    form = ClusterChange(request.POST or None, initial=first)
    if row.kind != ClusterKind.KUBERNETES:
        del form.fields["kubeconfig"]
    if form.is_valid():
        given = form.cleaned_data
        try:
            cluster_registry.change_cluster(
                actor=operator_of(request), cluster=row, kubeconfig=given.get("kubeconfig") or None, options=given["options"],
                seen=given[versions.FIELD],
            )  # fmt: skip
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("%(name)s was saved.") % {"name": row.name})
            return redirect("workloads:cluster", row.name)
    context = {
        "cluster": row,
        "form": form,
        "lines": cluster_options.lines(stored) if row.kind == ClusterKind.KUBERNETES else (),
    }
    return render(request, "workloads/operator_cluster.html", context, status=conflicts.status_of(form))


class ImageForm(forms.ModelForm):  # type: ignore[type-arg]  # generic only in the stubs
    seen = conflicts.SeenField()
    kinds = forms.MultipleChoiceField(
        label=gettext_lazy("For"),
        required=False,
        choices=CHOICES,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Leave empty for all."),
    )

    class Meta:
        model = Image
        fields = ["name", "title", "kinds", "interpreter", "min_driver", "active"]
        labels = {
            "interpreter": gettext_lazy("Local interpreter"),
            "min_driver": gettext_lazy("Minimum driver version"),
            "active": gettext_lazy("available"),
        }
        help_texts = {"interpreter": gettext_lazy("Embedded cluster only.")}

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if self.instance.pk is None:
            self.instance = Image.to_enter(name)
        return name


class PresetForm(forms.ModelForm, SetupFields):  # type: ignore[type-arg]  # generic only in the stubs
    seen = conflicts.SeenField()
    command = CommandField(
        label=gettext_lazy("Command"),
        required=False,
        max_length=4_000,
        own_names=True,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "class": "font-monospace"}),
        help_text=gettext_lazy("As in a terminal. $(PORTAL_PORT) and other variables of the portal are replaced."),
    )

    pool = PoolField(
        Pool.objects.all(),
        label=gettext_lazy("Pool"),
        widget=PoolSelect({"data-resets": "units_per_pod cores_per_pod"}),
    )
    image = forms.ModelChoiceField(Image.catalogue(), label=gettext_lazy("Image"))
    units_per_pod = LineInput(
        label=gettext_lazy("Amount per pod"), initial="1", max_length=LONGEST,
        help_text=gettext_lazy("In the unit shown beside the pool, or with a unit: 10 GiB, 2 cards, half a card, 25 %."),
    )  # fmt: skip
    max_runtime = DurationField(
        label=gettext_lazy("Max runtime"), required=False, needs_unit=True, least=1,
        help_text=gettext_lazy("For example 8h, 90 min, 1d 12h."),
    )  # fmt: skip
    cpu_milli = CoresField(label=gettext_lazy("CPU cores"))
    memory_mib = MemoryField(label=gettext_lazy("Memory"), help_text=gettext_lazy("Host memory, not GPU memory: 8 GiB"))

    class Meta:
        model = Preset
        fields = [
            "slug", "title", "description", "kind", "pool", "pods", "units_per_pod", "cores_per_pod", "profile", "image",
            "command", "cpu_milli", "memory_mib", "max_runtime", "order", "active",
        ]  # fmt: skip
        labels = {
            "slug": gettext_lazy("Short name"),
            "title": gettext_lazy("Title"),
            "description": gettext_lazy("Description"),
            "kind": gettext_lazy("Kind"),
            "cores_per_pod": gettext_lazy("Compute share (%)"),
            "profile": gettext_lazy("MIG profile"),
            "order": gettext_lazy("Order"),
            "active": gettext_lazy("available"),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        row: Preset = kwargs["instance"]
        kwargs["initial"] = first_setup(row.settings, row.pods) | kwargs["initial"]
        super().__init__(*args, **kwargs)
        self.offer_extras(Pool.objects.all())

    def clean_command(self) -> list[str]:
        return list(self.cleaned_data["command"])

    def get_initial_for_field(self, field: forms.Field, field_name: str) -> Any:
        value = super().get_initial_for_field(field, field_name)
        if field_name == "units_per_pod" and isinstance(value, int) and self.instance.pool_id:
            return written(value, self.instance.pool)
        return value

    def clean(self) -> dict[str, Any]:
        """Converts the written amount to units of the pool, and the options of the kind to the preset's setup."""
        data = super().clean() or self.cleaned_data
        data["pods"] = self.pods_of(data.get("kind", ""))
        self.instance.setup = self.setup_of(data.get("kind", "")).as_json()
        if "pool" in data and "units_per_pod" in data:
            try:
                data["units_per_pod"] = units_of(data["units_per_pod"], data["pool"])
                check_not_little(data["units_per_pod"], data["pool"])
            except Problem as problem:
                self.add_error("units_per_pod", problem.detail)
        return data


@login_required
@require_safe
def images(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    context = {
        "images": Image.catalogue(),
        "presets": Preset.objects.select_related("pool", "image"),
    }
    return render(request, "workloads/operator_images.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def image(request: HttpRequest, image: int | None = None) -> HttpResponse:
    actor = operator_of(request)
    row = get_object_or_404(Image.catalogue(), pk=image) if image else Image()
    form = ImageForm(request.POST or None, instance=row, initial={versions.FIELD: images_and_presets.mark_of(row)})

    def save(row: Image, seen: str) -> Image:
        return images_and_presets.save_image(actor=actor, image=row, seen=seen)

    return _edited(request, form, save, new=_("New image"))


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def preset(request: HttpRequest, preset: int | None = None) -> HttpResponse:
    actor = operator_of(request)
    row = get_object_or_404(Preset, pk=preset) if preset else Preset()
    form = PresetForm(request.POST or None, instance=row, initial={versions.FIELD: images_and_presets.mark_of(row)})

    def save(row: Preset, seen: str) -> Preset:
        return images_and_presets.save_preset(actor=actor, preset=row, seen=seen)

    return _edited(request, form, save, new=_("New preset"), page="workloads/operator_preset.html")


def _edited(
    request: HttpRequest, form: ImageForm | PresetForm, save: Callable[[Any, str], object], *, new: str,
    page: str = "workloads/operator_form.html",
) -> HttpResponse:  # fmt: skip
    """Shows the form; a valid one is saved, with a redirect to the list. `new` is the title for a row that is not stored yet."""
    row = form.instance
    if request.method == "POST" and form.is_valid():
        try:
            save(form.save(commit=False), form.cleaned_data[versions.FIELD])
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("%(name)s was saved.") % {"name": form.instance.title})
            return redirect("workloads:images")
    context = {"form": form, "title": row.title if row.pk else new}
    return render(request, page, context, status=conflicts.status_of(form))
