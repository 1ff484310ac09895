"""Cursor pagination: pages stay correct while rows are added at the front. `{results, next}`, `limit` up to 500."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import DataError
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _
from rest_framework import exceptions
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.text.numbers import natural

LIMIT = 500
NO_CURSOR = _("This cursor is not valid for this list.")


class CursorPages(CursorPagination):
    page_size = 50
    page_size_query_param = "limit"
    cursor_query_param = "cursor"
    ordering = "-pk"

    def get_page_size(self, request: Request) -> int:
        text = request.query_params.get("limit", str(self.page_size))
        size = natural(text, LIMIT)
        if not size:
            raise exceptions.ValidationError({"limit": _("Must be a whole number from 1 to 500.")})
        return size

    def get_ordering(self, request: Request, queryset: QuerySet[Any], view: APIView) -> tuple[str, ...]:
        ordering = getattr(view, "ordering", self.ordering)
        return (ordering,) if isinstance(ordering, str) else tuple(ordering)

    def _get_position_from_instance(self, instance: Any, ordering: Sequence[str]) -> str:
        """The row's value of the ordering field; the parent's method does not follow relations such as
        `user__username`."""
        value = instance
        for name in ordering[0].lstrip("-").split("__"):
            value = value[name] if isinstance(value, dict) else getattr(value, name)
        return str(value)

    def paginate_queryset(self, queryset: Any, request: Request, view: APIView | None = None) -> Any:
        try:
            return super().paginate_queryset(queryset, request, view)
        except (ValueError, DataError):
            if "cursor" in request.query_params:  # well-formed, but its position does not fit this list
                raise exceptions.ValidationError({"cursor": NO_CURSOR}) from None
            raise

    def decode_cursor(self, request: Request) -> Any:
        try:
            return super().decode_cursor(request)
        except exceptions.NotFound:
            raise exceptions.ValidationError({"cursor": NO_CURSOR}) from None

    def get_paginated_response(self, data: Any, **more: Any) -> Response:
        """`more` adds fields to the response, such as facets."""
        return Response({"results": data, "next": self.get_next_link(), **more})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["results", "next"],
            "properties": {
                "results": schema,
                "next": {"type": ["string", "null"], "format": "uri", "description": "Address of the next page."},
            },
        }
