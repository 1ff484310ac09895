"""`/help/`: the guides inside the portal, a search through them, and what is new."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import get_language, pgettext
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from portal.access import NotVisible, actor_of
from portal.web import guides
from portal.web.navigation import Shell
from portal.web.tours import tours_of

LONGEST = 100  # characters of the search text
AT_ONCE = 12  # changes of a group that are shown at first


def shelves(is_operator: bool) -> list[tuple[str, list[tuple[str, str]]]]:
    """(heading, its documents as (name, description))."""
    rows = [
        (_("Getting started"), [
            ("getting-started", _("Five minutes with the demo: lending, borrowing, a recall")),
            ("user-guide", _("What researchers and quota owners do, page by page")),
            ("glossary", _("Every term on the pages in one sentence")),
        ]),
        (_("How it decides"), [
            ("quota-rules", _("In four minutes: who may use what, who lends, who is recalled")),
            ("quota-rules-by-number", _("The 24 rules in full")),
            ("quota-rules-reference", _("Formulas, formats and more examples")),
            ("gpu-sharing", _("Whole cards, shared memory, MIG: what you get")),
        ]),
        (_("For programs"), [
            ("api", _("The API: tokens, conventions, a pipeline")),
            ("agents", _("The portal as tools of an agent")),
            ("kubectl", _("Workloads from outside the portal, under the same quota")),
        ]),
    ]  # fmt: skip
    if is_operator:
        rows.append((_("For operators"), [
            ("operations", _("Installation, processes, metrics, backups, faults")),
            ("configuration", _("All settings as one file")),
            ("sign-in", _("Identity providers, directories, groups")),
            ("kubernetes", _("What the portal does in a cluster")),
            ("runbooks", _("What to do when an alert fires")),
        ]))  # fmt: skip
    return rows


@login_required
def index(request: HttpRequest) -> HttpResponse:
    words = request.GET.get("q", "").strip()[:LONGEST]
    context = {
        "shelves": _with_titles(actor_of(request).is_operator),
        "words": words,
        "hits": guides.search(words),
        "tours": tours_of(Shell(request)),
    }
    return render(request, "portal/help.html", context)


def _with_titles(is_operator: bool) -> list[tuple[str, list[tuple[str, str, bool, str]]]]:
    """(heading, its documents as (address, title, whether it is in the reader's language, description))."""
    return [
        (
            heading,
            [
                (guides.address(name), each.document.title, each.is_translated, line)
                for name, line in rows
                if (each := guides.guide(name))
            ],
        )
        for heading, rows in shelves(is_operator)
    ]


@login_required
@require_safe
def whats_new(request: HttpRequest) -> HttpResponse:
    """The changelog, newest version first, with the first AT_ONCE entries of each group. Opening it marks this version as
    read."""
    user = actor_of(request).user
    if user is not None and user.changes_read != settings.VERSION:
        user.changes_read = settings.VERSION
        user.save(update_fields=["changes_read"])
    names = {
        "Added": _("Added"), "Changed": pgettext("in the changelog", "Changed"), "Fixed": _("Fixed"), "Security": _("Security"),
        "Removed": _("Removed"), "Deprecated": _("Deprecated"),
    }  # fmt: skip
    versions = [
        {
            "name": version.name,
            "date": version.date,
            "groups": [
                (
                    names.get(group.name, group.name),
                    len(group.entries),
                    group.entries[:AT_ONCE],
                    group.entries[AT_ONCE:],
                )
                for group in version.groups
            ],
        }
        for version in guides.changes()
    ]
    return render(request, "portal/whats_new.html", {"versions": versions, "in_english": reads_another_language()})


def reads_another_language() -> bool:
    """Whether the reader's language is not English, so that a page mentions which texts are only in English."""
    return not (get_language() or "").startswith("en")


@login_required
def page(request: HttpRequest, page: str) -> HttpResponse:
    """Raises NotVisible if there is no such document."""
    guide = guides.guide(page)
    if guide is None:
        raise NotVisible
    contents = [section for section in guide.document.sections if section.level == 2]
    return render(request, "portal/help_page.html", {"guide": guide, "contents": contents})
