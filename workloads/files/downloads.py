"""A file or a whole directory as a response, for pages and API alike."""

from __future__ import annotations

import mimetypes
from urllib.parse import quote

from django.http import StreamingHttpResponse
from django.utils.text import slugify

from workloads.files import volumes
from workloads.files.names import display_name
from workloads.models import Workload
from workloads.runtime.files import OpenFile

HARMLESS = {"Content-Security-Policy": "sandbox; default-src 'none'", "X-Content-Type-Options": "nosniff"}
"""Headers of files that users wrote: even if one is opened by itself, the browser runs nothing of it."""


def answer(workload: Workload, path: str) -> StreamingHttpResponse:
    """The response: a directory as a tar, a file as it is. Raises what volumes.get raises."""
    content = volumes.archive(workload, path)
    if isinstance(content, OpenFile):
        return sent(content)
    name = display_name(content.name) or slugify(workload.name, allow_unicode=True) or "files"
    response = StreamingHttpResponse(content.chunks, content_type="application/x-tar")
    response["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name)}.tar"
    return response


def sent(file: OpenFile) -> StreamingHttpResponse:
    """The file as an attachment, never inline: a user's page must not run on the portal's origin."""
    response = StreamingHttpResponse(file.chunks, content_type="application/octet-stream")
    response["Content-Length"] = str(file.size)
    response["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(display_name(file.name))}"
    response["X-File-Type"] = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    for name, value in HARMLESS.items():
        response[name] = value
    return response
