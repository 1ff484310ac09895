"""Lending windows in the API: names of weekdays, times of day."""

from __future__ import annotations

import re
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from portal.api.base import Strict
from quotas.lending.schedule import DAY, Window
from quotas.lending.windows import time_of_day

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MOST = 2**31 - 1
TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")


class TimeOfDay(serializers.CharField):
    """A time such as 09:00, without seconds; 24:00 is the end of the day."""

    def to_internal_value(self, data: Any) -> Any:
        text = super().to_internal_value(data)
        if not TIME.fullmatch(text):
            raise serializers.ValidationError(_("Enter a time of day such as 09:00 or 24:00."), "invalid_time")
        return int(text[:2]) * 60 + int(text[3:])


class WindowShape(Strict):
    days = serializers.ListField(
        child=serializers.ChoiceField(DAYS), min_length=1, max_length=7, help_text="On which it begins."
    )
    start = TimeOfDay()
    end = TimeOfDay(help_text="Not after the start: on the next day.")
    lend_limit = serializers.IntegerField(min_value=0, max_value=MOST, allow_null=True, help_text="null: all")


class LimitChangeOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    lend_limit = serializers.IntegerField(allow_null=True, help_text="null: all")


def window_in(values: dict[str, Any]) -> Window:
    days = tuple(sorted(DAYS.index(day) for day in values["days"]))
    return Window(days, values["start"] % DAY, values["end"] or DAY, values["lend_limit"])


def window_out(window: Window) -> dict[str, Any]:
    return {
        "days": [DAYS[day] for day in window.days],
        "start": time_of_day(window.start),
        "end": time_of_day(window.end),
        "lend_limit": window.lend_limit,
    }
