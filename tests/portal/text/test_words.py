"""Amounts as people read them."""

from __future__ import annotations

import pytest
from django.utils import translation

from portal.models import AuditEntry
from portal.notify import notices
from portal.text import words
from portal.web.audit_words import Reader
from tests import builders as make


@pytest.mark.parametrize(
    ("mebibytes", "expected"),
    [
        (None, ""),
        (0, "0 GiB"),
        (512, "512 MiB"),
        (-512, "-512 MiB"),
        (1024, "1 GiB"),
        (1536, "1.5 GiB"),
        (163840, "160 GiB"),
    ],
)
def test_memory_is_shown_in_the_shortest_unit_and_zero_in_gib(mebibytes: int | None, expected: str) -> None:
    assert words.memory(mebibytes) == expected
    if mebibytes is not None:
        assert words.amount(mebibytes, "MiB") == expected


def test_hours_of_one_unit_are_not_called_gpu_hours() -> None:
    """Budgets count the use of all pools together in GPU-hours; a table of one unit would be taken for that."""
    names = [words.unit_hours(unit) for unit in ("card", "percent", "slice", "replica", "MiB")]
    assert names == ["Card-hours", "Card-hours (shares of a card)", "Slice-hours", "Replica-hours", "GiB-hours"]
    assert len(set(names)) == len(names)


def test_thousands_are_grouped_in_amounts_of_every_unit() -> None:
    assert words.amount(2000, "card") == "2,000 cards"
    assert words.amount(28532, "percent") == "28,532 %"


@pytest.mark.parametrize(
    ("share", "expected", "chinese"),
    [
        (None, "", ""),
        (0.0, "0 %", "0 %"),
        (0.004, "0.4 %", "0.4 %"),
        (0.25, "25 %", "25 %"),
        (9.99, "999 %", "999 %"),
        (40.24, "40×", "40 倍"),
        (4024.0, "4,024×", "4,024 倍"),
    ],
)
def test_share_is_a_percentage_and_from_ten_times_on_a_factor(share: float | None, expected: str, chinese: str) -> None:
    assert words.percent(share) == expected
    with translation.override("zh-hans"):
        assert words.percent(share) == chinese


@pytest.mark.django_db
def test_missing_limit_has_one_name_in_pages_messages_and_the_audit_log() -> None:
    vision, pool = make.department("vision"), make.pool("a100")
    limits = {"borrow_limit": None, "lend_limit": None}
    changed = AuditEntry(target="vision/a100", before={}, after=limits)
    requested = AuditEntry(target="", after={"pool": "a100", "wanted": "borrow_limit", "units": None, "before": 2})
    facts = {"department": vision.name, "pool": pool.name, "unit": "card", "guaranteed": 4, **limits}
    for language, borrow, lend, sentence in (
        ("en", "no limit", "all", "borrow limit: no limit, lend limit: all."),
        ("zh-hans", "无上限", "全部", "借用上限：无上限，借出上限：全部。"),
    ):
        with translation.override(language):
            assert [words.limit_in_words(name, None, "card") for name in limits] == [borrow, lend]
            assert notices.sentence("quota.changed", facts).endswith(sentence)
            reader = Reader([changed, requested])
            assert [row[1:] for row in reader.changes(changed)] == [("–", borrow), ("–", lend)]
            assert [after for _name, _before, after in reader.changes(requested)][2] == borrow
