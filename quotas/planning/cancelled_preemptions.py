"""Resumes victims whose beneficiary no longer exists, before anybody else can count on their units."""

from __future__ import annotations

from dataclasses import replace

from quotas.engine import types as e
from quotas.engine.quota_tree import usage_of
from quotas.models import Claim, ClaimState, PoolGroup


def resume_victims(group: PoolGroup, snapshot: e.Snapshot) -> tuple[e.Snapshot, tuple[e.ClaimId, ...]]:
    """The snapshot with these victims holding again, and their ids. Called under the group's lock.

    Only victims whose owner withdrew before their deadline, that no other claim waits for and that the quotas still
    allow.
    """
    victims = [
        claim for claim in snapshot.claims if claim.held_for is not None and (claim.leave_by or 0) > snapshot.now
    ]
    live = {claim.id for claim in snapshot.claims} if victims else set()
    called = {claim.id: claim for claim in victims if claim.held_for not in live}
    if not called:
        return snapshot, ()
    waiting = Claim.objects.filter(pool__group=group, state=ClaimState.PENDING).exclude(waiting_on=[])
    awaited = {id for ids in waiting.values_list("waiting_on", flat=True) for id in ids}
    books = {pool: usage_of(snapshot, pool) for pool in {claim.pool for claim in called.values()}}
    stay: dict[e.ClaimId, e.Claim] = {}
    for id, claim in sorted(called.items()):
        ledger = books[claim.pool]
        if id not in awaited and ledger.available(claim.department) >= claim.units:
            ledger.add(claim.department, claim.units)
            stay[id] = replace(claim, state=e.ClaimState.HOLDING, leave_by=None, held_for=None)
    return replace(snapshot, claims=tuple(stay.get(claim.id, claim) for claim in snapshot.claims)), tuple(stay)
