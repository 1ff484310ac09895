"""Why a claim does not start: each reason with its numbers, its sentence, and what the reader can do about it.

Amounts are in units of the claim's pool, times in seconds. `code` is the name in JSON, metrics and logs. `sentence` and `advice`
are English message ids; explain.py fills in the fields by name, in the reader's language. `or_else` is the advice when a smaller
request is offered as well. What else a new reason needs: docs/architecture.md, "In fifteen minutes".
"""

from dataclasses import dataclass
from typing import ClassVar, get_args

TIMES = frozenset({"at", "t", "since", "resets_at", "ends_by"})
"""Fields that are times, whichever reason has them: seconds since 1970."""


def N_(message: str) -> str:
    """Mark a message for extraction; it is translated when it is shown."""
    return message


@dataclass(frozen=True, slots=True)
class NotEnough:
    """The pool has too few free units for the claim."""

    code: ClassVar[str] = "not_enough"
    sentence: ClassVar[str] = N_("Not enough free capacity: %(pool)s is short of %(short_by)s.")
    advice: ClassVar[str] = N_("Request less, or wait until another workload ends.")
    or_else: ClassVar[str] = N_("Or wait until another workload ends.")
    pool: str
    short_by: int


@dataclass(frozen=True, slots=True)
class OverBorrowLimit:
    """The claim's department, or `department` above it, would borrow `asked` units, above its borrow limit of `limit`."""

    code: ClassVar[str] = "over_borrow_limit"
    advice: ClassVar[str] = N_("Wait until the department uses less, or ask an operator for a higher borrow limit.")
    limit: int
    asked: int
    department: str | None = None

    @property
    def sentence(self) -> str:
        if self.department is None:
            return N_("The department would borrow %(asked)s, above its borrow limit of %(limit)s.")
        return N_("The parent department %(department)s would borrow %(asked)s, above its borrow limit of %(limit)s.")


@dataclass(frozen=True, slots=True)
class LentOutReturning:
    """What the claim needs is lent out and comes back: the `victims` will have left by `at`."""

    code: ClassVar[str] = "lent_out_returning"
    sentence: ClassVar[str] = N_("The capacity is lent out and returns by %(at)s: %(victims)s.")
    advice: ClassVar[str] = N_("No action needed: it starts then.")
    victims: tuple[str, ...]
    at: int


@dataclass(frozen=True, slots=True)
class HeldFor:
    """Units are free, but they are held for another claim that comes first. If the claim ended by `ends_by`, it would delay no
    claim whose hold it takes, and may start now."""

    code: ClassVar[str] = "held_for"
    sentence: ClassVar[str] = N_("Free capacity is held for %(claim)s, which is ahead in the queue.")
    claim: str
    ends_by: int | None = None

    @property
    def advice(self) -> str:
        if self.ends_by is None:
            return N_("Wait until that workload has started.")
        return N_("It may start before that workload if its maximum runtime ends by %(ends_by)s.")


@dataclass(frozen=True, slots=True)
class GuaranteeKeptFor:
    """Units could be borrowed, but another claim of the department, or of one above it, waits for the guarantee and may not
    borrow: what others borrowed now would keep it from starting."""

    code: ClassVar[str] = "guarantee_kept_for"
    sentence: ClassVar[str] = N_(
        "Until %(claim)s has started, the department does not borrow: that workload waits for guaranteed quota and may not "
        "borrow."
    )
    advice: ClassVar[str] = N_("Wait until that workload has started.")
    claim: str


@dataclass(frozen=True, slots=True)
class NotLent:
    """Units are free, but `department` keeps them for itself (its lend limit)."""

    code: ClassVar[str] = "not_lent"
    sentence: ClassVar[str] = N_("%(department)s keeps %(kept)s of its idle quota and does not lend it.")
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
    """A node with cards for a pod, but too little beside them: its free millicores and MiB, and those requested. `lacking`: what
    else it has too little of, "pods" or the name of a device; it `has` fewer than the pod `asked` for."""

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
                "There are enough cards, but no node has %(cpu)s CPU and %(memory)s of memory beside them: "
                "the closest is %(node)s with %(node_cpu)s and %(node_memory)s."
            )
        if self.lacking == "pods":
            return N_("There are enough cards, but their nodes have reached their pod limit: the closest is %(node)s.")
        return N_(
            "There are enough cards, but no node has %(device_asked)s × %(device)s beside them: the "
            "closest is %(node)s with %(device_has)s."
        )

    @property
    def advice(self) -> str:
        if self.lacks_cpu_or_memory or self.lacking is None:
            return N_("Request less CPU or memory per pod, or wait until a node has more.")
        if self.lacking == "pods":
            return N_("Request fewer, larger pods, or wait until a pod on those nodes ends.")
        return N_("Request fewer of these devices per pod, or wait until a node has more.")


@dataclass(frozen=True, slots=True)
class Fragmented:
    """Enough units are free, but not together: the largest request like this one that fits is `largest_fit`, less than asked
    (placement.py: `largest_request`).
    `moves` would make room (waiting.py): () if none were found within bounds, None if there was no search. `machine` is the
    closest node with the cards, if something beside them is missing. `empty`: it does not even fit into an empty pool.
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
                "The nodes have no room for it, even with nothing running: at most %(largest_fit)s of this shape fit."
            )
        if not self.largest_fit:
            return N_("%(free_units)s are free but fragmented: neither this request nor a smaller one fits.")
        return N_("%(free_units)s are free but fragmented: the largest request that fits is %(largest_fit)s.")

    @property
    def advice(self) -> str:
        if self.machine is not None:
            return self.machine.advice
        if self.empty:
            return N_("Request fewer units per pod.")
        if not self.largest_fit:
            return N_("Request another shape, or wait until a node is free.")
        return N_("Request fewer units per pod, or wait until a node is free.")


@dataclass(frozen=True, slots=True)
class NoNodeToClear:
    """The claim is inside the guarantee, and enough is free or may be preempted for it, but not together: work that may not be
    preempted is in the way. `largest_fit` would fit if everything that may be preempted left."""

    code: ClassVar[str] = "no_node_to_clear"
    sentence: ClassVar[str] = N_(
        "It is within the guaranteed quota, but no node can be cleared for it: beside work that may not be preempted, at "
        "most %(largest_fit)s of this shape fit."
    )
    advice: ClassVar[str] = N_("Request fewer units per pod, or wait until a node is free.")
    or_else: ClassVar[str] = N_("Or wait until a node is free.")
    largest_fit: int


@dataclass(frozen=True, slots=True)
class UserCap:
    """The claim's user has `used` units; the department's cap is `limit` for each user."""

    code: ClassVar[str] = "user_cap"
    sentence: ClassVar[str] = N_("The department's per-user cap is %(limit)s, and this user has %(used)s.")
    advice: ClassVar[str] = N_(
        "Request less, or ask the quota owner for a higher cap. A request within the cap starts when this user's other "
        "workloads leave enough of it."
    )
    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class DepartmentPaused:
    """The claim's department is paused."""

    code: ClassVar[str] = "department_paused"
    sentence: ClassVar[str] = N_("The department is paused: no new workloads start.")
    advice: ClassVar[str] = N_("Ask the quota owner when the department resumes.")


@dataclass(frozen=True, slots=True)
class OverBudget:
    """A budget of `department` is used up: `used` of `limit` GPU-hours, both whole hours. `personal`: it is the budget of the
    claim's user there. `borrowing_only`: it only forbids to borrow."""

    code: ClassVar[str] = "over_budget"
    advice: ClassVar[str] = N_("Wait until the budget resets, or ask a quota owner for a larger one.")
    department: str
    limit: int
    used: int
    resets_at: int
    personal: bool = False
    borrowing_only: bool = False

    @property
    def sentence(self) -> str:
        if self.personal and self.borrowing_only:
            return N_(
                "The budget of its user in %(department)s is used up (%(used)s of %(limit)s GPU-hours): until "
                "%(resets_at)s only what fits inside the guaranteed quota starts."
            )
        if self.personal:
            return N_(
                "The budget of its user in %(department)s is used up (%(used)s of %(limit)s GPU-hours): nothing new "
                "starts until %(resets_at)s."
            )
        if self.borrowing_only:
            return N_(
                "The budget of %(department)s is used up (%(used)s of %(limit)s GPU-hours): until %(resets_at)s only "
                "what fits inside the guaranteed quota starts."
            )
        return N_(
            "The budget of %(department)s is used up (%(used)s of %(limit)s GPU-hours): nothing new starts until "
            "%(resets_at)s."
        )


@dataclass(frozen=True, slots=True)
class PoolShort:
    """The pool has `by` units less than its nominal capacity: nodes or cards are missing."""

    code: ClassVar[str] = "pool_short"
    sentence: ClassVar[str] = N_("%(by)s of the pool are offline.")
    advice: ClassVar[str] = N_("Operators are informed. More can start when the nodes are back.")
    by: int


@dataclass(frozen=True, slots=True)
class NoSuchProfile:
    """The pool's cards do not have the claim's MIG profile."""

    code: ClassVar[str] = "no_such_profile"
    sentence: ClassVar[str] = N_("The cards of this pool do not support this MIG profile.")
    advice: ClassVar[str] = N_("Choose one of the profiles of this pool.")


@dataclass(frozen=True, slots=True)
class AboveCeiling:
    """The claim's department can have at most `ceiling` units, even of an empty pool."""

    code: ClassVar[str] = "above_ceiling"
    sentence: ClassVar[str] = N_("The department's quota allows at most %(ceiling)s of this pool.")
    advice: ClassVar[str] = N_("Request less, or ask the quota owner for more quota.")
    or_else: ClassVar[str] = N_("Or ask the quota owner for more quota.")
    ceiling: int


@dataclass(frozen=True, slots=True)
class NotPreemptible:
    """The claim is non-preemptible, so it must fit inside the `guaranteed` units; `asked` is what the department would use."""

    code: ClassVar[str] = "not_preemptible"
    sentence: ClassVar[str] = N_(
        "Non-preemptible workloads need guaranteed quota: the department would use %(asked)s, but %(guaranteed)s are "
        "guaranteed."
    )
    advice: ClassVar[str] = N_("Make it preemptible, or wait until the department uses less.")
    guaranteed: int
    asked: int


@dataclass(frozen=True, slots=True)
class OwnOnly:
    """The claim may use guaranteed quota only, so it must fit inside the `guaranteed` units; `asked` is what the department would
    use."""

    code: ClassVar[str] = "own_only"
    sentence: ClassVar[str] = N_(
        "It may use guaranteed quota only: the department would use %(asked)s, but %(guaranteed)s are guaranteed."
    )
    advice: ClassVar[str] = N_("Request less, let it borrow, or wait until the department uses less.")
    guaranteed: int
    asked: int


@dataclass(frozen=True, slots=True)
class WaitingForGang:
    """All pods start together: places exist for `have` of `need`."""

    code: ClassVar[str] = "waiting_for_gang"
    sentence: ClassVar[str] = N_("All pods start together: only %(have)s of %(need)s fit now.")
    advice: ClassVar[str] = N_("Request fewer pods, or wait.")
    have: int
    need: int


@dataclass(frozen=True, slots=True)
class BackoffUntil:
    """The claim was recalled and tries to borrow again at `t`."""

    code: ClassVar[str] = "backoff_until"
    sentence: ClassVar[str] = N_("It was recalled and tries to borrow again at %(t)s.")
    advice: ClassVar[str] = N_("No action needed: it is retried automatically.")
    t: int


@dataclass(frozen=True, slots=True)
class ClusterUnreachable:
    """The pool's cluster has not answered since `since`."""

    code: ClassVar[str] = "cluster_unreachable"
    sentence: ClassVar[str] = N_("The cluster has been unreachable since %(since)s.")
    advice: ClassVar[str] = N_("No action needed: it continues when the cluster responds.")
    since: int


Reason = (
    NotEnough
    | OverBorrowLimit
    | LentOutReturning
    | HeldFor
    | GuaranteeKeptFor
    | NotLent
    | Fragmented
    | NoNodeToClear
    | UserCap
    | DepartmentPaused
    | OverBudget
    | PoolShort
    | NoSuchProfile
    | AboveCeiling
    | NotPreemptible
    | OwnOnly
    | WaitingForGang
    | BackoffUntil
    | ClusterUnreachable
)

REASONS: dict[str, type[Reason]] = {reason.code: reason for reason in get_args(Reason)}
"""Every kind of reason by its code."""
