"""What is asked of a victim set for one place, and how far the best is looked for."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from quotas.engine.books import Books
from quotas.engine.permission import Fairness, Taker
from quotas.engine.quota_tree import Account
from quotas.engine.types import Claim, ClaimId, DepartmentId

SUMS, FEW = 100_000, 16
"""How many sums are compared for one question, at most, where the candidates are more than a few."""
TIRED, FOR_EACH = 1_000_000, 250
"""Once so many were compared in a pass, and so many for each claim, a fiftieth of it."""

Goods = Mapping[ClaimId, int]
Need = tuple[int, int, int]
"""Units at the place, by right, and of the pool as a whole"""


class TooManySets(Exception):
    """Sizes are so different, or so much is needed, that more sums would have to be compared than there is time for."""


@dataclass(slots=True)
class Problem:
    """Give a place, the quotas and the pool what `need` says, where each claim of `own` and of other departments, the
    `rivals`, gives `gives` at the place (None: all its units). Others are asked `of_others` at most; the taker's department may
    borrow up to `limit` (None: without one); `sums` is how many more may be compared."""

    books: Books
    taker: Taker
    own: list[Claim]
    rivals: Mapping[DepartmentId, Collection[Claim]]
    gives: Goods | None
    need: Need
    fairness: Fairness
    of_others: Need = field(init=False)
    limit: int | None = field(init=False)
    sums: int = field(init=False)

    def __post_init__(self) -> None:
        self.of_others = _of_others(self.books, self.taker, self.need)
        bound = self.books.may_not_borrow(self.taker.claim)
        self.limit = 0 if bound else self.taker.account.quota.borrow_limit
        fresh = self.books.sums < max(TIRED, FOR_EACH * len(self.books.claims))
        self.sums = SUMS if fresh else SUMS // 50

    @property
    def wants_own_needed(self) -> bool:
        """Whether own claims may be stopped beside others' by who would borrow with fair sharing: then each must be needed."""
        return self.books.settings.fair_sharing and bool(self.rivals) and not self.taker.inside

    def compare(self, sums: int) -> None:
        """So many sums are to be compared next. Raises TooManySets, unless the candidates are few."""
        self.books.sums += sums
        self.sums -= sums
        if self.sums < 0 and len(self.own) + sum(map(len, self.rivals.values())) > FEW:
            raise TooManySets


def need_of(books: Books, taker: Taker, lacking: int) -> Need:
    """What must be given at least: at the place, by right, and of the pool as a whole."""
    by_right = taker.asked - books.ledger.available(taker.account.id)
    return lacking, by_right, lacking_of_pool(books, taker)


def lacking_of_pool(books: Books, taker: Taker) -> int:
    """Units that are not even free in the pool as a whole: without so many no set makes room."""
    return taker.asked - books.free_later.row[books.pool_slot]


def _of_others(books: Books, taker: Taker, need: Need) -> Need:
    """What others may have to give of it: not what the department's own limits want to have back."""
    if not books.ledger.flat:
        return need
    account, root = taker.account, books.ledger.root
    return need[0], taker.asked - max(0, account.kept - account.usage) - (root.subtree - root.usage), need[2]


def by_right(account: Account, units: int) -> int:
    """How much of so many units a department gives back to the others: not what it keeps in any case."""
    return max(0, account.usage - account.kept) - max(0, account.usage - units - account.kept)
