"""Days in forms: a browser's date field, and the times at which a day begins and ends in the reader's time zone."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class DayInput(forms.DateInput):
    """A browser's date field. Its values are ISO dates, whatever the page's language."""

    def __init__(self) -> None:
        super().__init__({"type": "date"}, "%Y-%m-%d")


def first_moment(day: dt.date | None) -> dt.datetime | None:
    """The beginning of the day in the reader's time zone."""
    return timezone.make_aware(dt.datetime.combine(day, dt.time())) if day else None


def last_moment(day: dt.date | None) -> dt.datetime | None:
    """The end of the day in the reader's time zone: the midnight after it."""
    return first_moment(day + dt.timedelta(days=1)) if day else None


def last_day(moment: dt.datetime | None) -> dt.date | None:
    """The day that ends at this moment."""
    return timezone.localdate(moment - dt.timedelta(seconds=1)) if moment else None


class DayField(forms.DateField):
    """A day within the next 20 years, or in the past: the action refuses those with its own message."""

    widget = DayInput

    def clean(self, value: Any) -> dt.date | None:
        day: dt.date | None = super().clean(value)
        if day is not None and day.year > timezone.localdate().year + 20:
            raise forms.ValidationError(_("Enter a day within the next 20 years."))
        return day
