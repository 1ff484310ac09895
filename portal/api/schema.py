"""OpenAPI 3.1: what all operations have in common, so that views only declare what is specific to them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema as Spectacular
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, PolymorphicProxySerializer, inline_serializer
from rest_framework import serializers

from portal.api.operations import words

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    OpenApiParameter.HEADER,
    description="A key of your choice: for 24 hours, a repetition with the same key and body gets the first answer and"
    " changes nothing.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    {"type": "string", "pattern": '^(W/)?"[0-9]{1,15}"$'},
    OpenApiParameter.HEADER,
    description='The ETag of the version that you have read, such as `"3"`; if it has changed since, the answer is 412.',
)
DRY_RUN = OpenApiParameter("dry_run", bool, description="Say what would happen; change nothing.")
DEPARTMENT = OpenApiParameter(
    "department", str, description="Only those of this department, by its `id`, without its teams."
)
CONFIRM = OpenApiParameter(
    "confirm",
    {"type": "string", "maxLength": 16},
    description="Where the change takes something from somebody, it is refused with 409 `needs_confirmation`, which lists"
    " in `breaks` what, and gives in `confirm` the value to send here. A dry run gives the same list and value.",
)
PAGING = [
    OpenApiParameter(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
        description="Largest number of rows in a page, 1 to 500; by default 50.",
    ),
    OpenApiParameter(
        "cursor",
        str,
        description="The cursor in `next` of the page before; by default the first page.",
    ),
]


@cache
def path_descriptions() -> dict[str, str]:
    """Name of a parameter in a path → its description."""
    texts: dict[str, str] = yaml.safe_load(Path(__file__).with_name("path_parameters.yaml").read_text("utf-8"))
    return texts


def page_of(item: type[serializers.BaseSerializer[Any]], **more: Any) -> Any:
    """The response of a list: one page, and the fields in `more`."""
    name = item.__name__.removesuffix("Out") + "Page"
    return inline_serializer(
        name,
        {
            "results": item(many=True),
            "next": serializers.URLField(allow_null=True, help_text="Address of the next page."),
            **more,
        },
    )


def either(*answers: type[serializers.Serializer[Any]]) -> PolymorphicProxySerializer:
    """The response of an operation that returns one of several documents, such as the row or, with `dry_run`, a preview."""
    name = "Or".join(answer.__name__.removesuffix("Out") for answer in answers)
    return PolymorphicProxySerializer(name, answers, resource_type_field_name=None)


class ErrorField(serializers.Serializer[Any]):
    attr = serializers.CharField(allow_null=True)
    code = serializers.CharField()
    detail = serializers.CharField()
    line = serializers.IntegerField(required=False, help_text="Of a file that was sent.")


class ProblemDocument(serializers.Serializer[Any]):
    """RFC 9457; further members carry the numbers of the problem."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    instance = serializers.CharField()
    code = serializers.CharField()
    errors = ErrorField(many=True)  # type: ignore[assignment]


class AutoSchema(Spectacular):
    def get_tags(self) -> list[str]:
        parts = [part for part in self.path.removeprefix("/api/v1/").split("/") if part]
        if parts[0] == "departments" and len(parts) > 2:
            return [parts[2]]
        return [parts[0]]

    def get_summary(self) -> str | None:
        return words().get(self.get_operation_id(), {}).get("summary")

    def get_description(self) -> str:  # type: ignore[override]
        """The text in operations.yaml, else the docstring."""
        return words().get(self.get_operation_id(), {}).get("text") or super().get_description()

    def get_override_parameters(self) -> list[Any]:
        """Adds limit and cursor to lists."""
        given: list[Any] = super().get_override_parameters()
        is_list = self.get_operation_id().endswith("_list")
        return [*given, *PAGING] if is_list else given

    def _resolve_path_parameters(self, variables: Any) -> list[dict[str, Any]]:
        """Describes the parameters of the path."""
        parameters: list[dict[str, Any]] = super()._resolve_path_parameters(variables)  # type: ignore[no-untyped-call]
        texts = path_descriptions()
        return [{**each, "description": texts[each["name"]]} if each["name"] in texts else each for each in parameters]

    def _map_basic_serializer(self, serializer: Any, direction: Any) -> Any:
        """Declares that a body refuses unknown fields."""
        schema = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if getattr(serializer, "refuses_unknown_fields", False):
            schema["additionalProperties"] = False
        return schema

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        problem = OpenApiResponse(ProblemDocument, "What is wrong, as problem+json.")
        respond: Any = self._get_response_for_code
        bodies["default"] = respond(problem, "default", ["application/problem+json"], direction)
        return bodies


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "portal.accounts.bearer_tokens.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": "A token made under Profile, API tokens."}
