"""Actions of people and pipelines on workloads. Each is one transaction with its audit entry."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import orjson
from django.db.models import F
from django.utils import timezone

from portal import audit
from portal.access import Actor, NotVisible, Right
from portal.background.hints import wake
from portal.errors import N_, Invalid, Problem
from portal.infra import versions
from portal.infra.crypt import encrypt
from portal.infra.locks import durable
from portal.models import Department
from portal.notify.events import emit
from portal.prepared import insert
from quotas.models import Claim, ClaimState
from quotas.planning import claims
from workloads.clusters.run_spec import digest, hidden_of
from workloads.lifecycle import Event, State
from workloads.models import Attempt, Kind, Workload
from workloads.reconciler.transitions import new_attempt, record_event, record_ready
from workloads.requests.request import LONGEST, WorkloadRequest, claim_fields
from workloads.requests.token_budgets import refuse_used_up
from workloads.requests.validation import check
from workloads.requests.verdict import refuse_crowding, refuse_impossible

NORMAL_PRIORITY = 0


SUBMIT_THERE = N_("It was not submitted through the portal. Submit it again with the tool that created it.")


class AlreadyFinished(Problem):
    code = "already_finished"
    message = N_("%(name)s has already ended: %(state)s.")


def submit(
    *,
    actor: Actor,
    department: Department,
    request: WorkloadRequest,
    before: Callable[[Workload], None] | None = None,
    also: Callable[[Workload], None] | None = None,
    now: dt.datetime | None = None,
) -> Workload:
    """Queue a workload. `also` runs inside the transaction (to store the answer of an idempotency key). `before` runs ahead of
    it: it may call the cluster (to put files into the working directory), and if it raises, no workload is created.

    Raises Forbidden, InvalidRequest (every fault), Impossible (above the ceiling, with the largest that could run),
    TokenUsedUp.
    """
    actor.require(Right.SUBMIT, department)
    now = now or timezone.now()
    highest = 2**31 - 1 if actor.may(Right.OPERATE, department) else NORMAL_PRIORITY
    check(request, department, highest_priority=highest)
    refuse_crowding(actor)
    refuse_used_up(actor, now=now)
    workload = request.workload(department, actor.user, now=now)
    workload.token = actor.token
    refuse_impossible(workload, request, now=now)
    if before is not None:
        before(workload)
    with durable():
        if request.secret_env:
            workload.secret_env = encrypt(orjson.dumps(request.secret_env).decode())
        workload.attempts_made = 1
        insert(workload)
        attempt = new_attempt(workload, claims.ask(**claim_fields(workload)), number=1, now=now)
        workload.known_attempts = [attempt]  # type: ignore[attr-defined] # so that the API needs no query for it
        audit.record(actor, "workload.submitted", workload.public_id, department=department, after=_asked(workload))
        emit("workload.queued", department=department, workload=workload.public_id, attempt=1)
        if also is not None:
            also(workload)
    return workload


def _asked(workload: Workload) -> dict[str, Any]:
    return {
        "name": workload.name, "kind": workload.kind, "pool": workload.pool.slug, "pods": workload.pods,
        "units_per_pod": workload.units_per_pod, "image": workload.image.name,
    }  # fmt: skip


def cancel(*, actor: Actor, workload: Workload, now: dt.datetime | None = None) -> Workload:
    """Request a stop: a queued workload ends at once, a running one gets SIGTERM and its grace. Raises AlreadyFinished."""
    actor.require_own_or_steer(workload.department, workload.author)
    now = now or timezone.now()
    with durable():
        live = Workload.objects.filter(pk=workload.pk, finished_at=None, cancel_requested_at=None)
        if live.update(cancel_requested_at=now, cancelled_by=actor.user, version=F("version") + 1):
            audit.record(actor, "workload.stopped", workload.public_id, department=workload.department)
            wake("workloads.converge", workload=workload.public_id)
    workload.refresh_from_db()
    if workload.is_final:
        raise AlreadyFinished(name=workload.name, state=workload.state)
    attempt = live_attempt(workload)
    if attempt is not None and workload.state == State.QUEUED and attempt.claim.state == ClaimState.PENDING:
        record_event(attempt, Event.CANCEL, now=now)
        workload.refresh_from_db()
    return workload


def live_attempt(workload: Workload) -> Attempt | None:
    rows = Attempt.objects.select_related(
        "workload__pool", "workload__department", "workload__author", "claim", "cluster"
    )
    return rows.filter(workload=workload, finished_at=None).first()


def request_of(workload: Workload) -> WorkloadRequest:
    """The request that would create the same workload again, for a rerun or as the initial values of a form. Raises Invalid for
    a workload that was not submitted through the portal."""
    if workload.kind == Kind.EXTERNAL:
        raise Invalid(SUBMIT_THERE, code="submitted_elsewhere")
    return WorkloadRequest(
        kind=workload.kind,
        name=workload.name,
        pool=workload.pool,
        image=workload.image,
        command=tuple(workload.command),
        env=workload.env,
        secret_env=hidden_of(workload),
        pods=workload.pods,
        units_per_pod=workload.asked_per_pod or workload.units_per_pod,
        cores_per_pod=workload.cores_per_pod,
        profile=workload.profile,
        cpu_milli=workload.cpu_milli,
        memory_mib=workload.memory_mib,
        priority=min(workload.priority, NORMAL_PRIORITY),
        max_runtime=workload.max_runtime,
        max_wait=workload.max_wait,
        own_only=workload.own_only,
        preemptible=workload.preemptible,
        setup=workload.settings,
        preset=workload.preset,
        rerun_of=workload,
    )


def rerun(*, actor: Actor, workload: Workload, also: Callable[[Workload], None] | None = None) -> Workload:
    """Submit the same request again as a new workload of the actor. Raises Invalid if another author's has secret variables."""
    request = request_of(workload)
    if request.secret_env and (actor.user is None or workload.author_id != actor.user.pk):
        raise Invalid(N_("It has secret variables, so only its author can run it again."), code="has_secrets")
    return submit(actor=actor, department=workload.department, request=request, also=also)


def extend(*, actor: Actor, workload: Workload, seconds: int) -> Workload:
    """Extend the maximum runtime of each attempt. Raises AlreadyFinished, Invalid (no limit, or beyond the longest),
    TokenUsedUp."""
    actor.require_own_or_steer(workload.department, workload.author)
    refuse_used_up(actor, now=timezone.now())
    with durable():
        row = Workload.objects.select_for_update(no_key=True, of=("self",)).get(pk=workload.pk)
        if row.is_final:
            raise AlreadyFinished(name=row.name, state=row.state)
        if row.max_runtime is None:
            raise Invalid(N_("It has no time limit, so there is nothing to extend."), code="no_limit")
        if not (seconds > 0 and row.max_runtime + seconds <= LONGEST):
            raise Invalid(
                N_("Its maximum runtime is %(limit)s s and can be at most %(most)s s: extend by up to %(left)s "
                    "s."),
                field="seconds", limit=row.max_runtime, most=LONGEST, left=LONGEST - row.max_runtime,
            )  # fmt: skip
        before, after = row.max_runtime, row.max_runtime + seconds
        Workload.objects.filter(pk=row.pk).update(max_runtime=after, version=F("version") + 1)
        Claim.objects.filter(attempt__workload=row).exclude(state=ClaimState.RELEASED).update(max_runtime=after)
        audit.record(
            actor, "workload.extended", row.public_id, department=row.department,
            before={"max_runtime": before}, after={"max_runtime": after},
        )  # fmt: skip
        emit("workload.extended", department=row.department, workload=row.public_id, max_runtime=after)
        wake("quotas.plan", group_id=row.pool.group_id)
    workload.refresh_from_db()
    return workload


def leave_now(*, actor: Actor, workload: Workload, now: dt.datetime | None = None) -> Workload:
    """During notice, a person reports that the work is saved and the workload may be stopped now. Raises Invalid."""
    actor.require_own_or_steer(workload.department, workload.author)
    attempt = live_attempt(workload)
    if attempt is None or workload.state != State.RECALLED:
        raise Invalid(N_("It is not being recalled."), code="not_recalled")
    record_ready(attempt, now=now or timezone.now(), by=actor)
    workload.refresh_from_db()
    return workload


def say_ready(*, workload_id: str, token: str, now: dt.datetime | None = None) -> Attempt:
    """During notice, the container reports that its checkpoint is written and it may be stopped now.

    `token` is the attempt's own ready token. Raises NotVisible unless it is that of the workload's live attempt,
    Invalid when no recall is under way.
    """
    rows = Attempt.objects.select_related(
        "workload__pool", "workload__department", "workload__author", "claim", "cluster"
    )
    attempt = rows.filter(workload__public_id=workload_id, token_digest=digest(token), finished_at=None).first()
    if attempt is None or not token:
        raise NotVisible
    if attempt.workload.state not in {State.RECALLED, State.STOPPING}:
        raise Invalid(N_("It is not being recalled."), code="not_recalled")
    record_ready(attempt, now=now or timezone.now())
    return attempt


def sharing_values(workload: Workload) -> dict[str, Any]:
    """The values that the sharing button's version mark covers."""
    return {"shared": workload.shared}


def set_shared(*, actor: Actor, workload: Workload, shared: bool, seen: str = "") -> Workload:
    """Allow or forbid other members of the department to open a notebook; for its author only. Raises NotVisible, Invalid,
    Conflict."""
    if actor.user is None or workload.author_id != actor.user.pk or workload.kind != Kind.NOTEBOOK:
        raise NotVisible
    actor.require(Right.SUBMIT, workload.department)
    if shared and workload.settings.user_volume:
        raise Invalid(
            N_("It mounts your personal volume, which other members of the department may not access."),
            code="user_volume",
        )
    with durable():
        stored = Workload.objects.select_for_update(no_key=True).get(pk=workload.pk)
        versions.check(sharing_values(stored), seen)
        if Workload.objects.filter(pk=workload.pk, shared=not shared).update(shared=shared, version=F("version") + 1):
            audit.record(
                actor, "workload.shared", workload.public_id, department=workload.department, after={"shared": shared}
            )
    workload.refresh_from_db()
    return workload
