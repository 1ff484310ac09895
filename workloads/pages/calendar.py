"""A person's calendar feed: the page that creates, renews and revokes its address, and the feed for calendar programs."""

from __future__ import annotations

from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import actor_of
from portal.text.zones import zone_of
from portal.web import one_time_secrets
from portal.web.once import once
from workloads.models import CalendarFeed
from workloads.status.calendar import calendar_of, end_feed, new_feed, reader_of


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def page(request: HttpRequest) -> HttpResponse:
    """POST creates the address, or replaces it by a new one."""
    actor = actor_of(request)
    if request.method == "POST":
        link = settings.BASE_URL + reverse("workloads:calendar_feed", args=[new_feed(actor=actor)])
        if actor.user is not None and not actor.user.language:  # the browser's, which no calendar program tells
            link += "?" + urlencode({"language": translation.get_language()})
        return one_time_secrets.redirect_with(request, request.path, link=link)
    link = one_time_secrets.revealed(request).get("link", "")
    context = {"feed": CalendarFeed.objects.filter(user=actor.user).first(), "link": link}
    response = render(request, "workloads/calendar.html", context)
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_POST
def end(request: HttpRequest) -> HttpResponse:
    end_feed(actor=actor_of(request))
    messages.success(request, _("The calendar's address was revoked and can no longer be read."))
    return redirect("workloads:calendar")


@require_safe
def feed(request: HttpRequest, secret: str) -> HttpResponse:
    """The feed, for anybody who has the address: what its owner may see now, in the owner's language or that of the address."""
    user = reader_of(secret)
    if user is None:
        raise Http404
    asked = request.GET.get("language")
    language = user.language or (asked if asked in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE)
    with translation.override(language), timezone.override(zone_of(user.time_zone)):
        written = calendar_of(user)
    response = HttpResponse(written, content_type="text/calendar; charset=utf-8")
    response["Cache-Control"] = "private, no-store"
    response["Content-Disposition"] = 'inline; filename="gpu-quota.ics"'
    return response
