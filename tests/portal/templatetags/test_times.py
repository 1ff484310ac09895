"""Relative times as pages first show them; static/portal.js keeps them up to date (tests/e2e/test_live.py)."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.utils import timezone, translation

from portal.templatetags.portal import ago, due


def text(tag: object) -> str:
    return re.sub(r"<[^>]+>", "", str(tag))


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.4, 0.999, 1.0, 1.5, 59.9, 60, 3600, 86400 * 40])
def test_relative_time_is_never_zero_and_a_future_one_never_in_the_past(language: str, seconds: float) -> None:
    with translation.override(language):
        behind = translation.gettext("%(time)s ago").replace("%(time)s", "").strip()
        moment = timezone.now() + dt.timedelta(seconds=seconds)
        for shown in (text(ago(moment)), text(due(moment)), text(due(timezone.now() - dt.timedelta(seconds=seconds)))):
            assert behind not in shown
        for shown in (text(ago(timezone.now() - dt.timedelta(seconds=seconds))), text(ago(moment)), text(due(moment))):
            assert not re.search(r"\b0 ", shown), shown


def test_due_time_is_shown_as_now_once_it_has_passed() -> None:
    assert text(due(timezone.now() - dt.timedelta(days=3))) == "now"
    assert text(due(timezone.now() + dt.timedelta(minutes=5, seconds=1))).startswith("in 5 min")
    assert text(ago(timezone.now())) == "just now"
    assert due(None) == ""
