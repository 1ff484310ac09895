"""The order of the queue: inside a department by priority, time of submission and id; between departments by competition.

The next claims of all departments compete, level by level down the tree: those inside their guarantee first; then, with fair
sharing, the one with the lowest share after its start or, if the pool has balances, the lowest balance; then by priority,
time of submission and id. After every answer only the path from the answered department to the root is ranked again, so a
pass over n claims costs n · depth · log(departments).
"""

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from quotas.engine.quota_tree import Account, Ledger, Share, share
from quotas.engine.types import Claim, ClaimId, DepartmentId

Rank = tuple[bool, Share, int]
"""(whether the claim borrows, its department's share or balance, its position by queue_order)"""
Turn = tuple[bool, Share, int, int, Claim]
"""A rank, the version of the account that entered it, and the claim. Only an account's latest version counts."""


def queue_order(claim: Claim) -> tuple[int, int, str]:
    """The order inside a department: higher priority, then earlier submission, then smaller id."""
    return -claim.priority, claim.submitted_at, claim.id


def line_of(ledger: Ledger, claims: Iterable[Claim], fair: bool) -> dict[ClaimId, int]:
    """The position of every claim in line: the order in which all would start if nothing ran yet and there were room for all.
    It does not depend on what runs, so two claims never change places because one is preempted for the other. The `ledger`
    must be empty, and is filled."""
    competition, line = Competition(ledger, claims, fair, lambda claim: claim.units), dict[ClaimId, int]()
    while (claim := competition.next()) is not None:
        line[claim.id] = len(line)
        ledger.add(claim.department, 0 if claim.is_recall else claim.units)  # workloads will be charged for it
        competition.enter_next(claim.department)
    return line


class Competition:
    """Yields the pending claims of one pool, each when its turn comes. `asks(claim)`: the units that its department would be
    charged for it now."""

    def __init__(self, ledger: Ledger, claims: Iterable[Claim], fair: bool, asks: Callable[[Claim], int]) -> None:
        self._ledger = ledger
        self._fair = fair
        self._asks = asks
        self._queues: dict[DepartmentId, deque[Claim]] = {}
        self._turn: dict[ClaimId, int] = {}
        for turn, claim in enumerate(sorted(claims, key=queue_order)):
            self._turn[claim.id] = turn
            self._queues.setdefault(claim.department, deque()).append(claim)
        self._heaps: dict[DepartmentId, list[Turn]] = {}
        self._version: dict[DepartmentId, int] = {}
        for department in self._queues:
            self._enter(ledger[department])

    def next(self) -> Claim | None:
        """Take the claim whose turn it is from the queue. Call `enter_next` for its department when it is answered."""
        claim = self._best(self._ledger.root)
        if claim is not None:
            self._queues[claim.department].popleft()
        return claim

    def enter_next(self, department: DepartmentId) -> None:
        """Let the department's next claim compete, and update ranks for the department's changed usage."""
        self._enter(self._ledger[department])

    def _enter(self, account: Account) -> None:
        while account.parent is not None:
            version = self._version[account.id] = self._version.get(account.id, 0) + 1
            claim = self._best(account)
            if claim is not None:
                heap = self._heaps.setdefault(account.parent.id, [])
                heappush(heap, (*self._rank(account, claim), version, claim))
            account = account.parent

    def _best(self, account: Account) -> Claim | None:
        """The best claim at or below an account: its own next claim, or the best of its children."""
        own = self._queues.get(account.id)
        heap = self._heaps.get(account.id)
        while heap and not self._current(account, heap[0]):
            heappop(heap)
        below = heap[0] if heap else None
        if own and (below is None or self._rank(account, own[0]) <= below[:3]):
            return own[0]
        return below[4] if below else None

    def _current(self, account: Account, entry: Turn) -> bool:
        """Whether a heap entry of the account is the latest version of the child that entered it."""
        child = self._ledger[entry[4].department]
        while child.parent is not None and child.parent is not account:
            child = child.parent
        return entry[3] == self._version[child.id]

    def _rank(self, account: Account, claim: Claim) -> Rank:
        asked = self._asks(claim)
        borrows = not self._ledger.inside(claim.department, asked)
        if self._ledger.balanced:
            precedence = self._ledger.balance_after(account, asked) if borrows else 0
        else:
            precedence = share(account, account.usage + asked) if self._fair else 0
        return borrows, precedence, self._turn[claim.id]
