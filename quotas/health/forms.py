"""The form that quarantines a node or one of its cards."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from portal import names
from quotas.health.quarantines import cards_are_assigned
from quotas.models import Node


class QuarantineForm(forms.Form):
    card = forms.TypedChoiceField(label=_("What"), coerce=int, empty_value=None, required=False)
    why = forms.CharField(
        label=_("Reason"), max_length=500, validators=[names.paragraph], widget=forms.Textarea({"rows": 2}),
        help_text=_("Shown to everybody whose workload has to leave, and in the history."),
    )  # fmt: skip
    hours = forms.TypedChoiceField(
        label=_("Until"),
        coerce=int,
        empty_value=None,
        required=False,
        choices=[
            ("", _("until an operator ends it")),
            ("4", _("4 hours")),
            ("24", _("1 day")),
            ("168", _("7 days")),
        ],
    )

    def __init__(self, *args: Any, node: Node, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cards = list(node.cards.order_by("index").values_list("index", flat=True)) if cards_are_assigned(node) else []
        field = self.fields["card"]
        if isinstance(field, forms.ChoiceField):
            field.choices = [("", _("the whole node")), *((str(i), _("card %(index)s") % {"index": i}) for i in cards)]
        if not cards:
            field.help_text = _(
                "Here the cluster chooses which card a workload gets, so only the whole node can be kept free."
            )

    @property
    def until(self) -> dt.datetime | None:
        hours = self.cleaned_data["hours"]
        return timezone.now() + dt.timedelta(hours=hours) if hours else None
