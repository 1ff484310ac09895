"""The pairwise ledger: who uses whose units from when until when. Settled after every pass, from the claims as they are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from django.db.models import QuerySet

from portal.models import Department
from quotas.engine import types as e
from quotas.engine.loans import loans_of
from quotas.known import Rows
from quotas.models import OCCUPYING, Claim, LedgerEntry, PoolGroup
from quotas.snapshots import load_snapshot

Source = tuple[str, bool, str]  # claim, own, lender's slug ("" = own, or the unpromised rest)


def settle(group: PoolGroup, *, now: dt.datetime, known: e.Snapshot | None = None) -> int:
    """Ends the entries that are not so any more and begins the new ones, under the group's lock. Returns how many.

    `known` was loaded under the same lock: who occupies is among its claims, and only their states are read again."""
    snapshot = known or load_snapshot(group, now=now)
    occupying = Claim.objects.filter(pool__group=group, state__in=OCCUPYING).values_list("public_id", "state")
    states = {id: e.ClaimState(state) for id, state in occupying}
    claims_now = tuple(
        claim if claim.state is states[claim.id] else replace(claim, state=states[claim.id])
        for claim in snapshot.claims
        if claim.id in states
    )
    due = sources(replace(snapshot, claims=claims_now))
    changed = 0
    for pk, key, units, since in _entries(group):
        if due.get(key) == units:
            del due[key]
        else:
            LedgerEntry.objects.filter(pk=pk, ended_at=None).update(ended_at=max(now, since))
            changed += 1
    if not due:
        return changed
    claims = {c.public_id: c for c in Claim.objects.filter(public_id__in={k[0] for k in due}, state__in=OCCUPYING)}
    slugs = {k[2] for k in due if k[2]}
    lenders = {d.slug: d for d in Department.objects.filter(slug__in=slugs)} if slugs else {}
    rows = [
        LedgerEntry(
            claim=claims[claim], pool_id=claims[claim].pool_id, department_id=claims[claim].department_id, own=own,
            lender=lenders.get(lender), units=units, started_at=now,
        )
        for (claim, own, lender), units in due.items() if claim in claims
    ]  # fmt: skip
    LedgerEntry.objects.bulk_create(rows)
    return changed + len(rows)


Entry = tuple[int, Source, int, dt.datetime]  # primary key, whose, units, since


@cache
def _known(group_id: int) -> Rows:
    return Rows()


def _entries(group: PoolGroup) -> tuple[Entry, ...]:
    """Those that have not ended."""
    rows = LedgerEntry.objects.filter(pool__group=group, ended_at=None).order_by("pk")
    return _known(group.pk).read(rows, (), _read_entries)


def _read_entries(rows: QuerySet[LedgerEntry]) -> Iterator[tuple[int, Entry]]:
    columns = ("pk", "claim__public_id", "own", "lender__slug", "units", "started_at")
    for pk, claim, own, lender, units, since in rows.values_list(*columns):
        yield pk, (pk, (claim, own, lender or ""), units, since)


def sources(snapshot: e.Snapshot) -> dict[Source, int]:
    """Where the units come from that workloads occupy at this moment. Leaving ones occupy until they are gone; a recall
    that holds occupies nothing, but what it holds is not idle and so lent by nobody."""
    running = tuple(
        claim if claim.state is e.ClaimState.HOLDING else replace(claim, state=e.ClaimState.HOLDING)
        for claim in snapshot.claims
        if claim.state is e.ClaimState.HOLDING or (claim.state is e.ClaimState.LEAVING and not claim.is_recall)
    )
    occupied = replace(snapshot, claims=running)
    own = {claim.id: claim.units for claim in running if not claim.is_recall}
    found: dict[Source, int] = {}
    for pool in snapshot.pools:
        for loan in loans_of(occupied, pool.id):
            if loan.claim in own:
                found[loan.claim, False, loan.lender] = loan.units
                own[loan.claim] -= loan.units
    return found | {(claim, True, ""): units for claim, units in own.items() if units}
