"""The quota tree of one pool: who may take how much, what recalls keep, and who lends to whom.

The formulas are those of docs/quota-rules-reference.md, "The arithmetic" (Kueue's nominal quota, borrowing limit,
lending limit and cohorts). A `Ledger` is working state of a planning pass: `add` and `remove` change usage at a cost of one
step for each ancestor, without summing again. `ShareChange` compares victim sets under fair sharing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, total_ordering
from heapq import heapify, heappop, heappush
from itertools import zip_longest
from math import lcm

from quotas.engine.types import (
    UNASSIGNED,
    Claim,
    ClaimId,
    ClaimState,
    Department,
    DepartmentId,
    Pool,
    PoolId,
    Quota,
    Snapshot,
)
from quotas.engine.units import capacity_of, entered_at, stranded_units

# Accounts -------------------------------------------------------------------------------------------------------------

Share = int
"""How much a department borrows relative to its weight and to the most that its parent could have, in a unit common to all
accounts of one ledger, so that shares compare exactly."""
WEIGHTLESS = 40
"""A borrowed unit of a department with weight 0 counts 2 to the power of this times the largest pace of the others."""
THOUSAND = 1000
NO_QUOTA = Quota()


class Account:
    """One department in the pool. Values derived from quotas are set once; the ledger changes `usage`.
    `promised` is its own guarantee plus what its teams lend of theirs, `kept` the part of it that it does not lend, `usage`
    what it and its teams use together, counting of each team only what is beyond what that keeps. `ceiling` is the most that it
    could have of an empty pool at nominal capacity, `present_ceiling` at present capacity. `pace` is what one borrowed unit adds
    to its share. `balance` is what it and its teams have borrowed lately minus what they have lent, in thousandths; what they
    lent to each other cancels out.
    """

    __slots__ = (
        "balance", "ceiling", "children", "guaranteed", "id", "kept", "pace", "parent", "present_ceiling", "promised", "quota",
        "usage", "weight",
    )  # fmt: skip

    def __init__(self, id: DepartmentId, quota: Quota, weight: Fraction | int) -> None:
        self.id, self.quota, self.guaranteed, self.weight = id, quota, quota.guaranteed, weight
        self.parent: Account | None = None
        self.children: list[Account] = []
        self.promised = self.kept = self.usage = self.ceiling = self.present_ceiling = self.pace = self.balance = 0

    @property
    def direct(self) -> int:
        """What the department uses itself, without its teams."""
        return self.usage - sum(max(0, child.usage - child.kept) for child in self.children)

    @property
    def own_left(self) -> int:
        """How much more it may take inside its guarantee; negative if it borrows. A department with teams may take its own
        guarantee, as far as its teams do not use it."""
        left = self.promised - self.usage
        return min(left, self.guaranteed - self.direct) if self.children else left

    @property
    def borrowable(self) -> int | None:
        """How much more its own borrow limit lets it take from above (None: no limit)."""
        if self.quota.borrow_limit is None:
            return None
        return self.promised - self.kept - max(0, self.usage - self.kept) + self.quota.borrow_limit

    def upwards(self) -> Iterator[Account]:
        """The department and those above it, without the root."""
        account = self
        while account.parent is not None:
            yield account
            account = account.parent


@dataclass(frozen=True, slots=True)
class PassedLimit:
    """An account that would borrow `asked` units, more than its borrow `limit`."""

    account: Account
    limit: int
    asked: int


class Ledger:
    """The accounts of one pool under a virtual root, which has the unassigned capacity. `above`: departments that use more than
    they are promised; `keepers`: those that do not lend all; `moved`: those whose usage has changed since the caller last
    cleared it. `stranded` units (units.py) are charged to departments, but take nothing of the present capacity."""

    def __init__(self, pool: Pool, departments: Iterable[Department], stranded: int = 0) -> None:
        departments = tuple(departments)
        self.capacity = capacity_of(pool, departments)
        self.nominal = self.capacity if pool.nominal is None else pool.nominal
        self.accounts = {d.id: Account(d.id, d.quotas.get(pool.id, NO_QUOTA), d.weight) for d in departments}
        promised = sum(account.guaranteed for account in self.accounts.values())
        self.root = Account(UNASSIGNED, Quota(self.capacity + stranded - promised), 1)
        for department in departments:
            account = self.accounts[department.id]
            account.parent = self.root if department.parent is None else self.accounts[department.parent]
            account.parent.children.append(account)
        self.above: set[DepartmentId] = set()
        self.moved: set[DepartmentId] = set()
        self.flat = all(department.parent is None for department in departments)
        _set_promises(self.root)
        self.keepers = [account for account in self.accounts.values() if account.kept]
        _set_ceilings(self.root, self.root.promised - stranded, lost=self.nominal - self.capacity)
        if any(account.quota.lend_limit_most is not None for account in self.accounts.values()):
            widest = Ledger(pool, (_widest(department, pool.id) for department in departments))
            for account in (self.root, *self.accounts.values()):
                account.ceiling = widest.accounts.get(account.id, widest.root).ceiling
        _set_paces(self.accounts.values())
        self.balanced = pool.balances is not None
        for id, balance in (pool.balances or {}).items():
            for account in self.accounts[id].upwards():
                account.balance += balance

    def __getitem__(self, department: DepartmentId) -> Account:
        return self.accounts[department]

    def is_overcommitted(self) -> bool:
        """Whether claims use and have reserved more together than the pool has."""
        return self.root.usage > self.root.promised

    def add(self, department: DepartmentId, units: int) -> None:
        """Charge `units` (negative: give them back) to the department and, above what each keeps, to its ancestors."""
        self.moved.add(department)
        self.charge(department, units)

    def remove(self, department: DepartmentId, units: int) -> None:
        self.add(department, -units)

    def fill(self, charges: Iterable[tuple[DepartmentId, int]]) -> None:
        """Charge many claims at once: (department, units) each."""
        sums: dict[DepartmentId, int] = {}
        for department, units in charges:
            sums[department] = sums.get(department, 0) + units
        for department, units in sums.items():
            self.add(department, units)

    def charge(self, department: DepartmentId, units: int) -> None:
        """As `add`, but not recorded in `moved`: for a trial, which undoes it."""
        charged = self.accounts[department]
        account: Account | None = charged
        while account is not None and units:
            before = account.usage - account.kept
            account.usage += units
            after = before + units
            units = (after if after > 0 else 0) - (before if before > 0 else 0)  # max() costs as much as all the rest
            account = account.parent
        if charged.usage > charged.promised:
            self.above.add(department)
        else:
            self.above.discard(department)

    def available(self, department: DepartmentId) -> int:
        """Units that the department may still take by quota; negative if a limit is already exceeded."""
        return _available(self.accounts[department])

    def inside(self, department: DepartmentId, units: int) -> bool:
        """Whether `units` more stay inside the department's guarantee."""
        return units <= self.accounts[department].own_left

    def passed_limit(self, department: DepartmentId, units: int) -> PassedLimit | None:
        """The nearest borrow limit, of the department or one above it, that `units` more would exceed, whatever is free."""
        for account in self.accounts[department].upwards():
            limit, borrowed = account.quota.borrow_limit, account.usage + units - account.promised
            if limit is not None and borrowed > limit:
                return PassedLimit(account, limit, borrowed)
            units = max(0, account.usage + units - account.kept) - max(0, account.usage - account.kept)
        return None

    def balance_after(self, account: Account, units: int) -> Share:
        """The account's balance after taking `units` more: what it then borrows counts as if it had been borrowed lately. Up to
        what it has lent, a unit counts as one; what is borrowed beyond counts relative to the weight, as in a share."""
        net = account.balance + THOUSAND * max(0, account.usage + units - account.promised)
        return net * account.pace if net > 0 else net


def share(account: Account, usage: int) -> Share:
    """The account's share if it used so many units."""
    borrowed = usage - account.promised
    return borrowed * account.pace if borrowed > 0 else 0


def _available(account: Account) -> int:
    more, most = 0, None
    while account.parent is not None:
        kept, limit = account.kept - account.usage, account.borrowable
        if kept > 0:
            more += kept
        if limit is not None and (most is None or more + limit < most):
            most = more + limit
        account = account.parent
    units = more + account.promised - account.usage
    return units if most is None or units < most else most


def _downwards(root: Account) -> list[Account]:
    """Every account, parents before their children."""
    accounts = [root]
    for account in accounts:
        accounts.extend(account.children)
    return accounts


def _set_promises(root: Account) -> None:
    for account in reversed(_downwards(root)):
        account.promised = account.guaranteed + sum(child.promised - child.kept for child in account.children)
        if account.quota.lend_limit is not None:
            account.kept = max(0, account.promised - account.quota.lend_limit)


def _set_ceilings(root: Account, present: int, lost: int) -> None:
    """Set the ceilings with the `present` units only, and with the `lost` ones too."""
    root.present_ceiling, root.ceiling = present, present + lost
    for parent in _downwards(root):
        for child in parent.children:
            limit = child.quota.borrow_limit
            most = parent.ceiling if limit is None else child.promised - child.kept + limit
            child.ceiling = child.kept + min(parent.ceiling, most)
            child.present_ceiling = child.kept + min(parent.present_ceiling, most)


def _widest(department: Department, pool: PoolId) -> Department:
    """The department while its lending window is at its widest."""
    quota = department.quotas.get(pool, NO_QUOTA)
    most = quota.lend_limit if quota.lend_limit_most is None else quota.lend_limit_most
    widest = replace(quota, lend_limit=most, lend_limit_most=None)
    return replace(department, quotas={**department.quotas, pool: widest})


def _set_paces(accounts: Collection[Account]) -> None:
    """A borrowed unit counts 1 ÷ (weight × the parent's ceiling), times the smallest number that makes all of these integers."""
    worth = {a.id: Fraction(a.weight) * a.parent.ceiling for a in accounts if a.parent is not None}
    scale = lcm(*(one.numerator for one in worth.values() if one > 0))
    paces = {id: scale * one.denominator // one.numerator for id, one in worth.items() if one > 0}
    without = max(paces.values(), default=1) << WEIGHTLESS
    for account in accounts:
        account.pace = paces.get(account.id, without)


# Recalls --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Standing:
    """What each holding claim of a pool is charged, taking recalls into account.
    A recall of N units is charged N minus what workloads of its department, or of those below, draw from it if they started
    later; when they end, it is charged again. `drawing` are those workloads: they use recalled units and are never victims. Of
    each department, `recalls` are those from which claims may draw, oldest first, and `left` the units left of them. From a
    recall that began in this pass, claims draw only later.
    """

    charges: dict[ClaimId, int] = field(default_factory=dict)
    left: dict[DepartmentId, int] = field(default_factory=dict)
    recalls: dict[DepartmentId, list[Claim]] = field(default_factory=dict)
    drawing: set[ClaimId] = field(default_factory=set)


def standing_of(holding: Iterable[Claim], now: int, departments: Iterable[Department]) -> Standing:
    """Work out the standing of the holding claims of one pool."""
    claims = list(holding)
    standing = Standing({claim.id: claim.units for claim in claims})
    if not any(claim.is_recall for claim in claims):
        return standing
    parents = {department.id: department.parent for department in departments}
    recalls: dict[DepartmentId, list[Claim]] = {}
    claims = sorted(claims, key=lambda claim: (entered_at(claim), claim.id))
    for recall in (claim for claim in claims if claim.is_recall):
        recalls.setdefault(recall.department, []).append(recall)
    for workload in (claim for claim in claims if not claim.is_recall):
        _draw(standing, workload, recalls, parents)
    for department, theirs in recalls.items():
        standing.recalls[department] = [recall for recall in theirs if entered_at(recall) < now]
        standing.left[department] = sum(standing.charges[recall.id] for recall in standing.recalls[department])
    return standing


def _draw(
    standing: Standing,
    workload: Claim,
    recalls: Mapping[DepartmentId, list[Claim]],
    parents: Mapping[DepartmentId, DepartmentId | None],
) -> None:
    """Let the workload draw from recalls that are older than itself: its department's, then those of departments above."""
    wanted = workload.units
    department: DepartmentId | None = workload.department
    while department is not None:
        for recall in recalls.get(department, ()):
            if wanted and entered_at(recall) < entered_at(workload):
                drawn = min(wanted, standing.charges[recall.id])
                standing.charges[recall.id] -= drawn
                wanted -= drawn
        department = parents[department]
    if wanted < workload.units:
        standing.drawing.add(workload.id)


# Loans ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """Units that a claim is charged in its department. `order`: earlier claims have smaller ones."""

    claim: ClaimId
    department: DepartmentId
    units: int
    order: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Loan:
    """`units` that a claim of `borrower` uses above its department's guarantee, and their lender (UNASSIGNED: none)."""

    claim: ClaimId
    borrower: DepartmentId
    lender: DepartmentId
    units: int


def usage_of(snapshot: Snapshot, pool: PoolId, *, reserved: bool = True) -> Ledger:
    """The present ledger of a pool: with holding claims and, if `reserved`, reservations, but without leaving claims. Raises
    KeyError for an unknown pool."""
    holding = snapshot.claims_of(pool, ClaimState.HOLDING)
    charges = standing_of(holding, snapshot.now, snapshot.departments).charges
    ledger = Ledger(
        snapshot.pool(pool), snapshot.departments, sum(stranded_units(snapshot.pool(pool), holding).values())
    )
    ledger.fill((claim.department, charges[claim.id]) for claim in holding)
    for claim in snapshot.claims_of(pool, ClaimState.PENDING) if reserved else ():
        if claim.reserved is not None:
            ledger.add(claim.department, claim.reserved.units)
    return ledger


def loans_of(snapshot: Snapshot, pool: PoolId) -> tuple[Loan, ...]:
    """Every loan of a pool between its holding claims, in order of claims and lenders. Raises KeyError for an unknown pool."""
    holding = snapshot.claims_of(pool, ClaimState.HOLDING)
    charges = standing_of(holding, snapshot.now, snapshot.departments).charges
    entries = [Entry(claim.id, claim.department, charges[claim.id], (0, entered_at(claim))) for claim in holding]
    borrower = {claim.id: claim.department for claim in holding}
    return tuple(
        Loan(claim, borrower[claim], lender, units)
        for claim, shares in sorted(lenders(usage_of(snapshot, pool, reserved=False), entries).items())
        for lender, units in sorted(shares.items())
    )


def loans_in_use(snapshot: Snapshot, pool: PoolId) -> tuple[Loan, ...]:
    """The loans of what workloads occupy: leaving ones count until they have left. What a recall holds is not idle, so it is not
    lent, but it occupies and borrows nothing."""
    holding = snapshot.claims_of(pool, ClaimState.HOLDING)
    leaving = snapshot.claims_of(pool, ClaimState.LEAVING)
    occupying = (*holding, *(replace(claim, state=ClaimState.HOLDING) for claim in leaving if not claim.is_recall))
    recalls = {claim.id for claim in holding if claim.is_recall}
    loans = loans_of(replace(snapshot, claims=occupying), pool)
    return tuple(loan for loan in loans if loan.claim not in recalls)


def lenders(ledger: Ledger, entries: Iterable[Entry]) -> dict[ClaimId, Mapping[DepartmentId, int]]:
    """For each claim that borrows: {lender: units}. The ledger has the final usage of every department.
    A claim borrows from the nearest first: from its department's siblings, then from what is guaranteed to their parent itself,
    then one level further out, as far as every department on the way lends. Unassigned capacity is the outermost, but a
    department without parent takes it first, because no department gives it up. On one level, the department with the most idle
    units lends first, then by id. Earlier claims are served before later ones. What was lent before a lend limit fell still
    counts as lent by its owner, and what no department has idle (in a pool that lost capacity) as unassigned.
    """
    idle = _Idle(ledger)
    own = {department: account.guaranteed for department, account in ledger.accounts.items()}
    found: dict[ClaimId, Mapping[DepartmentId, int]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.order, entry.claim)):
        borrowed = max(0, entry.units - own[entry.department])
        own[entry.department] -= entry.units - borrowed
        if borrowed:
            shares: dict[DepartmentId, int] = {}
            for within_limits in (True, False):
                borrowed -= idle.lend(ledger[entry.department], borrowed, shares, within_limits)
            _count(shares, UNASSIGNED, borrowed)
            found[entry.claim] = shares
    return found


class _Idle:
    """The idle units of every department, and how many of them it may lend."""

    def __init__(self, ledger: Ledger) -> None:
        self._accounts = ledger.accounts
        self._idle = {id: max(0, account.guaranteed - account.direct) for id, account in ledger.accounts.items()}
        self._lendable = {id: _lendable(account) for id, account in ledger.accounts.items()}
        self._rest = max(0, ledger.root.guaranteed)
        self._heaps: dict[tuple[DepartmentId, bool], list[tuple[int, DepartmentId]]] = {}

    def lend(self, borrower: Account, units: int, shares: dict[DepartmentId, int], within_limits: bool) -> int:
        """Add up to `units` to `shares`, nearest lenders first, within lend limits or beyond them. Returns how many."""
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
        """Take up to `units` of unassigned capacity."""
        taken = min(self._rest, units)
        self._rest -= taken
        _count(shares, UNASSIGNED, taken)
        return taken

    def _most_idle(self, above: Account, units: int, shares: dict[DepartmentId, int], within_limits: bool) -> int:
        """Take up to `units` from departments below `above`, first from the one with the most idle."""
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
        """The departments below `above` by what they could give when last computed, most first."""
        key = above.id, within_limits
        if key not in self._heaps:
            below = _downwards(above)[1:]
            self._heaps[key] = [(-self._most(account, above, within_limits), account.id) for account in below]
            heapify(self._heaps[key])
        return self._heaps[key]

    def _most(self, lender: Account, above: Account, within_limits: bool) -> int:
        """How much the department may lend to others below `above`."""
        most, account = self._idle[lender.id], lender
        while within_limits and account is not above and account.parent is not None:
            most, account = min(most, self._lendable[account.id]), account.parent
        return most

    def _take(self, lender: Account, units: int, above: Account, shares: dict[DepartmentId, int]) -> int:
        """Let the department lend `units` to others below `above`."""
        self._idle[lender.id] -= units
        account = lender
        while account is not above and account.parent is not None:
            self._lendable[account.id] -= units
            account = account.parent
        _count(shares, lender.id, units)
        return units


def _lendable(account: Account) -> int:
    """How many of a department's and its teams' idle units others may use."""
    left = max(0, account.promised - account.usage)
    return left if account.quota.lend_limit is None else min(left, account.quota.lend_limit)


def _count(shares: dict[DepartmentId, int], lender: DepartmentId, units: int) -> None:
    if units:
        shares[lender] = shares.get(lender, 0) + units


# Shares that victim sets lower ----------------------------------------------------------------------------------------

# With fair sharing, the department that borrows most gives first: sets are compared by the remaining shares of all departments
# but the preemptor's, from the highest down. A set affects a few of a thousand departments, so only the changes are stored.

BELOW_ALL: tuple[Share, int] = (-1, 0)


@total_ordering
@dataclass(frozen=True, slots=True)
class ShareChange:
    """(share, how many more departments have it than before; negative: fewer), from the highest changed share down."""

    counts: tuple[tuple[Share, int], ...] = ()

    def __lt__(self, other: ShareChange) -> bool:
        """Whether this change is better: of the highest share in which they differ, it leaves fewer."""
        for (mine, more), (theirs, many) in zip_longest(self.counts, other.counts, fillvalue=BELOW_ALL):
            if mine != theirs:
                return more < 0 if mine > theirs else many > 0
            if more != many:
                return more < many
        return False

    def __add__(self, other: ShareChange) -> ShareChange:
        """Both changes, of different departments."""
        if not other.counts:
            return self
        return summed([*self.counts, *other.counts]) if self.counts else other


NO_CHANGE = ShareChange()


def summed(counts: Iterable[tuple[Share, int]]) -> ShareChange:
    """The sum of these counts, given in any order, as one change."""
    sums: dict[Share, int] = {}
    for one, more in counts:
        sums[one] = sums.get(one, 0) + more
    return ShareChange(tuple(sorted(((one, more) for one, more in sums.items() if more), reverse=True)))


def lowered(account: Account, units: int) -> ShareChange:
    """The change of shares if a department gives `units`."""
    return _from_to(share(account, account.usage), share(account, account.usage - units))


@lru_cache(maxsize=10_000)
def _from_to(before: Share, after: Share) -> ShareChange:
    """One department's change of share, cached: equal changes are the same object, which saves millions of comparisons."""
    return ShareChange(((before, -1), (after, 1))) if after < before else NO_CHANGE
