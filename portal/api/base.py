"""The frame of every API view: who acts, JSON only, RateLimit headers, unknown fields refused."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal import names
from portal.access import Actor, NotVisible, actor_of
from portal.api.pagination import CursorPages
from portal.api.throttle import rate_headers
from portal.errors import N_, Invalid, Problem
from portal.infra.confirm import PARAMETER
from portal.models import User
from portal.text.json_values import DEEPEST, depth
from portal.text.numbers import LARGEST, natural
from portal.web.once import Lease


class PreconditionMissing(Problem):
    status = 428
    code = "precondition_missing"
    message = N_("Send If-Match with the ETag you last received, or If-None-Match: * to create.")


class FirstRenderer(DefaultContentNegotiation):
    """The Accept header chooses between list and stream, never between renderers."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


_own = threading.local()


def thread_serializer(shape: type[serializers.BaseSerializer[Any]], context: dict[str, Any]) -> Any:
    """This thread's serializer of that class: building its fields costs ten times as much as using them."""
    name = f"{shape.__module__}.{shape.__qualname__}"
    serializer = _own.__dict__.get(name) or _own.__dict__.setdefault(name, shape())
    serializer._context = context
    return serializer


def serialize(shape: type[serializers.BaseSerializer[Any]], row: Any, context: dict[str, Any]) -> dict[str, Any]:
    """One object as this serializer writes it."""
    return dict(thread_serializer(shape, context).to_representation(row))


class BoundedJSON(JSONParser):
    r"""Refuses JSON that nothing behind it can store: lone surrogates (\ud800), and nesting thousands of levels deep."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        too_deep = _("Lists and objects are nested more than %(levels)s levels deep.") % {"levels": DEEPEST}
        try:
            data = super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise ParseError(too_deep) from None
        except ParseError as error:
            if "set_int_max_str_digits" in str(error.detail):  # Python's own message is for programmers
                raise ParseError(_("A number has too many digits.")) from None
            place = re.search(r"line (\d+) column (\d+)", str(error.detail))
            if place is None:
                raise
            where = {"line": place[1], "column": place[2]}
            raise ParseError(_("The body is not valid JSON: line %(line)s, column %(column)s.") % where) from None
        if depth(data) > DEEPEST:
            raise ParseError(too_deep)
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ParseError(_("A text contains an incomplete character (a lone surrogate).")) from None
        return data


class ApiView(APIView):
    content_negotiation_class = FirstRenderer
    parser_classes = [BoundedJSON]
    ordering: str | tuple[str, ...] = "-pk"
    lease: Lease | None = None  # set by @idempotent
    # Methods that accept `dry_run`; all others refuse it, rather than make the change.
    dry_runs: frozenset[str] = frozenset()
    without_body = frozenset({"delete"})  # methods that refuse a body: whoever sends one means something by it

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        method = str(request.method).lower()
        if method not in {"get", "head", "options", *self.dry_runs} and self.flag("dry_run"):
            raise Invalid(N_("This operation has no dry run. Nothing was changed."), field="dry_run")
        if method in self.without_body and request._request.body.strip():
            self.read(Empty)

    @cached_property
    def actor(self) -> Actor:
        return actor_of(self.request._request)

    @property
    def user(self) -> User:
        if self.actor.user is None:
            raise NotVisible
        return self.actor.user

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        for name, value in rate_headers(request).items():
            response.headers[name] = value
        return response

    def keep(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        """Stores the response for its Idempotency-Key, in the transaction of the change
        (portal/api/idempotency.py)."""
        if self.lease is not None:
            self.lease.keep(status, data, headers)

    def page(
        self,
        queryset: Any,
        serializer: type[serializers.BaseSerializer[Any]],
        context: Callable[[list[Any]], dict[str, Any]] = lambda rows: {},
        **more: Any,
    ) -> Response:
        """One page of rows. `context` computes for all rows at once what the serializer needs; `more` adds fields to
        the answer."""
        pages = CursorPages()
        rows: Any = pages.paginate_queryset(queryset, self.request, view=self) or []
        extra = {"actor": self.actor, "request": self.request, **context(rows)}
        data = serializer(rows, many=True, context=extra).data
        return pages.get_paginated_response(data, **more)

    def read(self, serializer: type[serializers.BaseSerializer[Any]], **kwargs: Any) -> dict[str, Any]:
        """The request's body, checked. Raises ValidationError, which becomes 422 with every field at fault."""
        context = {"actor": self.actor, "request": self.request}
        checked = serializer(context=context, **kwargs) if kwargs else thread_serializer(serializer, context)
        checked.initial_data = self.request.data
        checked.__dict__.pop("_validated_data", None)  # of the previous request
        checked.is_valid(raise_exception=True)
        values: dict[str, Any] = checked.validated_data
        return values

    def text(self, name: str) -> str:
        return str(self.request.query_params.get(name, ""))

    @property
    def confirmed(self) -> str:
        """The mark by which the caller confirms what the change breaks (portal/infra/confirm.py); "" if none was
        sent."""
        return self.text(PARAMETER)

    def flag(self, name: str) -> bool:
        """A boolean query parameter, such as `dry_run=1`. Raises Invalid."""
        text = self.request.query_params.get(name, "")
        if text not in {"", "0", "1", "true", "false"}:
            raise Invalid(N_("%(name)s must be 1 or 0."), field=name, name=name)
        return text in {"1", "true"}

    def version(self) -> int | None:
        """The version named by If-Match; None for `If-None-Match: *`. Raises PreconditionMissing, Invalid."""
        match = self.request.headers.get("If-Match", "").strip()
        if not match:
            if self.request.headers.get("If-None-Match", "").strip() == "*":
                return None
            raise PreconditionMissing
        text = match.removeprefix("W/").strip('"')
        version = natural(text)
        if version is None:
            raise Invalid(N_('If-Match must be the ETag of the last response, such as "3".'), field="If-Match")
        return version

    def number(self, name: str, default: int | None = None, maximum: int = LARGEST) -> int | None:
        text = self.request.query_params.get(name, "")
        if not text:
            return default
        number = natural(text, maximum)
        if number is None:
            raise Invalid(
                N_("%(name)s must be a whole number up to %(maximum)s."), field=name, name=name, maximum=maximum
            )
        return number


class FreeText(serializers.CharField):
    """Text of several lines, or text that a program reads: a script, a kubeconfig."""


class Paragraph(FreeText):
    """Text of several lines that people read."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.validators.append(names.paragraph)


class Moment(serializers.DateTimeField):
    """A date and time that must include its time zone."""

    default_error_messages = {"zone": _("Include the time zone, such as 2026-01-31T18:00:00Z or …+08:00.")}

    def enforce_timezone(self, value: Any) -> Any:
        if timezone.is_naive(value):
            self.fail("zone")
        return super().enforce_timezone(value)


class Strict(serializers.Serializer[Any]):
    """A request body: unknown fields are errors, and texts have one line unless the field is a FreeText."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        for field in fields.values():
            text = getattr(field, "child", field)  # a list's or an object's
            if isinstance(text, serializers.CharField) and not isinstance(text, FreeText):
                text.validators = [*text.validators, names.line]
        return fields

    refuses_unknown_fields = True  # read by portal.schema

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, dict) else []
        if unknown:
            raise serializers.ValidationError(
                {str(name): ErrorDetail(str(_("Unknown field.")), "unknown_field") for name in unknown}
            )
        return super().to_internal_value(data)


class Empty(Strict):
    """The body of an operation that takes none: any field is unknown."""
