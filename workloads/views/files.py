"""The working directory in the browser: upload, download, delete. Browsing is a tab of the workload's page."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST, require_safe

from portal.access import Actor, Forbidden, NotVisible, Right, actor_of
from portal.errors import N_, Invalid, Problem
from workloads import volumes
from workloads.clusters.base import ClusterError
from workloads.models import Workload
from workloads.views.rows import workload_for


class TooLarge(Invalid):
    code = "too_large"
    message = N_("%(name)s has %(size)s MiB; one file may have %(limit)s MiB.")


class Away(Problem):
    status = 503
    code = "cluster_unreachable"
    message = N_("The cluster does not answer: %(why)s")


def reached(workload: Workload) -> Path:
    """The working directory. Raises Away, NoFiles, NoSuchFile."""
    try:
        return volumes.root_of(workload)
    except ClusterError as error:
        raise Away(why=error.detail) from error


@login_required
@require_safe
def download(request: HttpRequest, department: str, workload: str) -> HttpResponseBase:
    """`?path=`; always as an attachment: a user's page never runs on the portal's origin."""
    _department, row = workload_for(actor_of(request), department, workload)
    path = volumes.file_in(reached(row), request.GET.get("path", ""))
    return FileResponse(
        path.open("rb"), as_attachment=True, filename=path.name, content_type="application/octet-stream"
    )


@login_required
@require_POST
def upload(request: HttpRequest, department: str, workload: str) -> HttpResponse:
    """Files of the form, into `path`."""
    actor = actor_of(request)
    _department, row = workload_for(actor, department, workload, Right.SUBMIT)
    actor.require_own_or_steer(row.department, row.author)
    folder = request.POST.get("path", "")
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
    root = reached(workload)
    for file in files:
        if (file.size or 0) > settings.FILE_UPLOAD_LIMIT:
            limit = settings.FILE_UPLOAD_LIMIT >> 20
            raise TooLarge(name=file.name, size=(file.size or 0) >> 20, limit=limit)
    for file in files:
        volumes.store(root, f"{folder}/{file.name}", file.chunks())
    messages.success(request, ngettext("%(n)s file stored.", "%(n)s files stored.", len(files)) % {"n": len(files)})


@login_required
@require_POST
def delete(request: HttpRequest, department: str, workload: str) -> HttpResponse:
    actor: Actor = actor_of(request)
    _department, row = workload_for(actor, department, workload, Right.SUBMIT)
    actor.require_own_or_steer(row.department, row.author)
    path = request.POST.get("path", "")
    try:
        volumes.remove(reached(row), path)
        messages.success(request, _("%(path)s is deleted.") % {"path": path})
    except (Forbidden, NotVisible):
        raise
    except Problem as problem:
        messages.error(request, problem.detail)
    return back(row, path.rpartition("/")[0])


def back(workload: Workload, folder: str) -> HttpResponse:
    query = {"tab": "files"} | ({"path": folder} if folder else {})
    return redirect(reverse("workloads:detail", args=[workload.department.slug, workload.public_id], query=query))
