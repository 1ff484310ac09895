"""The pairwise ledger: who uses whose units from when until when. Settled after every pass, from the claims as they are."""

from __future__ import annotations

import datetime as dt

from portal.models import Department
from quotas.engine.loans import loans
from quotas.engine.types import UNPROMISED
from quotas.models import OCCUPYING, Claim, LedgerEntry, PoolGroup
from quotas.snapshots import load_snapshot

Key = tuple[str, bool, str]  # claim, own, lender


def settle(group: PoolGroup, *, now: dt.datetime) -> int:
    """Ends the entries that are not so any more and begins the new ones, under the group's lock. Returns how many."""
    due: dict[Key, int] = {}
    for entry in loans(load_snapshot(group, now=now)):
        due[entry.claim, entry.own, "" if entry.lender == UNPROMISED else entry.lender] = entry.units
    changed = 0
    for row in LedgerEntry.objects.filter(pool__group=group, ended_at=None).select_related("claim", "lender"):
        key = (row.claim.public_id, row.own, row.lender.slug if row.lender else "")
        if due.get(key) == row.units:
            del due[key]
        else:
            LedgerEntry.objects.filter(pk=row.pk, ended_at=None).update(ended_at=max(now, row.started_at))
            changed += 1
    if not due:
        return changed
    claims = {c.public_id: c for c in Claim.objects.filter(public_id__in={k[0] for k in due}, state__in=OCCUPYING)}
    lenders = {d.slug: d for d in Department.objects.filter(slug__in={k[2] for k in due})}
    rows = [
        LedgerEntry(
            claim=claims[claim], pool_id=claims[claim].pool_id, department_id=claims[claim].department_id, own=own,
            lender=lenders.get(lender), units=units, started_at=now,
        )
        for (claim, own, lender), units in due.items() if claim in claims
    ]  # fmt: skip
    LedgerEntry.objects.bulk_create(rows)
    return changed + len(rows)
