"""Numbers have the same format in both languages."""

import pytest
from django.template import Context, Template
from django.utils import translation


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_thousands_are_grouped_by_three_in_every_language(language: str) -> None:
    with translation.override(language):
        assert Template('{{ hours|floatformat:"1g" }}').render(Context({"hours": 1234567.89})) == "1,234,567.9"
