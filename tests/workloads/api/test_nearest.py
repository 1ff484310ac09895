"""Errors about unknown names suggest the names that were probably meant."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError

from portal.errors import Invalid
from tests import builders as make
from workloads.api.shapes import near, pool_named
from workloads.requests.text_fields import CoresField


def test_closest_names_are_suggested_or_else_all_names() -> None:
    assert near("nix", ["train-a100", "unix", "quick-look"]) == "Similar: unix."
    assert near("zzz", ["b", "a"]) == "There are: a, b."
    assert near("a10", ["a100", "a30"]) == "There are: a100, a30."
    assert near("zzz", map(str, range(100, 120))).count(", ") == 19
    assert near("zzz", map(str, range(100, 121))) == "There are 21, among them: 100, 101, 102, 103, 104."
    assert near("zzz", []) == ""


@pytest.mark.django_db
def test_unknown_pool_error_lists_the_existing_pools() -> None:
    make.pool("a100")
    with pytest.raises(Invalid) as refused:
        pool_named("a10")
    assert refused.value.detail == "There is no pool a10. There are: a100."


def test_cpu_cores_are_entered_as_decimals_and_stored_as_millicores() -> None:
    field = CoresField(label="CPU cores")
    assert [field.clean(text) for text in ("2", "0.5", "1.25")] == [2000, 500, 1250]
    assert [field.prepare_value(milli) for milli in (2000, 500, 1250)] == ["2", "0.5", "1.25"]
    assert [field.has_changed(2000, text) for text in ("2", "2.0", "3")] == [False, False, True]
    assert isinstance(field.min_value, Decimal)
    with pytest.raises(ValidationError):
        field.clean("2000")
