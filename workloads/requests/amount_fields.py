"""The amount fields of the request form, which depend on the pools' sharing systems."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from portal.errors import Invalid
from portal.names import LineInput
from portal.text.words import memory, sentences
from quotas.amounts import LONGEST
from quotas.models import Pool
from workloads.requests.gpu_amounts import about, becomes, instance_mib, is_derived, profiles_present, read
from workloads.requests.what_you_get import amount_label, compute_share
from workloads.sharing.api import NONE


class AmountFields(forms.Form):
    becomes = ""  # the amount it is rounded up to, as text; "" if the written one is exact
    submitting = True  # otherwise a rounded amount or an empty secret is not an error yet
    units_per_pod = LineInput(label=_("Amount"), required=False, max_length=LONGEST)
    cores_per_pod = forms.IntegerField(label=_("Compute share (%)"), required=False, min_value=1, max_value=100)
    profile = forms.ChoiceField(label=_("MIG profile"), required=False)
    became = LineInput(required=False, widget=forms.HiddenInput)  # the rounding that the person was shown

    def offer(self, pools: Iterable[Pool]) -> None:
        """Limits the choices to what exists in these pools."""
        pools = list(pools)
        tables = sorted({pool.mig for pool in pools if pool.mig})
        present = profiles_present(pools)
        choices = [(table, [(name, profile_label(table, name)) for name in present[table]]) for table in tables]
        cast(forms.ChoiceField, self.fields["profile"]).choices = [("", "–"), *choices]
        if not tables:
            del self.fields["profile"]
        if all((system := about(pool)) is None or system.cores == NONE for pool in pools):
            del self.fields["cores_per_pod"]

    @property
    def becomes_sentence(self) -> str:
        """The notice that the amount is rounded up. It must be accepted, because more is charged than was written."""
        values = {"text": str(self.data.get("units_per_pod", "")).strip(), "becomes": self.becomes}
        return gettext("“%(text)s” is interpreted as %(becomes)s here.") % values

    @property
    def acknowledged(self) -> str:
        """The value of `became` once the person has been shown the notice."""
        return f"{str(self.data.get('units_per_pod') or '').strip()} → {self.becomes}" if self.becomes else ""

    def read_amount(self, data: dict[str, Any]) -> None:
        """Reads units, profile and compute share of the chosen pool from the text; errors are added to their fields."""
        pool, text = data.get("pool"), str(data.get("units_per_pod") or "").strip()
        if pool is None:
            return
        self["units_per_pod"].label = amount_label(pool)  # as on the page: the summary of errors names it
        system = about(pool)
        if system is None or system.cores == NONE:
            data["cores_per_pod"] = None
        if not pool.mig:
            data["profile"] = ""
        elif data.get("profile"):
            data["units_per_pod"] = 0  # the profile is the amount, whatever was typed for another pool
            return
        if not text:
            self.add_error("units_per_pod", _("Enter an amount."))
            return
        try:
            asked, self.becomes = read(text, pool), becomes(text, pool)
        except Invalid as error:
            self.add_error("units_per_pod", error.detail)
            return
        if self.becomes and self.submitting and data.get("became") != f"{text} → {self.becomes}":
            again = gettext("Submit again to accept.")
            self.add_error("units_per_pod", sentences([self.becomes_sentence, again]))
        data["units_per_pod"], data["profile"] = asked.units, asked.profile
        if system is not None and system.cores == "must" and data.get("cores_per_pod") is None:
            data["cores_per_pod"] = compute_share(pool, asked.units)


def profile_label(table: str, profile: str) -> str:
    """A profile with its memory: "3g.40gb · 39.2 GiB"."""
    has = instance_mib(table, profile)
    text = f"{profile} · {memory(has)}" if has else profile
    return _("%(profile)s (derived)") % {"profile": text} if is_derived(table, profile) else text
