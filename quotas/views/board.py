"""A department's board: its use, what it lends and borrows, its queue, and their history."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from portal.access import Actor, Right, actor_of, department_for
from portal.models import Department
from portal.text.numbers import natural
from portal.web.pages import render_part, wants_part
from quotas.board import returns
from quotas.board.balances import balances_of
from quotas.board.flow import Flow, flow
from quotas.board.history import HOUR, Loan, loans
from quotas.board.trends import PERIODS, trends
from quotas.board.usage import PoolUsage, usages
from quotas.board.usage_now import Live, LiveClaim, read
from quotas.models import ClaimState, Pool, UsageHour
from quotas.tree import upwards
from quotas.wording import Sentences, lends, named_claims


@dataclass(frozen=True, slots=True)
class Row:
    usage: PoolUsage
    borrowed: tuple[Loan, ...]  # that run now
    lent: tuple[Loan, ...]
    lends: str  # what it lends now and next, as a sentence's end; blank without lending windows


@login_required
@require_safe
def department(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department)
    live = read()
    inside = live.subtree(dept.pk)
    context: dict[str, Any] = {
        "department": dept,
        "days": days_of(request),
        "periods": PERIODS,
        "may_steer": actor.may(Right.STEER, dept),
        "above": [(each, actor.may(Right.SEE, each)) for each in upwards(live.departments, dept.parent_id)][::-1],
        "paused_above": next((above for above in upwards(live.departments, dept.parent_id) if above.paused), None),
    }
    past = wants_part(request, "past")
    whole = not request.headers.get("HX-Request")
    lent = loans(live, inside, days=context["days"] if past or whole else 0)
    if past:
        pools = [usage.pool for usage in usages(live, dept.pk, seen=actor.seen)]
    else:
        context |= _now(live, actor, dept, inside, [loan for loan in lent if loan.units])
        pools = [row.usage.pool for row in context["rows"]]
    if past or whole:
        context |= _past(pools, inside, context["days"]) | {"loans": lent, "balances": _balances(pools, dept)}
    return render_part(request, "quotas/department.html", context, part="past" if past else "now")


def _balances(pools: Iterable[Pool], department: Department) -> list[tuple[Pool, str]]:
    """Say what the department lent and borrowed lately in each pool with fairness over time."""
    now = timezone.now()
    return [(pool, each.sentence(department)) for pool in pools if (each := balances_of(pool, now=now)) is not None]


def days_of(request: HttpRequest) -> int:
    """How many days the charts show: the chosen number; else a week, or one day if no earlier hours are metered."""
    chosen = natural(request.GET.get("days", ""))
    if chosen in PERIODS:
        return chosen
    return 7 if UsageHour.objects.filter(hour__lt=timezone.now() - 24 * HOUR).exists() else 1


def _now(live: Live, actor: Actor, department: Department, inside: list[int], running: list[Loan]) -> dict[str, Any]:
    waiting = [
        c for c in live.all_claims() if c.department_id in inside and c.state == ClaimState.PENDING and not c.is_recall
    ]
    rows = [_row(usage, running, inside) for usage in usages(live, department.pk, seen=actor.seen)]
    return {
        "teams": list(_teams(live, department.pk)),
        "seen": actor.seen,
        "some_unseen": not actor.seen.issuperset(inside),
        "rows": rows,
        "flows": _flows(running, rows),
        "any_use": any(row.usage.per_user for row in rows),
        "returns": returns.coming_back(live, inside, actor.seen),
        "departures": returns.going_away(live, inside, actor.seen),
        "queue": _queue(live, sorted(waiting, key=_turn), actor),
    }


def _flows(running: list[Loan], rows: list[Row]) -> list[tuple[Pool, Flow]]:
    """(pool, drawing of its loans) for each pool of the board in which the department lends or borrows."""
    pools = [row.usage.pool for row in rows]
    drawn = [(pool, flow([loan for loan in running if loan.pool.pk == pool.pk])) for pool in pools]
    return [(pool, each) for pool, each in drawn if each is not None]


def _teams(live: Live, department: int, depth: int = 0) -> Iterator[tuple[Department, int, list[PoolUsage]]]:
    """All departments below, each after its parent: (department, depth, use of each pool including its teams)."""
    for pk in sorted(live.children[department], key=lambda pk: live.departments[pk].slug):
        yield live.departments[pk], depth, usages(live, pk)
        yield from _teams(live, pk, depth + 1)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting claim. `known`: whether the reader may see its department, and so its name, person and reasons."""

    claim: LiveClaim
    department: Department
    pool: Pool
    known: bool
    reasons: list[tuple[str, str]]  # (why, what to do)


def _queue(live: Live, claims: list[LiveClaim], actor: Actor) -> list[Waiting]:
    known = {claim.pk for claim in claims if claim.department_id in actor.seen}
    sentences = Sentences(
        actor, {name for claim in claims if claim.pk in known for name in named_claims(claim.reasons)}
    )
    rows = []
    for claim in claims:
        pool = live.pools[claim.pool_id]
        reasons = sentences.reasons(claim.reasons, pool) if claim.pk in known else []
        rows.append(Waiting(claim, live.departments[claim.department_id], pool, claim.pk in known, reasons))
    return rows


def _turn(claim: LiveClaim) -> tuple[int, int, dt.datetime]:
    return claim.pool_id, claim.position or 1_000_000, claim.queued_at


def _row(usage: PoolUsage, running: list[Loan], inside: list[int]) -> Row:
    in_pool = [loan for loan in running if loan.pool.pk == usage.pool.pk]
    quota = usage.quota
    return Row(
        usage,
        tuple(loan for loan in in_pool if loan.borrower.pk in inside),
        tuple(loan for loan in in_pool if loan.borrower.pk not in inside),
        lends(quota, now=timezone.now()) if quota is not None and quota.windows else "",
    )


def _past(pools: list[Pool], inside: list[int], days: int) -> dict[str, Any]:
    metered = list(trends(pools, days=days, departments=inside))
    drawn = {each.pool for each in metered}
    unmetered = [pool.name for pool in pools if pool not in drawn]
    return {"trends": metered, "unmetered": unmetered}
