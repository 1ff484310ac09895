"""`/help/`: the guides inside the portal, a search through them, and what is new."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from portal.access import NotVisible, actor_of
from portal.web import guides

LONGEST = 100  # letters that are searched for


def shelves(is_operator: bool) -> list[tuple[str, list[tuple[str, str]]]]:
    """Heading → documents under it, with a line on each."""
    rows = [
        (_("To begin with"), [
            ("getting-started", _("Five minutes with the demo: lending, borrowing, a recall")),
            ("user-guide", _("What researchers and quota owners do, page by page")),
            ("glossary", _("Every word of the pages in one sentence")),
        ]),
        (_("Why it does what it does"), [
            ("quota-rules", _("The 24 rules: who may use what, who lends, who is recalled")),
            ("quota-rules-reference", _("Every rule in full, with formulas and examples")),
            ("gpu-sharing", _("Whole cards, shared memory, MIG: what one gets")),
        ]),
        (_("For programs"), [
            ("api", _("The API: tokens, conventions, a pipeline")),
            ("agents", _("The portal as tools of an agent")),
            ("kubectl", _("Work submitted with kubectl, Kubeflow, Argo or Ray")),
        ]),
    ]  # fmt: skip
    if is_operator:
        rows.append((_("For operators"), [
            ("operations", _("Installation, processes, metrics, backups, faults")),
            ("configuration", _("All that is set, as one file")),
            ("sign-in", _("Identity providers, directories, groups")),
            ("kubernetes", _("What the portal does in a cluster")),
            ("runbooks", _("What to do when an alert calls")),
        ]))  # fmt: skip
    return rows


@login_required
def index(request: HttpRequest) -> HttpResponse:
    words = request.GET.get("q", "").strip()[:LONGEST]
    context = {"shelves": _with_titles(actor_of(request).is_operator), "words": words, "hits": guides.search(words)}
    return render(request, "portal/help.html", context)


def _with_titles(is_operator: bool) -> list[tuple[str, list[tuple[str, str, str]]]]:
    return [
        (
            heading,
            [(guides.address(name), each.document.title, line) for name, line in rows if (each := guides.guide(name))],
        )
        for heading, rows in shelves(is_operator)
    ]


@login_required
def whats_new(request: HttpRequest) -> HttpResponse:
    """The changelog, newest version first."""
    in_english = not (get_language() or "").startswith("en")
    return render(request, "portal/whats_new.html", {"document": guides.changes(), "in_english": in_english})


@login_required
def page(request: HttpRequest, page: str) -> HttpResponse:
    """Raises NotVisible if there is no such document."""
    guide = guides.guide(page)
    if guide is None:
        raise NotVisible
    contents = [section for section in guide.document.sections if section.level == 2]
    return render(request, "portal/help_page.html", {"guide": guide, "contents": contents})
