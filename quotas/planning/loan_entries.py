"""The ledger: who uses whose units from when until when. It is settled after each pass, from the claims as they are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from django.db.models import F, Q
from django.db.models.functions import Greatest

from portal.models import Department
from portal.prepared import write_each
from quotas.engine import types as e
from quotas.engine.quota_tree import loans_in_use
from quotas.models import OCCUPYING, Claim, LedgerEntry, PoolGroup
from quotas.planning.snapshot import load_snapshot

Source = tuple[str, bool, str]  # claim, own, lender's slug ("" = own, or unassigned capacity)


def settle(group: PoolGroup, *, now: dt.datetime) -> int:
    """End entries that no longer apply and begin new ones. Call it with the group locked. Returns how many changed."""
    return settle_as(group, load_snapshot(group, now=now), (), now=now)


def settle_as(group: PoolGroup, snapshot: e.Snapshot, new: Iterable[Claim], *, now: dt.datetime) -> int:
    """The same as `settle`, from a snapshot that was loaded under the same lock and the claims admitted since.

    Claims released since are still in the snapshot: no entries begin for them, and their entries ended on release.
    """
    admitted = {claim.public_id: (claim.pk, claim.pool_id, claim.department_id) for claim in new}
    claims_now = tuple(
        replace(claim, state=e.ClaimState.HOLDING) if claim.id in admitted else claim
        for claim in snapshot.claims
        if claim.state is not e.ClaimState.PENDING or claim.id in admitted
    )
    units_by_source = sources(replace(snapshot, claims=claims_now))
    due, over = dict(units_by_source), []
    changed = set()
    for pk, key, units in _entries(group):
        if due.get(key) == units:
            del due[key]
        else:
            over.append(pk)
            changed.add(key[0])
    _divide(changed | {claim for claim, _, _ in due} - admitted.keys(), units_by_source)
    if over:  # not before their start, which may come from a process whose clock is ahead
        LedgerEntry.objects.filter(pk__in=over, ended_at=None).update(ended_at=Greatest(F("started_at"), now))
    return len(over) + (_begin(due, admitted, over, now) if due else 0)


def _divide(changed: Collection[str], units_by_source: Mapping[Source, int]) -> None:
    """Write how many units of these claims are own and borrowed from now on, which may differ from when they were admitted."""
    shares = {claim: [0, 0] for claim, _, _ in units_by_source if claim in changed}
    for (claim, own, _), units in units_by_source.items():
        if claim in shares:
            shares[claim][0 if own else 1] += units
    if shares:
        occupying = Claim.objects.filter(public_id__in=shares, state__in=OCCUPYING)
        rows = occupying.values_list("pk", "public_id", "own", "borrowed")
        write_each(Claim, ("own", "borrowed"), [(pk, shares[id]) for pk, id, *before in rows if before != shares[id]])


def _begin(
    due: Mapping[Source, int], admitted: Mapping[str, tuple[int, int, int]], over: Collection[int], now: dt.datetime
) -> int:
    """Begin entries. `over`: ids of the entries that have just ended."""
    claims = dict(admitted)  # public id → (claim, pool, department)
    if others := {claim for claim, _, _ in due} - set(admitted):
        occupying = Claim.objects.filter(public_id__in=others, state__in=OCCUPYING)
        rows = occupying.values_list("public_id", "pk", "pool_id", "department_id")
        claims |= {id: (pk, pool, department) for id, pk, pool, department in rows}
    slugs = {lender for _, _, lender in due if lender}
    lenders = dict(Department.objects.filter(slug__in=slugs).values_list("slug", "pk")) if slugs else {}
    entries = [
        LedgerEntry(
            claim_id=claims[claim][0], pool_id=claims[claim][1], department_id=claims[claim][2], own=own,
            lender_id=lenders.get(lender), units=units, started_at=now,
        )
        for (claim, own, lender), units in due.items() if claim in claims
    ]  # fmt: skip
    _continue_loans([entry for entry in entries if not entry.own], over)
    LedgerEntry.objects.bulk_create(entries)
    return len(entries)


def _continue_loans(new: Collection[LedgerEntry], over: Collection[int]) -> None:
    """Set `lent_since` of new entries to the start of a loan between the same departments in the same pool that runs or has
    just ended (`over`): other claims may use the units without interrupting the loan."""
    if not new:
        return
    before = LedgerEntry.objects.filter(
        Q(ended_at=None) | Q(pk__in=over), pool__in={entry.pool_id for entry in new}, own=False,
        department__in={entry.department_id for entry in new},
    )  # fmt: skip
    since: dict[tuple[int, int, int | None], dt.datetime] = {}
    for row in before.only("pool", "department", "lender", "started_at", "lent_since"):
        pair, begun = (row.pool_id, row.department_id, row.lender_id), row.lent_since or row.started_at
        since[pair] = min(since.get(pair, begun), begun)
    for entry in new:
        entry.lent_since = since.get((entry.pool_id, entry.department_id, entry.lender_id))


Entry = tuple[int, Source, int]  # primary key, whose, units


def _entries(group: PoolGroup) -> Iterator[Entry]:
    """The open entries of the group's pools."""
    rows = LedgerEntry.objects.filter(pool__group=group, ended_at=None).order_by("pk")
    for pk, claim, own, lender, units in rows.values_list("pk", "claim__public_id", "own", "lender__slug", "units"):
        yield pk, (claim, own, lender or ""), units


def sources(snapshot: e.Snapshot) -> dict[Source, int]:
    """(claim, own, lender) → units: the source of the units that workloads occupy now."""
    running = (claim for claim in snapshot.claims if claim.state is not e.ClaimState.PENDING and not claim.is_recall)
    own = {claim.id: claim.units for claim in running}
    units_by_source: dict[Source, int] = {}
    for pool in snapshot.pools:
        for loan in loans_in_use(snapshot, pool.id):
            units_by_source[loan.claim, False, loan.lender] = loan.units
            own[loan.claim] -= loan.units
    return units_by_source | {(claim, True, ""): units for claim, units in own.items() if units}
