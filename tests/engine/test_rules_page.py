"""The worked examples of the pages about quota rules are true."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "least"), [("quota-rules.md", 4), ("quota-rules-by-number.md", 3), ("quota-rules-reference.md", 60)]
)
def test_the_worked_examples_of_the_rules_pages_are_true(page: str, least: int) -> None:
    failed, tried = doctest.testfile(str(DOCS / page), module_relative=False)
    assert tried > least
    assert failed == 0
