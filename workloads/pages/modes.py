"""Changing a node's mode: which workloads run there, what will be written, and the progress of the change."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from portal.access import NotVisible, actor_of, operator_of
from portal.errors import Problem
from portal.infra import confirm, versions
from portal.web.once import once
from portal.web.pages import render_part
from quotas.models import Node, Pool
from workloads.mode_lifecycle import Stage
from workloads.models import ModeChange
from workloads.nodes import cluster_registry
from workloads.nodes.modes import actions
from workloads.nodes.modes.changes import live, outside_there, still_there
from workloads.nodes.modes.forms import ModeForm
from workloads.nodes.modes.keepers import Keeper
from workloads.nodes.modes.previews import breaks_of, check_target, demand_on, losses, preview, table_of
from workloads.nodes.modes.recipes import Target
from workloads.nodes.pools import make_pool
from workloads.nodes.pools import unpooled as unpooled_kinds
from workloads.requests.what_you_get import isolation_levels, offers
from workloads.runtime.base import ClusterError
from workloads.sharing import SYSTEMS
from workloads.sharing.clouds import PRODUCT

STEPS = (Stage.DRAINING, Stage.APPLYING, Stage.VERIFYING, Stage.DONE)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def mode(request: HttpRequest, node: int) -> HttpResponse:
    """GET shows the form, and the preview of a choice in the address; POST starts the change."""
    actor = operator_of(request)
    row = get_object_or_404(Node.objects.select_related("cluster"), pk=node)
    keeper, why = _keeper(row)
    data = request.POST if request.method == "POST" else request.GET if "mode" in request.GET else None
    form = ModeForm(data, node=row, may_write_mig=keeper is not None and keeper.may_write("mig"))
    pinned = cluster_registry.pinned(row.cluster, row)
    systems = [(key, _(system.ABOUT.title), key == pinned["system"]) for key, system in SYSTEMS.items()]
    context: dict[str, Any] = {
        "node": row, "form": form, "cannot": why, "live": live(row), "systems": systems,
        "pinned_product": pinned["product"], "product_field": PRODUCT, "pin_seen": versions.mark(pinned),
    }  # fmt: skip
    if data is not None and form.is_valid():
        target = form.target()
        try:
            if request.method == "POST":
                actions.check_start(row, target)
                confirm.require(
                    breaks_of(actor, row, target), request.POST.get(confirm.FIELD, ""), action=_("Change"),
                    asks=_("Change %(node)s anyway?") % {"node": row.name}, facts=target.as_json(),
                )  # fmt: skip
                change = actions.start(actor=actor, node=row, target=target)
                return redirect("workloads:mode_change", change.public_id)
            check_target(row, target)
        except confirm.Unconfirmed:
            raise
        except Problem as problem:
            form.add_error(problem.field if problem.field in form.fields else None, problem.detail)
        else:
            context |= _meaning(row, target, keeper)
            context["breaks"] = breaks_of(actor, row, target)
            context["confirmed"] = confirm.mark_of(context["breaks"], target.as_json())
    return render(request, "workloads/mode.html", context, status=422 if form.errors else 200)


def _keeper(node: Node) -> tuple[Keeper | None, str]:
    """(keeper of the node, ""), or (None, the reason why its mode cannot be changed)."""
    try:
        return actions.keeper_of(node), ""
    except actions.NoKeeper as problem:
        return None, str(problem.numbers["why"])


def _meaning(node: Node, target: Target, keeper: Keeper | None) -> dict[str, Any]:
    about = SYSTEMS[target.mode].ABOUT
    context: dict[str, Any] = {
        "target": target,
        "system": {
            "title": _(about.title),
            "isolation": _(about.isolation),
            "risks": _(about.risks),
            "levels": isolation_levels(about),
        },
        "losses": losses(node, target),
        "same": target.mode == node.sharing == "mig" and target.instances == node.instances,
        "table": table_of(node),
    }
    if target.mode == "mig" and target.mig:
        demand = demand_on(node, target.mig)
        instances = target.instances
        context["demand"] = [
            {
                "profile": d.profile,
                "asked": d.inside + d.other,
                "inside": d.inside,
                "there": instances.get(d.profile, 0),
            }
            for d in demand
        ]
    if keeper is not None:
        try:
            context["preview"] = preview(node, target, keeper)
        except ClusterError as error:
            context["cannot"] = str(error)
    return context


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def change(request: HttpRequest, change: str) -> HttpResponse:
    """The change's progress; POST cancels it."""
    actor = operator_of(request)
    row = get_object_or_404(ModeChange.objects.select_related("node__cluster", "author"), public_id=change)
    if request.method == "POST":
        try:
            actions.cancel(actor=actor, change=row)
            messages.success(request, _("%(node)s is being restored to its previous mode.") % {"node": row.node.name})
        except Problem as problem:
            messages.error(request, problem.detail)
        return redirect("workloads:mode_change", row.public_id)
    target = Target.from_json(row.target)
    context = {
        "change": row,
        "node": row.node,
        "target": target,
        "title": _(SYSTEMS[target.mode].ABOUT.title),
        "steps": _steps(row),
        "leavers": still_there(row),
        "outside": outside_there(row),
        "labels": [(name, row.before["labels"].get(name), value) for name, value in sorted(row.labels.items())],
    }
    return render_part(request, "workloads/mode_change.html", context, part="progress")


def _steps(row: ModeChange) -> list[dict[str, Any]]:
    """The stages of a normal change, or of one that is reverted or failed."""
    stage = Stage(row.stage)
    way = list(STEPS) if stage in STEPS else [Stage.DRAINING, Stage.REVERTING, stage]
    way = list(dict.fromkeys(way))
    at = way.index(stage)
    names = dict(ModeChange._meta.get_field("stage").flatchoices)
    return [{"name": names[each.value], "done": i < at or row.is_final, "now": i == at} for i, each in enumerate(way)]


@login_required
@require_http_methods(["POST"])
def pin(request: HttpRequest, node: int) -> HttpResponse:
    """Pins the node's sharing system and card product where detection is wrong; blank: detected."""
    actor = operator_of(request)
    row = get_object_or_404(Node.objects.select_related("cluster"), pk=node)
    try:
        pins = {name: request.POST[name].strip() for name in ("system", "product") if name in request.POST}
        cluster_registry.pin_node(actor=actor, node=row, seen=request.POST.get(versions.FIELD, ""), **pins)
        messages.success(request, _("%(node)s is being inspected again.") % {"node": row.name})
    except versions.Conflict:
        raise
    except Problem as problem:
        messages.error(request, problem.detail)
    return redirect("workloads:mode", row.pk)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def unpooled(request: HttpRequest) -> HttpResponse:
    """Cards without a pool, each kind with a form that creates one. A part of the list of nodes."""
    actor = operator_of(request)
    nodes = Node.objects.filter(present=True).select_related("cluster").prefetch_related("cards")
    kinds = unpooled_kinds(nodes)
    if request.method == "POST":
        kind = next((each for each in kinds if each.key == request.POST.get("kind")), None)
        if kind is None:
            raise NotVisible
        try:
            pool = make_pool(
                actor=actor, kind=kind, name=request.POST.get("name", ""), slug=request.POST.get("slug", "")
            )
            messages.success(
                request, _("%(pool)s was created. Next, set quotas for departments.") % {"pool": pool.name}
            )
        except Problem as problem:
            messages.error(request, problem.detail)
        return redirect("quotas:operator_nodes")
    return render(request, "workloads/unpooled.html", {"kinds": kinds})


@login_required
@require_http_methods(["GET", "HEAD"])
def pool_gives(request: HttpRequest, pool: str) -> HttpResponse:
    """What a pool's sharing system provides and isolates. A part of the pool's page."""
    actor_of(request)
    offered = offers(Pool.objects.filter(slug=pool).select_related("group__cluster"))
    if not offered:
        raise NotVisible
    return render(request, "workloads/pool_gives.html", {"offer": offered[0]})
