"""Operators' forms for rules and policies."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from quotas.engine import types as e
from quotas.forms.durations import DurationField
from quotas.rules.policies import BESIDE_PERCENT, BOUNDS, PoolRules

DEFAULT, ON, OFF = "", "on", "off"


class RulesForm(forms.Form):
    """A pool's terms for borrowers, and the order of its queue."""

    notice = DurationField(
        label=_("Notice"),
        needs_unit=True,
        **BOUNDS["notice"]._asdict(),
        help_text=_("Time between announcing a recall and SIGTERM, for example 90s or 10min."),
    )
    grace = DurationField(
        label=_("Grace"), needs_unit=True, **BOUNDS["grace"]._asdict(),
        help_text=_("Time between SIGTERM and SIGKILL."),
    )  # fmt: skip
    min_runtime = DurationField(
        label=_("Minimum runtime"),
        needs_unit=True,
        **BOUNDS["min_runtime"]._asdict(),
        help_text=_("A workload is not recalled before it has run this long."),
    )
    max_reclaims = forms.IntegerField(
        label=_("Maximum recalls"),
        min_value=BOUNDS["max_reclaims"].least,
        max_value=BOUNDS["max_reclaims"].most,
        help_text=_("A workload recalled more often than this is stopped for good."),
    )
    beside_percent = forms.IntegerField(
        label=_("CPU and memory per card (%)"),
        min_value=BOUNDS["beside_percent"].least,
        max_value=BOUNDS["beside_percent"].most,
        required=False,
        widget=forms.NumberInput(attrs={"placeholder": BESIDE_PERCENT}),
        help_text=_(
            "Percentage of an even share of the node. Requests above it are charged as more cards; 0: "
            "never charged. Above 100, CPU may run out before the cards do."
        ),
    )
    balance_half_life = DurationField(
        label=_("Fairness over time: half-life"),
        needs_unit=True,
        **BOUNDS["balance_half_life"]._asdict(),
        required=False,
        help_text=_(
            "For example 12h, 1d or 7d. Departments that lent more than they borrowed lately borrow first. After this time what "
            "was lent or borrowed counts half. Replaces fair sharing in this pool and preempts nobody. Empty: off."
        ),
    )
    fair_sharing = forms.ChoiceField(
        label=_("Fair sharing"),
        required=False,
        help_text=_(
            "The department that borrows least for its weight starts first, and may preempt those that borrow more."
        ),
    )
    starvation_after = DurationField(
        label=_("Starvation after"),
        needs_unit=True,
        **BOUNDS["starvation_after"]._asdict(),
        required=False,
        help_text=_("A borrowing workload that has waited longer holds capacity as it becomes free until it fits."),
    )
    restart_cost = DurationField(
        label=_("Restart cost"),
        needs_unit=True,
        **BOUNDS["restart_cost"]._asdict(),
        required=False,
        help_text=_("Cost of preempting a workload, in addition to the work since its last checkpoint."),
    )
    version = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, defaults: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        usual = _("same as installation: on") if defaults["fair_sharing"] else _("same as installation: off")
        choice = self.fields["fair_sharing"]
        if isinstance(choice, forms.ChoiceField):
            choice.choices = [(DEFAULT, usual), (ON, _("on")), (OFF, _("off"))]
        for name in ("starvation_after", "restart_cost"):
            self.fields[name].widget.attrs["placeholder"] = self.fields[name].prepare_value(defaults[name])

    @staticmethod
    def initial_of(rules: PoolRules, version: int) -> dict[str, Any]:
        values = {name: getattr(rules, name) for name in PoolRules.__dataclass_fields__}
        fair = {None: DEFAULT, True: ON, False: OFF}[rules.fair_sharing]
        return values | {"fair_sharing": fair, "version": version}

    def rules(self) -> PoolRules:
        values = {name: self.cleaned_data[name] for name in PoolRules.__dataclass_fields__}
        if values["beside_percent"] is None:
            values["beside_percent"] = BESIDE_PERCENT
        return PoolRules(**values | {"fair_sharing": {DEFAULT: None, ON: True, OFF: False}[values["fair_sharing"]]})


NEVER, LOWER, UP_TO = "never", "lower", "up_to"


class PolicyForm(forms.Form):
    """The preemption policy of a scope. Without `own`, the policy of the next wider scope applies."""

    own = forms.ChoiceField(
        label=_("Policy"),
        widget=forms.RadioSelect,
        choices=[("", _("not set: inherit")), ("1", _("set here:"))],
        required=False,
    )
    reclaim = forms.ChoiceField(
        label=_("Within guaranteed quota: from borrowers"),
        required=False,
        choices=[
            ("any", _("reclaims any workload")),
            ("lower_priority", _("reclaims workloads of lower priority only")),
            ("never", _("reclaims nothing: waits until they end")),
        ],
    )
    within = forms.ChoiceField(
        label=_("In its own department"),
        required=False,
        choices=[
            ("lower_priority", _("preempts workloads of lower priority")),
            ("lower_or_newer_equal", _("preempts workloads of lower priority, and newer ones of the same priority")),
            ("never", _("preempts nothing")),
        ],
    )
    borrow_preempt = forms.ChoiceField(
        label=_("While borrowing: from other borrowers"),
        required=False,
        choices=[
            (NEVER, _("preempts nothing")),
            (LOWER, _("preempts workloads of lower priority")),
            (UP_TO, _("preempts workloads of lower priority, up to:")),
        ],
        help_text=_("Has no effect in pools with fair sharing: there shares decide between borrowers, not priorities."),
    )
    max_priority = forms.IntegerField(label=_("Highest priority it may preempt"), required=False)
    version = forms.IntegerField(widget=forms.HiddenInput)

    @staticmethod
    def initial_of(policy: e.Policy, *, own: bool, version: int) -> dict[str, Any]:
        preempt = policy.borrow_preempt
        kind = NEVER if preempt is None else LOWER if preempt.max_priority is None else UP_TO
        return {
            "own": "1" if own else "", "within": policy.within, "reclaim": policy.reclaim, "borrow_preempt": kind,
            "max_priority": preempt.max_priority if preempt else None, "version": version,
        }  # fmt: skip

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        wanted = data.get("own") and data.get("borrow_preempt") == UP_TO
        if wanted and "max_priority" in data and data["max_priority"] is None:
            self.add_error("max_priority", _("Enter the priority."))
        return data

    def policy(self) -> e.Policy | None:
        """The policy of a valid form; None: the scope has no policy of its own."""
        data = self.cleaned_data
        if not data["own"]:
            return None
        kind = data["borrow_preempt"] or NEVER
        preempt = None if kind == NEVER else e.BorrowPreempt(data["max_priority"] if kind == UP_TO else None)
        return e.Policy(data["within"] or "lower_priority", data["reclaim"] or "any", preempt)
