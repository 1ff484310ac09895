"""Pages of backtests: the list, the form for a pool, and a single one with its progress and results."""

from __future__ import annotations

from itertools import chain, islice
from operator import itemgetter
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from portal.access import Actor, NotVisible, actor_of
from portal.errors import Problem
from portal.models import Department
from portal.web.forms import blame
from portal.web.once import once
from portal.web.pages import render_part
from portal.web.spreadsheets import download
from quotas.models import Pool
from workloads.backtests import changes, next_steps, plots, runs, tables
from workloads.backtests.forms import BacktestForm
from workloads.configuration import plan
from workloads.models import Backtest
from workloads.replay.history import ASSUMED

PER_PAGE = 50
SHOWN = 3  # changes of each backtest in the list


def pools_for(actor: Actor) -> list[Pool]:
    """The pools for which the actor may request a backtest."""
    pools = Pool.objects.select_related("group")
    groups = {pool.group_id: pool.group for pool in pools}
    may = {pk for pk, group in groups.items() if runs.may_ask(actor, group)}
    return [pool for pool in pools if pool.group_id in may]


def backtest_for(actor: Actor, id: str) -> Backtest:
    """The backtest with this id. Raises NotVisible."""
    row = runs.seen(actor).filter(public_id=id).first()
    if row is None:
        raise NotVisible
    return row


@login_required
@require_safe
def backtests(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    pools = pools_for(actor)
    rows = runs.seen(actor).defer("result", "draft").prefetch_related("group__pools")
    if not pools and not rows.exists():
        raise NotVisible
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    names = _names()
    listed = [(each, runs.author_for(actor, each), [*islice(changes.in_words(each, names), SHOWN)]) for each in page]
    return render(request, "workloads/backtests.html", {"page": page, "rows": listed, "pools": pools})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def new(request: HttpRequest, pool: str) -> HttpResponse:
    actor = actor_of(request)
    row = Pool.objects.select_related("group__cluster").filter(slug=pool).first()
    if row is None or not runs.may_ask(actor, row.group):
        raise NotVisible
    form = BacktestForm(request.POST if request.method == "POST" else None, pool=row)
    if request.method == "POST" and form.is_valid():
        try:
            asked = runs.ask(actor=actor, group=row.group, text=form.draft(), days=form.cleaned_data["days"])
            return redirect("workloads:backtest", asked.public_id)
        except plan.Refused as refused:
            for fault in refused.errors:
                form.add_error(None, f"{fault.field}{_(': ')}{fault.detail}")
        except Problem as problem:
            if problem.field in form.fields and form.cleaned_data[problem.field]:
                blame(form, problem)
            else:  # without a text of configuration, the error is about the fields above it
                form.add_error(None, problem.detail)
    context = {"form": form, "pool": row, "most_days": runs.MOST_DAYS}
    status = 422 if form.errors else 200
    return render(request, "workloads/backtest_new.html", context, status=status)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def backtest(request: HttpRequest, backtest: str) -> HttpResponse:
    """Shows the progress and the results; POST cancels it."""
    actor = actor_of(request)
    row = backtest_for(actor, backtest)
    if request.method == "POST":
        try:
            runs.cancel(actor=actor, row=row)
            messages.success(request, _("The backtest was cancelled."))
        except runs.IsOver as problem:
            messages.error(request, problem.detail)
        return redirect("workloads:backtest", row.public_id)
    pools = row.group.pools.all()
    names = _names()
    context: dict[str, Any] = {
        "backtest": row, "pools": pools, "assumed": ASSUMED, "may_cancel": runs.may_cancel(actor, row),
        "changes": [*changes.in_words(row, names)],
        "author": runs.author_for(actor, row),
        "days": (row.end - row.begin).days, "operator": actor.is_operator,
    }  # fmt: skip
    figures = runs.figures_for(actor, row)
    if figures:
        each = tables.by_department(figures)
        times = timezone.localtime(row.begin), timezone.localtime(row.end)
        together = tables.compared(figures["now"]["all"], figures["draft"]["all"])
        context |= {
            "cells": together,
            "same": all(cell.now == cell.draft for cell in chain(together, *each.values())),
            "departments": sorted(((names.get(slug, slug), cells) for slug, cells in each.items()), key=itemgetter(0)),
            "titles": [cell.measure.title for cell in next(iter(each.values()), [])],
            "plots": plots.of_all(figures, *times), "department_plots": plots.of_departments(figures, names, *times),
            "unknown": (row.result or {}).get("unknown", 0),
            "steps": [] if actor.is_operator else next_steps.steps_for(actor, row),
            "only_own": not actor.sees_all,
        }  # fmt: skip
    return render_part(request, "workloads/backtest.html", context, part="course")


def _names() -> dict[str, str]:
    """Department id → name."""
    return dict(Department.objects.values_list("slug", "name"))


@login_required
@require_safe
def csv(request: HttpRequest, backtest: str) -> StreamingHttpResponse:
    actor = actor_of(request)
    row = backtest_for(actor, backtest)
    figures = runs.figures_for(actor, row)
    if not figures:
        raise NotVisible
    return download(f"backtest-{row.public_id}.csv", ("department", "figure", "now", "draft"), tables.csv_rows(figures))
