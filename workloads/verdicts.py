"""What would happen if this were submitted: the engine asked with one claim more. Nothing is written."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from portal.access import Actor
from portal.errors import N_, Invalid
from portal.ids import new_id
from portal.models import Department
from quotas.engine import types as e
from quotas.engine.admission import decide
from quotas.models import Claim, ClaimState
from quotas.snapshots import claim_of, load_snapshot
from workloads.requests import WorkloadRequest


class Impossible(Invalid):
    """Above the ceiling, or larger than any node; `largest` is the biggest request that could run."""

    code = "impossible"
    message = N_("%(department)s can never have %(asked)s %(unit)s of %(pool)s at once. Largest that can: %(largest)s.")


def refuse_impossible(department: Department, request: WorkloadRequest, actor: Actor, *, now: dt.datetime) -> None:
    """Raises Impossible. Looks at the rules and nodes only, not at the load, so it costs the same on a full cluster."""
    asked = claim_of(_claim(department, request, actor, now))
    snapshot = load_snapshot(request.pool.group, now=now, claims=False)
    [answer] = decide(replace(snapshot, claims=(asked,))).decisions
    if answer.decision is e.DecisionKind.IMPOSSIBLE:
        raise Impossible(
            field="units_per_pod", department=department.name, asked=asked.units, unit=request.pool.unit,
            pool=request.pool.name, largest=answer.largest or 0,
        )  # fmt: skip


def _claim(department: Department, request: WorkloadRequest, actor: Actor, now: dt.datetime) -> Claim:
    """The claim a submission would make; never saved."""
    return Claim(
        public_id=new_id(),
        department=department,
        pool=request.pool,
        user=actor.user,
        name=request.name,
        pods=request.pods,
        units_per_pod=request.charge,
        profile=request.profile,
        cpu_milli=request.cpu_milli,
        memory_mib=request.memory_mib,
        priority=request.priority,
        own_only=request.own_only,
        max_runtime=request.max_runtime,
        state=ClaimState.PENDING,
        submitted_at=now,
        queued_at=now,
    )
