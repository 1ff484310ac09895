"""The nouns of the quota rules: what a planning pass reads (`Snapshot`) and what it answers (`Plan`).

In `Claim`, the fields below *Details* are for reference. Amounts are in the pool's unit, times in seconds from any origin;
`None` is no limit, or the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Literal, NamedTuple, NewType

from quotas.engine.reasons import Reason

ClaimId = NewType("ClaimId", str)
DepartmentId = NewType("DepartmentId", str)
PoolId = NewType("PoolId", str)

# What a pass reads, and what it answers ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one planning pass may know."""

    id: str
    now: Time
    pools: tuple[Pool, ...]
    departments: tuple[Department, ...]
    claims: tuple[Claim, ...]
    settings: Settings = field(default_factory=lambda: Settings())

    def pool(self, id: PoolId) -> Pool:
        """Raises KeyError for an unknown pool."""
        return {pool.id: pool for pool in self.pools}[id]

    def claims_of(self, pool: PoolId, *states: ClaimState) -> list[Claim]:
        """The claims of a pool in one of these states."""
        return [claim for claim in self.claims if claim.pool == pool and claim.state in states]


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision on every pending claim, and the leaving claims that stay after all."""

    id: str
    decisions: tuple[Decision, ...]
    withdrawn: tuple[ClaimId, ...] = ()


class DecisionKind(StrEnum):
    """Start now; reserve, and start `by` the time when all in `waiting_on` have left; wait; or never."""

    ADMIT = "admit"
    RECLAIM = "reclaim"
    WAIT = "wait"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a pending claim.

    If it starts, now or later, `own + borrowed` are all its units, `from_` (JSON: `from`) says who lends. `victims` get notice
    now; `waiting_on` are these and earlier leavers, all gone at `by`. If it waits, `position` counts from 1 in its pool, `ahead`
    names the first AHEAD_SHOWN before it. If it is impossible, one of `largest` units could run.
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


# Who asks for what ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quota:
    """What a department is guaranteed in a pool, may borrow above that, and lends of it while idle. Lending windows change
    `lend_limit`, up to `lend_limit_most`."""

    guaranteed: Units = 0
    borrow_limit: Units | None = None
    lend_limit: Units | None = None
    lend_limit_most: Units | None = None
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Department:
    """A tenant, or a team below its `parent`. `user_caps` bound what each of its users may hold; `budgets` are those that are
    used up, its own or of departments above."""

    id: Annotated[DepartmentId, NotEmpty()]
    parent: DepartmentId | None = None
    weight: Weight = 1
    quotas: Mapping[PoolId, Quota] = field(default_factory=dict)
    policy: Policy | None = None
    paused: bool = False
    user_caps: Mapping[PoolId, Units] = field(default_factory=dict)
    budgets: tuple[SpentBudget, ...] = ()


class ClaimState(StrEnum):
    PENDING = "pending"  # it asks for units
    HOLDING = "holding"  # it uses them
    LEAVING = "leaving"  # … until SIGTERM at `leave_by`, then grace


@dataclass(frozen=True, slots=True)
class Claim:
    """What a workload asks for, or holds, of one pool: it is charged `pods` times `units_per_pod`.

    A **recall** has `pods=0`: an owner takes back `units_per_pod` guaranteed units without a workload, until it is ended.
    Workloads of the department, or below it, that start later use these units; it stays charged for the rest.

    Recalls, claims that are `own_only` and those not `preemptible` never borrow (`must_stay_inside`). One that was preempted
    waits since `queued_at` and does not borrow again before `backoff_until`. A leaving claim may
    have been `preempted_for` another; a pending one was promised its `reserved` units and places.
    """

    id: Annotated[ClaimId, NotEmpty()]
    department: DepartmentId
    pool: PoolId
    units_per_pod: Units
    state: ClaimState
    submitted_at: Time
    pods: Annotated[int, Range(0, 10_000)] = 1
    user: str = ""
    priority: Priority = 0
    queued_at: Time | None = None
    started_at: Time | None = None
    min_runtime: Seconds = 0
    max_runtime: Seconds | None = None
    preemptible: bool = True
    own_only: bool = False
    backoff_until: Time | None = None
    leave_by: Time | None = None
    preempted_for: ClaimId | None = None
    reserved: Reservation | None = None
    placement: tuple[Placed, ...] | None = None

    # Details ----------------------------------------------------------------------------------------------------------

    notice: Seconds | None = None  # this and `grace` were promised to it when it started
    grace: Seconds | None = None
    checkpointed_at: Time | None = None
    checkpoint_every: Seconds | None = None  # the time between its last two checkpoints
    idle_since: Time | None = None  # its cards are idle since then, as measured: stopping it loses no work
    # What a pod takes of its card's units, if it is charged for more (units.resized)
    asked_per_pod: Units | None = None
    cores_per_pod: Count | None = None  # percent of a card's compute
    profile: str | None = None  # of MIG: each pod takes an instance of it
    cpu_milli: Count = 0  # this, `memory_mib` and `devices` each pod takes of its machine
    memory_mib: Count = 0
    devices: Mapping[str, Count] = field(default_factory=dict, hash=False)
    same_domain: bool = False  # all pods run in one network domain

    # Derived values, computed once because a pass reads them hundreds of thousands of times
    is_recall: bool = field(init=False, repr=False, compare=False)
    must_stay_inside: bool = field(init=False, repr=False, compare=False)  # it never exceeds its department's guarantee
    units: int = field(init=False, repr=False, compare=False)  # all that it is charged
    on_card: int = field(init=False, repr=False, compare=False)  # that one pod occupies on its card or cards
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


AHEAD_SHOWN = 10

# Policies -------------------------------------------------------------------------------------------------------------

Within = Literal["never", "lower_priority", "lower_or_newer_equal"]
Reclaim = Literal["never", "lower_priority", "any"]


@dataclass(frozen=True, slots=True)
class BorrowPreempt:
    """Lets a claim that would borrow preempt other borrowers of lower priority, at most `max_priority`."""

    max_priority: Priority | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Whose claims may be preempted for a department's claim: `within` the department, by `reclaim` from departments above
    their guarantee, and as one borrower from another. The quota's policy applies, or else the department's, the pool's, the
    default."""

    within: Within = "lower_priority"
    reclaim: Reclaim = "any"
    borrow_preempt: BorrowPreempt | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What applies to every pool. `notice` (from announcement to SIGTERM), `grace` (from there to SIGKILL) and `policy` are
    defaults; `restart_cost` is the work that each preemption loses in any case."""

    fair_sharing: bool = False
    starvation_after: Seconds = 600
    restart_cost: Seconds = 0
    notice: Seconds = 0
    grace: Seconds = 0
    policy: Policy = Policy()


# Capacity -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Card:
    """A present GPU. `cores` is the percent of compute that it gives out in all, if compute is limited too: 100, or more if the
    sharing system gives out each percent several times. `outside` of its units are used outside quota."""

    units: Units = 1
    cores: Count | None = None
    outside: Units = 0

    @property
    def capacity(self) -> int:
        """Units that the pool has: without those used outside quota."""
        return self.units - min(self.units, self.outside)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with present cards; `instances` is a fixed MIG geometry: {profile: how many mig.config created}.

    `domain` is the network domain within which pods are near each other. Nodes of the same name in several pools are one
    machine: they share `cpu_milli`, `memory_mib`, the number of `pods` it takes (None: plenty) and `devices` by name (those
    not named: none).
    """

    name: Name
    cards: tuple[Card, ...] = ()
    instances: Mapping[str, Count] | None = None
    domain: str | None = None
    cpu_milli: Count | None = None
    memory_mib: Count | None = None
    pods: Count | None = None
    devices: Mapping[str, Count] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Pool:
    """One kind of capacity, counted in `unit`: that of its `nodes`, or else `capacity`, or else the sum of all guarantees.
    `nominal` is what it has when all is well (default: what it has now). While less is present, claims wait for the rest
    instead of being impossible.

    A claim is charged for its largest share of a card: of the card's units, of the `cores_per_card` percent of compute, and of
    `cpu_per_card` (millicores) and `memory_per_card` (MiB), which come with each card. None: what the cards have, and an
    even share of their nodes; 0: nobody is charged for it. `mig` is a product of mig_profiles.py whose cards are cut.

    `balances` are, by department, what it has borrowed on average lately less what it has lent, in thousandths of a unit. With
    them (even an empty mapping; a department that is not named has 0) borrowers are served by balance, and shares preempt
    nobody. None: by what they borrow now, with fair sharing, or by priority.
    """

    id: Annotated[PoolId, NotEmpty()]
    unit: Name = "card"
    nodes: tuple[Node, ...] | None = None
    capacity: Units | None = None
    nominal: Units | None = None
    units_per_card: Positive | None = None
    cpu_per_card: Count | None = None
    memory_per_card: Count | None = None
    cores_per_card: Positive | None = None
    mig: str | None = None
    cluster_unreachable_since: Time | None = None
    policy: Policy | None = None
    notice: Seconds | None = None
    grace: Seconds | None = None
    balances: Mapping[DepartmentId, Thousandths] | None = field(default=None, hash=False)


# Parts of departments and claims --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpentBudget:
    """A budget of GPU-hours that is used up until `resets_at`. It binds pending claims only: none of its `department` and all
    below it starts, or with `borrowing_only` none that would borrow. With a `user` or a `pool` it binds that user's claims, or
    those of that pool. `limit` and `used` are for people."""

    department: DepartmentId
    limit: Count
    used: Count
    resets_at: Time
    user: str | None = None
    pool: PoolId | None = None
    borrowing_only: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """Where one pod runs: indexes of cards within the node and, for a MIG instance, its first memory slice."""

    pod: Count
    node: str
    cards: tuple[Count, ...] = ()
    start: Count | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Units, and places where the pool has nodes, that a pending claim has been promised: it starts there once they are free."""

    units: Units
    places: tuple[Placed, ...] = ()


# Numbers and names ----------------------------------------------------------------------------------------------------


class Range(NamedTuple):
    """The integers that a key of the JSON format may have. Beyond 2⁵³, JSON readers may see different numbers."""

    least: int = -(2**53) + 1
    most: int = 2**53 - 1


class NotEmpty(NamedTuple):
    """Marks a string of at least one character."""


Units = Annotated[int, Range(0)]
"""An amount in the pool's native unit."""
Count = Annotated[int, Range(0)]
"""How many of anything else: cards, pods, percent, millicores, MiB; or an index from 0."""
Positive = Annotated[int, Range(1)]
Seconds = Annotated[int, Range(0)]
"""A duration."""
Time = Annotated[int, Range()]
"""A point in time: seconds from any origin, the same one throughout a snapshot."""
Thousandths = Annotated[int, Range()]
"""An average of units that may be negative, times 1000."""
Priority = Annotated[int, Range()]
"""Higher goes first."""
Weight = Fraction | int
"""An exact share in what is lent; departments with weight 0 give back first what they borrow."""
Name = Annotated[str, NotEmpty()]

UNASSIGNED = DepartmentId("")
"""The lender named in `Decision.from_` and `Loan.lender` for units that the pool has beyond all guarantees."""

CPU, MEMORY, PODS = "cpu", "memory", "pods"
Beside = tuple[tuple[str, int], ...]
"""What one pod takes of its machine beside the cards: (what, how much), where "what" is CPU (in millicores), MEMORY (in MiB),
PODS (1) or the name of a device such as rdma/hca."""
Shape = tuple[int, int | None, str | None, Beside]
"""Everything that decides where one pod can go: (units of a card, percent of its compute, MIG profile, what it takes beside)."""
