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
    """`version` is the number of the price when the form was shown."""

    own = _amount(label=_("Own use"), help_text=_("Inside the guaranteed quota. Leave empty to charge nothing."))
    borrowed = _amount(label=_("Borrowed"), help_text=_("Above the guaranteed quota, while others are idle."))
    version = forms.IntegerField(widget=forms.HiddenInput)

    @staticmethod
    def of(price: PoolPrice, data: Any) -> PriceForm:
        amounts = {"own": price.own, "borrowed": price.borrowed}
        plain = {name: None if amount is None else f"{amount.normalize():f}" for name, amount in amounts.items()}
        return PriceForm(data, initial={**plain, "version": price.number})
