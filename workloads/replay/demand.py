"""Demand: who asks for what, when, and how long it runs once it has it."""

from dataclasses import dataclass

from quotas.engine.types import Claim, DepartmentId


@dataclass(frozen=True, slots=True)
class Job:
    """A workload that comes at `request.submitted_at` and has `work` seconds to run in all. It saves a checkpoint every
    `checkpoint_every` seconds of progress (0: never; None: as the replay assumes), and if it `saves_on_notice` also when it is
    preempted."""

    request: Claim
    work: int
    checkpoint_every: int | None = None
    saves_on_notice: bool = False


@dataclass(frozen=True, slots=True)
class Demand:
    """The jobs that come from `begin` until `end`, in seconds since 1970. What ran already when it began comes at `begin`, with
    the rest of its work."""

    begin: int
    end: int
    jobs: tuple[Job, ...]

    def units_in_use(self) -> dict[DepartmentId, float]:
        """The mean number of units in use by department, had everybody always got at once what they asked for."""
        means: dict[DepartmentId, float] = {}
        for job in self.jobs:
            runs = min(job.work, self.end - job.request.submitted_at)
            department = job.request.department
            means[department] = means.get(department, 0.0) + job.request.units * runs / (self.end - self.begin)
        return dict(sorted(means.items()))
