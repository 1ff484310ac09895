"""Usage: who used how much of what in a period, what was lent and left idle, and what it cost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import SYSTEM, Actor, actor_of, department_for
from portal.errors import Invalid
from portal.models import Department, User
from portal.text.words import percent, unit_hours
from portal.web.spreadsheets import download
from quotas.models import Pool
from quotas.reports.asked import GROUPS, RANGES, Asked, asked_of
from quotas.reports.queries import Report, names_of, report
from quotas.reports.sums import Row, hours
from quotas.reports.words import COLUMNS, cells, kind_name, money

MOST = 500
"""The most lines on one page; the CSV has all."""
NEXT = {"department": "person", "person": "kind", "pool": "department", "kind": "person"}
"""Group of a line → group of the report to which the line links."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a group, with the URL of its details."""

    text: str
    hint: str
    url: str


@dataclass(frozen=True, slots=True)
class Line:
    cells: tuple[Cell, ...]
    row: Row

    @property
    def figures(self) -> dict[str, str]:
        """Column → hours as text; "" if they are unknown or do not apply."""
        row = self.row
        names = ("own", "borrowed", "lent", "guaranteed", "idle", "measured", "covered")
        values = {name: getattr(row, name) for name in names} | {"allocated": row.allocated}
        texts = {name: "" if value is None else f"{hours(value, row.unit):,.2f}" for name, value in values.items()}
        share = row.measured / row.covered if row.measured is not None and row.covered else None
        return texts | {
            "cost": money(row.cost),
            "share": percent(share),
            "partly": texts["covered"] if row.is_partly else "",
        }


@dataclass(frozen=True, slots=True)
class Section:
    """The lines of one unit, and their total."""

    title: str
    lines: tuple[Line, ...]
    total: Line
    left_out: int


@dataclass(frozen=True, slots=True)
class Choice:
    label: str
    url: str
    selected: bool


@login_required
@require_safe
def usage(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    problem = None
    try:
        asked = _asked(actor, request.GET)
    except Invalid as error:
        problem, asked = error, asked_of(actor, {}, by=_first_group(actor))
    result = report(actor, asked)
    query = QueryDict(mutable=True) if problem else request.GET
    context: dict[str, Any] = {
        "report": result, "asked": asked, "sections": _sections(result, query), "problem": problem,
        "now": timezone.now(), "zone": timezone.get_current_timezone_name(),
        "groups": _groups(asked, query), "ranges": _ranges(asked, query),
        "filters": list(_filters(actor, asked, query)), "headings": [_(GROUPS[name]) for name in asked.by],
        "first_day": timezone.localdate(asked.start), "last_day": asked.last_day, "sent": request.GET,
        "bars": reverse("quotas:budget_bars") + (f"?department={asked.department.slug}" if asked.department else "?all=1"),
        "kept": [(name, value) for name, value in query.items() if name in (*GROUPS, "group") and value],
    }  # fmt: skip
    return render(request, "quotas/usage.html", context, status=422 if problem else 200)


@login_required
@require_safe
def export(request: HttpRequest) -> StreamingHttpResponse:
    """All lines of the same report, as CSV."""
    actor = actor_of(request)
    asked = _asked(actor, request.GET)
    first, last = timezone.localdate(asked.start), asked.last_day
    return download(f"usage-{first}-{last}.csv", (*asked.by, *COLUMNS), cells(report(actor, asked)))


FIRST_BARS = 8
"""How many bars are shown, those with the largest allocation; the others are collapsed."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What was allocated in one pool, to all or to one person, and the part in which cards computed. Widths are in percent of the
    longest bar of the same unit."""

    name: str
    pool: str  # "": the bar's name is that of the pool, or all bars are of the same pool
    unit: str
    line: Line
    width: str
    used: str  # "": not measured


@dataclass(frozen=True, slots=True)
class Spell:
    """Allocated against used over the last day or week."""

    title: str
    bars: list[Bar]

    @property
    def first(self) -> list[Bar]:
        return self.bars[:FIRST_BARS]

    @property
    def others(self) -> list[Bar]:
        return self.bars[FIRST_BARS:]


@login_required
@require_safe
def department_use(request: HttpRequest, department: str) -> HttpResponse:
    """A part of the department's board: allocated against used."""
    actor = actor_of(request)
    return _spells(request, actor, department=department_for(actor, department))


@login_required
@require_safe
def pool_use(request: HttpRequest, pool: str) -> HttpResponse:
    """A part of a pool's page: the same for all departments together, so that it reveals nothing about any of them."""
    actor_of(request)
    return _spells(request, SYSTEM, pool=get_object_or_404(Pool, slug=pool))


def _spells(request: HttpRequest, actor: Actor, **narrowed: Any) -> HttpResponse:
    now = timezone.now().replace(microsecond=0)
    this_hour = now.replace(minute=0, second=0)
    department = narrowed.get("department")
    asked: list[tuple[str, int, tuple[str, ...]]]
    asked = [(_("Last 24 hours"), 24, ("pool",)), (_("Last 7 days"), 7 * 24, ("pool",))]
    if department is not None and (actor.sees_all or actor.owned.filter(pk=department.pk).exists()):
        asked.append((_("Last 7 days, by person"), 7 * 24, ("person", "pool")))
    spells = []
    for title, hours_ago, groups in asked:
        question = Asked(this_hour - dt.timedelta(hours=hours_ago), this_hour, groups, **narrowed)
        spells.append(Spell(title, _bars([row for row in report(actor, question).rows if row.allocated], groups)))
    return render(request, "quotas/_allocated_used.html", {"spells": spells, "of_pool": "pool" in narrowed})


def _bars(rows: list[Row], groups: tuple[str, ...]) -> list[Bar]:
    names = names_of(rows, groups)
    longest: dict[str, int] = {}
    for row in rows:
        longest[row.unit] = max(longest.get(row.unit, 0), row.allocated)
    pools = {row.key[1] for row in rows if len(groups) > 1}
    return [
        Bar(
            names[groups[0]].get(row.key[0]) or row.key[0] or _("unknown"),
            names["pool"].get(row.key[1], row.key[1]) if len(pools) > 1 else "",
            unit_hours(row.unit), Line((), row),
            f"{100 * row.allocated / longest[row.unit]:.1f}",
            "" if row.measured is None else f"{100 * min(row.measured, row.allocated) / longest[row.unit]:.1f}",
        )
        for row in rows
    ]  # fmt: skip


def _asked(actor: Actor, query: QueryDict) -> Asked:
    return asked_of(actor, {name: str(value) for name, value in query.items()}, by=_first_group(actor))


def _first_group(actor: Actor) -> str:
    """The default grouping: departments; for the owner of one department, its people; for others, pools."""
    if actor.sees_all:
        return "department"
    owned = actor.owned[:2].count()
    return "department" if owned > 1 else "person" if owned else "pool"


def _address(query: QueryDict, **changes: str) -> str:
    """The URL of the same report with other values; "" removes one."""
    new = query.copy()
    for name, value in changes.items():
        new.pop(name, None)
        if value:
            new[name] = value
    return "?" + new.urlencode()


def _sections(result: Report, query: QueryDict) -> list[Section]:
    names = names_of(result.rows, result.asked.by)
    sections = []
    for total in result.totals:
        rows = [row for row in result.rows if row.unit == total.unit]
        lines = tuple(_line(row, result.asked.by, names, query) for row in rows[:MOST])
        sections.append(Section(unit_hours(total.unit), lines, Line((), total), max(0, len(rows) - MOST)))
    return sections


def _line(row: Row, by: tuple[str, ...], names: dict[str, dict[str, str]], query: QueryDict) -> Line:
    made = []
    for name, value in zip(by, row.key, strict=True):
        left = [each for each in by if each != name]
        url = _address(query, **{name: value, "group": ",".join(left) or NEXT[name]}) if value else ""
        made.append(Cell(*_words(name, value, names), url))
    return Line(tuple(made), row)


def _words(name: str, value: str, names: dict[str, dict[str, str]]) -> tuple[str, str]:
    """(text, hint) for a value of a group."""
    if name == "kind":
        return kind_name(value), ""
    if name != "person":
        return names[name].get(value, value), ""
    if not value:
        return _("unknown"), ""
    label = names[name].get(value)
    if label is None:
        return value, _("account deleted")
    return label, value if value != label else ""


def _groups(asked: Asked, query: QueryDict) -> list[Choice]:
    return [Choice(_(label), _address(query, group=name), asked.by == (name,)) for name, label in GROUPS.items()]


def _ranges(asked: Asked, query: QueryDict) -> list[Choice]:
    return [
        Choice(_(label), _address(query, range=name, **{"from": "", "until": ""}), asked.range == name)
        for name, label in RANGES.items()
    ]


def _label(actor: Actor, username: str) -> str:
    """The person's name, if they belong to a department that the reader may see; else the text that the reader entered."""
    user = User.objects.filter(username=username, memberships__department__in=actor.seen).first()
    return user.label if user else username


def _filters(actor: Actor, asked: Asked, query: QueryDict) -> Iterable[tuple[str, str, str]]:
    """(name, value, URL without it) for each filter of the report."""
    values: dict[str, Department | Pool | str | None] = {
        "department": asked.department, "person": asked.person and _label(actor, asked.person), "pool": asked.pool,
        "kind": kind_name(asked.kind) if asked.kind else "",
    }  # fmt: skip
    for name, value in values.items():
        if value:
            yield _(GROUPS[name]), str(value), _address(query, **{name: ""})
