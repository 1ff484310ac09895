"""Recalls: claims without pods by which an owner reclaims guaranteed units and holds them until a given time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from django.db.models import QuerySet, Sum
from django.utils import timezone

from portal import audit
from portal.access import SYSTEM, Actor, Right
from portal.errors import N_, Invalid, Problem
from portal.ids import new_id
from portal.infra.locks import durable
from portal.models import Department
from portal.notify.events import emit
from portal.text.words import exact
from quotas.amounts import check_not_little
from quotas.engine import types as e
from quotas.models import LIVE_CLAIMS, WINDOW, Claim, Pool, Quota
from quotas.planning.claims import ask, release
from quotas.planning.lock import locked_group


class OfWindow(Problem):
    code = "of_lending_window"
    message = N_("This recall belongs to a lending window of %(department)s. Change the lending window instead.")


def create_recall(
    *,
    actor: Actor,
    department: Department,
    pool: Pool,
    units: int,
    until: dt.datetime | None,
    also: Callable[[Claim], None] | None = None,
    now: dt.datetime | None = None,
) -> Claim:
    """Recall `units` guaranteed units until a time (None: until withdrawn). `also` runs within the transaction. Raises
    Invalid, Forbidden."""
    actor.require(Right.STEER, department)
    now = now or timezone.now()
    check_end(until, now=now)
    check_not_little(units, pool)
    with durable():
        locked_group(pool.group_id)
        claim = ask_recall(actor, department, pool, units, until, now=now)
        audit.record(
            actor, "recall.asked", claim.public_id, department=department,
            after={"pool": pool.slug, "units": units, "until": until.isoformat() if until else None},
        )  # fmt: skip
        emit("recall.asked", department=department, recall=claim.public_id, pool=pool.slug, units=units)
        if also is not None:
            also(claim)
    return claim


def withdraw_recall(*, actor: Actor, claim: Claim) -> Claim:
    """End a recall: its units go back to the pool, and victims that still run continue. Raises Forbidden, OfWindow."""
    actor.require(Right.STEER, claim.department)
    if claim.is_of_window:
        raise OfWindow(department=claim.department.name)
    with durable():
        if end_recall(claim, now=timezone.now()):
            audit.record(actor, "recall.withdrawn", claim.public_id, department=claim.department)
            emit("recall.withdrawn", department=claim.department, recall=claim.public_id)
    claim.refresh_from_db()
    return claim


def ask_recall(
    actor: Actor, department: Department, pool: Pool, units: int, until: dt.datetime | None, *, now: dt.datetime
) -> Claim:
    """Create the claim of a recall. Call it with the group locked. Raises Invalid as check_recall does."""
    check_recall(department, pool, units)
    return ask(
        department=department, pool=pool, user=actor.user, name="recall", pods=0, units_per_pod=units, until=until,
        submitted_at=now, queued_at=now, preemptible=False, own_only=True,
    )  # fmt: skip


def check_recall(department: Department, pool: Pool, units: int) -> None:
    """Raise Invalid if `units` is more than is guaranteed and not yet recalled."""
    quota = Quota.objects.filter(department=department, pool=pool).first()
    guaranteed = quota.guaranteed if quota else 0
    running = live_recalls(department, pool).aggregate(total=Sum("units_per_pod"))["total"] or 0
    if units < 1 or units + running > guaranteed:
        most = max(guaranteed - running, 0)
        raise Invalid(
            N_("You can recall at most %(most_size)s (guaranteed: %(guaranteed_size)s, already being "
                "recalled: %(running_size)s)."),
            field="units", most=most, guaranteed=guaranteed, running=running, unit=pool.unit, most_size=exact(most, pool),
            guaranteed_size=exact(guaranteed, pool), running_size=exact(running, pool),
        )  # fmt: skip


def check_end(until: dt.datetime | None, *, now: dt.datetime) -> None:
    """Raise Invalid for an end in the past. None: until it is withdrawn."""
    if until is not None and until <= now:
        raise Invalid(N_("The end of the recall is in the past."), field="until")


def recall_for_engine(department: e.DepartmentId, pool: e.PoolId, units: int, now: int) -> e.Claim:
    """A hypothetical recall, for a preview of what it would do."""
    return e.Claim(
        e.ClaimId(new_id()),
        department,
        pool,
        units,
        e.ClaimState.PENDING,
        now,
        pods=0,
        preemptible=False,
        own_only=True,
    )


def live_recalls(department: Department, pool: Pool | None = None) -> QuerySet[Claim]:
    recalls = Claim.objects.filter(department=department, pods=0, state__in=LIVE_CLAIMS)
    return recalls if pool is None else recalls.filter(pool=pool)


def end_recall(claim: Claim, *, now: dt.datetime) -> bool:
    return claim.is_recall and release(claim, now=now)


def of_windows(department: Department, pool: Pool) -> QuerySet[Claim]:
    """Live recalls that closing lending windows have created, in the department and those below it."""
    below = [department.pk]
    for pk in below:  # grows during the loop
        below += Department.objects.filter(parent=pk).values_list("pk", flat=True)
    return Claim.objects.filter(department__in=below, pool=pool, pods=0, name=WINDOW, state__in=LIVE_CLAIMS)


def end_windows(department: Department, pool: Pool, *, now: dt.datetime) -> None:
    """End the recalls of lending windows after a change of the windows: the next pass creates those that are due."""
    for claim in of_windows(department, pool):
        release(claim, now=now)


def end_overdue(*, now: dt.datetime) -> int:
    """End recalls whose time is over, each in its own transaction. Returns their number."""
    overdue = Claim.objects.filter(pods=0, state__in=LIVE_CLAIMS, until__lte=now).select_related("pool", "department")
    ended = 0
    for claim in overdue:
        with durable():
            if end_recall(claim, now=now):
                audit.record(SYSTEM, "recall.ended", claim.public_id, department=claim.department)
                emit("recall.ended", department=claim.department, recall=claim.public_id)
                ended += 1
    return ended
