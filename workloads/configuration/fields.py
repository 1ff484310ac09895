"""Values as the file writes them: amounts, times and memory with their unit. Each field can parse what it writes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import translation
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from portal.api.base import Strict
from portal.errors import Problem
from portal.text.words import exact
from quotas.amounts import LARGEST, check_not_little, units_of
from quotas.api.windows import WindowShape, window_in, window_out
from quotas.engine.snapshot_json import policy_from_json
from quotas.forms.durations import DurationField
from quotas.lending.schedule import Window
from quotas.models import Pool
from quotas.rules.policies import policy_json
from workloads.requests.text_fields import CommandField, CoresField, MemoryField
from workloads.runtime.setups import Setup


class Written(serializers.Field[Any, Any, Any, Any]):
    """A text that is parsed and written as by a form field of the pages; `none` is the word for no value, if that is allowed."""

    form: forms.Field
    none: str | None = None

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            raise serializers.ValidationError(_("Must be text."), "not_a_text")
        try:
            return self.read(data)
        except ValidationError as error:
            raise serializers.ValidationError(error.messages, str(error.code or "invalid")) from None

    def read(self, text: str) -> Any:
        return self.form.clean(text)

    def to_representation(self, value: Any) -> Any:
        return self.form.prepare_value(value)


@extend_schema_field({"type": "string", "examples": ["8 cards", "6 GiB", "half"]})
class Amount(Written):
    """An amount in units of the entry's pool."""

    def __init__(self, *, least: int = 0, none: str | None = None, **more: Any) -> None:
        super().__init__(allow_null=none is not None, **more)
        self.least, self.none = least, none

    @property
    def pool(self) -> Pool | None:
        pool: Pool | None = self.root.context["pool"]
        return pool

    def read(self, text: str) -> int | None:
        if text.strip() == self.none:
            return None
        if self.pool is None:  # the unknown pool is an error of its own
            return 0
        try:
            units = units_of(text, self.pool, self.least)
            check_not_little(units, self.pool)
        except Problem as problem:
            raise serializers.ValidationError(problem.detail, problem.code) from None
        return units

    def to_representation(self, value: int) -> str:
        with translation.override("en"):
            return exact(value, self.pool)


@extend_schema_field({"type": "string", "examples": ["600 s", "10 min", "1d 12h"]})
class Duration(Written):
    """A duration, in seconds. A number without a unit is refused: on the pages it is in minutes, in the API in seconds."""

    def __init__(self, *, least: int = 0, most: int = LARGEST, **more: Any) -> None:
        super().__init__(**more)
        self.form = DurationField(needs_unit=True, least=least, most=most)

    def to_representation(self, value: int) -> str:
        return super().to_representation(value) or "0s"


@extend_schema_field({"type": "string", "examples": ["8 GiB", "512 MiB"]})
class Memory(Written):
    form = MemoryField()


@extend_schema_field({"type": "number", "examples": [0.5, 4]})
class CoreCount(Written):
    form = CoresField()

    def to_representation(self, value: int) -> Decimal:
        return Decimal(value) / 1000


@extend_schema_field({"type": "string", "examples": ["python train.py --lr 1e-3"]})
class Command(Written):
    """A command as typed in a terminal, or a list of words."""

    form = CommandField(own_names=True, required=False, max_length=4_000)

    def to_internal_value(self, data: Any) -> list[str]:
        if isinstance(data, list) and all(isinstance(word, str) for word in data):
            return data
        return list(super().to_internal_value(data))


class SetupOptions(serializers.Field[Any, Any, Any, Any]):
    """The options that only some kinds have (workloads.runtime.setups.Setup), as a mapping."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise serializers.ValidationError(_("Must be a mapping."), "not_a_mapping")
        try:
            return Setup.checked({name: _typed(value) for name, value in data.items()}).as_json()
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error

    def to_representation(self, value: dict[str, Any]) -> dict[str, Any]:
        return Setup.from_json(value).as_json()


def _typed(value: Any) -> Any:
    """Converts a scalar of the file to a boolean or integer if it looks like one. No text option of Setup looks so."""
    if isinstance(value, str):
        if value in ("true", "false"):
            return value == "true"
        if value.isascii() and value.isdigit() and len(value) < 12:
            return int(value)
    return value


class LendingWindow(WindowShape):
    lend_limit: Any = Amount(none="all")

    def to_internal_value(self, data: Any) -> Window:
        return window_in(super().to_internal_value(data))

    def to_representation(self, window: Window) -> dict[str, Any]:
        limit = self.fields["lend_limit"]
        most = "all" if window.lend_limit is None else limit.to_representation(window.lend_limit)
        return window_out(window) | {"lend_limit": most}


def plain_policy(values: Any) -> dict[str, Any] | None:
    """A policy as it is stored, with every key; None if none is set."""
    if not values:
        return None
    plain = {name: dict(value) if isinstance(value, dict) else value for name, value in values.items()}
    return policy_json(policy_from_json(plain))


class Entry(Strict):
    """The fields of one entry. All are optional: what the file does not name stays as it is."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        for field in fields.values():
            field.required = False
        return fields

    def to_representation(self, values: Any) -> dict[str, Any]:
        """The entry as the file writes it, from `values` by the fields' sources."""
        return {
            name: getattr(field, "none", None) if (value := values[str(field.source)]) is None else field.to_representation(value)
            for name, field in self.fields.items()
        }  # fmt: skip
