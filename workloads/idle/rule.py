"""When a workload is idle by its measurements, and how the rules of a pool and departments combine. Pure.

Activity is measured in buckets of five minutes. A bucket is *busy* if any rank reached the threshold, *idle* if every rank was
measured and none did, and otherwise *unknown*. An idle spell is the time since the last busy bucket. An unknown bucket neither
counts as idle nor ends the spell, because measurements may still be filled in; a gap of GAP or longer is never filled in, and
ends the spell.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

BUCKET = dt.timedelta(minutes=5)
RECENT = BUCKET
"""A bucket that ended longer ago does not tell the present activity: the present bucket is measured every minute."""
GAP = dt.timedelta(hours=1)
"""Missing measurements are filled in for at most this long (workloads/measurement/buckets.py)."""


class Action(enum.StrEnum):
    """What is done about an idle workload, from the mildest to the strictest."""

    NOTHING = "nothing"
    WARN = "warn"
    BORROWED = "borrowed"  # stop what holds borrowed units, leave the rest alone
    STOP = "stop"

    @property
    def strictness(self) -> int:
        return tuple(Action).index(self)


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for one kind of workload: it is idle when its GPU activity was `below` percent for `minutes`. It is then warned
    and, depending on the action, stopped `countdown` minutes later. *Keep it* postpones that once, by `keep` minutes."""

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
"""The least and the largest value of each number of a rule."""
DEFAULT = Rule()
"""The definition of idle where no rule is set. It has no action, but the choice of workloads to preempt uses it."""


@dataclass(frozen=True, slots=True)
class Looser:
    """A value of a rule that is looser than that of the wider rule."""

    field: str
    own: int | Action
    wider: int | Action


def looser_than(wider: Rule, own: Rule) -> list[Looser]:
    """The values of `own` that are looser than those of `wider`."""
    both = combined([wider, own])
    values = [(field.name, getattr(own, field.name), getattr(wider, field.name)) for field in fields(Rule)]
    return [Looser(name, narrow, wide) for name, narrow, wide in values if narrow != getattr(both, name)]


def combined(rules: Iterable[Rule]) -> Rule | None:
    """The rule with the strictest of all values; None if there are no rules. It is computed anew each time, so a change of a
    wider rule takes effect at once."""
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
    """Five minutes from `at`. `most` is the GPU activity of the busiest rank in percent, None if no rank was measured;
    `complete`: every rank was measured."""

    at: dt.datetime
    most: float | None
    complete: bool = True

    def is_busy(self, below: float) -> bool | None:
        """Whether a rank reached the threshold `below`; None: unknown."""
        if self.most is not None and self.most >= below:
            return True
        return None if self.most is None or not self.complete else False


@dataclass(frozen=True, slots=True)
class Activity:
    """What a notebook's server reports: whether a kernel is busy, and the time of the last activity of a kernel or terminal
    (None: there was none)."""

    busy: bool
    last: dt.datetime | None = None


class Now(enum.StrEnum):
    BUSY = "busy"
    QUIET = "quiet"  # below the threshold, perhaps not for long
    PAUSED = "paused"  # was below it; at present unknown
    UNKNOWN = "unknown"  # not measured


@dataclass(frozen=True, slots=True)
class Finding:
    """The present activity, and the idle spell: `since` is when it began, `measured` how much of it was measured. Without a
    spell these are None and 0."""

    now: Now
    since: dt.datetime | None = None
    measured: dt.timedelta = dt.timedelta(0)

    def is_idle(self, rule: Rule) -> bool:
        return self.now is Now.QUIET and self.measured >= rule.length


def judge(buckets: Iterable[Bucket], below: float, *, floor: dt.datetime, now: dt.datetime) -> Finding:
    """The present activity and idle spell. Nothing before `floor` counts (start of the run, or end of the last spell)."""
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
    if since is None and current is Now.PAUSED:  # busy when last measured: there is no spell
        current = Now.UNKNOWN
    return Finding(current, since, measured)


def stopped_at(buckets: Iterable[Bucket], rule: Rule, *, floor: dt.datetime) -> dt.datetime | None:
    """When the rule would have stopped (if it only warns: warned) a workload with this history that nobody kept; None: never."""
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
    """The finding for a notebook, where the activity of its user counts too. `activity` None: its server did not respond, so the
    present activity is unknown."""
    if finding.now is not Now.QUIET or finding.since is None:
        return finding
    if activity is None:
        return Finding(Now.PAUSED, finding.since, finding.measured)
    if activity.busy:
        return Finding(Now.BUSY)
    since = max(finding.since, min(activity.last or finding.since, now))
    return Finding(Now.QUIET, since, min(finding.measured, now - since))
