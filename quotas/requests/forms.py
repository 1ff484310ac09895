"""Forms to request quota and to decide a request. Amounts are totals in the pool's unit."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from portal import names
from portal.errors import Invalid
from portal.models import Department
from portal.names import LineInput
from quotas.amounts import LONGEST, units_of, written
from quotas.forms.days import DayField, first_moment, last_day, last_moment
from quotas.forms.quotas import AmountField, AmountsForm, PoolField, PoolSelect
from quotas.models import Pool, Quota, QuotaRequest, Wanted


class TotalSelect(PoolSelect):
    """Choosing a pool resets the amount to the department's guarantee there plus one card."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.present: dict[int, int] = {}  # guaranteed now, by pool id

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        pool = getattr(value, "instance", None)
        if pool is not None:
            option["attrs"]["data-first"] = written(first_total(pool, self.present.get(pool.pk, 0)), pool)
        return option


def first_total(pool: Pool, present: int, more: int = 0) -> int:
    """The initial total of a request: `present` plus `more` (0: plus one card), but at most what the pool has."""
    return max(present, min(pool.nominal, present + (more or pool.units_per_card)))


class RequestForm(forms.Form):
    """`units` is text such as "10 GiB"; once cleaned, the requested total in units (None: no borrow limit)."""

    pool = PoolField(
        label=_("Pool"), queryset=Pool.objects.all(), to_field_name="slug", empty_label=None,
        widget=TotalSelect({"data-resets": "units"}),
    )  # fmt: skip
    wanted = forms.ChoiceField(
        label=_("What"),
        choices=Wanted.choices,
        help_text=_(
            "Guaranteed quota is yours whenever you need it. The borrow limit is how much more you may "
            "use while others are idle."
        ),
    )
    units = LineInput(
        label=_("New total"),
        max_length=LONGEST,
        required=False,
        help_text=_(
            "What the department would have then, in the unit shown beside the pool. Leave empty for no borrow limit."
        ),
    )
    starts_on = DayField(label=_("From"), required=False, help_text=_("Leave empty to begin on approval."))
    ends_on = DayField(
        label=pgettext_lazy("of a term", "Until"),
        required=False,
        help_text=_("The last day. Leave empty for no end. A request with an end is approved more easily."),
    )
    why = forms.CharField(
        label=_("Reason"), max_length=1000, widget=forms.Textarea({"rows": 3}), validators=[names.paragraph],
        help_text=_("What it is for, and what happens without it."),
    )  # fmt: skip

    def __init__(self, *args: Any, department: Department, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows = Quota.objects.filter(department=department).values_list("pool", "guaranteed")
        self.fields["pool"].widget.present = dict(rows)

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if "pool" in data and "units" in data:
            try:
                data["units"] = units_of(data["units"], data["pool"], least=0) if data["units"] else None
            except Invalid as error:
                self.add_error("units", error.detail)
        return data

    def asked(self) -> dict[str, Any]:
        """The arguments for ask_for_quota."""
        data = self.cleaned_data
        return {
            "pool": data["pool"], "wanted": data["wanted"], "units": data["units"], "why": data["why"],
            "starts_at": first_moment(data["starts_on"]), "ends_at": last_moment(data["ends_on"]),
        }  # fmt: skip


FIELDS = {"starts_at": "starts_on", "ends_at": "ends_on", "guaranteed": "units", "borrow_limit": "units"}
"""Argument of an action → form field that shows its errors."""


class DecisionForm(AmountsForm):
    """How much is approved, and until when; `version` is that of the request when the form was shown."""

    units = AmountField(label=_("Approve a total of"), required=False)
    ends_on = DayField(
        label=pgettext_lazy("of a term", "Until"),
        required=False,
        help_text=_("The last day. Leave empty for no end."),
    )
    note = forms.CharField(
        label=_("Note"), max_length=1000, required=False, widget=forms.Textarea({"rows": 2}), validators=[names.paragraph],
        help_text=_("Shown to the requester. Required to deny."),
    )  # fmt: skip
    version = forms.IntegerField(widget=forms.HiddenInput)

    @staticmethod
    def of(data: Any, request: QuotaRequest) -> DecisionForm:
        initial = {
            "units": None if request.units is None else written(request.units, request.pool),
            "ends_on": last_day(request.ends_at), "version": request.version,
        }  # fmt: skip
        return DecisionForm(data, initial=initial, pool=request.pool)


class CommentForm(forms.Form):
    text = forms.CharField(
        label=_("Comment"), max_length=1000, widget=forms.Textarea({"rows": 2}), validators=[names.paragraph]
    )
