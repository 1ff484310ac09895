"""Distances in time as pages first show them; static/portal.js keeps them right (tests/e2e/test_live.py)."""

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
def test_nothing_is_zero_seconds_away_and_the_future_never_lies_behind(language: str, seconds: float) -> None:
    with translation.override(language):
        behind = translation.gettext("%(time)s ago").replace("%(time)s", "").strip()
        moment = timezone.now() + dt.timedelta(seconds=seconds)
        for told in (text(ago(moment)), text(due(moment)), text(due(timezone.now() - dt.timedelta(seconds=seconds)))):
            assert behind not in told
        for told in (text(ago(timezone.now() - dt.timedelta(seconds=seconds))), text(ago(moment)), text(due(moment))):
            assert not re.search(r"\b0 ", told), told


def test_what_is_to_happen_is_now_once_its_time_has_come() -> None:
    assert text(due(timezone.now() - dt.timedelta(days=3))) == "now"
    assert text(due(timezone.now() + dt.timedelta(minutes=5, seconds=1))).startswith("in 5 min")
    assert text(ago(timezone.now())) == "just now"
    assert due(None) == ""
