"""Forms for quotas. Amounts are in the pool's unit; rights are checked by the actions."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.dates import WEEKDAYS_ABBR
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from portal.errors import Invalid
from portal.names import LineInput
from portal.text import zones
from portal.web.conflicts import SeenField
from quotas.amounts import LONGEST, counted_in, first_amount, units_of, written
from quotas.lending.schedule import DAY, Window
from quotas.lending.windows import MOST_WINDOWS
from quotas.models import Pool


class PoolSelect(forms.Select):
    """`data-resets`: the name of the field that is reset when a pool with another unit is chosen (static/portal.js)."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        pool = getattr(value, "instance", None)
        if pool is not None:
            option["attrs"] |= {"data-unit": counted_in(pool), "data-first": first_amount(pool)}
        return option


class PoolField(forms.ModelChoiceField):  # type: ignore[type-arg]
    """A choice of pools, labelled with their units."""

    widget = PoolSelect

    def label_from_instance(self, pool: Any) -> str:
        return _("%(pool)s (%(unit)s)") % {"pool": pool.name, "unit": counted_in(pool)}


class AmountField(forms.Field):
    """An amount in the form's pool, as text; once cleaned, units, or None if it is empty."""

    widget = forms.TextInput
    pool: Pool

    def widget_attrs(self, widget: forms.Widget) -> dict[str, Any]:
        return {"maxlength": LONGEST}

    @property
    def unit(self) -> str:
        """The unit of a number without a unit."""
        return counted_in(self.pool)

    def prepare_value(self, value: Any) -> Any:
        return written(value, self.pool) if isinstance(value, int) else value

    def to_python(self, value: Any) -> int | None:
        if value in self.empty_values:
            return None
        if isinstance(value, int):  # a disabled field takes its initial value
            return value
        try:
            return units_of(str(value), self.pool, least=0)
        except Invalid as error:
            raise forms.ValidationError(error.detail) from error

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != initial)
        except forms.ValidationError:
            return True


class AmountsForm(forms.Form):
    """A form with amounts of one pool."""

    def __init__(self, *args: Any, pool: Pool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            if isinstance(field, AmountField):
                field.pool = pool


class RecallForm(forms.Form):
    """`units` is text; once cleaned, units of the pool."""

    pool = PoolField(
        label=_("Pool"), queryset=Pool.objects.none(), to_field_name="slug", empty_label=None,
        widget=PoolSelect({"data-resets": "units"}),
    )  # fmt: skip
    units = LineInput(
        label=_("Amount"),
        max_length=LONGEST,
        help_text=_("In the unit shown beside the pool, or with a unit: 10 GiB, 2 cards, half a card, 25 %."),
    )
    hours = forms.TypedChoiceField(
        label=_("Keep for"),
        coerce=int,
        empty_value=None,
        required=False,
        choices=[
            ("1", _("1 hour")),
            ("4", _("4 hours")),
            ("24", _("1 day")),
            ("168", _("7 days")),
            ("", _("until withdrawn")),
        ],
        help_text=_("Your department's workloads use this capacity. What is unused by then returns to the pool."),
    )

    def __init__(self, *args: Any, pools: list[Pool], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["pool"]
        if isinstance(field, forms.ModelChoiceField):
            field.queryset = Pool.objects.filter(pk__in=[pool.pk for pool in pools])

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if "pool" in data and "units" in data:
            try:
                data["units"] = units_of(data["units"], data["pool"])
            except Invalid as error:
                self.add_error("units", error.detail)
        return data

    @property
    def until(self) -> dt.datetime | None:
        hours = self.cleaned_data["hours"]
        return timezone.now() + dt.timedelta(hours=hours) if hours else None


class QuotaForm(AmountsForm):
    """The three amounts; `version` is that of the quota when the form was shown (blank: there was none)."""

    guaranteed = AmountField(label=_("Guaranteed"), help_text=_("Available to the department whenever it requests it."))
    borrow_limit = AmountField(
        label=_("Borrow limit"),
        required=False,
        help_text=_(
            "How much the department may use above its guaranteed quota while others are idle. Leave "
            "empty for no limit."
        ),
    )
    lend_limit = AmountField(
        label=_("Lend limit"),
        required=False,
        help_text=_(
            "How much of the guaranteed quota others may borrow while it is idle. Leave empty for all; 0 for none."
        ),
    )
    why = LineInput(label=_("Reason"), max_length=200, required=False, help_text=_("Recorded in the history."))
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, only_lend: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if only_lend:  # a disabled field keeps its initial value, whatever is sent
            self.fields["guaranteed"].disabled = True
            self.fields["borrow_limit"].disabled = True

    def numbers(self) -> dict[str, Any]:
        data = self.cleaned_data
        return {name: data[name] for name in ("guaranteed", "borrow_limit", "lend_limit")}


TIME = {"type": "time", "class": "form-control form-control-sm"}


class WindowForm(AmountsForm):
    """One lending window, or none if the row is empty."""

    days = forms.TypedMultipleChoiceField(
        label=_("Days"),
        coerce=int,
        choices=list(WEEKDAYS_ABBR.items()),
        required=False,
        widget=forms.CheckboxSelectMultiple({"class": "form-check-input"}),
    )
    start = forms.TimeField(label=_("From"), required=False, widget=forms.TimeInput(TIME, "%H:%M"))
    end = forms.TimeField(
        label=pgettext_lazy("time of day", "to"), required=False, widget=forms.TimeInput(TIME, "%H:%M")
    )
    lend_limit = AmountField(
        label=_("Lend at most"),
        required=False,
        widget=forms.TextInput({"class": "form-control form-control-sm", "placeholder": _("all")}),
    )

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if not self.errors and self.has_changed():
            if not data.get("days"):
                self.add_error("days", _("Choose the weekdays on which the window begins."))
            for name in ("start", "end"):
                if data.get(name) is None:
                    self.add_error(name, _("Enter a time such as 09:00."))
        return data

    def window(self) -> Window | None:
        """The window of a valid row; None if it is empty or deleted. An end of 00:00 is midnight."""
        data = self.cleaned_data
        if not data.get("days") or data.get("DELETE"):
            return None
        return Window(tuple(data["days"]), minute(data["start"]), minute(data["end"]) or DAY, data["lend_limit"])

    @staticmethod
    def initial_of(window: Window) -> dict[str, Any]:
        start, end = divmod(window.start, 60), divmod(window.end % DAY, 60)
        return {"days": window.days, "start": dt.time(*start), "end": dt.time(*end), "lend_limit": window.lend_limit}


def minute(time: dt.time) -> int:
    return time.hour * 60 + time.minute


class RemovableForms(forms.BaseFormSet):  # type: ignore[type-arg]  # generic only in the stubs
    deletion_widget = forms.CheckboxInput({"class": "form-check-input"})  # type: ignore[assignment]  # or one made


WindowForms = forms.formset_factory(
    WindowForm, RemovableForms, extra=1, can_delete=True, max_num=MOST_WINDOWS, absolute_max=MOST_WINDOWS + 1
)


class ZoneForm(forms.Form):
    zone = forms.ChoiceField(label=_("Time zone"), choices=zones.CHOICES)


class CapForm(AmountsForm):
    units = AmountField(label=_("Cap per user"), required=False)
    seen = SeenField()
    asked: Any = None  # what the change breaks, which must be confirmed first


class NominalForm(AmountsForm):
    nominal = AmountField(
        label=_("Capacity for guarantees"), help_text=_("The sum of all guaranteed quotas cannot exceed this.")
    )
    seen = SeenField()
