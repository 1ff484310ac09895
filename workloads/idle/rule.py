"""When work is idle by measurement, and how rules of several places combine. Pure.

Activity comes in buckets of five minutes. A bucket is *busy* if any rank reached the threshold, *idle* if every rank was
measured and none did, and otherwise *not known*. An idle spell is the time since the last busy bucket. What is not known
neither counts as idle nor ends the spell, because it may still be filled in; when as much as GAP is not known, it never
will be, and the spell ends there.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

BUCKET = dt.timedelta(minutes=5)
RECENT = BUCKET
"""A bucket that ended longer ago says nothing of now: the present one is measured each minute."""
GAP = dt.timedelta(hours=1)
"""So long missing measurements are made up for (workloads/measurement/buckets.py)."""


class Action(enum.StrEnum):
    """What is done about idle work, from the mildest to the strictest."""

    NOTHING = "nothing"
    WARN = "warn"
    BORROWED = "borrowed"  # stop what holds borrowed units, leave the rest alone
    STOP = "stop"

    @property
    def strictness(self) -> int:
        return tuple(Action).index(self)


@dataclass(frozen=True, slots=True)
class Rule:
    """For one kind of workload: idle is GPU activity `below` percent for `minutes`. It is then warned, and where the action says
    so stopped `countdown` minutes later; its *Keep it* puts that off once by `keep` minutes."""

    below: int = 5
    minutes: int = 180
    action: Action = Action.NOTHING
    countdown: int = 15
    keep: int = 240

    @property
    def length(self) -> dt.timedelta:
        return dt.timedelta(minutes=self.minutes)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Rule:
        return Rule(**{**values, "action": Action(values["action"])})

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "action": self.action.value}


LIMITS = {"below": (1, 50), "minutes": (10, 10_080), "countdown": (5, 1_440), "keep": (10, 4_320)}
"""The least and the most of each number of a rule."""
DEFAULT = Rule()
"""Where no rule is set nothing is done, but this still says what is idle: whose work is stopped first depends on it."""


@dataclass(frozen=True, slots=True)
class Looser:
    """A value of a rule that allows more than the wider rule does."""

    field: str
    own: int | Action
    wider: int | Action


def looser_than(wider: Rule, own: Rule) -> list[Looser]:
    """What a rule allows that the wider one does not; none if it is as strict or stricter everywhere."""
    both = combined([wider, own])
    values = [(field.name, getattr(own, field.name), getattr(wider, field.name)) for field in fields(Rule)]
    return [Looser(name, narrow, wide) for name, narrow, wide in values if narrow != getattr(both, name)]


def combined(rules: Iterable[Rule]) -> Rule | None:
    """The strictest value of each, so that a rule changed later at a wider place holds at once; None of no rules."""
    known = list(rules)
    if not known:
        return None
    return Rule(
        below=max(rule.below for rule in known),
        minutes=min(rule.minutes for rule in known),
        action=max((rule.action for rule in known), key=lambda action: action.strictness),
        countdown=min(rule.countdown for rule in known),
        keep=min(rule.keep for rule in known),
    )


@dataclass(frozen=True, slots=True)
class Bucket:
    """Five minutes from `at`. `most`: GPU activity of the busiest rank in percent, None if of no rank it is known;
    `complete`: it is known of every rank."""

    at: dt.datetime
    most: float | None
    complete: bool = True

    def is_busy(self, below: float) -> bool | None:
        """None: it is not known."""
        if self.most is not None and self.most >= below:
            return True
        return None if self.most is None or not self.complete else False


@dataclass(frozen=True, slots=True)
class Activity:
    """What a notebook's server says of people at work: a kernel that computes now, and the last message of a kernel or
    terminal (None: there was none)."""

    busy: bool
    last: dt.datetime | None = None


class Now(enum.StrEnum):
    BUSY = "busy"
    QUIET = "quiet"  # below the threshold, perhaps not for long
    PAUSED = "paused"  # was below it; not known at present
    UNKNOWN = "unknown"  # nothing is known


@dataclass(frozen=True, slots=True)
class Finding:
    """`since` and `measured` are of the spell: when it began, and how much of it was measured. None, 0: there is none."""

    now: Now
    since: dt.datetime | None = None
    measured: dt.timedelta = dt.timedelta(0)

    def is_idle(self, rule: Rule) -> bool:
        return self.now is Now.QUIET and self.measured >= rule.length


def judge(buckets: Iterable[Bucket], below: float, *, floor: dt.datetime, now: dt.datetime) -> Finding:
    """The spell that goes on now. `floor`: before it nothing counts (start of the run, end of the last spell)."""
    since, measured, reached = None, dt.timedelta(0), now
    current = Now.UNKNOWN
    for bucket in sorted(buckets, key=lambda each: each.at, reverse=True):
        begin, end = max(bucket.at, floor), min(bucket.at + BUCKET, now)
        busy = bucket.is_busy(below)
        if end <= begin or busy is None:
            continue
        if reached - end >= GAP:
            break
        if since is None:
            current = Now.PAUSED if now - end > RECENT else Now.BUSY if busy else Now.QUIET
        if busy:
            break
        since, measured, reached = begin, measured + (end - begin), begin
    if since is None and current is Now.PAUSED:  # busy when it was last seen: nothing to pause
        current = Now.UNKNOWN
    return Finding(current, since, measured)


def stopped_at(buckets: Iterable[Bucket], rule: Rule, *, floor: dt.datetime) -> dt.datetime | None:
    """When work with this history would have been stopped by the rule (or, where it only warns, warned) had nobody kept it;
    None: never."""
    measured, reached = dt.timedelta(0), floor
    warned: dt.datetime | None = None
    countdown = dt.timedelta(minutes=0 if rule.action is Action.WARN else rule.countdown)
    for bucket in sorted(buckets, key=lambda each: each.at):
        begin, end = max(bucket.at, floor), bucket.at + BUCKET
        busy = bucket.is_busy(rule.below)
        if end <= begin or busy is None:
            continue
        if busy or begin - reached >= GAP:
            measured, warned = dt.timedelta(0), None
        reached = end
        if busy:
            continue
        measured += end - begin
        warned = warned or (end if measured >= rule.length else None)
        if warned is not None and end >= warned + countdown:
            return end
    return None


def with_activity(finding: Finding, activity: Activity | None, now: dt.datetime) -> Finding:
    """The same of a notebook, whose people count too. `activity` None: its server did not say, so nothing is known."""
    if finding.now is not Now.QUIET or finding.since is None:
        return finding
    if activity is None:
        return Finding(Now.PAUSED, finding.since, finding.measured)
    if activity.busy:
        return Finding(Now.BUSY)
    since = max(finding.since, min(activity.last or finding.since, now))
    return Finding(Now.QUIET, since, min(finding.measured, now - since))
