"""The arithmetic of quotas: what a department may still take, at any depth of the tree.

The formulas are those of docs/quota-rules.md, "Arithmetic" (Kueue's nominal quota, borrowing limit, lending limit and
cohorts). One ledger stands for one pool. It is working state of a planning pass: `add` and `remove` change usage and
cost one step for each ancestor, so nothing is ever summed again.

Recalls: units an owner called back without a workload, and the workloads that draw from them.

A holding recall of N units counts N less what workloads of its department, or of departments below, use that started after it;
when they end it counts again. A claim that draws from a recall stands on called-back units and is nobody's victim.

Who lends to whom: the ledger's pairwise entry.

Nearest first: a team borrows what its siblings leave idle, then what was promised to their parent itself, then the same one level
further out, as far as every department on the way lends; the unpromised rest, the outermost, comes last. A department without
parent takes the unpromised rest first: nobody gives up anything for that. On one level who has the most idle gives first, then
by id; borrowers are served by start time, then id. What was lent before a lend limit fell is still its owner's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import lcm

from quotas.engine.types import (
    UNPROMISED,
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

Share = int
"""How much a department borrows for its weight and of what its parent could have at most, in a unit that all accounts of
one ledger have in common, so that shares compare exactly. Who borrows without any weight has more than all with one."""

WEIGHTLESS = 40
"""A unit without weight counts as many of the dearest with weight as nobody borrows: 2 to the power of this."""

NOTHING = Quota()


class Account:
    """One department's standing in the pool: its promises, fixed, and its usage, which the ledger moves."""

    __slots__ = (
        "ceiling",
        "children",
        "guaranteed",
        "id",
        "kept",
        "pace",
        "parent",
        "present_ceiling",
        "quota",
        "subtree",
        "usage",
        "weight",
    )

    def __init__(self, id: DepartmentId, quota: Quota, weight: Fraction | int) -> None:
        self.id = id
        self.quota = quota
        self.guaranteed = quota.guaranteed
        self.weight = weight
        self.parent: Account | None = None
        self.children: list[Account] = []
        self.subtree = self.kept = self.usage = self.ceiling = self.present_ceiling = 0
        self.pace = 0

    @property
    def direct(self) -> int:
        """What the department uses itself, without its teams."""
        return self.usage - sum(max(0, child.usage - child.kept) for child in self.children)

    @property
    def own_left(self) -> int:
        """How much more it may take inside its guarantee; negative when it stands above. One with teams may take what is promised
        to itself, as far as the teams have left it."""
        left = self.subtree - self.usage
        return min(left, self.guaranteed - self.direct) if self.children else left

    def upwards(self) -> Iterator[Account]:
        """The department and those above it, without the virtual root."""
        account = self
        while account.parent is not None:
            yield account
            account = account.parent

    @property
    def borrowable(self) -> int | None:
        """How much more it may take from above, by its own borrow limit (None: no limit)."""
        if self.quota.borrow_limit is None:
            return None
        return self.subtree - self.kept - max(0, self.usage - self.kept) + self.quota.borrow_limit


@dataclass(frozen=True, slots=True)
class PassedLimit:
    """The account that would borrow `asked` units, and its borrow limit, which is less."""

    account: Account
    limit: int
    asked: int


class Ledger:
    """The accounts of one pool under their virtual root. `above` has the departments that use more than they are
    promised. `stranded` units will be charged to them, but occupy nothing of the present capacity (units.py)."""

    def __init__(self, pool: Pool, departments: Iterable[Department], stranded: int = 0) -> None:
        departments = tuple(departments)
        self.capacity = capacity_of(pool, departments)
        self.nominal = self.capacity if pool.nominal is None else pool.nominal
        self.accounts = {d.id: Account(d.id, d.quotas.get(pool.id, NOTHING), d.weight) for d in departments}
        promised = sum(account.guaranteed for account in self.accounts.values())
        self.root = Account(UNPROMISED, Quota(self.capacity + stranded - promised), 1)
        for department in departments:
            account = self.accounts[department.id]
            account.parent = self.root if department.parent is None else self.accounts[department.parent]
            account.parent.children.append(account)
        self.above: set[DepartmentId] = set()
        self._watching: list[set[DepartmentId]] = []
        self.flat = all(department.parent is None for department in departments)
        _sum_up(self.root)
        self.keepers = [account for account in self.accounts.values() if account.kept]
        _set_ceilings(self.root, self.root.subtree - stranded, lost=self.nominal - self.capacity)
        if any(account.quota.lend_limit_most is not None for account in self.accounts.values()):
            self._open_windows(pool, departments)
        self.least_pace = _set_paces(self.accounts.values())

    def _open_windows(self, pool: Pool, departments: Iterable[Department]) -> None:
        """What could be had while every lending window is at its widest: less than that is not impossible."""
        widest = Ledger(pool, (_widest(department, pool.id) for department in departments))
        self.root.ceiling = widest.root.ceiling
        for id, account in self.accounts.items():
            account.ceiling = widest[id].ceiling

    def __getitem__(self, department: DepartmentId) -> Account:
        return self.accounts[department]

    def add(self, department: DepartmentId, units: int) -> None:
        """Charge `units` (negative: give them back) to the department and, above what each keeps, to its ancestors."""
        for moved in self._watching:
            moved.add(department)
        self.lend(department, units)

    def fill(self, charges: Iterable[tuple[DepartmentId, int]]) -> None:
        """Charge many at once, each to its department."""
        sums: dict[DepartmentId, int] = {}
        for department, units in charges:
            sums[department] = sums.get(department, 0) + units
        for department, units in sums.items():
            self.add(department, units)

    def lend(self, department: DepartmentId, units: int) -> None:
        """The same for a while: who watches need not know, as it will be undone."""
        mine = self.accounts[department]
        account: Account | None = mine
        while account is not None and units:
            before = account.usage - account.kept
            account.usage += units
            after = before + units
            units = (after if after > 0 else 0) - (before if before > 0 else 0)  # max costs as much as all the rest
            account = account.parent
        if mine.usage > mine.subtree:
            self.above.add(department)
        else:
            self.above.discard(department)

    def watch(self) -> set[DepartmentId]:
        """A set that every department is added to whose usage moves from now on; the caller empties it."""
        moved: set[DepartmentId] = set()
        self._watching.append(moved)
        return moved

    def remove(self, department: DepartmentId, units: int) -> None:
        self.add(department, -units)

    def available(self, department: DepartmentId) -> int:
        """Units the department may still take by right; negative when a limit is already passed."""
        return _available(self.accounts[department])

    def passed_limit(self, department: DepartmentId, units: int) -> PassedLimit | None:
        """The borrow limit, of the department or the nearest above it, that so many units more would pass, whatever is free."""
        for account in self.accounts[department].upwards():
            limit, above = account.quota.borrow_limit, account.usage + units - account.subtree
            if limit is not None and above > limit:
                return PassedLimit(account, limit, above)
            units = max(0, account.usage + units - account.kept) - max(0, account.usage - account.kept)
        return None

    def within_limits(self, department: DepartmentId, units: int) -> bool:
        """Whether the borrow limits of the department, and of those above it, bear so many units more, whatever is free."""
        account, more = self.accounts[department], 0
        while account.parent is not None:
            more += max(0, account.kept - account.usage)
            limit = account.borrowable
            if limit is not None and more + limit < units:
                return False
            account = account.parent
        return True

    def is_overdrawn(self, department: DepartmentId) -> bool:
        """Whether a limit is passed that the department, or one above it, has."""
        account: Account | None = self.accounts[department]
        while account is not None:
            if _available(account) < 0:
                return True
            account = account.parent
        return False

    def inside(self, department: DepartmentId, units: int) -> bool:
        """Whether `units` more stay inside the department's guarantee."""
        return units <= self.accounts[department].own_left

    def share_after(self, account: Account, units: int) -> Share:
        """The account's share once it has taken `units` more."""
        return share(account, account.usage + units)


def share(account: Account, usage: int) -> Share:
    """What `usage` above the promises means relative to the pool and the department's weight."""
    excess = usage - account.subtree
    return excess * account.pace if excess > 0 else 0


def spare_above(account: Account, least: Share, or_equal: bool) -> int:
    """How many units the account can give so that its share stays above the `least`, or equal; negative if it is not."""
    excess = account.usage - account.subtree
    if least == 0 and not or_equal:
        return excess - 1
    find = bisect_left if or_equal else bisect_right
    return excess - find(range(excess + 1), least, key=lambda left: share(account, account.subtree + left))


def _widest(department: Department, pool: PoolId) -> Department:
    quota = department.quotas.get(pool, NOTHING)
    most = quota.lend_limit if quota.lend_limit_most is None else quota.lend_limit_most
    widest = replace(quota, lend_limit=most, lend_limit_most=None)
    return replace(department, quotas={**department.quotas, pool: widest})


def _downwards(root: Account) -> list[Account]:
    """Every account, parents before their children."""
    accounts = [root]
    for account in accounts:
        accounts.extend(account.children)
    return accounts


def _sum_up(root: Account) -> None:
    """Subtree quota and what each keeps of it."""
    for account in reversed(_downwards(root)):
        account.subtree = account.guaranteed + sum(child.subtree - child.kept for child in account.children)
        if account.quota.lend_limit is not None:
            account.kept = max(0, account.subtree - account.quota.lend_limit)


def _available(account: Account) -> int:
    more, most = 0, None
    while account.parent is not None:
        kept, limit = account.kept - account.usage, account.borrowable
        if kept > 0:
            more += kept
        if limit is not None and (most is None or more + limit < most):
            most = more + limit
        account = account.parent
    units = more + account.subtree - account.usage
    return units if most is None or units < most else most


def _set_ceilings(root: Account, present: int, lost: int) -> None:
    """What each account could have of an empty pool: with the `present` units, and with the `lost` ones too."""
    root.present_ceiling, root.ceiling = present, present + lost
    for parent in _downwards(root):
        for child in parent.children:
            limit = child.quota.borrow_limit
            most = parent.ceiling if limit is None else child.subtree - child.kept + limit
            child.ceiling = child.kept + min(parent.ceiling, most)
            child.present_ceiling = child.kept + min(parent.present_ceiling, most)


def _set_paces(accounts: Collection[Account]) -> int:
    """What one unit above the promises adds to each share: 1 ÷ (weight × what the parent could have), all times the same
    number, the least that makes them whole. Returns the least of them."""
    worth = {a.id: Fraction(a.weight) * a.parent.ceiling for a in accounts if a.parent is not None}
    scale = lcm(*(one.numerator for one in worth.values() if one > 0))
    paces = {id: scale * one.denominator // one.numerator for id, one in worth.items() if one > 0}
    without = max(paces.values(), default=1) << WEIGHTLESS
    for account in accounts:
        account.pace = paces.get(account.id, without)
    return min((account.pace for account in accounts), default=without)


@dataclass(slots=True)
class Standing:
    """What each holding claim counts for, and who draws from a recall. Of each department the `recalls` that claims may draw
    from, the oldest first, and what is `left` of them; one that began only now is drawn from later."""

    charges: dict[ClaimId, int] = field(default_factory=dict)
    left: dict[DepartmentId, int] = field(default_factory=dict)
    recalls: dict[DepartmentId, list[Claim]] = field(default_factory=dict)
    drawing: set[ClaimId] = field(default_factory=set)


def standing_of(holding: Iterable[Claim], now: int, departments: Iterable[Department]) -> Standing:
    """Work out the standing of the holding claims of one pool."""
    standing = Standing()
    recalls: dict[DepartmentId, list[Claim]] = {}
    workloads: list[Claim] = []
    for claim in holding:
        standing.charges[claim.id] = claim.units
        if claim.is_recall:
            recalls.setdefault(claim.department, []).append(claim)
        else:
            workloads.append(claim)
    if not recalls:
        return standing
    for mine in recalls.values():
        mine.sort(key=_by_start)
    parents = {department.id: department.parent for department in departments}
    for workload in sorted(workloads, key=_by_start):
        _draw(standing, workload, _recalls_above(workload.department, recalls, parents))
    for department, mine in recalls.items():
        standing.recalls[department] = [recall for recall in mine if entered_at(recall) < now]
        standing.left[department] = sum(standing.charges[recall.id] for recall in standing.recalls[department])
    return standing


def _recalls_above(
    department: DepartmentId | None,
    recalls: Mapping[DepartmentId, list[Claim]],
    parents: Mapping[DepartmentId, DepartmentId | None],
) -> list[Claim]:
    """The recalls of a department and of those above it, the nearest first."""
    found: list[Claim] = []
    while department is not None:
        found += recalls.get(department, ())
        department = parents[department]
    return found


def _draw(standing: Standing, workload: Claim, recalls: Iterable[Claim]) -> None:
    """It draws from the recalls that stood when it started."""
    wanted = workload.units
    for recall in recalls:
        if wanted and entered_at(recall) < entered_at(workload):
            drawn = min(wanted, standing.charges[recall.id])
            standing.charges[recall.id] -= drawn
            wanted -= drawn
    if wanted < workload.units:
        standing.drawing.add(workload.id)


def _by_start(claim: Claim) -> tuple[int, str]:
    return entered_at(claim), claim.id


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


def usage_of(snapshot: Snapshot, pool_id: PoolId) -> Ledger:
    """The ledger of a pool as it stands: holding claims and reservations, leaving ones counted as gone."""
    pool = next(pool for pool in snapshot.pools if pool.id == pool_id)
    mine = [claim for claim in snapshot.claims if claim.pool == pool_id]
    holding = [claim for claim in mine if claim.state is ClaimState.HOLDING]
    ledger = Ledger(pool, snapshot.departments, sum(stranded_units(pool, holding).values()))
    charges = standing_of(holding, snapshot.now, snapshot.departments).charges
    for claim in mine:
        if claim.id in charges:
            ledger.add(claim.department, charges[claim.id])
        elif claim.state is ClaimState.PENDING and claim.reserved is not None:
            ledger.add(claim.department, claim.reserved.units)
    return ledger


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
