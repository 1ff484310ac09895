"""Whoever names what does not exist is told what was probably meant."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError

from portal.errors import Invalid
from tests import builders as make
from workloads.api.shapes import near, pool_named
from workloads.requests.text_fields import CoresField


def test_the_nearest_are_named_else_what_there_is() -> None:
    assert near("nix", ["train-a100", "unix", "quick-look"]) == "There are: unix."
    assert near("zzz", ["b", "a"]) == "There are: a, b."
    assert near("zzz", []) == ""


@pytest.mark.django_db
def test_a_pool_that_is_not_there_names_the_one_that_is() -> None:
    make.pool("a100")
    with pytest.raises(Invalid) as refused:
        pool_named("a10")
    assert refused.value.detail == "There is no pool a10. There are: a100."


def test_cores_are_typed_with_decimals_and_kept_in_millicores() -> None:
    field = CoresField(label="CPU cores")
    assert [field.clean(text) for text in ("2", "0.5", "1.25")] == [2000, 500, 1250]
    assert [field.prepare_value(milli) for milli in (2000, 500, 1250)] == ["2", "0.5", "1.25"]
    assert [field.has_changed(2000, text) for text in ("2", "2.0", "3")] == [False, False, True]
    assert isinstance(field.min_value, Decimal)
    with pytest.raises(ValidationError):
        field.clean("2000")
