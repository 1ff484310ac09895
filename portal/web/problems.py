"""Every error of the API as `application/problem+json` (RFC 9457), with the input at fault, figures, and what to do next.

| raised | status |
|---|---|
| malformed JSON | 400 |
| a serializer's ValidationError, Invalid, a value the database cannot hold | 422 |
| no token or an invalid one | 401, which never reveals whether something exists |
| NotVisible, Http404 | 404 |
| another Problem | its own status, its numbers as fields |
| violation of a unique or foreign key | 409 |
| lock timeout, unreachable database | 503 and Retry-After |
"""

from __future__ import annotations

import sys
from http import HTTPStatus
from typing import Any

import structlog
from django.conf import settings
from django.core.exceptions import (
    PermissionDenied,
    RequestDataTooBig,
    TooManyFieldsSent,
    TooManyFilesSent,
    ValidationError,
)
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.db.models import ProtectedError, RestrictedError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.utils import translation
from django.views import defaults
from drf_standardized_errors.formatter import ExceptionFormatter
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.serializers import as_serializer_error

from portal.access import NotVisible
from portal.errors import N_, Busy, Invalid, Problem, TooLarge
from portal.infra.logs import current_request_id

MEDIA_TYPE = "application/problem+json"
RESERVED = {"type", "title", "status", "detail", "instance", "code", "errors"}
log = structlog.get_logger(__name__)


class AlreadyThere(Problem):
    code = "already_exists"
    message = N_("A record with these values already exists.")


class InUse(Problem):
    code = "in_use"
    message = N_("This is still in use and cannot be deleted.")


class NotAllowed(Problem):
    status = 403
    code = "forbidden"
    message = N_("This is not allowed.")


class NullCharacter(Problem):
    status = 400
    code = "null_character"
    message = N_("The address contains a null character.")


class Malformed(Problem):
    status = 400
    code = "bad_request"
    message = N_("The request is malformed.")


class TooManyFiles(Problem):
    status = 422
    code = "too_many_files"
    message = N_(
        "At most %(limit)s files can be uploaded at once. Upload the others afterwards, or all of them in one archive."
    )


class TooManyFields(Problem):
    status = 422
    code = "too_many_fields"
    message = N_("One form has at most %(limit)s fields.")


class Failed(Problem):
    status = 500
    code = "internal_error"
    message = N_("Internal error. It was logged with the request ID %(request_id)s.")


def handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's EXCEPTION_HANDLER. None for an unexpected error: it is logged and becomes `server_error` below."""
    request = context["request"]
    foreseen = as_problem(exc)
    if foreseen is not None:
        return answer(foreseen, request.path)
    if isinstance(exc, ValidationError):
        exc = exceptions.ValidationError(as_serializer_error(exc))
    if not isinstance(exc, exceptions.APIException):
        return None
    status = 422 if isinstance(exc, exceptions.ValidationError) else exc.status_code
    errors = [
        {
            "attr": (error.attr or "").removesuffix("non_field_errors").rstrip(".") or None,
            "code": error.code,
            "detail": str(error.detail),
        }
        for error in ExceptionFormatter(exc, context, exc).get_errors()  # type: ignore[arg-type]
    ]
    code = "invalid" if status == 422 else str(exc.default_code)
    detail = errors[0]["detail"] if errors else str(exc)
    if status == 422 and errors and errors[0]["attr"]:
        detail = f"{errors[0]['attr']}: {detail}"
    response = Response(document(status, code, str(detail), request.path, errors), status, content_type=MEDIA_TYPE)
    if getattr(exc, "auth_header", None):
        response["WWW-Authenticate"] = exc.auth_header  # type: ignore[attr-defined]
    if getattr(exc, "wait", None) is not None:
        response["Retry-After"] = str(max(1, round(exc.wait)))  # type: ignore[attr-defined]
    return response


def as_problem(exc: Exception) -> Problem | None:
    """Errors of the framework and the database as a Problem; None for anything else."""
    if isinstance(exc, Problem):
        return exc
    if isinstance(exc, Http404):
        return NotVisible()
    if isinstance(exc, PermissionDenied):
        return NotAllowed()
    if isinstance(exc, RequestDataTooBig):
        return TooLarge(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    if isinstance(exc, TooManyFilesSent):
        return TooManyFiles(limit=settings.DATA_UPLOAD_MAX_NUMBER_FILES)
    if isinstance(exc, TooManyFieldsSent):
        return TooManyFields(limit=settings.DATA_UPLOAD_MAX_NUMBER_FIELDS)
    if isinstance(exc, ProtectedError | RestrictedError):
        return InUse()
    if isinstance(exc, IntegrityError):
        return AlreadyThere() if is_duplicate(exc) else InUse()
    if isinstance(exc, ValueError) and "NUL" in str(exc):
        return Invalid(N_("Text cannot contain zero bytes."))
    if isinstance(exc, DataError | OverflowError):
        return Invalid(N_("A value is larger than the database can hold."))
    if isinstance(exc, InterfaceError) or (isinstance(exc, OperationalError) and "no such" not in str(exc)):
        log.warning("database.busy", error=str(exc))
        return Busy()
    return None


def is_duplicate(exc: IntegrityError) -> bool:
    return getattr(exc.__cause__, "sqlstate", "") == "23505" or "UNIQUE" in str(exc)


def answer(problem: Problem, path: str) -> Response:
    response = Response(body_of(problem, path), problem.status, content_type=MEDIA_TYPE)
    for name, value in headers_of(problem).items():
        response[name] = value
    return response


def headers_of(problem: Problem) -> dict[str, str]:
    wait = getattr(problem, "retry_after", None)
    return {} if wait is None else {"Retry-After": str(wait)}


def body_of(problem: Problem, path: str) -> dict[str, Any]:
    faults: list[Problem] = getattr(problem, "errors", [problem] if problem.field else [])
    errors = [
        {"attr": each.field or None, "code": each.code, "detail": each.detail, **line_of(each)} for each in faults
    ]
    return document(problem.status, problem.code, problem.detail, path, errors, **problem.numbers)


def line_of(problem: Problem) -> dict[str, int]:
    """{"line": …} if the problem is in a file, else {}."""
    line = getattr(problem, "line", None)
    return {} if line is None else {"line": line}


def document(
    status: int, code: str, detail: str, path: str, errors: list[dict[str, Any]], /, **numbers: Any
) -> dict[str, Any]:
    return {
        "type": f"urn:portal:problem:{code}",
        "title": code.replace("_", " ").capitalize() if code else HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": path,
        "code": code,
        "errors": errors,
    } | {name: value for name, value in numbers.items() if name not in RESERVED}


def plain(problem: Problem, request: HttpRequest) -> JsonResponse:
    """The problem+json response outside of API views."""
    return JsonResponse(
        body_of(problem, request.path), status=problem.status, content_type=MEDIA_TYPE, headers=headers_of(problem)
    )


def wants_json(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404: an address that does not exist."""
    return plain(NotVisible(), request) if wants_json(request) else defaults.page_not_found(request, exception)


def bad_request(request: HttpRequest, exception: Exception | None) -> HttpResponse:
    """handler400: requests that no browser sends by itself, such as one for another host, and forms that are too large."""
    foreseen = as_problem(exception) if exception is not None else None
    if wants_json(request):
        return plain(foreseen or Malformed(), request)
    if foreseen is not None:
        with translation.override(translation.get_language_from_request(request)):
            return HttpResponse(page_of(foreseen), status=foreseen.status, headers=headers_of(foreseen))
    return defaults.bad_request(request, exception or Malformed())


def page_of(problem: Problem) -> str:
    """The page of a refusal; needs no session, database or completely read request."""
    return render_to_string("refused.html", {"problem": problem})


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500, also for errors outside of views, such as an unreachable session database."""
    error = sys.exc_info()[1]
    foreseen = as_problem(error) if isinstance(error, Exception) else None
    if wants_json(request):
        return plain(foreseen or Failed(request_id=current_request_id()), request)
    if isinstance(foreseen, Busy):
        text = HttpResponse(foreseen.detail, status=503, content_type="text/plain; charset=utf-8")
        text["Retry-After"] = str(foreseen.retry_after)
        return text
    return defaults.server_error(request)
