"""The inbox, and the settings of notifications."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import NotVisible, actor_of
from portal.infra import versions
from portal.infra.locks import durable
from portal.models import InboxItem, NoticePreference, User
from portal.notify import notices
from portal.notify.pages import page_of
from portal.text.numbers import natural
from portal.web.pages import render_part

PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class Line:
    item: InboxItem
    sentence: str
    url: str


@login_required
@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    rows = InboxItem.objects.filter(user=_reader(request)).select_related("department")
    unread = rows.filter(read_at=None)
    only_unread = request.GET.get("show") == "unread"
    page = Paginator(unread if only_unread else rows, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "lines": [Line(item, notices.sentence(item.kind, item.data), url_of(item)) for item in page],
        "unread": unread.count(),
        "only_unread": only_unread,
    }
    return render_part(request, "portal/inbox.html", context, part="lines")


def _reader(request: HttpRequest) -> User:
    user = actor_of(request).user
    if user is None:
        raise NotVisible
    return user


def url_of(item: InboxItem) -> str:
    """The address that the line links to; "" if its department is gone, or it is of none."""
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
    """Marks the lines with the given ids as read, or all up to the newest that was shown."""
    rows = InboxItem.objects.filter(user=_reader(request), read_at=None)
    newest = request.POST.get("up_to", "")
    ids = [pk for value in request.POST.getlist("item") if (pk := natural(value)) is not None]
    up_to = natural(newest)
    rows = rows.filter(pk__in=ids) if up_to is None else rows.filter(pk__lte=up_to)
    rows.update(read_at=timezone.now())
    return redirect("portal:inbox")


@dataclass(frozen=True, slots=True)
class Choice:
    kind: str
    title: str
    inbox: bool
    mail: bool


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest) -> HttpResponse:
    """The notification settings: inbox and mail for each kind of notice."""
    user, conflict = _reader(request), None
    sent = {f"{where}:{kind}" for kind in notices.SETTABLE for where in ("inbox", "mail")} & set(request.POST)
    if request.method == "POST":
        with durable():
            User.objects.select_for_update(no_key=True).get(pk=user.pk)
            stored = _chosen(_choices(user))
            if (seen := request.POST.get(versions.FIELD, "")) in ("", versions.mark(stored)):
                for kind in notices.SETTABLE:
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
    saved = {row.kind: row for row in NoticePreference.objects.filter(user=user)}
    return [_choice(kind, saved.get(kind)) for kind in notices.SETTABLE]


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


def _choice(kind: str, saved: NoticePreference | None) -> Choice:
    known = notices.KINDS[kind]
    inbox, mail = (saved.inbox, saved.mail) if saved else (True, known.mail)
    return Choice(kind, _(known.title), inbox, mail)
