"""The words of the quota rules as values: what the engine reads (Snapshot) and what it answers (Plan).

Everything here is frozen. Amounts are integers in the pool's native unit, times are integer seconds from any origin.
Field names are those of the JSON format (docs/quota-rules.md, "Snapshot and plan as JSON"); `from_` stands for `from`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Literal, NewType

from quotas.engine.reasons import Reason

ClaimId = NewType("ClaimId", str)
DepartmentId = NewType("DepartmentId", str)
PoolId = NewType("PoolId", str)

Beside = tuple[tuple[str, int], ...]
"""What one pod takes of its machine beside the cards: (what, how much), where "what" is CPU (milli), MEMORY (MiB), PODS (1)
or the name of a device such as rdma/hca"""
CPU, MEMORY, PODS = "cpu", "memory", "pods"

Shape = tuple[int, int | None, str | None, Beside]
"""(units of a card, its compute, MIG profile, what it takes beside the cards) that one pod asks"""

UNPROMISED = DepartmentId("")
"""The lender named in `Decision.from_` and `Loan.lender` when units come from the pool's unpromised rest."""


class ClaimState(StrEnum):
    """What a claim does to its pool: asks (pending), occupies (holding), occupies until told to be gone (leaving)."""

    PENDING = "pending"
    HOLDING = "holding"
    LEAVING = "leaving"


class DecisionKind(StrEnum):
    """The four answers a pending claim can get."""

    ADMIT = "admit"
    RECLAIM = "reclaim"
    WAIT = "wait"
    IMPOSSIBLE = "impossible"


Within = Literal["never", "lower_priority", "lower_or_newer_equal"]
Reclaim = Literal["never", "lower_priority", "any"]


@dataclass(frozen=True, slots=True)
class BorrowPreempt:
    """Lets a claim that would borrow take other borrowers' claims of lower priority, at most `max_priority`."""

    max_priority: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Whose work may be stopped for a claim: `within` its own department, by `reclaim`, or between borrowers."""

    within: Within = "lower_priority"
    reclaim: Reclaim = "any"
    borrow_preempt: BorrowPreempt | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every pool of the snapshot. All numbers are seconds; `notice` and `grace` are the defaults
    where neither the claim nor its pool says otherwise."""

    fair_sharing: bool = False
    starvation_after: int = 600
    restart_cost: int = 0
    notice: int = 0
    grace: int = 0
    policy: Policy = Policy()


@dataclass(frozen=True, slots=True)
class Card:
    """One present GPU: `units` of the pool's unit and, where compute is limited too, `cores`: how many percent of
    compute it gives out in all (100, or more where its system gives out each percent several times). Of its units those
    `outside` are occupied by what no quota counts, and are no capacity (of a card that MIG cuts, its last slices)."""

    units: int = 1
    cores: int | None = None
    outside: int = 0

    @property
    def left(self) -> int:
        """Units that are capacity."""
        return self.units - min(self.units, self.outside)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with present cards. `instances` is a fixed MIG geometry: {profile: how many mig.config left there}.

    Nodes of the same name in several pools are one machine: they share `cpu_milli`, `memory_mib` and the number of `pods`
    that it takes (null = plenty), and `devices`: of one that is not named here there is none.
    """

    name: str
    cards: tuple[Card, ...] = ()
    instances: Mapping[str, int] | None = None
    domain: str | None = None
    cpu_milli: int | None = None
    memory_mib: int | None = None
    pods: int | None = None
    devices: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Pool:
    """One kind of capacity, counted in `unit`. Give `nodes`, or `capacity`, or neither (capacity = Σ guaranteed).

    With each card come `cpu_per_card` (milli) and `memory_per_card` (MiB): who asks for more is charged for more cards. None:
    an even share of its nodes; 0: nobody is charged for it."""

    id: PoolId
    unit: str = "card"
    nodes: tuple[Node, ...] | None = None
    capacity: int | None = None
    nominal: int | None = None
    units_per_card: int | None = None
    cpu_per_card: int | None = None
    memory_per_card: int | None = None
    cores_per_card: int | None = None
    mig: str | None = None
    cluster_unreachable_since: int | None = None
    policy: Policy | None = None
    notice: int | None = None
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """What a department is promised in a pool, and how far it may borrow and must lend (null = no limit, all).

    `lend_limit` holds now. Where lending windows change it, `lend_limit_most` is the most it ever is, so that what could
    only run in another window waits for it instead of being impossible (null = the limit stays as it is).
    """

    guaranteed: int = 0
    borrow_limit: int | None = None
    lend_limit: int | None = None
    lend_limit_most: int | None = None
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Department:
    """A tenant. `user_caps` bounds what each of its users may hold in a pool.

    `weight` is exact (an int is fine); weight 0 means that whatever it borrows goes back first.
    """

    id: DepartmentId
    parent: DepartmentId | None = None
    weight: Fraction | int = 1
    quotas: Mapping[PoolId, Quota] = field(default_factory=dict)
    policy: Policy | None = None
    paused: bool = False
    user_caps: Mapping[PoolId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where one pod runs: card indexes within the node, and for a MIG instance its first memory slice."""

    pod: int
    node: str
    cards: tuple[int, ...] = ()
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """A pending claim's title to `units`, at `places` where the pool has nodes."""

    units: int
    places: tuple[Placed, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """What a workload asks from, or holds of, one pool.

    A **recall** is a claim with `pods=0`: it asks for `units_per_pod` guaranteed units without a workload. While it
    holds, workloads of its department that started after it draw from it: it keeps only what they do not use.

    `cpu_milli`, `memory_mib` and `devices` are what each pod takes of its machine beside the cards.

    `units_per_pod` is what a pod is charged. Where it asks for more of a card's compute than of its memory, that is more
    than the `asked_per_pod` it takes of the card's units (None: the same).

    What follows from these is worked out once, for a pass asks hundreds of thousands of times: `units` are all that it asks or
    holds (a recall's amount stands in `units_per_pod`), `on_card` those a pod takes of its card, or of its cards together,
    `beside` what it takes of its machine beside them, and `shape` is all that matters for where one pod can go. It
    `must_stay_inside` its department's guarantee by its own wish, because nobody may stop it, or because it is a recall.
    """

    id: ClaimId
    department: DepartmentId
    pool: PoolId
    units_per_pod: int
    state: ClaimState
    submitted_at: int
    pods: int = 1
    user: str = ""
    priority: int = 0
    queued_at: int | None = None
    started_at: int | None = None
    checkpointed_at: int | None = None
    min_runtime: int = 0
    max_runtime: int | None = None
    preemptible: bool = True
    own_only: bool = False
    cores_per_pod: int | None = None
    asked_per_pod: int | None = None
    profile: str | None = None
    same_domain: bool = False
    cpu_milli: int = 0
    memory_mib: int = 0
    devices: Mapping[str, int] = field(default_factory=dict, hash=False)
    backoff_until: int | None = None
    leave_by: int | None = None
    held_for: ClaimId | None = None
    reserved: Reservation | None = None
    placement: tuple[Placed, ...] | None = None
    notice: int | None = None
    grace: int | None = None
    is_recall: bool = field(init=False, repr=False, compare=False)
    must_stay_inside: bool = field(init=False, repr=False, compare=False)
    units: int = field(init=False, repr=False, compare=False)
    on_card: int = field(init=False, repr=False, compare=False)
    beside: Beside = field(init=False, repr=False, compare=False)
    shape: Shape = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        on_card = self.units_per_pod if self.asked_per_pod is None else self.asked_per_pod
        put(self, "is_recall", self.pods == 0)
        put(self, "must_stay_inside", self.own_only or not self.preemptible or self.pods == 0)
        put(self, "units", self.units_per_pod * self.pods if self.pods > 1 else self.units_per_pod)
        put(self, "on_card", on_card)
        host = ((CPU, self.cpu_milli), (MEMORY, self.memory_mib), (PODS, 1), *sorted(self.devices.items()))
        beside = tuple([(what, amount) for what, amount in host if amount])
        put(self, "beside", beside)
        put(self, "shape", (on_card, self.cores_per_pod, self.profile, beside))

    @property
    def waiting_since(self) -> int:
        """The start of the current wait, which starvation counts from."""
        return self.submitted_at if self.queued_at is None else self.queued_at


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything one planning pass may know. `id` is copied to the plan."""

    id: str
    now: int
    pools: tuple[Pool, ...]
    departments: tuple[Department, ...]
    claims: tuple[Claim, ...]
    settings: Settings = Settings()


@dataclass(frozen=True, slots=True)
class Decision:
    """The one answer a pending claim gets. All units are native units, `by` is a time.

    `own + borrowed` is the whole request for admit and reclaim, 0 otherwise; `from_` splits `borrowed` by lender.
    `placement` says where it runs now (admit) or will run (reclaim). `position` counts from 1 among those who wait in
    the pool; `ahead` names the first ten (AHEAD_SHOWN) of those before it. `largest` is the biggest request that could.
    """

    claim: ClaimId
    decision: DecisionKind
    own: int = 0
    borrowed: int = 0
    from_: Mapping[DepartmentId, int] = field(default_factory=dict)
    placement: tuple[Placed, ...] | None = None
    victims: tuple[ClaimId, ...] = ()
    waiting_on: tuple[ClaimId, ...] = ()
    by: int | None = None
    reasons: tuple[Reason, ...] = ()
    position: int = 0
    ahead: tuple[ClaimId, ...] = ()
    largest: int | None = None


AHEAD_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """One decision for every pending claim, in claim-id order, and the recalled claims that may stay after all."""

    id: str
    decisions: tuple[Decision, ...]
    withdrawn: tuple[ClaimId, ...] = ()
