"""The worked examples of docs/quota-rules.md are true."""

import doctest
from pathlib import Path


def test_the_worked_examples_of_the_rules_page_are_true() -> None:
    page = Path(__file__).parents[2] / "docs" / "quota-rules.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 15
    assert failed == 0
