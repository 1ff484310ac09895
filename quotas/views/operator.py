"""Operators' pages about capacity: state of the system, pools with their rules, nodes."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Prefetch
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from portal.access import operator_of
from portal.errors import Problem
from portal.infra import confirm, versions
from portal.infra.versions import check_fresh
from portal.models import Department
from portal.web import conflicts
from portal.web.forms import blame
from quotas.board import invariants, operations
from quotas.board.card_map import capacities, pool_overview
from quotas.board.usage_now import read
from quotas.forms.policies import RulesForm
from quotas.forms.prices import PriceForm
from quotas.forms.quotas import NominalForm
from quotas.models import Cluster, Node, Pool, Quarantine
from quotas.previews.department_move import preview_department
from quotas.previews.drain import preview_drain, preview_nominal
from quotas.previews.effects import Preview
from quotas.previews.policy import preview_rules
from quotas.reports.words import one_hour
from quotas.rules import capacity, policies, prices

PRICES = 20
"""How many of the latest prices a pool's page shows."""


@login_required
@require_safe
def system(request: HttpRequest) -> HttpResponse:
    """A part of the operator's start page that is refreshed."""
    operator_of(request)
    live = read(claims=False)
    reclaims = operations.reclaims()
    context = {
        "clusters": Cluster.objects.select_related("metrics_source"),
        "groups": operations.last_passes(),
        "queues": operations.queues(live.pools),
        "reclaims": [(live.pools[pk], row) for pk, row in reclaims.items() if pk in live.pools],
        "short": [each for each in capacities(live) if each.missing or each.short_by],
        "quarantines": Quarantine.objects.filter(ended_at=None).select_related("node__cluster"),
        "faults": [violation.detail for violation in invariants.violations()],
    }
    return render(request, "quotas/operator_system.html", context)


@login_required
@require_safe
def pools(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    return render(request, "quotas/operator_pools.html", {"overviews": pool_overview(read())})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def pool(request: HttpRequest, pool: str) -> HttpResponse:
    """A pool with three forms: nominal capacity, rules with their preview, and its price."""
    actor = operator_of(request)
    row = get_object_or_404(Pool.objects.select_related("group__cluster"), slug=pool)
    sent = request.POST.get("form")
    rules = _rules_form(row, request.POST if sent == "rules" else None)
    nominal = NominalForm(request.POST if sent == "nominal" else None, pool=row, initial=_nominal(row))
    price = PriceForm.of(prices.price_of(row), request.POST if sent == "price" else None)
    try:
        if sent == "rules" and rules.is_valid():
            version = rules.cleaned_data["version"]
            check_fresh(row.version, version)
            _require_confirmed(request, row, preview_rules(actor=actor, pool=row, rules=rules.rules()))
            policies.set_pool_rules(actor=actor, pool=row, rules=rules.rules(), expected_version=version)
            return _saved(request, row)
        if sent == "nominal" and nominal.is_valid():
            capacity.check_nominal(row, nominal.cleaned_data["nominal"], seen=nominal.cleaned_data[versions.FIELD])
            foreseen = preview_nominal(actor=actor, pool=row, nominal=nominal.cleaned_data["nominal"])
            _require_confirmed(request, row, foreseen)
            capacity.set_nominal(actor=actor, pool=row, **nominal.cleaned_data)
            return _saved(request, row)
        if sent == "price" and price.is_valid():
            values = {name: price.cleaned_data[name] for name in ("own", "borrowed")}
            prices.set_price(actor=actor, pool=row, **values, expected_version=price.cleaned_data["version"])
            return _saved(request, row)
    except Problem as problem:
        blame({"rules": rules, "price": price}.get(sent or "", nominal), problem)
    [overview] = pool_overview(read([row]))
    context = {
        "pool": row, "rules": rules, "nominal": nominal, "price": price, "overview": overview,
        "shared": Pool.objects.filter(group=row.group).exclude(pk=row.pk), "per": one_hour(row.unit),
        "prices": row.prices.order_by("-number")[:PRICES], "currency": settings.CURRENCY,
    }  # fmt: skip
    return render(request, "quotas/operator_pool.html", context, status=conflicts.status_of(rules, nominal, price))


def _require_confirmed(request: HttpRequest, pool: Pool, foreseen: Preview) -> None:
    confirm.require(
        foreseen.breaks, request.POST.get(confirm.FIELD, ""), asks=_("Change %(name)s?") % {"name": pool.name},
        action=_("Change anyway"),
    )  # fmt: skip


def _nominal(pool: Pool) -> dict[str, Any]:
    return {"nominal": pool.nominal, versions.FIELD: versions.mark({"nominal": pool.nominal})}


def _rules_form(pool: Pool, data: Any) -> RulesForm:
    initial = RulesForm.initial_of(policies.PoolRules.of(pool), pool.version)
    return RulesForm(data, initial=initial, defaults=policies.default_rules())


@login_required
@require_safe
def pool_preview(request: HttpRequest, pool: str) -> HttpResponse:
    """The panel beside the form: the effect of the new rules."""
    actor = operator_of(request)
    row = get_object_or_404(Pool.objects.select_related("group__cluster"), slug=pool)
    form = _rules_form(row, request.GET)
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        context["preview"] = preview_rules(actor=actor, pool=row, rules=form.rules())
    return render(request, "quotas/preview.html", context)


def _saved(request: HttpRequest, pool: Pool) -> HttpResponse:
    messages.success(request, _("%(pool)s was saved.") % {"pool": pool.name})
    return redirect("quotas:operator_pool", pool.slug)


@login_required
@require_safe
def nodes(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    open_rows = Prefetch("quarantines", Quarantine.objects.filter(ended_at=None).order_by("card"), to_attr="in_force")
    rows = Node.objects.select_related("cluster").prefetch_related("cards__pool", "mode_changes", open_rows)
    return render(request, "quotas/operator_nodes.html", {"nodes": rows})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def node(request: HttpRequest, node: int) -> HttpResponse:
    """Drains a node after showing what runs there, or puts it back into use."""
    actor = operator_of(request)
    row = get_object_or_404(Node.objects.select_related("cluster"), pk=node)
    if request.method == "POST":
        drained = bool(request.POST.get("drained"))
        if drained and not row.drained:
            foreseen = preview_drain(actor=actor, node=row)
            confirm.require(
                foreseen.breaks, request.POST.get(confirm.FIELD, ""), action=_("Drain"),
                asks=_("Drain %(node)s anyway?") % {"node": row.name},
                also=[foreseen.sentence, *foreseen.lines],
            )  # fmt: skip
        capacity.set_drained(actor=actor, node=row, drained=drained, seen=request.POST.get(versions.FIELD, ""))
        done = _("%(node)s is drained: it takes no new workloads.") if drained else _("%(node)s is back in service.")
        messages.success(request, done % {"node": row.name})
        return redirect("quotas:operator_nodes")
    cards = list(row.cards.select_related("pool"))
    preview = preview_drain(actor=actor, node=row)
    context = {"node": row, "cards": cards, "preview": preview, "confirmed": confirm.mark_of(preview.breaks)}
    context["seen"] = versions.mark({"drained": row.drained})
    return render(request, "quotas/operator_node.html", context)


class PlaceForm(forms.Form):
    """The part of the department's form (portal/views/operator.py) that affects quotas."""

    parent = forms.ModelChoiceField(queryset=Department.objects.all(), required=False)
    weight = forms.IntegerField(min_value=1, max_value=1_000_000)


@login_required
@require_safe
def department_preview(request: HttpRequest, department: str) -> HttpResponse:
    """The panel beside the department's form: the effect of moving it or changing its weight."""
    actor = operator_of(request)
    row = get_object_or_404(Department.objects.select_related("parent"), slug=department)
    form = PlaceForm(request.GET)
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        try:
            context["preview"] = preview_department(actor=actor, department=row, **form.cleaned_data)
        except Problem as problem:
            context["problem"] = problem
    return render(request, "quotas/preview.html", context)
