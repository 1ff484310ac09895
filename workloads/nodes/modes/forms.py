"""The form for a node's mode."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from quotas.models import Node
from workloads.nodes.modes.mig_layouts import Layout
from workloads.nodes.modes.previews import BEST_ALIKE, BEST_EACH, modes_of, table_of, target_of
from workloads.nodes.modes.recipes import Target, named_layouts
from workloads.sharing import SYSTEMS


class ModeForm(forms.Form):
    mode = forms.ChoiceField(label=_("Mode"))
    replicas = forms.IntegerField(
        label=_("Shares per card"), required=False, min_value=2, max_value=128, initial=4,
        help_text=_("For time-slicing and MPS"),
    )  # fmt: skip
    rename = forms.BooleanField(
        label=_("Offer them as nvidia.com/gpu.shared, to distinguish them from whole cards"), required=False,
        initial=True,
    )  # fmt: skip
    config = forms.ChoiceField(label=_("MIG layout"), required=False, help_text=_("For MIG"))

    def __init__(self, *args: Any, node: Node, may_write_mig: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.node, self.table = node, table_of(node)
        self.initial.setdefault("mode", node.sharing)
        modes = [(mode, gettext(SYSTEMS[mode].ABOUT.title)) for mode in modes_of(node)]
        cast(forms.ChoiceField, self.fields["mode"]).choices = modes
        if self.table is None:
            del self.fields["config"]
            return
        best = [(BEST_ALIKE, gettext("best for the queue, same for all cards"))]
        if may_write_mig:
            best.insert(0, (BEST_EACH, gettext("best for the queue, separately for each card")))
        named = [(name, f"{name}: {layout_text(layout)}") for name, layout in sorted(named_layouts(self.table).items())]
        cast(forms.ChoiceField, self.fields["config"]).choices = [*best, *named]

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        if data.get("mode") in ("timeslicing", "mps") and "replicas" in data and not data["replicas"]:
            self.add_error("replicas", gettext("Enter the number of shares per card."))
        return data

    def target(self) -> Target:
        """The target that a valid form describes."""
        data = self.cleaned_data
        return target_of(
            self.node, mode=data["mode"], replicas=data["replicas"] or 0, rename=data["rename"],
            config=data.get("config") or BEST_ALIKE,
        )  # fmt: skip


def layout_text(layout: Layout) -> str:
    return " + ".join(f"{count} × {profile}" for profile, count in layout)
