"""The decision log, as far as the reader may see it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Greatest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from portal.access import Actor, NotVisible, actor_of
from portal.web.facets import Filter, department_filter
from portal.web.lists import Column, ListState
from quotas.board.balances import balances_of
from quotas.engine import types as e
from quotas.models import Claim, Decision, PlanPass, Pool
from quotas.planning.replay import NotKept, replay, snapshot_of
from quotas.planning.snapshot import moment
from quotas.previews.alternatives import choice_of
from quotas.wording import Sentences, named_claims

AT_ONCE = 100_000
"""Bytes of a compressed snapshot, about 2,500 claims: for larger ones, alternatives are planned on request only."""
UNREADABLE = (ValueError, zlib.error)
CSV_COLUMNS = (
    "id", "at", "kind", "department", "pool", "unit", "units", "name", "person", "released_units", "released_by"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Side:
    """One decision as this reader may see it: the requesting claim and the victims, named only if the reader may see them."""

    decision: Decision
    claim: Claim | None  # None: the reader may not see it
    victims: tuple[tuple[Claim, bool], ...]  # and whether the reader may see it

    @property
    def units(self) -> int:
        return self.decision.claim.units

    @property
    def recalled_units(self) -> int:
        """Units of all victims."""
        return sum(victim.units for victim, _theirs in self.victims)


@login_required
@require_safe
def decisions(request: HttpRequest) -> HttpResponseBase:
    actor = actor_of(request)
    seen = actor.seen
    rows = concerning(actor, seen).annotate(asked=Greatest(F("claim__pods"), 1) * F("claim__units_per_pod"))
    state = list_of(request, rows, seen)
    rows = rows.select_related("claim__user", "department", "pool").prefetch_related("victims__department")
    if state.is_sheet:
        return state.sheet("decisions", CSV_COLUMNS, cells(state.chosen(rows), seen))
    context = state.context(rows)
    context["sides"] = [side_of(row, seen) for row in context["page"]]
    return render(request, "quotas/decisions.html", context)


def list_of(request: HttpRequest, rows: QuerySet[Decision], seen: Collection[int]) -> ListState:
    columns = [
        Column("time", _("Time"), ("at",), fixed=True),
        Column("kind", _("Decision"), ("kind",)),
        Column("for", _("For"), ("department__name",)),
        Column("pool", _("Pool"), ("pool__name",)),
        Column("amount", _("Amount"), ("asked",), number=True),
        Column("release", _("Must release")),
    ]
    filters = [
        Filter("kind", _("Decision"), "kind", kinds()),
        Filter("pool", _("Pool"), "pool__slug", dict(Pool.objects.values_list("slug", "name"))),
        department_filter(rows),
    ]
    return ListState(request.GET, columns, searched=naming(seen), moment="at", filters=filters, shown_as="-time")


def naming(seen: Collection[int]) -> Callable[[str], Q]:
    """Return a function from a word to the condition on decisions that show it to this reader, who sees only the department of
    other departments' claims."""

    def names(word: str) -> Q:
        victims = Decision.victims.through.objects.filter(claim__department__in=seen, claim__name__icontains=word)
        own = Q(claim__name__icontains=word) | Q(claim__person__icontains=word) | Q(public_id__istartswith=word)
        for_all = Q(department__name__icontains=word) | Q(pool__name__icontains=word)
        return for_all | Q(department__in=seen) & own | Q(pk__in=victims.values("decision"))  # one subquery

    return names


def cells(rows: QuerySet[Decision], seen: Collection[int]) -> Iterator[list[object]]:
    for row in rows.iterator(chunk_size=500):
        side = side_of(row, seen)
        own = side.claim
        yield [
            row.public_id, row.at, row.kind, row.department.slug, row.pool.slug, row.pool.unit, side.units,
            own.name if own else "", own.person if own else "", side.recalled_units,
            " ".join(victim.name for victim, is_own in side.victims if is_own),
        ]  # fmt: skip


def kinds() -> dict[str, str]:
    return {
        "admit": _("started"),
        "reclaim": _("reclaiming"),
        "wait": _("waiting"),
        "impossible": _("impossible"),
        "withdraw": _("recall withdrawn"),
    }


def concerning(actor: Actor, seen: Collection[int]) -> QuerySet[Decision]:
    """Decisions whose requesting claim or victims belong to departments that the reader may see."""
    if actor.sees_all:
        return Decision.objects.all()
    victims = Decision.victims.through.objects.filter(decision=OuterRef("pk"), claim__department__in=seen)
    return Decision.objects.filter(Q(department__in=seen) | Exists(victims))


def side_of(decision: Decision, seen: Collection[int]) -> Side:
    victims = tuple((victim, victim.department_id in seen) for victim in decision.victims.all())
    return Side(decision, decision.claim if decision.department_id in seen else None, victims)


def decision_for(actor: Actor, seen: Collection[int], decision: str) -> Decision:
    """The decision with this public id. Raises NotVisible if it does not concern the reader."""
    rows = concerning(actor, seen).filter(public_id=decision)
    row = rows.select_related("claim__user", "department", "pool", "plan_pass__group").first()
    if row is None:
        raise NotVisible
    return row


@login_required
@require_safe
def decision(request: HttpRequest, decision: str) -> HttpResponse:
    actor = actor_of(request)
    seen = actor.seen
    row = decision_for(actor, seen, decision)
    side = side_of(row, seen)
    context: dict[str, Any] = {"side": side, "decision": row, "kind": kinds().get(row.kind, row.kind)}
    context["at_once"] = len(row.plan_pass.snapshot) < AT_ONCE
    if side.claim is not None:  # the reader may not see numbers and reasons of other departments
        sentences = Sentences(actor, named_claims(row.data.get("reasons", ())) | set(row.data.get("ahead", ())))
        lenders = row.data.get("from", {}).items()
        context |= {
            "lenders": [(sentences.departments.get(slug, slug), units) for slug, units in lenders],
            "reasons": sentences.reasons(row.data.get("reasons", ()), row.pool),
            "whys": dict.fromkeys([row.kind, *(reason["code"] for reason in row.data.get("reasons", ()))]),
            "ahead": sentences.ahead(row.data.get("ahead", ())),
            "balance": balance_then(row),
            "by": moment(row.data["by"]) if row.data.get("by") is not None else None,
        }
    if actor.is_operator and "replay" in request.GET:
        context["again"] = again(row.plan_pass)
    return render(request, "quotas/decision.html", context)


def balance_then(row: Decision) -> str:
    """Say the balance that the department had by the ledger when the decision was made, if balances decided who borrows first;
    else blank."""
    claim, borrows = row.claim, row.kind == "wait" or row.data.get("from")
    if claim.own_only or not borrows or len(row.plan_pass.snapshot) >= AT_ONCE:
        return ""
    try:
        pool = snapshot_of(row.plan_pass).pool(e.PoolId(row.pool.slug))
    except UNREADABLE:
        return ""
    balances = balances_of(row.pool, now=row.at) if pool.balances is not None else None
    return balances.sentence(row.department) if balances else ""


@login_required
@require_safe
def decision_alternatives(request: HttpRequest, decision: str) -> HttpResponse:
    """A part of a decision's page: other possible victims, and why they were not chosen."""
    actor = actor_of(request)
    seen = actor.seen
    row = decision_for(actor, seen, decision)
    try:
        context: dict[str, Any] = {"choice": choice_of(actor, row, seen)}
    except UNREADABLE as error:
        context = {"unreadable": unreadable(error)}
    return render(request, "quotas/_alternatives.html", context)


def unreadable(error: Exception) -> str:
    if isinstance(error, NotKept):
        return _("Its snapshot is no longer kept.")
    return _("Its snapshot can no longer be read: %(error)s") % {"error": error}


def again(plan_pass: PlanPass) -> str:
    """The result of planning the stored snapshot again, in one sentence."""
    try:
        replayed = replay(plan_pass)
    except UNREADABLE as error:
        return unreadable(error)
    if replayed.recorded is None:
        return _("Its plan was not kept, so there is nothing to compare with.")
    if replayed.same:
        return _("Replayed from its snapshot: the plan is identical.")
    count = len(replayed.differing)
    text = ngettext(
        "Replayed from its snapshot: %(count)s decision differs.",
        "Replayed from its snapshot: %(count)s decisions differ.", count,
    )  # fmt: skip
    return text % {"count": count}
