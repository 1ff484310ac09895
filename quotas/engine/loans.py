"""Who lends to whom: the ledger's pairwise entry.

Borrowed units come first from the unpromised rest, then from the department with the largest idle lendable guarantee,
then by id; borrowers are served by start time, then id. What was lent before a lend limit fell is still its owner's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from quotas.engine.ledger import Ledger
from quotas.engine.recalls import standing_of
from quotas.engine.types import UNPROMISED, ClaimId, ClaimState, DepartmentId, PoolId, Snapshot
from quotas.engine.units import entered_at, stranded_units


@dataclass(frozen=True, slots=True)
class Entry:
    """Units that a claim counts for in its department; `order` says who came first."""

    claim: ClaimId
    department: DepartmentId
    units: int
    order: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Loan:
    """`units` that a claim of `borrower` uses above its department's guarantee, and whose they are ("" = nobody's)."""

    claim: ClaimId
    borrower: DepartmentId
    lender: DepartmentId
    units: int


def loans_of(snapshot: Snapshot, pool_id: PoolId) -> tuple[Loan, ...]:
    """Every loan of a pool as its holding claims stand. Raises StopIteration for an unknown pool."""
    pool = next(pool for pool in snapshot.pools if pool.id == pool_id)
    holding = [c for c in snapshot.claims if c.pool == pool_id and c.state is ClaimState.HOLDING]
    charges = standing_of(holding, snapshot.now, snapshot.departments).charges
    ledger = Ledger(pool, snapshot.departments, sum(stranded_units(pool, holding).values()))
    ledger.fill((claim.department, charges[claim.id]) for claim in holding)
    entries = [Entry(claim.id, claim.department, charges[claim.id], (0, entered_at(claim))) for claim in holding]
    borrower = {claim.id: claim.department for claim in holding}
    return tuple(
        Loan(claim, borrower[claim], lender, units)
        for claim, shares in sorted(lenders(ledger, entries).items())
        for lender, units in sorted(shares.items())
    )


def lenders(ledger: Ledger, entries: Iterable[Entry]) -> dict[ClaimId, Mapping[DepartmentId, int]]:
    """For each claim that borrows: {lender: units}. The ledger says what every department uses in the end; units that
    nobody has idle (a pool that became short) are counted to the unpromised rest."""
    rest = max(0, ledger.root.guaranteed)
    lendable, kept = _idle(ledger)
    found: dict[ClaimId, Mapping[DepartmentId, int]] = {}
    for claim, units in _borrowed(ledger, entries):
        shares: dict[DepartmentId, int] = {}
        taken = min(rest, units)
        rest -= taken
        _count(shares, UNPROMISED, taken)
        units -= taken
        units -= _take(lendable, units, shares)
        units -= _take(kept, units, shares)
        _count(shares, UNPROMISED, units)
        found[claim] = shares
    return found


Idle = list[tuple[int, DepartmentId]]
"""A heap of (−units, department): the largest first, then by id."""


def _idle(ledger: Ledger) -> tuple[Idle, Idle]:
    """What each department has idle: as far as its lend limit goes, and beyond."""
    lendable: Idle = []
    kept: Idle = []
    for department, account in ledger.accounts.items():
        idle = max(0, account.guaranteed - account.direct)
        limit = idle if account.quota.lend_limit is None else min(idle, account.quota.lend_limit)
        lendable.append((-limit, department))
        kept.append((limit - idle, department))
    heapify(lendable)
    heapify(kept)
    return lendable, kept


def _take(idle: Idle, units: int, shares: dict[DepartmentId, int]) -> int:
    """Takes up to `units` from who has most; returns how many."""
    left = units
    while left and idle and idle[0][0] < 0:
        free, department = heappop(idle)
        taken = min(-free, left)
        heappush(idle, (free + taken, department))
        _count(shares, department, taken)
        left -= taken
    return units - left


def _borrowed(ledger: Ledger, entries: Iterable[Entry]) -> list[tuple[ClaimId, int]]:
    """What each claim borrows, in the order of starting: a department's own units go to those who came first."""
    own = {department: account.guaranteed for department, account in ledger.accounts.items()}
    borrowed = []
    for entry in sorted(entries, key=lambda entry: (entry.order, entry.claim)):
        mine = min(own[entry.department], entry.units)
        own[entry.department] -= mine
        if entry.units > mine:
            borrowed.append((entry.claim, entry.units - mine))
    return borrowed


def _count(shares: dict[DepartmentId, int], lender: DepartmentId, units: int) -> None:
    if units:
        shares[lender] = shares.get(lender, 0) + units
