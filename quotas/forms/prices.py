"""The form for a pool's price."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from quotas.models import PoolPrice
from quotas.rules.prices import HIGHEST, PLACES


def _amount(**more: Any) -> forms.DecimalField:
    return forms.DecimalField(min_value=0, max_value=HIGHEST, decimal_places=PLACES, required=False, **more)


class PriceForm(forms.Form):
    """`version` is the number of the price that the reader saw."""

    own = _amount(label=_("Own use"), help_text=_("Inside the guaranteed quota. Leave empty to charge nothing."))
    borrowed = _amount(label=_("Borrowed"), help_text=_("Above the guaranteed quota, while others are idle."))
    version = forms.IntegerField(widget=forms.HiddenInput)

    @staticmethod
    def of(price: PoolPrice, data: Any) -> PriceForm:
        values = {name: getattr(price, name) for name in ("own", "borrowed")}
        shown = {name: None if value is None else value.normalize() for name, value in values.items()}
        plain = {name: None if value is None else f"{value:f}" for name, value in shown.items()}
        return PriceForm(data, initial={**plain, "version": price.number})
