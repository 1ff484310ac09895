"""Pools: free cards, and which departments use the others."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from portal.access import NotVisible, actor_of
from portal.web.pages import render_part, wants_part
from quotas.board.balances import balances_of
from quotas.board.card_map import pool_overview
from quotas.board.flow import flow
from quotas.board.history import running_loans
from quotas.board.trends import PERIODS, trends
from quotas.board.usage_now import read
from quotas.models import Pool
from quotas.views.board import days_of

MOST_NODES = 40
"""The most nodes that a pool's page lists one by one; if there are more, it links to the card map."""


@login_required
@require_safe
def pools(request: HttpRequest) -> HttpResponse:
    seen = actor_of(request).seen
    return render_part(request, "quotas/pools.html", {"overviews": pool_overview(read(), seen=seen)}, part="pools")


@login_required
@require_safe
def pool(request: HttpRequest, pool: str) -> HttpResponse:
    """A pool with its nodes. Everybody sees departments and amounts; names are shown only to readers of the department."""
    actor = actor_of(request)
    seen = actor.seen
    rows = Pool.objects.filter(slug=pool).select_related("group__cluster")
    if not rows:
        raise NotVisible
    live = read(rows)
    [overview] = pool_overview(live, seen=seen)
    past, whole_page = wants_part(request, "past"), not request.headers.get("HX-Request")
    context: dict[str, Any] = {
        "overview": overview,
        "pool": overview.pool,
        "seen": seen,
        "operator": actor.is_operator,
        "days": days_of(request),
        "periods": PERIODS,
    }
    if not past:
        context |= {
            "may_backtest": actor.sees_all or actor.owned.filter(quotas__pool__group=overview.pool.group_id).exists(),
            "most_nodes": MOST_NODES,
            "as_table": "table" in request.GET,
            "flow": flow(running_loans(live)),
            "balances": balances_of(overview.pool, now=timezone.now()),
        }
    if past or whole_page:
        context["trend"] = next(trends([overview.pool], days=context["days"]), None)
    return render_part(request, "quotas/pool.html", context, part="past" if past else "map")
