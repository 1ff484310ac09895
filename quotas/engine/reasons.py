"""Why a claim does not start, as data. One sentence for each stands in explain.py.

Amounts are native units of the claim's pool, times are seconds. `code` is the word used in JSON, metrics and logs.
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class NotEnough:
    """The pool has too few free units for it."""

    code: ClassVar[str] = "not_enough"
    pool: str
    short_by: int


@dataclass(frozen=True, slots=True)
class OverBorrowLimit:
    """Its department, or the one above it that is named, would stand `asked` above its guarantee, and may only stand `limit`
    above it."""

    code: ClassVar[str] = "over_borrow_limit"
    limit: int
    asked: int
    department: str | None = None


@dataclass(frozen=True, slots=True)
class LentOutReturning:
    """What it needs is lent out and comes back: these claims will be gone by `at`."""

    code: ClassVar[str] = "lent_out_returning"
    victims: tuple[str, ...]
    at: int


@dataclass(frozen=True, slots=True)
class HeldFor:
    """Units are free, but they are held for another claim that comes first."""

    code: ClassVar[str] = "held_for"
    claim: str


@dataclass(frozen=True, slots=True)
class NotLent:
    """Units are free, but `department` keeps them for itself (its lend limit)."""

    code: ClassVar[str] = "not_lent"
    department: str
    kept: int


@dataclass(frozen=True, slots=True)
class Move:
    """A running pod of `claim` that could run on node `target` instead of `source`, on these cards (and from `start`,
    for a MIG instance)."""

    claim: str
    pod: int
    source: str
    target: str
    cards: tuple[int, ...] = ()
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A node with the cards for a pod, the millicores and MiB it has for it, and those that the pod asks for. `lacking` is
    what else it has too little of, if anything: "pods", or the name of a device; of that it `has` and the pod `asked`."""

    node: str
    cpu_milli: int
    memory_mib: int
    asked_cpu_milli: int
    asked_memory_mib: int
    lacking: str | None = None
    has: int = 0
    asked: int = 0

    @property
    def lacks_cpu_or_memory(self) -> bool:
        return self.cpu_milli < self.asked_cpu_milli or self.memory_mib < self.asked_memory_mib


@dataclass(frozen=True, slots=True)
class Fragmented:
    """Enough units are free, but not together: the largest request of this shape that fits is `largest_fit`.

    `moves` would make room (waiting.py); () when none were found within bounds, None when nobody looked.
    `machine` is the node that comes nearest, where it is CPU, memory, pods or a device that is missing beside the cards.
    Where no place fits though the pool were `empty`, `free_units` are all that it has.
    """

    code: ClassVar[str] = "fragmented"
    free_units: int
    largest_fit: int
    moves: tuple[Move, ...] | None = None
    machine: Machine | None = None
    empty: bool | None = None


@dataclass(frozen=True, slots=True)
class UserCap:
    """Its user has `used` of the `limit` the department sets for each user."""

    code: ClassVar[str] = "user_cap"
    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class DepartmentPaused:
    """Its department starts nothing at the moment."""

    code: ClassVar[str] = "department_paused"


@dataclass(frozen=True, slots=True)
class PoolShort:
    """The pool has `by` units less than nominal: nodes or cards are missing."""

    code: ClassVar[str] = "pool_short"
    by: int


@dataclass(frozen=True, slots=True)
class NoSuchProfile:
    """The pool's cards cannot be cut like that."""

    code: ClassVar[str] = "no_such_profile"


@dataclass(frozen=True, slots=True)
class AboveCeiling:
    """Even an empty pool would never give its department more than `ceiling`."""

    code: ClassVar[str] = "above_ceiling"
    ceiling: int


@dataclass(frozen=True, slots=True)
class NotPreemptible:
    """It may not be stopped, so it must fit inside the `guaranteed` units; `asked` is what the department would use."""

    code: ClassVar[str] = "not_preemptible"
    guaranteed: int
    asked: int


@dataclass(frozen=True, slots=True)
class WaitingForGang:
    """All pods start together: places exist for `have` of `need`."""

    code: ClassVar[str] = "waiting_for_gang"
    have: int
    need: int


@dataclass(frozen=True, slots=True)
class BackoffUntil:
    """It was called back and tries to borrow again at `t`."""

    code: ClassVar[str] = "backoff_until"
    t: int


@dataclass(frozen=True, slots=True)
class ClusterUnreachable:
    """The pool's cluster has not answered since `since`."""

    code: ClassVar[str] = "cluster_unreachable"
    since: int


Reason = (
    NotEnough
    | OverBorrowLimit
    | LentOutReturning
    | HeldFor
    | NotLent
    | Fragmented
    | UserCap
    | DepartmentPaused
    | PoolShort
    | NoSuchProfile
    | AboveCeiling
    | NotPreemptible
    | WaitingForGang
    | BackoffUntil
    | ClusterUnreachable
)

REASONS: dict[str, type[Reason]] = {
    reason.code: reason
    for reason in (
        NotEnough,
        OverBorrowLimit,
        LentOutReturning,
        HeldFor,
        NotLent,
        Fragmented,
        UserCap,
        DepartmentPaused,
        PoolShort,
        NoSuchProfile,
        AboveCeiling,
        NotPreemptible,
        WaitingForGang,
        BackoffUntil,
        ClusterUnreachable,
    )
}
