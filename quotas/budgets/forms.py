"""Forms to set a budget. Rights are checked by the actions."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from portal.models import Department, User
from quotas.budgets.actions import MOST_HOURS, NUMBERS, Limits
from quotas.forms.days import DayField
from quotas.models import Budget, BudgetAction, BudgetCounts, Pool


class LimitsForm(forms.Form):
    """The part of a budget that can be changed; `version` is that of the budget when the form was shown."""

    hours = forms.IntegerField(
        label=_("GPU-hours"), min_value=1, max_value=MOST_HOURS,
        help_text=_("8 cards for a day are 192 GPU-hours. Part of a card counts in proportion."),
    )  # fmt: skip
    counts = forms.ChoiceField(label=_("Counts"), choices=BudgetCounts.choices, initial=BudgetCounts.ALL)
    action = forms.ChoiceField(
        label=_("When it is used up"), choices=BudgetAction.choices, initial=BudgetAction.NO_BORROWING,
        help_text=_("Running workloads are never stopped by a budget. At 80 % the people concerned are warned in any case."),
    )  # fmt: skip
    starts_on = DayField(label=_("From"), required=False, help_text=_("Leave both days empty for a monthly budget."))
    ends_on = DayField(label=pgettext_lazy("of a term", "Until"), required=False, help_text=_("The last day."))
    version = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def limits(self) -> Limits:
        return Limits(**{name: self.cleaned_data[name] for name in NUMBERS})

    @staticmethod
    def of(budget: Budget, data: Any = None) -> LimitsForm:
        return LimitsForm(data, initial={**Limits.of(budget).columns(), "version": budget.version})


class PersonField(forms.ModelChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, user: Any) -> str:
        return str(user.label)


class BudgetForm(LimitsForm):
    """A new budget. Without `person` it is the whole department's."""

    person = PersonField(
        label=_("For"), queryset=User.objects.none(), to_field_name="username", required=False, empty_label=None
    )
    pool = forms.ModelChoiceField(
        label=_("Pool"), queryset=Pool.objects.all(), to_field_name="slug", required=False, empty_label=_("All pools")
    )
    field_order = ("person", "pool", "hours")

    def __init__(self, *args: Any, department: Department, whole: bool, **kwargs: Any) -> None:
        """`whole`: whether the reader may also set the budget of the department itself."""
        super().__init__(*args, **kwargs)
        del self.fields["version"]
        people: Any = self.fields["person"]
        inside = User.objects.filter(memberships__department__in=department.with_teams(), is_active=True)
        people.queryset = inside.distinct().order_by("username")
        people.required = not whole
        people.empty_label = (
            _("The department %(name)s and its teams") % {"name": department.name} if whole else _("Choose a person")
        )
        if not whole:
            people.help_text = _("The department's own budget is set by whoever sets its quota.")

    def budget(self, department: Department) -> Budget:
        """The new budget, not saved."""
        data = self.cleaned_data
        return Budget(department=department, person=data["person"], pool=data["pool"], **self.limits().columns())
