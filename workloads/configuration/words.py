"""Values of the configuration in words, in the reader's language."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework import serializers

from portal.text.words import duration, limit_in_words, sentences
from quotas.api.policies import PolicyShape
from quotas.engine.snapshot_json import policy_from_json
from quotas.models import Pool
from quotas.wording import policy_sentences, window_in_words
from workloads.configuration import document
from workloads.configuration.fields import Amount, Duration, LendingWindow
from workloads.configuration.kinds import SECTIONS

UNSET: tuple[Any, ...] = (None, "", [], {})


def value_in_words(section: str, name: str, text: str | None, pool: Pool | None) -> str:
    """A value of the configuration in words; as it is written there if it cannot be parsed any more."""
    raw = document.read(text).values if text else None
    if raw in UNSET:
        return ""
    shape = SECTIONS[section].shape(data={name: raw}, context={"pool": pool})
    if not shape.is_valid() or (pool is None and section != "departments"):
        return text or ""
    value, field = shape.validated_data[name], shape.fields[name]
    match field:
        case Amount():
            return limit_in_words(name, value, pool)
        case Duration():
            return duration(value)
        case serializers.BooleanField():
            return _("yes") if value else _("no")
        case PolicyShape():
            return sentences(policy_sentences(policy_from_json(value)))
        case serializers.ListSerializer(child=LendingWindow()):
            return _("; ").join(window_in_words(window, pool) for window in value)
    return str(value)
