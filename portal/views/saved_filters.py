"""Saved filters of lists: each person's names for query strings, which work as links for everybody."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import Resolver404, resolve
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from portal import names
from portal.access import NotVisible, actor_of
from portal.errors import N_, Invalid
from portal.infra.locks import durable
from portal.models import SavedFilter, User
from portal.web.once import once

MOST = 50  # of one person on one page
LONGEST = 60  # characters of a name
LONGEST_QUERY = 1000


@login_required
@require_POST
@once
def save(request: HttpRequest) -> HttpResponse:
    """Saves the `query` of the list at `path` under `name`, replacing an older one of that name. Then back to the list."""
    user = _person(request)
    path, query = request.POST.get("path", ""), request.POST.get("query", "")
    if not _is_page(path) or len(query) > LONGEST_QUERY:
        raise NotVisible
    fields = QueryDict(query, mutable=True)
    fields.pop("page", None)
    query = fields.urlencode()
    try:
        name = names.checked(request.POST.get("name", ""))
        if not name or len(name) > LONGEST:
            raise Invalid(N_("Enter a name of 1 to %(most)s characters."), field="name", most=LONGEST)
        with durable():
            User.objects.select_for_update(no_key=True).get(pk=user.pk)  # the count below must hold until commit
            own = SavedFilter.objects.filter(user=user, path=path)
            if not own.filter(name=name).exists() and own.count() >= MOST:
                raise Invalid(N_("There are already %(most)s saved filters here. Delete some first."), most=MOST)
            SavedFilter.objects.update_or_create(user=user, path=path, name=name, defaults={"query": query})
    except Invalid as problem:
        messages.error(request, problem.detail)
    else:
        messages.success(request, _("%(name)s was saved.") % {"name": name})
    return redirect(f"{path}?{query}" if query else path)


@login_required
@require_POST
def delete(request: HttpRequest, saved: int) -> HttpResponse:
    row = SavedFilter.objects.filter(user=_person(request), pk=saved).first()
    if row is None:
        raise NotVisible
    row.delete()
    messages.success(request, _("%(name)s was deleted.") % {"name": row.name})
    return redirect(row.path)


def _person(request: HttpRequest) -> User:
    user = actor_of(request).user
    if user is None:
        raise NotVisible
    return user


def _is_page(path: str) -> bool:
    """Whether it is the path of a page of the portal, so that a redirect to it cannot lead elsewhere."""
    if not path.startswith("/") or path.startswith("//") or len(path) > 200 or "\\" in path:
        return False
    try:
        resolve(path)
    except Resolver404:
        return False
    return True
