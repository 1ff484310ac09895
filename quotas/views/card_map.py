"""The card map: every node and card with its department or activity, and the details of one node.

Everybody may see it. Work in departments that the reader may not see is shown as "another department", with amount and end.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import F, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import NotVisible, actor_of
from portal.models import Department
from portal.web.pages import render_part
from quotas.board.map_drawing import Drawing, Pen, colours_of, free_words, kind_name, legend, name_of_department
from quotas.board.map_reading import CardMap, Kind, MapNode, Part, Tile, read_map
from quotas.models import Claim, Node, Pool, Quarantine, Quota

STATES: dict[str, Kind | None] = {**{kind.value: kind for kind in Kind}, "idle": None}
"""The states by which the map can be filtered; idle: used, and measured to be idle."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of the URL. None and "" do not filter; neither do values that do not exist."""

    pool: Pool | None
    department: Department | None
    state: str
    reading: str  # whose | used

    @staticmethod
    def of(request: HttpRequest, pools: list[Pool], seen: Collection[int]) -> Filters:
        query = request.GET
        department = Department.objects.filter(pk__in=seen, slug=query.get("department", "")[:100]).first()
        return Filters(
            next((pool for pool in pools if pool.slug == query.get("pool")), None), department,
            state if (state := query.get("state", "")) in STATES else "", "used" if query.get("show") == "used" else "whose",
        )  # fmt: skip

    @property
    def narrows(self) -> bool:
        return self.department is not None or bool(self.state)

    def matches(self, part: Part) -> bool:
        if self.department is not None and (not part.kind.is_use or part.department != self.department.pk):
            return False
        if self.state == "idle":
            return part.is_idle
        return not self.state or part.kind.value == self.state


@login_required
@require_safe
def card_map(request: HttpRequest) -> HttpResponse:
    seen = actor_of(request).seen
    pools = list(Pool.objects.select_related("group__cluster").order_by("name"))
    filters = Filters.of(request, pools, seen)
    context = map_context([filters.pool] if filters.pool else pools, seen, filters)
    context |= {"pools": pools, "departments": Department.objects.filter(pk__in=seen).order_by("name")}
    return render_part(request, "quotas/card_map.html", context, part="card-map")


def map_context(pools: list[Pool], seen: Collection[int], filters: Filters) -> dict[str, Any]:
    """The context of `_card_map.html`."""
    made = read_map(pools, seen=seen)
    colours = colours_of(made, _guaranteed(pools), filters.department.pk if filters.department else None)
    pen = Pen(made, colours, reverse("quotas:card_map"), filters.matches if filters.narrows else None)
    drawing: Drawing = pen.draw()
    return {
        "map": made, "drawing": drawing, "legend": list(legend(made, colours)), "filters": filters,
        "kinds": {part.kind for part in made.parts()}, "any_idle": any(part.is_idle for part in made.parts()),
        "any_held": any(made.held.values()), "any_strange": any(not part.is_seen for part in made.parts()),
        "states": [(name, kind_name(kind) if kind else _("idle, by measurement")) for name, kind in STATES.items()],
        "renew": {"large": 10, "medium": 20, "small": 60}[drawing.density],
    }  # fmt: skip


def _guaranteed(pools: list[Pool]) -> dict[int, float]:
    """Department id → its guarantees in these pools, in cards."""
    rows = Quota.objects.filter(pool__in=pools).values_list("department")
    return dict(rows.annotate(cards=Sum(F("guaranteed") * 1.0 / F("pool__units_per_card"))).order_by())


@dataclass(slots=True)
class Line:
    """A part of a card, or several identical neighbouring cards, in words. `claim` is None if the reader may not see it."""

    first: Tile
    last: Tile
    places: set[int]  # positions of its tiles on the map
    part: Part
    count: int
    whose: str
    kind: str
    claim: Claim | None
    since: dt.datetime | None
    until: dt.datetime | None
    is_rest: bool  # whether it is another part of the card in the line before

    @property
    def label(self) -> str:
        if self.is_rest or self.first.profile:
            return "" if self.is_rest else self.first.profile
        if self.first is self.last:
            return _("card %(index)s") % {"index": self.first.label}
        return _("cards %(first)s to %(last)s") % {"first": self.first.label, "last": self.last.label}

    @property
    def units(self) -> int:
        return self.part.units * self.count

    @property
    def charge(self) -> int:
        return self.part.charge * self.count

    def goes_on(self, tile: Tile, part: Part) -> bool:
        """Whether a tile with this part is identical to those of the line, so that the line can include it."""
        alike = (part.claim, part.kind, tile.profile) == (self.part.claim, self.part.kind, self.last.profile)
        whole = len(tile.parts) == len(self.last.parts) == 1
        return alike and whole and (not tile.profile or part.claim is None)


@login_required
@require_safe
def card_map_node(request: HttpRequest, node: int) -> HttpResponse:
    """Who holds what on one node, and until when. `?card=` marks one of its cards, by its position on the map."""
    seen = actor_of(request).seen
    row = get_object_or_404(Node.objects.select_related("cluster"), pk=node)
    pools = list(Pool.objects.filter(cards__node=row).distinct().select_related("group__cluster"))
    if not pools:
        raise NotVisible
    made = read_map(pools, seen=seen, node=row)
    claims = {
        claim.pk: claim
        for claim in Claim.objects.filter(pk__in=[part.claim for part in made.parts() if part.claim]).select_related(
            "user", "department"
        )
    }
    card = request.GET.get("card", "")
    blocks = [(made.pools[each.pool], free_words(made, each.pool), _lines(made, each, claims)) for each in made.nodes]
    context = {
        "node": row, "blocks": blocks, "chosen": int(card) if card.isdecimal() and len(card) < 5 else None,
        "quarantines": Quarantine.objects.filter(node=row, ended_at=None), "is_measured": made.is_measured,
    }  # fmt: skip
    return render_part(request, "quotas/card_map_node.html", context, part="node")


def _lines(made: CardMap, node: MapNode, claims: dict[int, Claim]) -> list[Line]:
    lines: list[Line] = []
    for at, tile in enumerate(node.tiles):
        for number, part in enumerate(tile.parts):
            if lines and lines[-1].goes_on(tile, part):
                lines[-1].last, lines[-1].count = tile, lines[-1].count + 1
                lines[-1].places.add(at)
                continue
            claim = claims.get(part.claim or 0)
            whose = name_of_department(part, made.departments) if part.kind.is_use else ""
            since, until = (claim.started_at, _until(claim)) if claim else (None, None)
            visible = claim if part.is_seen else None
            lines.append(
                Line(tile, tile, {at}, part, 1, whose, kind_name(part.kind), visible, since, until, is_rest=number > 0)
            )
    return lines


def _until(claim: Claim) -> dt.datetime | None:
    if claim.leave_by is not None or claim.max_runtime is None or claim.started_at is None:
        return claim.leave_by
    return claim.started_at + dt.timedelta(seconds=claim.max_runtime)
