"""Who lends to whom: the ledger's pairwise entry.

Nearest first: a team borrows what its siblings leave idle, then what was promised to their parent itself, then the same one level
further out, as far as every department on the way lends; the unpromised rest, the outermost, comes last. A department without
parent takes the unpromised rest first: nobody gives up anything for that. On one level who has the most idle gives first, then
by id; borrowers are served by start time, then id. What was lent before a lend limit fell is still its owner's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from quotas.engine.ledger import Account, Ledger
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
    idle = Idle(ledger)
    found: dict[ClaimId, Mapping[DepartmentId, int]] = {}
    for claim, department, units in _borrowed(ledger, entries):
        shares: dict[DepartmentId, int] = {}
        account = ledger[department]
        units -= idle.lend(account, units, shares, within_limits=True)
        units -= idle.lend(account, units, shares, within_limits=False)
        _count(shares, UNPROMISED, units)
        found[claim] = shares
    return found


class Idle:
    """What every department has idle, and how much of that it may lend: to whom, says the tree."""

    def __init__(self, ledger: Ledger) -> None:
        self._accounts = ledger.accounts
        self._idle = {id: max(0, account.guaranteed - account.direct) for id, account in ledger.accounts.items()}
        self._lendable = {id: _lendable(account) for id, account in ledger.accounts.items()}
        self._rest = max(0, ledger.root.guaranteed)
        self._below: dict[tuple[DepartmentId, bool], list[tuple[int, DepartmentId]]] = {}

    def lend(self, borrower: Account, units: int, shares: dict[DepartmentId, int], within_limits: bool) -> int:
        """Counts up to `units` in `shares`, the nearest lenders first, `within_limits` or beyond them; returns how many."""
        left, above = units, borrower.parent
        if above is not None and above.parent is None:
            left -= self._rest_of(left, shares)
        while left and above is not None:
            left -= self._most_idle(above, left, shares, within_limits)
            if above.parent is None:
                left -= self._rest_of(left, shares)
            else:
                left -= self._take(above, min(left, self._idle[above.id]), above, shares)
            above = above.parent
        return units - left

    def _rest_of(self, units: int, shares: dict[DepartmentId, int]) -> int:
        """Takes up to `units` of the unpromised rest."""
        taken = min(self._rest, units)
        self._rest -= taken
        _count(shares, UNPROMISED, taken)
        return taken

    def _most_idle(self, above: Account, units: int, shares: dict[DepartmentId, int], within_limits: bool) -> int:
        """Takes up to `units` of the departments below `above`, of who has the most idle first."""
        left, heap = units, self._heap(above, within_limits)
        while left and heap:
            least, department = heappop(heap)
            lender = self._accounts[department]
            most = self._most(lender, above, within_limits)
            if most <= 0:
                continue  # it never becomes more
            if most == -least:
                taken = self._take(lender, min(left, most), above, shares)
                left, most = left - taken, most - taken
            heappush(heap, (-most, department))
        return units - left

    def _heap(self, above: Account, within_limits: bool) -> list[tuple[int, DepartmentId]]:
        """The departments below, who may give most first: or could, when this was asked last."""
        key = above.id, within_limits
        if key not in self._below:
            below = [*above.children]
            for account in below:
                below.extend(account.children)
            self._below[key] = [(-self._most(account, above, within_limits), account.id) for account in below]
            heapify(self._below[key])
        return self._below[key]

    def _most(self, lender: Account, above: Account, within_limits: bool) -> int:
        """How much the department may lend to who stands elsewhere below `above`."""
        most, account = self._idle[lender.id], lender
        while within_limits and account is not above and account.parent is not None:
            most, account = min(most, self._lendable[account.id]), account.parent
        return most

    def _take(self, lender: Account, units: int, above: Account, shares: dict[DepartmentId, int]) -> int:
        """The department lends so many units to who stands elsewhere below `above`."""
        self._idle[lender.id] -= units
        account = lender
        while account is not above and account.parent is not None:
            self._lendable[account.id] -= units
            account = account.parent
        _count(shares, lender.id, units)
        return units


def _lendable(account: Account) -> int:
    """What of a department and its teams together others outside may use."""
    left = max(0, account.subtree - account.usage)
    return left if account.quota.lend_limit is None else min(left, account.quota.lend_limit)


def _borrowed(ledger: Ledger, entries: Iterable[Entry]) -> list[tuple[ClaimId, DepartmentId, int]]:
    """What each claim borrows, in the order of starting: a department's own units go to those who came first."""
    own = {department: account.guaranteed for department, account in ledger.accounts.items()}
    borrowed = []
    for entry in sorted(entries, key=lambda entry: (entry.order, entry.claim)):
        mine = min(own[entry.department], entry.units)
        own[entry.department] -= mine
        if entry.units > mine:
            borrowed.append((entry.claim, entry.department, entry.units - mine))
    return borrowed


def _count(shares: dict[DepartmentId, int], lender: DepartmentId, units: int) -> None:
    if units:
        shares[lender] = shares.get(lender, 0) + units
