"""What a replay comes to: each job and what has become of it, each department and what it used."""

import math
from collections import Counter
from dataclasses import dataclass, field

from quotas.engine.types import DepartmentId, PoolId
from workloads.replay.demand import Job

PERIODS = 120


@dataclass(slots=True)
class Record:
    """What has become of a job. Times in seconds since 1970; `lost` counts the seconds that it ran in vain.

    `inside` says whether it was inside its department's guarantee when it came (None: it was never looked at). `late` is by how
    much its longest wait inside exceeded what is promised (None: it never waited inside), and `broken` whether it started later
    than it had been told.
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
        """Seconds until it started for the first time; those that never did have waited `until` now."""
        return (until if self.first_start is None else self.first_start) - self.job.request.submitted_at


@dataclass(slots=True)
class Line:
    """A department's use of a pool in which one unit is so many `cards`: units now, and unit-seconds so far. `due` is what it
    could have used of its guarantee, `served` what it did use of that. `lent` is counted where there are balances. `course` has
    what was (used, borrowed, waited) at the end of each period of the outcome."""

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
    """A replay from `begin` to `end` in pools of so many `cards`. `idle` counts card-seconds that nobody used while somebody
    waited, by (rule, department that waits). A `period` is so many seconds, the last one ends with the replay."""

    begin: int
    end: int
    cards: float
    records: list[Record]
    lines: list[Line]
    idle: Counter[tuple[str, DepartmentId]] = field(default_factory=Counter)
    passes: int = 0
    period: int = field(init=False)

    def __post_init__(self) -> None:
        """The shortest of some full hours of which there are no more than PERIODS."""
        hours = math.ceil((self.end - self.begin) / 3600)
        self.period = 3600 * next(
            (each for each in (1, 2, 3, 6, 12, 24) if hours <= each * PERIODS), -(-hours // PERIODS)
        )

    def pass_time(self, since: int, until: int) -> None:
        """Of all lines, from one moment to another."""
        while since < until:
            ends = min(self.end, since - (since - self.begin) % self.period + self.period)
            for line in self.lines:
                line.pass_time(min(ends, until) - since)
                if ends <= until:
                    line.course.append((line.used, line.borrowed, line.waited))
            since = min(ends, until)
