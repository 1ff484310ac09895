"""Why a claim does not start: for each reason its numbers, its sentence, and what its reader can do about it.

Amounts are native units of the claim's pool, times are seconds. `code` is the word used in JSON, metrics and logs. `sentence` and
`advice` are English message ids; explain.py fills in the fields by their names, in the reader's language. `or_else` is the advice
where the reader is offered less of the same as well.
"""

from dataclasses import dataclass
from typing import ClassVar, get_args


def N_(message: str) -> str:
    """Mark a message for extraction; it is translated when it is shown."""
    return message


@dataclass(frozen=True, slots=True)
class NotEnough:
    """The pool has too few free units for it."""

    code: ClassVar[str] = "not_enough"
    sentence: ClassVar[str] = N_("Pool %(pool)s is short of %(short_by)s for this.")
    advice: ClassVar[str] = N_("Ask for less, or wait until something ends.")
    or_else: ClassVar[str] = N_("Or wait until something ends.")
    pool: str
    short_by: int


@dataclass(frozen=True, slots=True)
class OverBorrowLimit:
    """Its department, or the `department` above that, would borrow `asked` units; its borrow limit is `limit`."""

    code: ClassVar[str] = "over_borrow_limit"
    advice: ClassVar[str] = N_("Wait until the department uses less, or ask the operator for a higher borrow limit.")
    limit: int
    asked: int
    department: str | None = None

    @property
    def sentence(self) -> str:
        if self.department is None:
            return N_("The department would borrow %(asked)s; its limit is %(limit)s.")
        return N_("%(department)s, of which the department is a part, would borrow %(asked)s; its limit is %(limit)s.")


@dataclass(frozen=True, slots=True)
class LentOutReturning:
    """What it needs is lent out and comes back: these claims will be gone by `at`."""

    code: ClassVar[str] = "lent_out_returning"
    sentence: ClassVar[str] = N_("What it needs is lent out and comes back by %(at)s: %(victims)s.")
    advice: ClassVar[str] = N_("Nothing to do: it starts then.")
    victims: tuple[str, ...]
    at: int


@dataclass(frozen=True, slots=True)
class HeldFor:
    """Units are free, but they are held for another claim that comes first."""

    code: ClassVar[str] = "held_for"
    sentence: ClassVar[str] = N_("Free capacity is held for %(claim)s, which comes first.")
    advice: ClassVar[str] = N_("Give it a short maximum runtime and it may run before.")
    claim: str


@dataclass(frozen=True, slots=True)
class NotLent:
    """Units are free, but `department` keeps them for itself (its lend limit)."""

    code: ClassVar[str] = "not_lent"
    sentence: ClassVar[str] = N_("%(department)s keeps %(kept)s idle for itself and does not lend them.")
    advice: ClassVar[str] = N_("Ask that department to lend more, or wait.")
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
    """A node with the cards for a pod, but too little beside them: the millicores and MiB it has free, and those asked for.
    `lacking` is what else it has too little of: "pods", or the name of a device; it `has` so many, the pod `asked` for more."""

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

    @property
    def sentence(self) -> str:
        if self.lacks_cpu_or_memory or self.lacking is None:
            return N_(
                "Its pods find the cards, but not %(cpu)s CPU and %(memory)s of memory beside them:"
                " %(node)s comes nearest, with %(node_cpu)s and %(node_memory)s."
            )
        if self.lacking == "pods":
            return N_(
                "Its pods find the cards, but none of those nodes takes one more pod:"
                " %(node)s comes nearest, and is full of pods."
            )
        return N_(
            "Its pods find the cards, but not %(device_asked)s × %(device)s beside them:"
            " %(node)s comes nearest, with %(device_has)s."
        )

    @property
    def advice(self) -> str:
        if self.lacks_cpu_or_memory or self.lacking is None:
            return N_("Ask for less CPU or memory in each pod, or wait until a node has more of it.")
        if self.lacking == "pods":
            return N_("Ask for more in each of fewer pods, or wait until a pod on those nodes ends.")
        return N_("Ask for fewer such devices in each pod, or wait until a node has more of them.")


@dataclass(frozen=True, slots=True)
class Fragmented:
    """Enough units are free, but not together: the largest request of this shape that fits is `largest_fit`.

    `moves` would make room (waiting.py): () when none were found within bounds, None when nobody looked. `machine` is the nearest
    node that has the cards, where something beside them is missing. With `empty`, no place fits even in an empty pool.
    """

    code: ClassVar[str] = "fragmented"
    or_else: ClassVar[str] = N_("Or wait until a node is free.")
    free_units: int
    largest_fit: int
    moves: tuple[Move, ...] | None = None
    machine: Machine | None = None
    empty: bool | None = None

    @property
    def sentence(self) -> str:
        if self.machine is not None:
            return self.machine.sentence
        if self.empty:
            return N_(
                "The machines have no place for it, even with nothing running: for at most %(largest_fit)s of this shape."
            )
        return N_("%(free_units)s are free, but not together: the largest request that fits is %(largest_fit)s.")

    @property
    def advice(self) -> str:
        if self.machine is not None:
            return self.machine.advice
        if self.empty:
            return N_("Ask for fewer units in each pod.")
        return N_("Ask for fewer units in each pod, or wait until a node is free.")


@dataclass(frozen=True, slots=True)
class UserCap:
    """Its user has `used` of the `limit` the department sets for each user."""

    code: ClassVar[str] = "user_cap"
    sentence: ClassVar[str] = N_("The department allows each user %(limit)s, and you use %(used)s.")
    advice: ClassVar[str] = N_("Ask for less, stop something of yours, or ask the quota owner for a higher cap.")
    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class DepartmentPaused:
    """Its department starts nothing at the moment."""

    code: ClassVar[str] = "department_paused"
    sentence: ClassVar[str] = N_("The department is paused and starts nothing.")
    advice: ClassVar[str] = N_("Ask the quota owner when it goes on.")


@dataclass(frozen=True, slots=True)
class PoolShort:
    """The pool has `by` units less than nominal: nodes or cards are missing."""

    code: ClassVar[str] = "pool_short"
    sentence: ClassVar[str] = N_("The pool has lost %(by)s of its capacity.")
    advice: ClassVar[str] = N_("The operators see it too; it starts when nodes are back.")
    by: int


@dataclass(frozen=True, slots=True)
class NoSuchProfile:
    """The pool's cards cannot be cut like that."""

    code: ClassVar[str] = "no_such_profile"
    sentence: ClassVar[str] = N_("The cards of this pool cannot be cut into this profile.")
    advice: ClassVar[str] = N_("Choose one of the profiles the pool offers.")


@dataclass(frozen=True, slots=True)
class AboveCeiling:
    """Even an empty pool would never give its department more than `ceiling`."""

    code: ClassVar[str] = "above_ceiling"
    sentence: ClassVar[str] = N_("By its quota the department can never have more than %(ceiling)s of this pool.")
    advice: ClassVar[str] = N_("Ask for less, or ask the quota owner for more quota.")
    or_else: ClassVar[str] = N_("Or ask the quota owner for more quota.")
    ceiling: int


@dataclass(frozen=True, slots=True)
class NotPreemptible:
    """It may not be stopped, so it must fit inside the `guaranteed` units; `asked` is what the department would use."""

    code: ClassVar[str] = "not_preemptible"
    sentence: ClassVar[str] = N_(
        "Work that must not be stopped needs guaranteed quota: the department would use %(asked)s of %(guaranteed)s."
    )
    advice: ClassVar[str] = N_("Allow it to be stopped, or wait until the department uses less.")
    guaranteed: int
    asked: int


@dataclass(frozen=True, slots=True)
class WaitingForGang:
    """All pods start together: places exist for `have` of `need`."""

    code: ClassVar[str] = "waiting_for_gang"
    sentence: ClassVar[str] = N_("All pods start together: there is room for %(have)s of %(need)s.")
    advice: ClassVar[str] = N_("Ask for fewer pods, or wait.")
    have: int
    need: int


@dataclass(frozen=True, slots=True)
class BackoffUntil:
    """It was called back and tries to borrow again at `t`."""

    code: ClassVar[str] = "backoff_until"
    sentence: ClassVar[str] = N_("It was called back and tries to borrow again at %(t)s.")
    advice: ClassVar[str] = N_("Nothing to do: it tries again by itself.")
    t: int


@dataclass(frozen=True, slots=True)
class ClusterUnreachable:
    """The pool's cluster has not answered since `since`."""

    code: ClassVar[str] = "cluster_unreachable"
    sentence: ClassVar[str] = N_("The cluster has not answered since %(since)s.")
    advice: ClassVar[str] = N_("Nothing to do: it goes on when the cluster answers.")
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

REASONS: dict[str, type[Reason]] = {reason.code: reason for reason in get_args(Reason)}
"""Every kind of reason by its code."""
