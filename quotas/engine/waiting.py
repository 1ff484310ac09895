"""Why a claim does not start, and what would help.

`impossible`: why it can never run in the pool, and how large such a request could be; `not_now`: why it does not start however
much is free; `waiting_reasons`: what it waits for. No reason names the policy: if it forbids to preempt, the reason is what is
lacking, such as `not_enough`. `Consolidation` searches for pods that could move to make room.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from quotas.engine.mig_profiles import profile_of, profiles_of
from quotas.engine.pass_state import Earmark, PassState
from quotas.engine.placement import (
    Host,
    Trial,
    Vector,
    best_in,
    best_spot,
    by_domain,
    free_units,
    has_spot,
    largest_request,
    nearest_machine,
    pods_that_fit,
)
from quotas.engine.preemption import choose
from quotas.engine.preemption_rules import may_be_preempted, open_claims
from quotas.engine.quota_tree import Account
from quotas.engine.reasons import (
    AboveCeiling,
    BackoffUntil,
    ClusterUnreachable,
    DepartmentPaused,
    Fragmented,
    GuaranteeKeptFor,
    HeldFor,
    LentOutReturning,
    Machine,
    Move,
    NoNodeToClear,
    NoSuchProfile,
    NotEnough,
    NotLent,
    NotPreemptible,
    OverBorrowLimit,
    OverBudget,
    OwnOnly,
    PoolShort,
    Reason,
    UserCap,
    WaitingForGang,
)
from quotas.engine.types import Claim, Decision, DecisionKind, Placed, Shape, SpentBudget
from quotas.engine.units import beside_units, card_cores, card_units, comes_with_a_card, resized


def impossible(state: PassState, claim: Claim) -> Decision | None:
    """The answer to a claim that can never run: it is above its department's ceiling, has an unknown profile, or is larger than
    any node. Reasons of quotas come first; `largest` is the largest such request that could run. None if it could run."""
    profiles = state.pool.mig
    known = claim.profile is None if profiles is None else profile_of(profiles, claim.profile) or claim.is_recall
    if not known:
        most = 0 if profiles is None else largest(state, claim)
        return Decision(claim.id, DecisionKind.IMPOSSIBLE, reasons=(NoSuchProfile(),), largest=most)
    reasons = _passed_quota(state, claim)
    place = _no_place(state, claim, bool(reasons))
    if not reasons and place is None:
        return None
    cap = state.departments[claim.department].user_caps.get(state.pool.id)
    if cap is not None and claim.units > cap and not claim.is_recall:
        reasons.append(UserCap(cap, state.used_by.get((claim.department, claim.user), 0)))
    if place is not None:
        reasons.append(place)
    return Decision(claim.id, DecisionKind.IMPOSSIBLE, reasons=tuple(reasons), largest=largest(state, claim))


def _passed_quota(state: PassState, claim: Claim) -> list[Reason]:
    """The limits of its department's quota that the claim alone would exceed."""
    account = state.ledger[claim.department]
    if claim.units > account.ceiling:
        return [AboveCeiling(account.ceiling)]
    until_reset = claim.id in state.budgets and state.budgets[claim.id].borrowing_only  # then it may borrow again
    beyond = claim.must_stay_inside and not until_reset and claim.units > account.guaranteed
    return [_outside(account, claim, claim.units)] if beyond else []


def _no_place(state: PassState, claim: Claim, above_quota: bool) -> Fragmented | None:
    """The reason if even the empty pool has no place for the claim; with `above_quota`, only if not even what its quota allows
    has one. While capacity is missing, future nodes are unknown, so the claim waits."""
    if state.ledger.capacity < state.ledger.nominal or state.fits_when_empty(claim):
        return None
    if above_quota and (state.pool.nodes is None or claim.is_recall):
        return None  # there are no places beside the units
    fits = largest(state, claim, by_quota=False)
    if above_quota and fits >= _allowed(state, claim):
        return None
    machine = nearest_machine(claim, state.pool, state.empty_pool)
    return Fragmented(state.ledger.capacity, fits, machine=machine, empty=True)


def with_present_usage(state: PassState, claim: Claim, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """The reasons why a claim could never run, with what its department and its user use now."""
    account, used = state.ledger[claim.department], state.used_by.get((claim.department, claim.user), 0)

    def now(reason: Reason) -> Reason:
        if isinstance(reason, NotPreemptible | OwnOnly):
            return _outside(account, claim, claim.units)
        return UserCap(reason.limit, used) if isinstance(reason, UserCap) else reason

    return tuple(map(now, reasons))


def not_now(state: PassState, claim: Claim) -> Reason | None:
    """Why the claim may not start however much is free; then nothing is held and no claim preempted for it."""
    blocked = barred(state, claim, itself_counted=False)
    if blocked is not None or state.inside(claim):
        return blocked
    over = barred_from_borrowing(state, claim)
    if over is not None:
        return over
    until = claim.backoff_until
    return BackoffUntil(until) if until is not None and until > state.now else None


def barred_from_borrowing(state: PassState, claim: Claim) -> OverBudget | None:
    """The used-up budget that forbids the claim to borrow."""
    budget = state.budgets.get(claim.id)
    return _over(budget) if budget is not None and budget.borrowing_only else None


def _over(budget: SpentBudget) -> OverBudget:
    personal = budget.user is not None
    return OverBudget(budget.department, budget.limit, budget.used, budget.resets_at, personal, budget.borrowing_only)


def barred(state: PassState, claim: Claim, itself_counted: bool) -> Reason | None:
    """Why the claim may not start even inside its guarantee: its department is paused, a budget lets nothing start, or it is over
    its user's cap. `itself_counted`: the user's usage includes the claim."""
    if state.departments[claim.department].paused:
        return DepartmentPaused()
    budget = state.budgets.get(claim.id)
    if budget is not None and not budget.borrowing_only:
        return _over(budget)
    above = state.above_cap(claim, itself_counted)
    return None if above is None else UserCap(*above)


def waiting_reasons(state: PassState, claim: Claim) -> tuple[Reason, ...]:
    """Why the claim waits, the most informative reason first."""
    since = state.pool.cluster_unreachable_since
    if since is not None:
        return (ClusterUnreachable(since),)
    blocked = not_now(state, claim)
    if blocked is not None:
        return (blocked,)
    reasons = [
        *(_returning(state, claim) or _no_node(state, claim)),
        *(_quota_reasons(state, claim) or _space_reasons(state, claim)),
    ]
    missing = state.ledger.nominal - state.ledger.capacity
    return (*reasons, PoolShort(missing)) if missing > 0 else tuple(reasons)


def _returning(state: PassState, claim: Claim) -> list[LentOutReturning]:
    """The claims that it would preempt if their minimum runtime were over, and by when they would have left."""
    if not state.young or not state.inside(claim):
        return []
    chosen = choose(state, claim, ignore_min_runtime=True)
    if chosen is None or not chosen.victims:  # what it lacks has become free since it was answered
        return []
    by = max(state.gone_by(victim) for victim in chosen.victims)
    return [LentOutReturning(tuple(victim.id for victim in chosen.victims), by)]


def _no_node(state: PassState, claim: Claim) -> list[NoNodeToClear]:
    """The reason if no nodes can be cleared for it, although free and preemptible units together would be enough."""
    if state.pool.nodes is None or not state.inside(claim):
        return []
    victims, free = open_claims(state, claim), state.free_later
    with state.trial() as trial:
        for earmark in [earmark for earmark in state.earmarks.values() if earmark.starving]:
            trial.remove_earmark(earmark)  # a borrower's hold, which a claim inside its guarantee passes
        trial.free(free, [state.vectors[victim.id] for victim in victims])
        if not victims or free.row[state.pool_slot] < state.asked(claim) or state.places(claim, free) is not None:
            return []
        return [NoNodeToClear(largest_request(claim, state.pool, free))]


def _outside(account: Account, claim: Claim, asked: int) -> Reason:
    """The reason for a claim that must stay inside its department's guarantee and would exceed it with the units `asked`."""
    reason = OwnOnly if claim.preemptible else NotPreemptible
    return reason(account.guaranteed, account.usage + asked)


def _quota_reasons(state: PassState, claim: Claim) -> list[Reason]:
    """Reasons of quotas, with holds and reservations counted as used. `NotEnough` counts units that the department may use."""
    account, asked = state.ledger[claim.department], state.asked(claim)
    inside = state.inside(claim)
    if claim.must_stay_inside and not inside:
        return [_outside(account, claim, asked)]
    passed = state.ledger.passed_limit(claim.department, asked)
    if passed is not None:
        above = None if passed.account is account else passed.account.id
        return [OverBorrowLimit(passed.limit, passed.asked, above)]
    short = asked - max(0, state.ledger.available(claim.department))
    if short <= 0:
        before = None if inside or state.free_now.row[state.pool_slot] < asked else state.guarantee_kept_for(claim)
        return [] if before is None else [GuaranteeKeptFor(before)]
    return [_kept_by_others(state, claim, asked) or NotEnough(state.pool.id, short)]


def _kept_by_others(state: PassState, claim: Claim, asked: int) -> HeldFor | NotLent | None:
    """The reason if enough units are free, but held for another claim, or kept by a department that does not lend them."""
    if state.free_now.row[state.pool_slot] + state.units_earmarked < asked:
        return None
    with state.trial() as trial:
        holder = None
        for earmark in _earmarks_of_free(state, claim):
            trial.uncharge_earmark(earmark)
            if state.ledger.available(claim.department) >= asked:
                holder = earmark
                break
        if holder is None:
            return _not_lent(state, claim, asked)
    return _held_for(state, claim, holder)


def _not_lent(state: PassState, claim: Claim, asked: int) -> NotLent | None:
    """The department that keeps the most idle units for itself, if these alone would be enough."""
    short = asked - max(0, state.ledger.available(claim.department))
    own = {each.id for each in state.ledger[claim.department].upwards()}
    idle = [(other.kept - other.usage, other.id) for other in state.ledger.keepers if other.id not in own]
    kept, keeper = max(idle, default=(0, claim.department))
    return NotLent(keeper, kept) if kept >= short else None


def _held_for(state: PassState, claim: Claim, earmark: Earmark) -> HeldFor:
    """The reason, with the latest end with which the claim could pass enough holds to start now."""
    holds = [*state.earmarks.values()]
    ends = sorted({hold.starts_by for hold in holds if hold.starts_by is not None and hold.starts_by > state.now})

    def starts(number: int) -> bool:
        """Whether it could start if it ended by that one of the `ends`."""
        passed = [hold for hold in holds if state.lets_pass(hold, claim, ends[number - 1])]
        with state.trial() as trial:
            for hold in passed:
                trial.remove_earmark(hold)
            return state.entitled(claim) and state.places(claim, state.free_now_and_later) is not None

    latest = 0 if claim.is_recall else _most(len(ends), starts)
    return HeldFor(earmark.claim.id, ends[latest - 1] if latest else None)


def _earmarks_of_free(state: PassState, claim: Claim) -> Iterator[Earmark]:
    """The earmarks that keep free units for other claims."""
    return (
        earmark for id, earmark in state.earmarks.items() if id != claim.id and earmark.free_part[state.pool_slot] > 0
    )


def _space_reasons(state: PassState, claim: Claim) -> Iterator[Reason]:
    """Reasons of the pool, if quotas allow the claim. `NotEnough` counts free units."""
    asked, free = state.asked(claim), max(0, state.free_now.row[state.pool_slot])
    if free + state.units_earmarked < asked:
        yield NotEnough(state.pool.id, asked - free)
    elif free < asked:
        yield _held_for(state, claim, next(_earmarks_of_free(state, claim)))
    elif state.places(claim, state.free_now_and_later) is None:
        # Otherwise what it lacked has become free since it was answered.
        room = state.free_now_and_later
        if claim.pods > 1:
            yield WaitingForGang(pods_that_fit(claim, state.pool, room), claim.pods)
        yield Fragmented(free, largest_request(claim, state.pool, room))


# The largest request that could run -----------------------------------------------------------------------------------

SOME_PODS = 16
"""Up to this number of pods, parts of cards are tried for every number of pods; beyond it, only for all pods."""


def largest(state: PassState, claim: Claim, by_quota: bool = True) -> int:
    """Units of the largest request like the claim that fits into the empty pool and, if `by_quota`, that quotas and the user's
    cap allow. Like the claim means: no more pods, no more units in each, the same CPU, memory and domain; for MIG, its
    profile or a smaller one."""
    limit = state.ledger.capacity
    if by_quota:
        cap = None if claim.is_recall else state.departments[claim.department].user_caps.get(state.pool.id)
        limit = max(0, _allowed(state, claim) if cap is None else min(_allowed(state, claim), cap))
    if claim.is_recall:
        return limit
    if state.pool.nodes is None:
        return max(pods * min(claim.units_per_pod, limit // pods) for pods in range(1, claim.pods + 1))
    return max((_with_most_pods(state, pod, claim.pods, limit) for pod in _pods(state, claim, limit)), default=0)


def _allowed(state: PassState, claim: Claim) -> int:
    """The most units that the department's quota allows for such a claim."""
    account = state.ledger[claim.department]
    return min(account.ceiling, account.guaranteed) if claim.must_stay_inside else account.ceiling


def _with_most_pods(state: PassState, pod: Claim, pods: int, limit: int) -> int:
    """Units of the most such pods, at most `pods`, that fit together."""
    most = _most(min(pods, limit // pod.units_per_pod), lambda count: state.fits_when_empty(replace(pod, pods=count)))
    return most * pod.units_per_pod


def _pods(state: PassState, claim: Claim, limit: int) -> Iterator[Claim]:
    """Single pods to try: the claim's own, and the largest smaller ones; for MIG, its profile and all smaller ones, or every one
    if the claim's own does not exist."""
    if state.pool.mig is not None:
        for name, profile in profiles_of(state.pool.mig).items():
            if not claim.on_card or profile.size < claim.on_card or name == claim.profile:
                yield resized(replace(claim, pods=1, profile=name), profile.size, state.pool)
        return
    for units in _sizes(state, claim, limit):
        if 0 < units <= claim.units_per_pod:
            yield _smaller(state, claim, units)


def _sizes(state: PassState, claim: Claim, limit: int) -> Iterator[int]:
    """Units of a pod to try: any number of whole cards; for each number of pods, the largest part of a card that all can have."""
    nodes = state.pool.nodes or ()
    for whole in {card.units for node in nodes for card in node.cards if card.units}:
        yield from (count * whole for count in range(1, max(len(node.cards) for node in nodes) + 1))
        for pods in {*range(1, min(claim.pods, SOME_PODS) + 1), claim.pods} if whole > 1 else ():
            yield _largest_part(state, claim, pods, min(whole, claim.units_per_pod, limit // pods))


def _largest_part(state: PassState, claim: Claim, pods: int, most: int) -> int:
    """The most units, at most `most`, that each of `pods` pods of the claim can be charged."""
    return _most(most, lambda units: state.fits_when_empty(replace(_smaller(state, claim, units), pods=pods)))


def _smaller(state: PassState, claim: Claim, units: int) -> Claim:
    """One pod of the claim that is charged `units`, with no more compute, CPU and memory than belong to these."""
    cores, whole = claim.cores_per_pod, card_units(state.pool)
    if cores is not None and whole:
        cores = min(cores, card_cores(state.pool) * units // whole)
    cpu, memory = claim.cpu_milli, claim.memory_mib
    share = comes_with_a_card(state.pool)
    if whole and beside_units((cpu, memory), whole, share) <= claim.units_per_pod:  # it is charged for them
        cpu, memory = (
            min(asked, most * units // whole) if most else asked
            for asked, most in zip((cpu, memory), share, strict=True)
        )
    return replace(
        claim, pods=1, units_per_pod=units, asked_per_pod=min(claim.on_card, units), cores_per_pod=cores,
        cpu_milli=cpu, memory_mib=memory,
    )  # fmt: skip


def _most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `high` that fits. Smaller numbers must fit too, and 0 always."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


# Moves that would make room -------------------------------------------------------------------------------------------

MOST_MOVES = 3
"""The most moves for each pod of the waiting claim."""
TRIES, LOOKS = 100, 5_000
"""In one pass over a pool, for all waiting claims: how many sets of pods are tried, and how many are considered."""


@dataclass(frozen=True, slots=True)
class Running:
    """One running pod that may be moved, as a separate claim, with what it occupies."""

    claim: Claim
    placed: Placed
    vector: Vector

    @property
    def key(self) -> tuple[str, int]:
        return self.claim.id, self.placed.pod


class Consolidation:
    """The hints of one pass: which pods could move to make room for a claim if enough is free, but not together.

    Nothing is moved: the hints are for people. A move takes one running pod that may be preempted to a place that is already
    free. For each pod of the waiting claim, the fewest moves on one node are searched for, up to MOST_MOVES. The search is
    bounded: if it finds nothing, more moves, or moves that wait for each other, might still help.
    """

    def __init__(self, state: PassState) -> None:
        self._state, self._pool, self._free = state, state.pool, state.free_now
        self._hosts = tuple(state.hosts.values())
        self._tries, self._looks = TRIES, LOOKS
        self._moves: dict[tuple[object, ...], tuple[Move, ...]] = {}
        self._machines: dict[tuple[object, ...], Machine | None] = {}
        self._running: dict[str, list[Running]] | None = None

    def hinted(self, claim: Claim, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
        """The reasons why the claim waits; "fragmented" gets the moves that would make room, and the closest machine if it
        lacks CPU, memory, pods or a device."""
        if not any(isinstance(reason, Fragmented) for reason in reasons):
            return reasons
        machine, moves = self.machine(claim), self.moves(claim)
        return tuple(replace(r, moves=moves, machine=machine) if isinstance(r, Fragmented) else r for r in reasons)

    def machine(self, claim: Claim) -> Machine | None:
        """placement.nearest_machine, cached for all claims with the same request, unless something is held for them."""
        earmark = self._state.earmarks.get(claim.id)
        key = claim.shape, claim.pods, claim.same_domain, earmark and claim.id
        if key not in self._machines:
            with Trial() as trial:
                trial.free(self._free, [earmark.free_part] if earmark else [])
                self._machines[key] = nearest_machine(claim, self._pool, self._free)
        return self._machines[key]

    def moves(self, claim: Claim) -> tuple[Move, ...] | None:
        """The fewest moves found that would let the claim start now; (): none found; None: no tries were left."""
        key = claim.shape, claim.pods, claim.same_domain
        if key not in self._moves:
            if not self._tries:
                return None
            domains = by_domain(self._hosts) if claim.same_domain else [self._hosts]
            found = [moves for hosts in domains if (moves := self._all_pods(claim, hosts)) is not None]
            self._moves[key] = min(found, key=len, default=())
        return self._moves[key]

    def _all_pods(self, claim: Claim, hosts: tuple[Host, ...]) -> tuple[Move, ...] | None:
        """Moves that make room for all pods on these nodes, pod by pod; a pod that fits needs none. None: not found."""
        one, moves, earmark = (
            replace(claim, pods=1, same_domain=False),
            list[Move](),
            self._state.earmarks.get(claim.id),
        )
        with Trial() as trial:
            trial.free(self._free, [earmark.free_part] if earmark else [])  # what is held for the claim itself
            for _ in range(claim.pods):
                if self._take(one, hosts, trial) is not None:
                    continue
                made = self._room_for(one, hosts, {(move.claim, move.pod) for move in moves}, trial)
                if made is None:
                    return None
                moves += made
        return tuple(moves)

    def _take(self, one: Claim, hosts: Sequence[Host], trial: Trial) -> Placed | None:
        """Take, on trial, the best place for a pod on these nodes, if there is any."""
        everywhere = hosts is self._hosts
        spot = best_in(self._free, one, self._pool) if everywhere else best_spot(one, hosts, self._free.row)
        if spot is None:
            return None
        trial.take(self._free, [self._free.space.taken(one, (spot.placed,))])
        return spot.placed

    def _room_for(
        self, one: Claim, hosts: tuple[Host, ...], moved: set[tuple[str, int]], trial: Trial
    ) -> list[Move] | None:
        """The fewest moves that free a place for one more pod. The moves and the pod are entered on trial."""
        short = list(self._short(one, hosts, moved))
        for count in range(1, MOST_MOVES + 1):
            for host, pods in self._candidates(short, count):
                if not self._tries:
                    return None
                self._tries -= 1
                made = self._moved(one, host, pods, trial)
                if made is not None:
                    return made
        return None

    def _short(
        self, one: Claim, hosts: tuple[Host, ...], moved: set[tuple[str, int]]
    ) -> Iterator[tuple[Host, int, list[Running]]]:
        """(node, units it lacks, its pods that have a place elsewhere, small ones first) for nodes where moves could make room,
        those that lack least first."""
        running, has_place = self._movable(), dict[Shape, bool]()
        free = dict(zip(self._state.hosts, free_units(self._pool, self._free), strict=True))
        for host in sorted(hosts, key=lambda host: (-free[host.name], host.name)):
            lacking, here = one.on_card - free[host.name], running.get(host.name, [])
            if sum(pod.claim.on_card for pod in here[-MOST_MOVES:]) < lacking:
                continue
            here = [pod for pod in here if pod.key not in moved]
            for pod in here:
                if pod.claim.shape not in has_place:
                    has_place[pod.claim.shape] = has_spot(self._free, pod.claim, self._pool)
            yield host, lacking, [pod for pod in here if has_place[pod.claim.shape]]

    def _candidates(
        self, short: Iterable[tuple[Host, int, list[Running]]], count: int
    ) -> Iterator[tuple[Host, tuple[Running, ...]]]:
        """(node, `count` pods of it that together free enough units)."""
        for host, lacking, here in short:
            if sum(pod.claim.on_card for pod in here[-count:]) < lacking:
                continue
            for pods in combinations(here, count):
                if not self._looks:
                    return
                self._looks -= 1
                if sum(pod.claim.on_card for pod in pods) >= lacking:
                    yield host, pods

    def _moved(self, one: Claim, host: Host, pods: tuple[Running, ...], trial: Trial) -> list[Move] | None:
        """The moves of these pods, if one more then fits on the node and each of them elsewhere; the largest are placed first."""
        before, moves = trial.mark(), list[Move]()
        trial.free(self._free, [pod.vector for pod in pods])
        fits = self._take(one, [host], trial) is not None
        for pod in sorted(pods, key=lambda pod: (-pod.claim.on_card, pod.key)) if fits else ():
            to = self._take(pod.claim, self._hosts, trial)
            if to is None:
                break
            moves.append(Move(pod.claim.id, pod.placed.pod, pod.placed.node, to.node, to.cards, to.start))
        if len(moves) == len(pods):
            return moves
        trial.rollback(before)
        return None

    def _movable(self) -> dict[str, list[Running]]:
        """Node → its pods that may be preempted, smallest first, without pods of gangs that must share a domain."""
        if self._running is None:
            state, self._running = self._state, {}
            for claim in (claim for claims in state.holding.values() for claim in claims.values()):
                if not may_be_preempted(state, False, claim) or (claim.same_domain and claim.pods > 1):
                    continue
                one = claim if claim.pods == 1 else replace(claim, pods=1, same_domain=False)
                for placed in claim.placement or ():
                    single = one is claim
                    vector = state.vectors[claim.id] if single else state.space.taken(one, (placed,), one.units)
                    self._running.setdefault(placed.node, []).append(Running(one, placed, vector))
            for pods in self._running.values():
                pods.sort(key=lambda pod: (pod.claim.on_card, pod.key))
        return self._running
