"""How much may be taken from each department: the limits that a set of victims keeps, as sums that only ever add up.

`permission.permitted` says whether a set may go. Here the same is found out once for all sets of the candidates, by asking
it for single claims after ever more of a department is gone. So the search for places (clearing.py) can drop at once what
takes too much from somebody.
"""

from collections.abc import Iterable

from quotas.engine.books import Books
from quotas.engine.permission import Fairness, Taker, permitted
from quotas.engine.quota_tree import Account
from quotas.engine.types import Claim, ClaimId, DepartmentId

Taken = tuple[tuple[int, int], ...]
"""For each limited account: (units taken, the same without the largest victim). Where both are less, so they stay whatever is
added."""


class Allowances:
    """What may be taken from the accounts that the candidates could exhaust: departments, and in a tree those above them up to
    where the paths of taker and victim meet. Victims go in the order of their size, so all but the largest count before it
    goes; it may overshoot. `reach` are the candidates that may go at all; with `nearer_gone` also those that may only once
    those nearer to the taker, and its own, have gone."""

    def __init__(
        self, books: Books, taker: Taker, claims: Iterable[Claim], fairness: Fairness, nearer_gone: bool = False
    ) -> None:
        self._books, self._taker, self._fairness = books, taker, fairness
        self._charges = books.standing.charges
        claims = tuple(claims)
        above = _ancestors(taker.account)
        self._paths = {d: _below(books.ledger.accounts[d], above) for d in {claim.department for claim in claims}}
        levels = _levels(above, self._paths)
        self.reach: list[Claim] = []
        self._limits: list[dict[int, int]] = []
        self._whole: list[int | None] = []
        self._slots: dict[DepartmentId, list[int]] = {department: [] for department in self._paths}
        gone: list[tuple[DepartmentId, int]] = []
        for level in sorted(set(levels.values())):
            near = [claim for claim in claims if levels[claim.department] == level]
            self._enter(near)
            if nearer_gone:
                gone += [(claim.department, -self._charges[claim.id]) for claim in near]
                for entry in gone[-len(near) :]:
                    books.ledger.lend(*entry)
        for department, units in gone:
            books.ledger.lend(department, -units)
        self._of = {claim.id: self._taken(claim) for claim in self.reach}
        self.nothing: Taken = ((0, 0),) * len(self._limits)

    def _enter(self, claims: list[Claim]) -> None:
        """Those of the claims that may go, and the limits of the accounts that they could exhaust."""
        known: dict[tuple[DepartmentId, int, int], bool] = {}
        by_account: dict[DepartmentId, list[Claim]] = {}
        accounts: dict[DepartmentId, Account] = {}
        for claim in claims:
            kind = claim.department, self._charges[claim.id], claim.priority
            own = claim.department == self._taker.account.id
            if kind not in known:
                known[kind] = own or permitted(self._books, self._taker, (claim,), self._fairness)
            if known[kind]:
                self.reach.append(claim)
                for account in () if own else self._paths[claim.department]:
                    accounts[account.id] = account
                    by_account.setdefault(account.id, []).append(claim)
        for id, found in by_account.items():
            self._limit(accounts[id], found)

    def _limit(self, account: Account, claims: list[Claim]) -> None:
        """Note the account if not all of the claims may go together, or not without breaking a promise."""
        sizes = {self._charges[claim.id]: claim for claim in claims}
        total = sum(self._charges[claim.id] for claim in claims)
        before = {size: self._most_before(account, claim, total - size) for size, claim in sizes.items()}
        promised = None if account.children else max(0, account.usage - account.guaranteed)
        largest = max(sizes)
        if before[largest] < total - largest or (promised is not None and promised < total):
            for department in {claim.department for claim in claims}:
                self._slots[department].append(len(self._limits))
            self._limits.append(before)
            self._whole.append(promised)

    def _most_before(self, account: Account, claim: Claim, most: int) -> int:
        """How much of the account may have gone, of `most` that could, and the claim may still go."""

        def may_go(gone: int) -> bool:
            self._books.ledger.lend(account.id, -gone)
            allowed = permitted(self._books, self._taker, (claim,), self._fairness)
            self._books.ledger.lend(account.id, gone)
            return allowed

        if may_go(most):
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if may_go(middle) else (low, middle)
        return low

    def _taken(self, claim: Claim) -> Taken:
        slots, units = self._slots[claim.department], self._charges[claim.id]
        return tuple((units, 0) if slot in slots else (0, 0) for slot in range(len(self._limits)))

    def of(self, claim: ClaimId) -> Taken:
        """What is taken with one claim."""
        return self._of[claim]

    def bear(self, taken: Taken, strict: bool) -> bool:
        """Whether so much may be taken; `strict`: and leaves every department what it is promised."""
        for (units, before), limits, whole in zip(taken, self._limits, self._whole, strict=True):
            if units and (before > limits.get(units - before, 0) or (strict and whole is not None and units > whole)):
                return False
        return True


def both(one: Taken, other: Taken) -> Taken:
    """What is taken with two sets that have no claim in common."""
    if not one:
        return one
    return tuple(
        [
            (a + b, a + b - max(a - before_a, b - before_b))
            for (a, before_a), (b, before_b) in zip(one, other, strict=True)
        ]
    )


def _ancestors(account: Account) -> list[DepartmentId]:
    """The account and all above it, from below."""
    found = [account]
    while found[-1].parent is not None:
        found.append(found[-1].parent)
    return [one.id for one in found]


def _below(account: Account, above: list[DepartmentId]) -> list[Account]:
    """The account and those above it, up to where the paths meet."""
    path = [account]
    while path[-1].parent is not None and path[-1].parent.id not in above:
        path.append(path[-1].parent)
    return path


def _levels(above: list[DepartmentId], paths: dict[DepartmentId, list[Account]]) -> dict[DepartmentId, int]:
    """How far up the path of each department meets the taker's; its own claims come first of all."""
    turn = {id: turn for turn, id in enumerate(above)}
    tops = {department: path[-1].parent for department, path in paths.items() if department != above[0]}
    return dict.fromkeys(paths, -1) | {d: turn[top.id] for d, top in tops.items() if top is not None}
