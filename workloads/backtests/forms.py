"""The form of a backtest: the quotas and rules of a pool, and anything else as configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django import forms
from django.forms.utils import ErrorDict
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from quotas.forms.policies import DEFAULT, ON, RulesForm
from quotas.forms.quotas import AmountField, AmountsForm
from quotas.models import Pool
from quotas.rules import policies
from workloads.backtests import draft
from workloads.backtests.runs import MOST_DAYS
from workloads.configuration import document

AMOUNTS = {"guaranteed": "", "borrow_limit": "no limit", "lend_limit": "all"}
"""Field of a quota → how the configuration writes that there is no limit; "" if there must be one."""
OF_TODAY = ("version", "beside_percent")
"""Fields of the form of a pool's rules that have no effect in a replay."""
TIMES = ("notice", "grace", "min_runtime", "balance_half_life", "starvation_after", "restart_cost")


class BacktestForm(AmountsForm):
    days = forms.IntegerField(label=_("Number of days"), initial=30, min_value=1, max_value=MOST_DAYS,
                              help_text=_("The most recent days, with the requests as they were made."))  # fmt: skip
    configuration = forms.CharField(
        label=_("More, as configuration"),
        required=False,
        strip=False,
        max_length=draft.LONGEST,
        widget=forms.Textarea({"rows": 8, "spellcheck": "false", "class": "form-control font-monospace"}),
        help_text=_(
            "YAML, as in the configuration file: lending windows, policies, caps, weights, other pools of the group."
        ),
    )

    def __init__(self, data: Any, *, pool: Pool) -> None:
        self.pool = pool
        self.quotas = list(pool.quotas.select_related("department").order_by("department__name"))
        initial = {self._name(row.department.slug, name): getattr(row, name) for row in self.quotas for name in AMOUNTS}
        super().__init__(data, pool=pool, initial=initial)
        for row in self.quotas:
            for name, nothing in AMOUNTS.items():
                field = AmountField(required=not nothing, label=LABELS[name])
                field.pool = pool
                field.widget.attrs |= {
                    "class": "form-control form-control-sm",
                    "aria-label": f"{LABELS[name]}{gettext(': ')}{row.department.name}",
                }
                self.fields[self._name(row.department.slug, name)] = field
        first = RulesForm.initial_of(policies.PoolRules.of(pool), pool.version)
        self.rules = RulesForm(data, initial=first, prefix="rules", defaults=policies.default_rules())
        for name in OF_TODAY:
            del self.rules.fields[name]

    @staticmethod
    def _name(department: str, name: str) -> str:
        return f"{department}.{name}"

    def rows(self) -> Iterator[tuple[Any, list[Any]]]:
        """(department, the fields of its quota) for each quota."""
        for row in self.quotas:
            yield row.department, [self[self._name(row.department.slug, name)] for name in AMOUNTS]

    @property
    def errors(self) -> ErrorDict:
        """The errors of this form and of its rules."""
        return ErrorDict(
            {**super().errors, **{self.rules.add_prefix(name): each for name, each in self.rules.errors.items()}}
        )

    def clean_configuration(self) -> dict[str, Any]:
        text = self.cleaned_data["configuration"]
        try:
            values = document.read(text).values if text.strip() else {}
        except document.Unreadable as problem:
            raise forms.ValidationError(problem.detail) from problem
        if not isinstance(values, dict):
            raise forms.ValidationError(_("Must be a mapping."))
        return values

    def draft(self) -> str:
        """The values that differ from the present ones, as a piece of a configuration file."""
        departments: dict[str, Any] = {}
        for name in self.changed_data:
            department, dot, value = name.rpartition(".")
            if dot:
                written = str(self.data.get(name, "")).strip() or AMOUNTS[value]
                departments.setdefault(department, {"quotas": {self.pool.slug: {}}})["quotas"][self.pool.slug][
                    value
                ] = written
        rules = {name: self._rule(name) for name in self.rules.changed_data}
        values = {"departments": departments, "pools": {self.pool.slug: rules} if rules else {}}
        return draft.text_of(
            _merged({name: each for name, each in values.items() if each}, self.cleaned_data["configuration"])
        )

    def _rule(self, name: str) -> Any:
        value = self.rules.cleaned_data[name]
        if name == "fair_sharing":
            return None if value == DEFAULT else value == ON
        return f"{value} s" if name in TIMES and value is not None else value


LABELS = {"guaranteed": _("Guaranteed"), "borrow_limit": _("Borrow limit"), "lend_limit": _("Lend limit")}


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings merged; `other` takes precedence."""
    both = dict(one)
    for name, value in other.items():
        value_of_one = both.get(name)
        both[name] = (
            _merged(value_of_one, value) if isinstance(value_of_one, dict) and isinstance(value, dict) else value
        )
    return both
