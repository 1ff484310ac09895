"""Fields that several answers share: cores as people write them, variables."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

LONGEST_VALUE = 32 * 1024
MOST_VARIABLES = 200


@extend_schema_field({"type": "number", "minimum": 0.1, "examples": [0.5, 4]})
class Cores(serializers.Field[int, Any, float, Any]):
    """Cores outside (4, 0.5), millicores inside."""

    default_error_messages = {"cores": _("A number of cores, at least 0.1 and at most 1024.")}

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int | float) or not 0.1 <= data <= 1024:
            self.fail("cores")
        return round(Decimal(str(data)) * 1000)

    def to_representation(self, value: int) -> float:
        return value / 1000


class Variables(serializers.DictField):
    """Names and values of the environment."""

    default_error_messages = {"most": _("At most %(most)s variables.")}
    child = serializers.CharField(max_length=LONGEST_VALUE, allow_blank=True, trim_whitespace=False)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        values: dict[str, str] = super().to_internal_value(data)
        if len(values) > MOST_VARIABLES:
            raise serializers.ValidationError(str(self.error_messages["most"]) % {"most": MOST_VARIABLES})
        return values
