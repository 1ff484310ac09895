"""Fields that several serializers share: CPU cores, and environment variables with secret values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from portal.names import printable

LONGEST_VALUE = 32 * 1024
MOST_VARIABLES = 200


@extend_schema_field({"type": "number", "minimum": 0.1, "examples": [0.5, 4]})
class Cores(serializers.Field[int, Any, float, Any]):
    """Cores in JSON (4, 0.5), millicores in Python."""

    default_error_messages = {"cores": _("Must be a number of cores between 0.1 and 1024.")}

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int | float) or not 0.1 <= data <= 1024:
            self.fail("cores")
        return round(Decimal(str(data)) * 1000)

    def to_representation(self, value: int) -> float:
        return value / 1000


VARIABLES = {
    "type": "object",
    "description": 'Environment: {"NAME": "value"}, or {"NAME": {"secret": "value"}}, which is never given out again.',
    "additionalProperties": {
        "oneOf": [
            {"type": "string"},
            {"type": "object", "required": ["secret"], "properties": {"secret": {"type": "string"}}},
        ]
    },
}


@extend_schema_field(VARIABLES)
class Variables(serializers.Field[Any, Any, Any, Any]):
    """Validates to (plain, secret), two dicts of name → value."""

    default_error_messages = {
        "shape": _("Must be an object of names and values."),
        "value": _("%(name)s: must be a text, or an object with the single key “secret”."),
        "most": _("At most %(most)s variables."),
        "long": _("%(name)s: at most %(most)s characters."),
    }

    def wrong(self, key: str, **numbers: Any) -> serializers.ValidationError:
        return serializers.ValidationError(str(self.error_messages[key]) % numbers)

    def to_internal_value(self, data: Any) -> tuple[dict[str, str], dict[str, str]]:
        if not isinstance(data, dict):
            raise self.wrong("shape")
        if len(data) > MOST_VARIABLES:
            raise self.wrong("most", most=MOST_VARIABLES)
        plain: dict[str, str] = {}
        secret: dict[str, str] = {}
        for name, value in data.items():
            hidden = isinstance(value, dict) and set(value) == {"secret"}
            text = value["secret"] if hidden else value
            if not isinstance(text, str):
                raise self.wrong("value", name=printable(name[:60]))
            if len(text) > LONGEST_VALUE:
                raise self.wrong("long", name=printable(name[:60]), most=LONGEST_VALUE)
            (secret if hidden else plain)[name] = text
        return plain, secret
