"""Changes of claims outside a plan: created, leaving, released. Freeing capacity needs no lock.

The functions run in the caller's transaction. `mark_leaving` and `release` are compare-and-set and may be called twice.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.db.models import F
from django.db.models.functions import Greatest

from portal.background.hints import wake
from portal.prepared import insert
from quotas.models import Claim, ClaimState, LedgerEntry, PoolGroup


def ask(**fields: Any) -> Claim:
    """Create a pending claim, which the next pass answers."""
    if fields.get("user"):
        fields["person"] = fields["user"].username
    claim = insert(Claim(**fields))
    wake("quotas.plan", group_id=claim.pool.group_id)
    return claim


def mark_leaving(claim: Claim, *, now: dt.datetime) -> bool:
    """Mark that SIGTERM is being sent, which cannot be undone. True if the claim occupied capacity and was not marked yet."""
    changed = Claim.objects.filter(
        pk=claim.pk, state__in=[ClaimState.HOLDING, ClaimState.LEAVING], term_at=None
    ).update(state=ClaimState.LEAVING, term_at=now, leave_by=now)
    return bool(changed)


def release(claim: Claim, *, now: dt.datetime) -> bool:
    """Free what the claim held, or end its request. True the first time."""
    if (
        not Claim.objects.filter(pk=claim.pk)
        .exclude(state=ClaimState.RELEASED)
        .update(state=ClaimState.RELEASED, released_at=now, reserved=None, position=None, ahead=[])
    ):
        return False
    # Not before its start, which may come from a process whose clock is ahead.
    LedgerEntry.objects.filter(claim=claim, ended_at=None).update(ended_at=Greatest(F("started_at"), now))
    wake("quotas.plan", group_id=claim.pool.group_id)
    return True


def wake_all() -> None:
    """Wake the planning of all pool groups, after a change that affects every pool (a paused department, a weight)."""
    for pk in PoolGroup.objects.values_list("pk", flat=True):
        wake("quotas.plan", group_id=pk)
