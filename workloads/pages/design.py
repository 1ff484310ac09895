"""Every component in every state, drawn by the templates that the pages use: shows the effect of a change of style."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from portal.access import operator_of
from portal.models import Department
from portal.names import LineInput
from portal.web.design_tokens import DRAWING, TEXT, palettes
from portal.web.lists import Column, ListState
from quotas.board.flow import flow
from quotas.board.history import Loan
from quotas.engine.what_if import Headline
from quotas.models import Pool
from workloads.models import Kind, Preset, State
from workloads.pages.attempt_timeline import Phase, timeline_of
from workloads.requests.offered_amounts import OfferedAmount
from workloads.requests.verdict import Alternative, Step

SIZES = ("xs", "sm", "md", "lg", "xl", "2xl", "3xl")
SPACES = ((1, 4), (2, 8), (3, 16), (4, 24), (5, 32))  # Tabler's step, px


class ExampleForm(forms.Form):
    """A field of each kind. It is shown bound and incomplete, so that two fields have errors."""

    name = LineInput(label=gettext_lazy("Name"), max_length=40, help_text=gettext_lazy("Shown in lists."))
    cards = forms.IntegerField(label=gettext_lazy("Cards"), min_value=1, max_value=8)
    kind = forms.ChoiceField(label=gettext_lazy("Kind"), choices=Kind.choices, required=False)
    own_only = forms.BooleanField(label=gettext_lazy("Own quota only"), required=False)


@login_required
@require_safe
def design(request: HttpRequest) -> HttpResponse:
    operator_of(request)
    pool = Pool(slug="a100", name="A100 80GB", unit="card", units_per_card=1, sharing="whole")
    vision, biology = Department(pk=1, slug="vision", name="Vision"), Department(pk=2, slug="biology", name="Biology")
    now = timezone.now()
    columns = [
        Column("name", _("Name"), ("name",), fixed=True),
        Column("cards", _("Cards"), ("units",), number=True),
        Column("state", _("State")),
    ]
    query = request.GET.copy()
    query.setdefault("sort", "-cards")
    context = {
        "sizes": SIZES,
        "spaces": SPACES,
        "themes": palettes(),
        "text_contrast": TEXT,
        "drawing_contrast": DRAWING,
        "icons": (Path(settings.BASE_DIR) / "static" / "icons.txt").read_text().split(),
        "states": State,
        "pool": pool,
        "verdicts": [verdict(headline, pool) for headline in Headline],
        "steps": [
            Step(OfferedAmount(pool, units), headline, _("starts now"), asked=units == 1)
            for units, headline in zip((1, 2, 4, 8, 16), Headline, strict=True)
        ],
        "presets": [Preset(kind=kind, pool=pool, units_per_pod=units, pods=pods, max_runtime=4 * 3600)
                    for kind, units, pods in ((Kind.JOB, 1, 1), (Kind.DISTRIBUTED, 2, 3), (Kind.SERVICE, 4, 1))],
        "form": ExampleForm({"cards": "40"}),
        "any": True,
        "list": ListState(query, columns, searched=()),
        "page": Paginator(range(312), 50).get_page(2),
        "facets": [SimpleNamespace(
            label=_("State"), selected="running", selected_label=_("running"), clear_url="?",
            choices=[SimpleNamespace(url="?", selected=True, label=_("running"), count=3)],
        )],
        "flow": flow([
            Loan(pool=pool, borrower=biology, lender=vision, units=4, leaving=2),
            Loan(pool=pool, borrower=biology, lender=None, units=1),
        ]),
        "timeline": timeline_of(attempts(now)),
        "row": SimpleNamespace(
            reclaim_at=now + dt.timedelta(minutes=9, seconds=41),
            workload=SimpleNamespace(name="fold-a", public_id="fold-a", units=2, pool=pool, department=biology),
            claim=SimpleNamespace(preempted_for=SimpleNamespace(department=vision)),
        ),
    }  # fmt: skip
    return render(request, "workloads/design.html", context)


def verdict(headline: Headline, pool: Pool) -> dict[str, Any]:
    """The parts of a workloads.requests.verdict.Verdict that its template reads."""
    titles = {
        Headline.STARTS_OWN: _("Starts now, from your own quota."),
        Headline.STARTS_BORROWING: _("Starts now, on borrowed cards."),
        Headline.STARTS_BY: _("Starts by 14:12."),
        Headline.WAITS: _("Waits as third."),
        Headline.CANNOT: _("Cannot run."),
    }
    offers = [Alternative(pool, 2, _("2 cards start now"))] if headline in (Headline.WAITS, Headline.CANNOT) else []
    contract = _("Borrowed cards can be recalled.") if headline is Headline.STARTS_BORROWING else ""
    return {
        "headline": headline.value, "title": titles[headline], "lines": [], "alternatives": offers, "advice": [],
        "contract": contract,
    }  # fmt: skip


def attempts(now: dt.datetime) -> list[tuple[int, list[Phase]]]:
    """Two attempts: one that was recalled, and one that runs."""

    def at(minutes: int) -> dt.datetime:
        return now - dt.timedelta(minutes=minutes)

    return [
        (1, [phase("queued", at(180), at(150)), phase("starting", at(150), at(145)), phase("running", at(145), at(90)),
             phase("recalled", at(90), at(80)), phase("stopping", at(80), at(78))]),
        (2, [phase("queued", at(78), at(40)), phase("starting", at(40), at(38)), phase("running", at(38), None)]),
    ]  # fmt: skip


def phase(code: str, began: dt.datetime, ended: dt.datetime | None) -> Phase:
    return Phase(code, str(State(code).label), began, ended)
