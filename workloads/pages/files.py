"""The working directory in the browser: upload, download, delete. Browsing is a tab of the workload's page."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.access import Actor, Forbidden, NotVisible, Right, actor_of
from portal.errors import N_, Invalid, Problem
from workloads.files import downloads, previews, volumes
from workloads.files.names import display_name
from workloads.models import Workload
from workloads.pages.rows import workload_for


class TooLarge(Invalid):
    code = "too_large"
    message = N_("%(name)s has %(size)s MiB; one file may have %(limit)s MiB.")


def folder_of(workload: Workload, path: str, after: str = "", *, patience: float = 0) -> dict[str, Any]:
    """Context of the files tab. While the directory is being opened (`files_opening`), the page repeats the request."""
    folders = [part for part in path.split("/") if part]
    crumbs = [("/".join(folders[: at + 1]), name) for at, name in enumerate(folders)]
    context: dict[str, Any] = {"path": path, "crumbs": crumbs, "after": after}
    try:
        content = volumes.listing(workload, path, after, patience=patience)
    except volumes.NotOpenYet:
        return context | {"files_opening": True}
    except Problem as problem:
        return context | {"files_problem": problem.detail}
    return context | {"entries": content.entries, "free": content.free, "next": content.next, "total": content.total}


def file_of(workload: Workload, path: str) -> dict[str, Any]:
    """Context of the files tab that shows one file."""
    folders = path.split("/")[:-1]
    crumbs = [("/".join(folders[: at + 1]), name) for at, name in enumerate(folders) if name]
    context: dict[str, Any] = {"path": "/".join(folders), "crumbs": crumbs}
    try:
        return context | {"shown": previews.preview_of(workload, path)}
    except Problem as problem:
        return context | {"files_problem": problem.detail}


@login_required
@require_safe
def image(request: HttpRequest, department: str, workload: str) -> HttpResponse:
    """The image at `?path=`, for the page that shows it. Only known types of image, recognised by their first bytes."""
    _department, row = workload_for(actor_of(request), department, workload)
    path = request.GET.get("path", "")
    picture = previews.image_of(row, path)
    if picture is None:
        raise volumes.NoSuchFile(path=display_name(path))
    kind, data = picture
    return HttpResponse(data, content_type=kind, headers=downloads.HARMLESS)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def folder(request: HttpRequest, department: str, workload: str) -> HttpResponse:
    """The files tab alone, requested repeatedly while the directory is being opened; POST stores files."""
    if request.method == "POST":
        return upload(request, department, workload)
    actor = actor_of(request)
    dept, row = workload_for(actor, department, workload)
    path = request.GET.get("path", "")
    if not request.htmx:  # type: ignore[attr-defined]
        return back(row, path)
    own = row.author is not None and row.author == actor.user and actor.may(Right.SUBMIT, dept)
    steer = own or actor.may(Right.STEER, dept)
    context = {
        "department": dept,
        "workload": row,
        "may_steer": steer,
        **folder_of(row, path, request.GET.get("after", ""), patience=2),
    }
    return render(request, "workloads/_files.html", context)


@login_required
@require_safe
def download(request: HttpRequest, department: str, workload: str) -> HttpResponseBase:
    """The file at `?path=`, or the folder as a tar. Always an attachment: a user's HTML must never run on the portal's origin."""
    _department, row = workload_for(actor_of(request), department, workload)
    return downloads.answer(row, request.GET.get("path", ""))


def upload(request: HttpRequest, department: str, workload: str) -> HttpResponse:
    """Stores the form's files in the folder `?path=`."""
    actor = actor_of(request)
    _department, row = workload_for(actor, department, workload, Right.SUBMIT)
    actor.require_own_or_steer(row.department, row.author)
    folder = request.GET.get("path", "")
    try:
        store_all(request, row, folder)
    except (Forbidden, NotVisible):
        raise
    except Problem as problem:
        messages.error(request, problem.detail)
    return back(row, folder)


def store_all(request: HttpRequest, workload: Workload, folder: str) -> None:
    files = request.FILES.getlist("files")
    if not files:
        raise Invalid(N_("Choose a file first."), field="files")
    names = exact_names(request, [file.name or "" for file in files])
    for file in files:
        if (file.size or 0) > settings.FILE_UPLOAD_LIMIT:
            limit = settings.FILE_UPLOAD_LIMIT >> 20
            raise TooLarge(name=file.name, size=(file.size or 0) >> 20, limit=limit)
    for file, name in zip(files, names, strict=True):
        volumes.store(workload, f"{folder}/{name}", file.chunks())
    messages.success(request, ngettext("%(n)s file stored.", "%(n)s files stored.", len(files)) % {"n": len(files)})


def exact_names(request: HttpRequest, given: list[str]) -> list[str]:
    """The files' original names. Raises Invalid.

    Django alters the names of uploads (it decodes &amp;, cuts at a backslash and after 255 characters), so the page's script
    sends the originals too; without scripts the altered ones are used.
    """
    try:
        names = json.loads(request.POST.get("names") or "[]")
    except (ValueError, RecursionError):
        names = None
    if names == []:
        return given
    is_complete = isinstance(names, list) and len(names) == len(given) and all(isinstance(name, str) for name in names)
    if not is_complete or any("/" in name or name in ("", ".", "..") for name in names):
        raise Invalid(N_("The file names do not match the files. Choose the files again."), field="files")
    return list(names)


@login_required
@require_POST
def delete(request: HttpRequest, department: str, workload: str) -> HttpResponse:
    actor: Actor = actor_of(request)
    _department, row = workload_for(actor, department, workload, Right.SUBMIT)
    actor.require_own_or_steer(row.department, row.author)
    path = request.GET.get("path", "")
    try:
        volumes.remove(row, path)
        messages.success(request, _("%(path)s was deleted.") % {"path": display_name(path)})
    except (Forbidden, NotVisible):
        raise
    except Problem as problem:
        messages.error(request, problem.detail)
    return back(row, path.rpartition("/")[0])


def back(workload: Workload, folder: str) -> HttpResponse:
    query = {"tab": "files"} | ({"path": folder} if folder else {})
    return redirect(reverse("workloads:detail", args=[workload.department.slug, workload.public_id], query=query))
