"""A pool with an idle policy, running workloads, and five-minute buckets of their measured use."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from portal.access import SYSTEM
from portal.models import Department, InboxItem, User
from quotas.models import Pool
from tests import builders as make
from workloads.idle.policies import row_of, set_policy
from workloads.idle.rule import BUCKET, Action, Activity, Rule
from workloads.models import Attempt, Image, MeasuredBucket, Workload
from workloads.reconciler import idle_rounds

HOUR = Rule(below=5, minutes=60, action=Action.STOP, countdown=15, keep=120)
MINUTE = dt.timedelta(minutes=1)


@dataclass
class IdleBed:
    """`now` is the clock of the rounds. The activity of notebooks that are not in `activity` is unknown."""

    pool: Pool
    vision: Department
    alice: User
    now: dt.datetime = field(default_factory=lambda: timezone.now().replace(second=0, microsecond=0))
    activity: dict[int, Activity] = field(default_factory=dict)

    def set(self, department: Department | None = None, **rules: Rule) -> None:
        version = row_of(self.pool, department).version
        set_policy(actor=SYSTEM, pool=self.pool, department=department, rules=rules, expected_version=version)

    def running(
        self, kind: str = "job", *, pods: int = 1, borrowed: int = 0, hours: float = 24, **fields: Any
    ) -> Attempt:
        image, _new = Image.objects.get_or_create(name="python:3.11", title="Python", interpreter="python")
        workload = Workload.objects.create(
            department=self.vision, author=self.alice, kind=kind, name=f"{kind}-{Workload.objects.count()}", pool=self.pool,
            image=image, pods=pods, units_per_pod=1, state="running", attempts_made=1, **fields,
        )  # fmt: skip
        claim = make.holding(
            self.vision, self.pool, own=pods - borrowed, borrowed={None: borrowed} if borrowed else {},
            workload=workload.public_id, user=self.alice, kind=kind,
        )  # fmt: skip
        return Attempt.objects.create(
            workload=workload, number=1, claim=claim, cluster=self.pool.group.cluster, run_name=f"w-{workload.public_id}-1",
            started_at=self.now - dt.timedelta(hours=hours), grace=30,
        )  # fmt: skip

    def measured(
        self, attempt: Attempt, *percent: float | None, rank: int = 0, until: dt.datetime | None = None
    ) -> None:
        """Adds buckets with these GPU percentages, the last of which ends at `until` (default: now); None: not measured."""
        first = (until or self.now) - BUCKET * len(percent)
        MeasuredBucket.objects.bulk_create(
            MeasuredBucket(attempt=attempt, rank=rank, at=first + BUCKET * n, gpu=round(value * 10), cards=1)
            for n, value in enumerate(percent)
            if value is not None
        )

    def quiet(self, attempt: Attempt, hours: float = 2) -> None:
        self.measured(attempt, *[0] * round(hours * 12))

    def pass_by(self, minutes: int, *quiet: Attempt, percent: float = 0) -> None:
        """Moves the clock in steps of five minutes, with a round in each; `quiet` attempts are measured with `percent`."""
        for _ in range(minutes // 5):
            self.now += BUCKET
            for attempt in quiet:
                self.measured(attempt, percent)
            self.round()

    def round(self) -> int:
        return idle_rounds.review(now=self.now)

    def notices(self) -> list[str]:
        return list(InboxItem.objects.order_by("pk").values_list("kind", flat=True))


def state_of(attempt: Attempt) -> str:
    return str(Workload.objects.get(pk=attempt.workload_id).state)
