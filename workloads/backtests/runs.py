"""Backtests in the database: requested by people, run by workers, cancelled.

All state is in the row. The worker that runs a backtest updates `beat_at` every few seconds. When that stops, the next beat
starts it again from the beginning, with the same result; after a few tries it fails.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import structlog
from django.db import IntegrityError
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from portal import audit
from portal.access import Actor, NotVisible, Right
from portal.background.hints import wake
from portal.errors import N_, Invalid, Problem
from portal.infra.locks import durable
from portal.models import User
from quotas.models import PoolGroup
from workloads.backtests import draft
from workloads.configuration import plan
from workloads.models import Backtest, BacktestState
from workloads.replay.figures import Figures, figures_of
from workloads.replay.history import Terms, attempts_of, demand_of
from workloads.replay.simulation import Simulation
from workloads.replay.ways import planner

MOST_DAYS = 92
MOST_WORKLOADS = 20_000
KEPT = dt.timedelta(days=365)
SILENT = dt.timedelta(seconds=60)  # after that its worker counts as lost
MOST_TRIES = 3
AT_MOST = 1800.0  # s of CPU time
BEAT = 2.0  # s
LIVE = Q(state__in=[BacktestState.QUEUED, BacktestState.RUNNING])
log = structlog.get_logger(__name__)


class OneAtATime(Problem):
    code = "one_at_a_time"
    message = N_("You already have a backtest running. Wait for it, or cancel it.")


class TooManyWorkloads(Invalid):
    code = "too_many_workloads"
    message = N_("%(workloads)s workloads ran in these days; at most %(most)s can be replayed. Choose fewer days.")


class NothingRan(Invalid):
    code = "nothing_ran"
    message = N_("Nothing ran in these days. Choose more days.")


class IsOver(Problem):
    code = "is_over"
    message = N_("This backtest has ended already.")


class TookTooLong(Problem):
    code = "took_too_long"
    message = N_("It took more than %(minutes)s minutes of computing time. Choose fewer days.")


def may_ask(actor: Actor, group: PoolGroup) -> bool:
    """Whether the actor may request backtests: operators, and owners of a department with quota in one of the pools."""
    if actor.sees_all:
        return actor.may(Right.STEER, None)
    owned = actor.owned.filter(quotas__pool__group=group)
    return any(actor.may(Right.STEER, pk) for pk in owned.values_list("pk", flat=True).distinct())


def seen(actor: Actor) -> QuerySet[Backtest]:
    """The backtests of which the actor may see figures: operators all, owners those of pools in which one of their departments
    has quota."""
    rows = Backtest.objects.select_related("group", "author")
    if actor.sees_all:
        return rows
    return rows.filter(group__pools__quotas__department__in=actor.owned).distinct()


def ask(
    *, actor: Actor, group: PoolGroup, text: str, days: int, now: dt.datetime | None = None,
    also: Callable[[Backtest], None] = lambda row: None,
) -> Backtest:  # fmt: skip
    """Requests a backtest of the last `days` under a draft. `also` runs inside the transaction. Raises NotVisible, OneAtATime,
    TooManyWorkloads, NothingRan, NothingChanges and as draft.read."""
    if not may_ask(actor, group):
        raise NotVisible
    changes = draft.changes_of(draft.read(text, group))
    end = (now or timezone.now()).replace(second=0, microsecond=0)
    begin = end - dt.timedelta(days=days)
    workloads = attempts_of(group, begin, end).values("workload").distinct().count()
    if workloads > MOST_WORKLOADS:
        raise TooManyWorkloads(field="days", workloads=workloads, most=MOST_WORKLOADS)
    if not attempts_of(group, begin, end).filter(started_at__isnull=False).exists():
        raise NothingRan(field="days")
    listed = [[change.name, change.before, change.after] for change in changes]
    try:
        with durable():
            row = Backtest.objects.create(
                group=group, author=actor.user, begin=begin, end=end, draft=text, changes=listed
            )
            audit.record(actor, "backtest.asked", row.public_id, after={"group": group.name, "days": days})
            also(row)
            wake("workloads.backtest")
    except IntegrityError as error:
        raise OneAtATime from error
    return row


def author_for(actor: Actor, row: Backtest) -> User | None:
    """The author, shown to the author and to operators only: owners may not know the people of other departments."""
    own = actor.user is not None and row.author_id == actor.user.pk
    return row.author if own or actor.sees_all else None


def may_cancel(actor: Actor, row: Backtest) -> bool:
    """Whether the actor may cancel it: the author, or an operator."""
    return author_for(actor, row) is not None and may_ask(actor, row.group)


def cancel(*, actor: Actor, row: Backtest) -> None:
    """Cancels a backtest that waits or runs. Raises NotVisible, IsOver."""
    if not may_cancel(actor, row):
        raise NotVisible
    with durable():
        if not _end(row, LIVE, state=BacktestState.CANCELLED):
            raise IsOver
        audit.record(actor, "backtest.cancelled", row.public_id)


def discard_old(*, now: dt.datetime) -> None:
    Backtest.objects.filter(asked_at__lt=now - KEPT).exclude(LIVE).delete()


def figures_for(actor: Actor, row: Backtest) -> dict[str, Figures]:
    """The figures that the actor may see, by "now" and "draft": of all departments together, and of each department that the
    actor owns (operators: of all)."""
    result = row.result or {}
    slugs = None if actor.sees_all else set(actor.owned.values_list("slug", flat=True))
    return {
        name: figures | {"departments": {
            slug: each for slug, each in figures["departments"].items() if slugs is None or slug in slugs
        }}
        for name in ("now", "draft") if (figures := result.get(name))
    }  # fmt: skip


# The worker -----------------------------------------------------------------------------------------------------------


class NotOurs(Exception):
    """The backtest was cancelled, or taken over by another worker."""


def run_next(*, now: dt.datetime) -> None:
    """Runs the oldest backtest that waits or whose worker is lost. Only one runs at a time, as each takes a whole processor."""
    live = Backtest.objects.filter(LIVE)
    abandoned = Q(state=BacktestState.RUNNING, beat_at__lt=now - SILENT)
    for lost in live.filter(abandoned, tries__gte=MOST_TRIES):
        _fail(lost, N_("The worker that played it ended %(tries)s times before it was done."), tries=lost.tries)
    if live.filter(state=BacktestState.RUNNING).exclude(abandoned).exists():
        return
    row = live.filter(abandoned | Q(state=BacktestState.QUEUED)).order_by("asked_at", "pk").first()
    if row is None:
        return
    taken = live.filter(pk=row.pk, state=row.state, beat_at=row.beat_at)
    if taken.update(state=BacktestState.RUNNING, beat_at=now, percent=0, tries=F("tries") + 1):
        row.refresh_from_db()
        _play(row)
        wake("workloads.backtest")  # the next one


def _play(row: Backtest) -> None:
    began = time.monotonic()
    try:
        result = _result(row, Beat(row))
    except NotOurs:
        log.info("backtest.left", backtest=row.public_id)
        return
    except plan.Refused as refused:
        _fail(row, N_("The draft no longer applies: %(why)s"), why=str(refused.errors[0]))
        return
    except Problem as problem:
        _fail(row, problem.message, **problem.numbers)
        return
    except Exception:
        _fail(row, N_("It failed unexpectedly. Operators find the reason in the log."))
        raise
    _end(row, Q(tries=row.tries), state=BacktestState.DONE, percent=100, result=result)
    log.info("backtest.done", backtest=row.public_id, took_s=round(time.monotonic() - began))


def _result(row: Backtest, beat: Beat) -> dict[str, Any]:
    """The figures under the present rules and under the draft."""
    now, then = Terms.of(row.group), draft.terms_of(row.group, draft.read(row.draft, row.group))
    played: dict[str, Any] = {}
    for part, (name, terms) in enumerate((("now", now), ("draft", then))):
        demand, played["unknown"] = demand_of(row.group, row.begin, row.end, terms.pools)
        simulation = Simulation(
            terms.snapshot(row.begin), demand, planner, terms.assumed(row.begin),
            calendar=terms.calendar(row.begin, row.end), counts_lent=True,
        )  # fmt: skip
        played[name] = _figures(simulation, beat, part)
    return played


def _figures(simulation: Simulation, beat: Beat, part: int) -> Figures:
    def progress(share: float) -> None:
        beat.percent = round(50 * (part + share))

    return figures_of(simulation.play(progress, beat), with_course=True)


class Beat:
    """Called in every step of a replay: every few seconds updates `beat_at` and the progress. Always returns False, so that it
    does not end the replay. Raises NotOurs, TookTooLong."""

    def __init__(self, row: Backtest) -> None:
        self.percent = 0
        self._last, self._computed = time.monotonic(), time.thread_time()
        self._ours = Backtest.objects.filter(pk=row.pk, state=BacktestState.RUNNING, tries=row.tries)

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._last >= BEAT:
            self._last = now
            if not self._ours.update(beat_at=timezone.now(), percent=self.percent):
                raise NotOurs
            if time.thread_time() - self._computed > AT_MOST:  # CPU time does not depend on other load
                raise TookTooLong(minutes=round(AT_MOST / 60))
        return False


def _fail(row: Backtest, message: str, **params: Any) -> None:
    _end(row, Q(tries=row.tries), state=BacktestState.FAILED, why={"message": message, "params": params})


def _end(row: Backtest, still: Q, **fields: Any) -> bool:
    """Ends the backtest. False if it has already ended or was taken over."""
    return bool(Backtest.objects.filter(LIVE & still, pk=row.pk).update(ended_at=timezone.now(), **fields))
