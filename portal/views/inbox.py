"""The inbox, and the settings of notifications."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Case, Max, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import NotVisible, actor_of
from portal.errors import N_
from portal.infra import versions
from portal.infra.locks import durable
from portal.models import InboxItem, NoticePreference, User
from portal.notify import notices
from portal.notify.pages import page_of
from portal.text.numbers import natural
from portal.web.facets import Filter, department_filter
from portal.web.lists import Column, ListState
from portal.web.pages import render_part

CSV_COLUMNS = ("at", "kind", "department", "workload", "message", "read_at")


@dataclass(frozen=True, slots=True)
class Line:
    item: InboxItem
    title: str
    sentence: str
    url: str


@login_required
@require_safe
def inbox(request: HttpRequest) -> HttpResponseBase:
    rows = _items(_reader(request))
    state = _list_of(request, rows)
    if state.is_sheet:
        return state.sheet("inbox", CSV_COLUMNS, _cells(state.chosen(rows)))
    context = state.context(rows)
    context |= {
        "lines": [_line(item) for item in context["page"]],
        "unread": state.chosen(rows).filter(read_at=None).count(),
        "newest": rows.aggregate(newest=Max("pk"))["newest"],
    }
    return render_part(request, "portal/inbox.html", context, part="lines")


def _line(item: InboxItem) -> Line:
    return Line(item, _title(item.kind), notices.sentence(item.kind, item.data), url_of(item))


def _items(user: User) -> QuerySet[InboxItem]:
    status = Case(When(read_at=None, then=Value("unread")), default=Value("read"))
    return InboxItem.objects.filter(user=user).select_related("department").annotate(status=status)


def _list_of(request: HttpRequest, rows: QuerySet[InboxItem]) -> ListState:
    columns = [
        Column("message", _("Message"), fixed=True),
        Column("kind", _("Kind"), ("kind",), extra=True),
        Column("department", _("Department"), ("department__name",), gaps=True),
        Column("time", _("Time"), ("created_at",)),
    ]
    filters = [
        Filter("show", _("State"), "status", {"unread": _("unread"), "read": _("read")}),
        Filter("kind", _("Kind"), "kind", _title),
        department_filter(rows),
    ]
    return ListState(request.GET, columns, searched=_containing, moment="created_at", filters=filters, shown_as="-time")


def _title(kind: str) -> str:
    return _(notices.KINDS[kind].title) if kind in notices.KINDS else kind


def _containing(word: str) -> Q:
    """Selects items whose sentence, in the reader's language, or whose facts contain the word."""
    kinds = [kind for kind, known in notices.KINDS.items() if word.lower() in known.words.lower()]
    return Q(kind__in=kinds) | Q(data__icontains=word) | Q(department__name__icontains=word) | Q(workload=word.lower())


def _cells(rows: QuerySet[InboxItem]) -> Iterator[list[object]]:
    """CSV rows in the reader's language and time zone, which are no longer active when the response is streamed."""
    language, zone = translation.get_language(), timezone.get_current_timezone()

    def cells(item: InboxItem) -> list[object]:
        with translation.override(language), timezone.override(zone):
            text = notices.sentence(item.kind, item.data)
        department = item.department.slug if item.department else ""
        return [item.created_at, item.kind, department, item.workload, text, item.read_at]

    return map(cells, rows.iterator(chunk_size=500))


def _reader(request: HttpRequest) -> User:
    user = actor_of(request).user
    if user is None:
        raise NotVisible
    return user


def url_of(item: InboxItem) -> str:
    """The URL that the line links to; "" if it has no page, or its department is deleted."""
    return page_of(item.kind, item.department.slug if item.department else "", item.workload, item.data)


@login_required
@require_safe
def open_item(request: HttpRequest, item: int) -> HttpResponse:
    """Redirects to what the line is about and marks it as read."""
    line = InboxItem.objects.filter(user=_reader(request), pk=item).select_related("department").first()
    if line is None:
        raise NotVisible
    ahead_of_time = "prefetch" in request.headers.get("Sec-Purpose", request.headers.get("Purpose", ""))
    if request.method == "GET" and not ahead_of_time:
        InboxItem.objects.filter(pk=line.pk, read_at=None).update(read_at=timezone.now())
    return redirect(url_of(line) or "portal:inbox")


@login_required
@require_POST
def read(request: HttpRequest) -> HttpResponse:
    """Marks as read the lines with the given ids, or all that the URL selects up to the newest one on the page; then back to
    the same list."""
    rows = _items(_reader(request))
    up_to = natural(request.POST.get("up_to", ""))
    ids = [pk for value in request.POST.getlist("item") if (pk := natural(value)) is not None]
    chosen = rows.filter(pk__in=ids) if up_to is None else _list_of(request, rows).chosen(rows).filter(pk__lte=up_to)
    count = InboxItem.objects.filter(pk__in=chosen.order_by().values("pk"), read_at=None).update(read_at=timezone.now())
    if count > 1:
        text = ngettext("%(n)s message was marked as read.", "%(n)s messages were marked as read.", count)
        messages.success(request, text % {"n": count})
    query = request.GET.urlencode()
    return redirect(f"{reverse('portal:inbox')}?{query}" if query else "portal:inbox")


@dataclass(frozen=True, slots=True)
class Choice:
    """One kind of notice in the settings, below the heading `group`."""

    kind: str
    group: str
    title: str
    inbox: bool
    mail: bool


GROUPS = {
    N_("Workloads"): ("workload", "recall"),
    N_("Quotas and budgets"): ("quota", "budget", "usage"),
    N_("Members, tokens and webhooks"): ("member", "token", "webhook"),
    N_("Nodes, clusters and directories"): ("node", "cluster", "provider", "directory"),
}
"""Heading → first words of the kinds below it, in the order of the page."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest) -> HttpResponse:
    """The notification settings: inbox and mail for each kind of notice."""
    user, conflict = _reader(request), None
    sent = _chosen(_choices(user)).keys() & set(request.POST)
    if request.method == "POST":
        with durable():
            User.objects.select_for_update(no_key=True).get(pk=user.pk)
            stored = _chosen(_choices(user))
            if (seen := request.POST.get(versions.FIELD, "")) in ("", versions.mark(stored)):
                for kind in dict.fromkeys(name.partition(":")[2] for name in stored):
                    chosen = {"inbox": f"inbox:{kind}" in sent, "mail": f"mail:{kind}" in sent}
                    NoticePreference.objects.update_or_create(user=user, kind=kind, defaults=chosen)
                seen = ""
        if not seen:
            messages.success(request, _("Saved."))
            return redirect("portal:inbox_settings")
        conflict = _differing(stored, sent)
    choices = _choices(user)
    context: dict[str, Any] = {
        "address": user.email, "seen": versions.mark(_chosen(choices)), "conflict": conflict,
    }  # fmt: skip
    as_sent = [replace(each, inbox=f"inbox:{each.kind}" in sent, mail=f"mail:{each.kind}" in sent) for each in choices]
    context["choices"] = as_sent if request.method == "POST" else choices
    return render(request, "portal/inbox_settings.html", context, status=409 if request.method == "POST" else 200)


def _choices(user: User) -> list[Choice]:
    """The choices for the kinds that the person can receive, in the order of the page."""
    saved = {row.kind: row for row in NoticePreference.objects.filter(user=user)}
    return [
        _choice(kind, _(group), saved.get(kind))
        for group, abouts in GROUPS.items()
        for kind in notices.settable_by(user)
        if kind.partition(".")[0] in abouts
    ]


def _chosen(choices: list[Choice]) -> dict[str, bool]:
    return {f"{where}:{each.kind}": getattr(each, where) for each in choices for where in ("inbox", "mail")}


def _differing(stored: dict[str, bool], sent: set[str]) -> list[tuple[str, bool, bool]]:
    """(title, stored, sent) of each switch that differs."""
    words = {"inbox": _("Inbox"), "mail": _("Mail")}
    differences = []
    for name, on in stored.items():
        where, _colon, kind = name.partition(":")
        if on != (name in sent):
            title = _("%(what)s, %(where)s") % {"what": _(notices.KINDS[kind].title), "where": words[where]}
            differences.append((title, on, name in sent))
    return differences


def _choice(kind: str, group: str, saved: NoticePreference | None) -> Choice:
    known = notices.KINDS[kind]
    inbox, mail = (saved.inbox, saved.mail) if saved else (True, known.mail)
    return Choice(kind, group, _(known.title), inbox, mail)
