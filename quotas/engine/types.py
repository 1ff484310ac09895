"""The nouns of the quota rules: what a planning pass reads (`Snapshot`) and what it answers (`Plan`).

A **department** is promised a guaranteed number of units in each **pool** of cards, lends what it does not use, and
borrows what others do not use. A **claim** is one workload's request for units of one pool: it is pending, holds units,
or is leaving. A **recall** is a claim without a workload, by which an owner takes lent units back. `Quota`, `Department`,
`Claim`, `Decision`, `Snapshot` and `Plan` come first; from *Policies* on, read what is met.

Every value is frozen. Amounts are integers in the pool's native unit (cards, slices or MiB). Field names are those of the
JSON format (docs/quota-rules-reference.md, "Snapshot and plan as JSON"; snapshot_json.py reads and writes them), and `None` means
that nothing is said: no limit, or the default.
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

# What departments have ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quota:
    """A department's guarantee in a pool, how much it may borrow above it (None: no limit), and how much of it it lends while
    idle (None: all).

    Lending windows change `lend_limit` by the hour; `lend_limit_most` is the most that it ever is, so that a claim that
    needs another window waits for it instead of being impossible.
    """

    guaranteed: Units = 0
    borrow_limit: Units | None = None
    lend_limit: Units | None = None
    lend_limit_most: Units | None = None
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Department:
    """A tenant, or a team below its `parent`. While `paused` it starts nothing. `user_caps` bounds what each of its users may
    hold of a pool. `budgets` are its own and those of the departments above it, as far as they are used up."""

    id: Annotated[DepartmentId, NotEmpty()]
    parent: DepartmentId | None = None
    weight: Weight = 1
    quotas: Mapping[PoolId, Quota] = field(default_factory=dict)
    policy: Policy | None = None
    paused: bool = False
    user_caps: Mapping[PoolId, Units] = field(default_factory=dict)
    budgets: tuple[SpentBudget, ...] = ()


# What is asked --------------------------------------------------------------------------------------------------------


class ClaimState(StrEnum):
    """A pending claim asks for units, a holding one uses them, a leaving one uses them until `leave_by` and its grace."""

    PENDING = "pending"
    HOLDING = "holding"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a workload asks for, or holds, of one pool: `pods` times `units_per_pod`.

    A **recall** has `pods=0` and asks for `units_per_pod` guaranteed units without a workload. While it holds, workloads of its
    department that started after it draw from its units first, and it is charged only for the rest.

    Each pod takes `asked_per_pod` of a card's units (None: `units_per_pod`), `cores_per_pod` percent of its compute, or a MIG
    instance of `profile`; beside that `cpu_milli`, `memory_mib` and `devices` of its machine. `units_per_pod` is what it is
    charged, the largest of those shares (units.resized). With `same_domain` all pods run in one network domain.

    It saves a checkpoint every `checkpoint_every` seconds, as its last ones show. Since `idle_since` its cards have done
    nothing, as measured, so that stopping it loses no work.

    `own_only` claims never borrow, those not `preemptible` are never victims. A preempted claim does not borrow again
    before `backoff_until`. `held_for` names the claim that a leaving one was preempted for. `notice` and `grace` are what it
    was promised when it started.

    The fields from `is_recall` on follow from the others, computed once because a pass reads them hundreds of thousands of times.
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
    checkpointed_at: Time | None = None
    checkpoint_every: Seconds | None = None
    idle_since: Time | None = None
    min_runtime: Seconds = 0
    max_runtime: Seconds | None = None
    preemptible: bool = True
    own_only: bool = False
    cores_per_pod: Count | None = None
    asked_per_pod: Units | None = None
    profile: str | None = None
    same_domain: bool = False
    cpu_milli: Count = 0
    memory_mib: Count = 0
    devices: Mapping[str, Count] = field(default_factory=dict, hash=False)
    backoff_until: Time | None = None
    leave_by: Time | None = None
    held_for: ClaimId | None = None
    reserved: Reservation | None = None
    placement: tuple[Placed, ...] | None = None
    notice: Seconds | None = None
    grace: Seconds | None = None
    is_recall: bool = field(init=False, repr=False, compare=False)
    must_stay_inside: bool = field(init=False, repr=False, compare=False)
    """It never stands above its department's guarantee."""
    units: int = field(init=False, repr=False, compare=False)
    """All units that it is charged."""
    on_card: int = field(init=False, repr=False, compare=False)
    """Units that one pod takes of its card, or of its cards together."""
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


# What is answered -----------------------------------------------------------------------------------------------------


class DecisionKind(StrEnum):
    """The four answers to a pending claim: start now, start `by` a time when preempted claims have left, wait, or never."""

    ADMIT = "admit"
    RECLAIM = "reclaim"
    WAIT = "wait"
    IMPOSSIBLE = "impossible"


AHEAD_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Decision:
    """The one answer to a pending claim.

    `own + borrowed` are all its units for admit and reclaim, else 0; `from_` (JSON: `from`) splits `borrowed` by lender.
    `placement` says where it runs now (admit) or will run (reclaim). `victims` are the claims to be preempted for it,
    `waiting_on` all leaving claims that it waits for, `by` when they will be gone. `position` counts those who wait in the pool
    from 1, `ahead` names the first AHEAD_SHOWN of those before it. `largest` (if impossible) is the largest such request that
    could run.
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


# What a pass reads and returns ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one planning pass may know. `id` is copied to the plan."""

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
    """One decision for every pending claim, in order of claim ids, and the leaving claims that may stay after all."""

    id: str
    decisions: tuple[Decision, ...]
    withdrawn: tuple[ClaimId, ...] = ()


# Policies -------------------------------------------------------------------------------------------------------------

Within = Literal["never", "lower_priority", "lower_or_newer_equal"]
Reclaim = Literal["never", "lower_priority", "any"]


@dataclass(frozen=True, slots=True)
class BorrowPreempt:
    """Lets a claim that would borrow preempt other borrowers of lower priority, at most `max_priority`."""

    max_priority: Priority | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Whose claims may be preempted for a department's claim: `within` the department, by `reclaim` of what it has lent, and
    as one borrower from another. The quota's policy counts, or else the department's, the pool's, the default."""

    within: Within = "lower_priority"
    reclaim: Reclaim = "any"
    borrow_preempt: BorrowPreempt | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every pool. `notice` (from being told to SIGTERM), `grace` (from there to SIGKILL) and `policy` are the
    defaults where nothing nearer says otherwise; `restart_cost` is the work that each preemption loses in any case."""

    fair_sharing: bool = False
    starvation_after: Seconds = 600
    restart_cost: Seconds = 0
    notice: Seconds = 0
    grace: Seconds = 0
    policy: Policy = Policy()


# Capacity -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Card:
    """A present GPU. `cores` is the percent of compute that it gives out in all, where compute is limited too: 100, or more where
    the sharing system gives out each percent several times. `outside` of its units are used by what no quota counts."""

    units: Units = 1
    cores: Count | None = None
    outside: Units = 0

    @property
    def left(self) -> int:
        """Units that are capacity."""
        return self.units - min(self.units, self.outside)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with present cards; `instances` is a fixed MIG geometry: {profile: how many mig.config left there}.

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
    `nominal` is what it has when all is well (default: what it has now). While less is there, claims wait for the rest instead of
    being impossible.

    A claim is charged for its largest share of a card: of the card's units, of the `cores_per_card` percent of compute, and of
    `cpu_per_card` (millicores) and `memory_per_card` (MiB), which come with each card. None: what the cards have, and an
    even share of their nodes; 0: nobody is charged for it. `mig` is a product of mig_profiles.py whose cards are cut.

    `balances` are, by department, what it has borrowed on average lately less what it has lent, in thousandths of a unit. With
    them (even an empty mapping; a department that is not named has 0) who borrows is served by its balance, and shares preempt
    nobody. None: by what is borrowed now, with fair sharing, or by priority.
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
    """The integers that a key of the JSON format may have. Beyond 2⁵³ not every reader of JSON sees the same number."""

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
"""An exact share in what is lent; whoever has weight 0 gives back what it borrows before anybody else."""
Name = Annotated[str, NotEmpty()]

UNPROMISED = DepartmentId("")
"""The lender named in `Decision.from_` and `Loan.lender` for units that the pool has beyond all guarantees."""

CPU, MEMORY, PODS = "cpu", "memory", "pods"
Beside = tuple[tuple[str, int], ...]
"""What one pod takes of its machine beside the cards: (what, how much), where "what" is CPU (in millicores), MEMORY (in MiB),
PODS (1) or the name of a device such as rdma/hca."""
Shape = tuple[int, int | None, str | None, Beside]
"""All that decides where one pod can go: (units of a card, percent of its compute, MIG profile, what it takes beside)."""
