"""Rows of workload lists, read in a constant number of queries; and access to a single workload."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils import timezone

from portal.access import Actor, NotVisible, Right, department_for, visible
from portal.models import Department
from portal.text import words
from quotas.models import Claim, ClaimState
from workloads.estimates.words import in_a_list, start_lines
from workloads.lifecycle import State
from workloads.measurement.history import low_use
from workloads.models import TEXTS, Attempt, IdleSpell, StartEstimate, Workload
from workloads.status.attempts import estimate_of, idle_spell, known_attempts, with_attempts


def workload_for(actor: Actor, slug: str, public_id: str, right: Right = Right.SEE) -> tuple[Department, Workload]:
    """A workload of a department in which the actor has this right. Raises NotVisible, Forbidden."""
    department = department_for(actor, slug, right)
    rows = Workload.objects.select_related(
        "department", "author", "pool", "image", "preset", "rerun_of", "cancelled_by"
    )
    workload = rows.filter(department=department, public_id=public_id).first()
    if workload is None:
        raise NotVisible
    return department, workload


@dataclass(frozen=True)
class Row:
    """A workload with its newest attempt and that attempt's claim."""

    workload: Workload
    attempt: Attempt | None
    low: float | None = None  # share of recent time in which its cards computed; None if that is not low

    @property
    def claim(self) -> Claim | None:
        return self.attempt.claim if self.attempt else None

    @property
    def idle(self) -> IdleSpell | None:
        return idle_spell(self.workload)

    @property
    def on_cluster(self) -> bool:
        return self.workload.state in (State.ADMITTED, State.STARTING, State.RUNNING, State.RECALLED, State.STOPPING)

    @property
    def own(self) -> int:
        return self.claim.own if self.claim and self.on_cluster else 0

    @property
    def borrowed(self) -> int:
        return self.claim.borrowed if self.claim and self.on_cluster else 0

    @property
    def position(self) -> int | None:
        """Its position in the queue; None if it is not waiting."""
        waits = (
            self.workload.state == State.QUEUED and self.claim is not None and self.claim.state == ClaimState.PENDING
        )
        return self.claim.position if self.claim and waits else None

    @property
    def promised_at(self) -> dt.datetime | None:
        """When it starts at the latest, while it waits for capacity that is being released for it."""
        return self.claim.promised_at if self.claim and self.position else None

    @property
    def estimate(self) -> StartEstimate | None:
        """The estimated start, if none is promised."""
        return None if self.promised_at else estimate_of(self.workload)

    @property
    def start(self) -> str:
        """The estimate in a few words; "" if there is none."""
        return in_a_list(self.estimate) if self.estimate else ""

    @property
    def start_in_full(self) -> str:
        return words.sentences(start_lines(self.estimate)) if self.estimate else ""

    @property
    def reclaim_at(self) -> dt.datetime | None:
        """When SIGTERM will be sent, during notice."""
        return self.attempt.reclaim_at if self.attempt and self.workload.state == State.RECALLED else None

    @property
    def ends_at(self) -> dt.datetime | None:
        return ends_at(self.workload, self.attempt)


def ends_at(workload: Workload, attempt: Attempt | None) -> dt.datetime | None:
    """When a running workload reaches its maximum runtime; None if it is not running or has none."""
    if workload.state not in (State.RUNNING, State.RECALLED) or workload.max_runtime is None:
        return None
    if attempt is None or attempt.started_at is None:
        return None
    return attempt.started_at + dt.timedelta(seconds=workload.max_runtime)


def rows_of(workloads: QuerySet[Workload]) -> list[Row]:
    """The rows of `workloads`. All are read into memory: pass a page of them."""
    listed = list(with_attempts(workloads.defer(*TEXTS)))
    newest = [(workload, attempts[-1] if (attempts := known_attempts(workload)) else None) for workload in listed]
    low = low_use(newest, now=timezone.now())
    return [Row(workload, attempt, low.get(workload.pk)) for workload, attempt in newest]


def seen(actor: Actor) -> QuerySet[Workload]:
    return visible(actor, Workload.objects.all())
