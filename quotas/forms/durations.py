"""Durations in forms, as people write them: "8h", "90 min", "1d 12h"."""

from __future__ import annotations

import re
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from portal.names import LineInput
from quotas.amounts import LARGEST

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "": 60}
PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parts_of(text: str, factors: dict[str, int]) -> int:
    """The sum of "number unit" parts. Raises ValueError for anything else."""
    rest = PART.sub("", text.lower()).strip(" ,")
    pairs = PART.findall(text.lower())
    if rest or not pairs or any(unit not in factors for _number, unit in pairs):
        raise ValueError(text)
    total = sum(float(number) * factors[unit] for number, unit in pairs)
    if total > LARGEST:  # checked before rounding: the float of a very long number is infinite
        raise ValueError(text)
    return round(total)


class DurationField(LineInput):
    """Seconds, written as "8h", "90 min" or "1d 12h". A number without a unit is minutes; a field that `needs_unit` refuses it,
    because people may mean seconds. From `least` to `most`. Empty is None."""

    default_error_messages = {
        "shape": _("“%(text)s” is not a valid duration. Examples: 8h, 90 min, 1d 12h."),
        "unit": _("Write %(text)s with its unit: %(text)s s, %(text)s min, %(text)s h."),
        "min_value": _("At least %(least)s."),
        "max_value": _("At most %(most)s."),
    }

    def __init__(self, *, needs_unit: bool = False, least: int = 0, most: int = LARGEST, **more: Any) -> None:
        super().__init__(**more)
        self.needs_unit, self.least, self.most = needs_unit, least, most

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            seconds = parts_of(text, SECONDS)
        except ValueError:
            raise self._refused("shape", text=text) from None
        if self.needs_unit and seconds and text.strip().replace(".", "").isdigit():
            raise self._refused("unit", text=text.strip())
        if seconds < self.least:
            raise self._refused("min_value", least=self.prepare_value(self.least))
        if seconds > self.most:
            raise self._refused("max_value", most=self.prepare_value(self.most))
        return seconds

    def _refused(self, code: str, **params: str) -> ValidationError:
        return ValidationError(self.error_messages[code], code=code, params=params)

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        text, left = [], value
        for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
            count, left = divmod(left, size)
            if count:
                text.append(f"{count}{unit}")
        return " ".join(text) or "0s"
