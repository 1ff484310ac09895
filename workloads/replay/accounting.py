"""The raw results of a replay: the outcome of each job, and the use of each department."""

import math
from collections import Counter
from dataclasses import dataclass, field

from quotas.engine.types import DepartmentId, PoolId
from workloads.replay.demand import Job

PERIODS = 120


@dataclass(slots=True)
class Record:
    """The outcome of a job. Times are in seconds since 1970; `lost` are the seconds of work that it lost.

    `inside`: whether it was inside its department's guaranteed quota when it was first planned (None: it never was). `late`: by
    how many seconds its longest wait inside exceeded the promised time (None: it never waited inside). `broken`: whether it
    started later than promised to it.
    """

    job: Job
    attempts: int = 0
    recalls: int = 0
    lost: int = 0
    first_start: int | None = None
    finished_at: int | None = None
    refused: bool = False
    inside: bool | None = None
    late: int | None = None
    broken: bool = False

    def waited(self, until: int) -> int:
        """Seconds until its first start or, if it has not started, until the time `until`."""
        return (until if self.first_start is None else self.first_start) - self.job.request.submitted_at


@dataclass(slots=True)
class Line:
    """A department's use of a pool: units now, and unit-seconds so far. One unit is `cards` cards. `due` is what it could have
    used of its guaranteed quota, `served` what it did use of that. `lent` is counted in pools with balances, or if the simulation
    counts it in all. `course` has (used, borrowed, waited) so far at the end of each period of the outcome."""

    department: DepartmentId
    pool: PoolId
    guaranteed: int
    cards: float
    used_now: int = 0
    waiting_now: int = 0
    used: int = 0
    borrowed: int = 0
    lent: int = 0
    waited: int = 0
    lost: int = 0
    due: int = 0
    served: int = 0
    course: list[tuple[int, int, int]] = field(default_factory=list)

    def pass_time(self, seconds: int) -> None:
        used, due = self.used_now, min(self.guaranteed, self.used_now + self.waiting_now)
        self.used += used * seconds
        self.borrowed += max(0, used - self.guaranteed) * seconds
        self.waited += self.waiting_now * seconds
        self.due += due * seconds
        self.served += min(used, due) * seconds


@dataclass(slots=True)
class Outcome:
    """A replay from `begin` to `end` (seconds since 1970) in pools with `cards` cards together. `idle` counts the card-seconds
    that were unused while a department waited, by (rule, waiting department). `period` is the length of a period in seconds;
    the last one ends with the replay."""

    begin: int
    end: int
    cards: float
    records: list[Record]
    lines: list[Line]
    idle: Counter[tuple[str, DepartmentId]] = field(default_factory=Counter)
    passes: int = 0
    period: int = field(init=False)

    def __post_init__(self) -> None:
        """Sets `period` to the shortest of some whole hours with which there are at most PERIODS periods."""
        hours = math.ceil((self.end - self.begin) / 3600)
        self.period = 3600 * next(
            (each for each in (1, 2, 3, 6, 12, 24) if hours <= each * PERIODS), -(-hours // PERIODS)
        )

    def pass_time(self, since: int, until: int) -> None:
        """Counts the use of all lines from `since` until `until`."""
        while since < until:
            ends = min(self.end, since - (since - self.begin) % self.period + self.period)
            for line in self.lines:
                line.pass_time(min(ends, until) - since)
                if ends <= until:
                    line.course.append((line.used, line.borrowed, line.waited))
            since = min(ends, until)
