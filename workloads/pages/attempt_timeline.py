"""All attempts of a workload on one time axis, drawn to scale."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils import timezone

from portal.text.timeline import Tick, Timeline
from portal.text.words import duration

DRAWN = 12
"""How many of the newest attempts the picture shows; the list below it has all."""
LEAST = 0.4  # percent of the width, so that a short phase is visible
ROW = 18  # pixels


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of an attempt; `label` is the translated name of its `code`."""

    code: str
    label: str
    began: dt.datetime
    ended: dt.datetime | None

    @property
    def lasted(self) -> dt.timedelta:
        return (self.ended or timezone.now()) - self.began


@dataclass(frozen=True, slots=True)
class Bar:
    code: str
    x: str
    width: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    number: int
    y: int
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class AttemptTimeline:
    begin: dt.datetime
    end: dt.datetime
    live: bool
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    height: int
    earlier: int  # attempts that are not drawn


def timeline_of(attempts: Sequence[tuple[int, Sequence[Phase]]]) -> AttemptTimeline | None:
    """The timeline of (number, phases), oldest attempt first; None if they cover less than a second."""
    drawn = [(number, phases) for number, phases in attempts if phases][-DRAWN:]
    if not drawn:
        return None
    begin = drawn[0][1][0].began
    ends = [phase.ended for _number, phases in drawn for phase in phases]
    live = None in ends
    end = timezone.now() if live else max(each for each in ends if each is not None)
    if end - begin < dt.timedelta(seconds=1):
        return None
    scale = Timeline(begin, timezone.localtime(end), 1.0)
    lanes = tuple(
        Lane(number, at * ROW, tuple(_bar(phase, scale) for phase in phases))
        for at, (number, phases) in enumerate(drawn)
    )
    return AttemptTimeline(begin, end, live, lanes, scale.ticks, len(lanes) * ROW, len(attempts) - len(drawn))


def _bar(phase: Phase, scale: Timeline) -> Bar:
    x, ends = (scale.x(at) / scale.width * 100 for at in (phase.began, phase.ended or scale.end))
    width = max(ends - x, LEAST)
    title = f"{phase.label} · {duration(phase.lasted)}"
    return Bar(phase.code, f"{min(x, 100 - width):.2f}%", f"{width:.2f}%", title)
