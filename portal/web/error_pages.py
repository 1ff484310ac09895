"""The pages for 404, 403 and 500: the same in the demo and in an installation.

The demo runs with DEBUG, where Django would show its technical pages, which do not help newcomers and reveal too much to
everybody else. The log has every error with its traceback.
"""

from __future__ import annotations

from types import TracebackType

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views import debug

from portal.web import problems


def technical_page(
    request: HttpRequest,
    exc_type: type[BaseException] | None,
    exc_value: BaseException | None,
    tb: TracebackType | None,
    status_code: int = 500,
) -> HttpResponse:
    """Replaces Django's technical error page, with the same arguments."""
    if status_code == 400 and isinstance(exc_value, Exception):
        return problems.bad_request(request, exc_value)
    return problems.server_error(request)


def replace_technical_pages() -> None:
    """Replaces Django's technical pages in the demo; a developer's DEBUG without EMBEDDED keeps them."""
    if settings.DEBUG and settings.EMBEDDED:
        debug.technical_404_response = problems.not_found
        debug.technical_500_response = technical_page
