"""Demand: the jobs, what each requests and when, and how long it runs."""

from dataclasses import dataclass

from quotas.engine.types import Claim, DepartmentId


@dataclass(frozen=True, slots=True)
class Job:
    """A workload that is submitted at `request.submitted_at` and needs `work` seconds in all. It saves a checkpoint every
    `checkpoint_every` seconds of progress (0: never; None: as the replay assumes) and, with `saves_on_notice`, also when it is
    preempted."""

    request: Claim
    work: int
    checkpoint_every: int | None = None
    saves_on_notice: bool = False


@dataclass(frozen=True, slots=True)
class Demand:
    """The jobs that are submitted from `begin` until `end` (seconds since 1970). A job that was running before is submitted at
    `begin`, with the rest of its work."""

    begin: int
    end: int
    jobs: tuple[Job, ...]

    def units_in_use(self) -> dict[DepartmentId, float]:
        """Department → mean number of units in use if every job started at once."""
        means: dict[DepartmentId, float] = {}
        for job in self.jobs:
            runs = min(job.work, self.end - job.request.submitted_at)
            department = job.request.department
            means[department] = means.get(department, 0.0) + job.request.units * runs / (self.end - self.begin)
        return dict(sorted(means.items()))
