"""What is kept for claims that cannot start yet: reservations, which wait for others to leave, and holds, which wait for room.

`leavers_needed` selects the leavers that a reservation waits for; `could_start` and `needs_all` check a reservation without
removing it. `Holds` keeps places for everything that a claim requests: (a) for claims inside their guarantee; (b) in each pool
for one borrower that has waited longer than `starvation_after`, but never against claims inside their guarantee. A hold exists
only while the claim's limits and the present capacity could satisfy it.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from quotas.engine.pass_state import Earmark, PassState
from quotas.engine.placement import (
    NO_MACHINE,
    FreeNowAndLater,
    Places,
    Room,
    Slot,
    Space,
    Vector,
    find_places,
    free_units,
    has_spot,
)
from quotas.engine.types import Claim, ClaimId, Decision, Node, Pool, Snapshot
from quotas.engine.units import ends_at


def initial_state(
    snapshot: Snapshot, pool: Pool, free_now: Room, free_later: Room, free_now_and_later: FreeNowAndLater
) -> PassState:
    """The state in which a pass over the pool begins, with the snapshot's reservations, which are still to be settled. Claims
    for which others leave come first: they get the free part of their need."""
    state = PassState(snapshot, pool, free_now, free_later, free_now_and_later)
    awaited = {*state.departures.leaves_for.values()}
    for claim in sorted(state.pending, key=lambda claim: (claim.id not in awaited, claim.id)):
        if claim.reserved is not None:
            charged, places = min(claim.reserved.units, state.asked(claim)), claim.reserved.places
            need = state.space.taken(claim, places, charged)
            waiting_on = leavers_needed(state, claim, need, tuple(state.departures.of(claim)))
            state.reserve(claim, places, need, waiting_on).unsettled = True
    return state


def leavers_needed(state: PassState, claim: Claim, need: Vector, first: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The leaving claims that must have left before the claim can have what it will `need`: those given as `first`, then its
    own, then unclaimed ones, then others' as far as these do not need them; each group by the time of leaving."""
    lacking = {slot: amount - state.free_now.row[slot] for slot, amount in need.items()}
    needed, gives = list(first), {leaver.id: state.vectors[leaver.id] for leaver in first}
    for vector in gives.values():
        _add(lacking, vector, -1)
    short = {slot for slot, amount in lacking.items() if amount > 0}
    if not short:  # usually the victims are enough
        return first
    for here in (_leaving_at(state, short), None):
        short = short if here is not None else short & {state.pool_slot}  # those may come from anywhere
        for leaver in state.departures.in_turn_for(claim, here) if short else ():
            vector = _spare(state, leaver, claim)
            if leaver.id not in gives and not short.isdisjoint(vector):
                _add(lacking, vector, -1)
                needed.append(leaver)
                gives[leaver.id] = vector
                short = {slot for slot in short if lacking[slot] > 0}
                if not short:
                    break
    for leaver in needed[len(first) : -1]:  # the last gives enough without some of those before it
        vector = gives[leaver.id]
        if all(amount + vector.get(slot, 0) <= 0 for slot, amount in lacking.items()):
            _add(lacking, vector)
            needed.remove(leaver)
    return tuple(needed)


def _spare(state: PassState, leaver: Claim, claim: Claim) -> Vector:
    """The part of what the leaver frees that the other claims waiting for it do not need."""
    gives = state.vectors[leaver.id]
    others = [
        state.earmarks[id]
        for id in state.departures.awaited.get(leaver.id, ())
        if id != claim.id and id in state.earmarks
    ]
    if not others:
        return gives
    spare = {slot: amount - sum(earmark.needs_of(slot, amount) for earmark in others) for slot, amount in gives.items()}
    return {slot: amount for slot, amount in spare.items() if amount > 0}


def _leaving_at(state: PassState, slots: Iterable[Slot]) -> set[ClaimId]:
    """The claims that leave the machines of these slots."""
    machines = {state.space.at[slot] for slot in slots} - {NO_MACHINE}
    return {leaver for machine in machines for leaver in state.leaving_on.get(machine, ())}


def _add(vector: Vector, other: Vector, times: int = 1) -> None:
    """vector += times × other, for the slots of the vector."""
    for slot, amount in other.items():
        if slot in vector:
            vector[slot] += times * amount


# Checks of reservations ----------------------------------------------------------------------------------------


def could_start(state: PassState, claim: Claim) -> bool:
    """Whether a claim with a reservation has a place now: the reserved one, or another."""
    earmark, free = state.earmarks[claim.id], state.free_now.row
    if free[state.pool_slot] + earmark.free_part[state.pool_slot] < earmark.charged:
        return False
    if not [slot for slot, amount in earmark.need.items() if free[slot] + earmark.free_part[slot] < amount]:
        return True
    others = state.free_now_and_later
    if claim.pods == 1 and not claim.same_domain:
        return has_spot(others, claim, state.pool)
    with state.trial() as trial:
        trial.free(others, [earmark.free_part])
        return find_places(claim, state.pool, others, earmark.charged) is not None


def may_stay(state: PassState, leaver: ClaimId) -> bool:
    """Whether a leaving claim could stay if no claim needed it, because it was preempted. Others leave in any case; so does one
    that is entirely on lost capacity, because it frees nothing."""
    if leaver in state.stranded and state.stranded[leaver] == state.departures.leaving[leaver].units:
        return False
    return leaver in state.preempted or state.departures.leaving[leaver].preempted_for is not None


def needs_all(state: PassState, claim: Claim, leavers: Collection[ClaimId]) -> bool:
    """Whether a claim with a reservation needs every leaver that it waits for: without any one of them it has no place."""
    earmark, free = state.earmarks[claim.id], state.free_later
    with state.trial() as trial:
        trial.free(free, [earmark.need])
        alone = trial.mark()
        for leaver in leavers:
            trial.take(free, [state.vectors[leaver]])
            if find_places(claim, state.pool, free, earmark.charged) is not None:
                return False
            trial.rollback(alone)
    return True


# Holds ----------------------------------------------------------------------------------------------------------------

Attempt = Callable[[Claim], Decision | None]


class Holds:
    """The holds of a pass over one pool, in the order in which they were made."""

    def __init__(self, state: PassState) -> None:
        self._state = state
        self._made: list[Earmark] = []
        self._starving: Earmark | None = None
        self._nodes = [host.node for host in state.hosts.values()]
        self._ends: list[tuple[int, ClaimId]] = sorted(
            (end, claim.id)
            for claims in state.holding.values()
            for claim in claims.values()
            if (end := ends_at(claim)) is not None
        )

    def expect_end(self, claim: Claim) -> None:
        """The claim starts now: waiting claims can count on its end."""
        if claim.max_runtime is not None:
            insort(self._ends, (self._state.now + claim.max_runtime, claim.id))

    def forget_end(self, claim: Claim) -> None:
        """The claim does not start after all."""
        self._ends = [(end, id) for end, id in self._ends if id != claim.id]

    def start_despite(self, claim: Claim, attempt: Attempt) -> Decision | None:
        """Attempt to start the claim without the holds that it may pass: those whose claims start only after it has ended, and a
        borrower's hold if the claim is inside its guarantee."""
        holds = self._outranked(claim)
        if claim.max_runtime is not None:
            end = self._state.now + claim.max_runtime
            early = [hold for hold in self._made if self._state.lets_pass(hold, claim, end)]
            holds = [*early, *(hold for hold in holds if hold not in early)]
        return self._without(holds, claim, attempt)

    def reserve_despite(self, claim: Claim, attempt: Attempt) -> Decision | None:
        """Attempt to find a place for the claim, without a borrower's hold if the claim is inside its guarantee."""
        return self._without(self._outranked(claim), claim, attempt)

    def _outranked(self, claim: Claim) -> list[Earmark]:
        return [self._starving] if self._starving is not None and self._state.inside(claim) else []

    def _without(self, holds: list[Earmark], claim: Claim, attempt: Attempt) -> Decision | None:
        """Make the attempt without these holds."""
        if not holds:
            return attempt(claim)
        with self.lifted(holds):
            decision = attempt(claim)
        if decision is not None and any(self._is_pushed_out(hold) for hold in holds):
            self._state.ask_again = True
        return decision

    @contextmanager
    def lifted(self, holds: Sequence[Earmark] | None = None) -> Iterator[None]:
        """Without these holds (None: all); they are restored afterwards."""
        holds = self._made if holds is None else holds
        for hold in holds:
            self._state.remove_earmark(hold)
        yield
        for hold in holds:
            self._state.add_earmark(hold)

    def _is_pushed_out(self, hold: Earmark) -> bool:
        """Whether the hold of a claim inside its guarantee was passed by a claim of its department and is no longer inside."""
        account = self._state.ledger[hold.claim.department]
        return hold.charged > 0 and account.own_left < 0

    def clear(self) -> None:
        """Remove all holds."""
        for hold in self._made:
            self._state.remove_earmark(hold)
        self._made.clear()
        self._starving = None

    def add(self, claim: Claim, starving: bool) -> None:
        """Hold places for all that the claim requests, where it could start soonest: what is free there now, later the rest."""
        if starving and (self._starving is not None or self._passes_limit(claim)):
            return
        if not self._possible(claim):
            return
        places, start = self._soonest(claim)
        need = self._state.need(claim, places)
        hold = Earmark(claim, 0 if starving else self._state.asked(claim), need, starts_by=start, starving=starving)
        self._state.add_earmark(hold)
        self._made.append(hold)
        self._starving = hold if starving else self._starving

    def _passes_limit(self, claim: Claim) -> bool:
        """Whether its own department's use keeps the claim from starting: then other departments need not leave units idle."""
        return self._state.ledger.passed_limit(claim.department, self._state.asked(claim)) is not None

    def _possible(self, claim: Claim) -> bool:
        """Whether the claim's limits and the present capacity could satisfy it."""
        state = self._state
        ceiling = state.ledger[claim.department].present_ceiling
        return state.asked(claim) <= ceiling and state.fits_when_empty(claim)

    def _soonest(self, claim: Claim) -> tuple[Places, int | None]:
        """Where and when the claim could start as running claims reach their maximum runtime. The time is None if that
        depends on a claim without one."""
        state = self._state
        low, high = 0, len(self._ends)
        best = self._places_after(claim, high)
        if best is None:
            return self._anywhere(claim), None
        while low < high:
            middle = (low + high) // 2
            places = self._places_after(claim, middle)
            if places is None:
                low = middle + 1
            else:
                best, high = places, middle
        return best, max(state.now, self._ends[low - 1][0]) if low else state.now

    def _places_after(self, claim: Claim, count: int) -> Places | None:
        """Places once the first `count` running claims with an end have left, not counting victims of this pass."""
        state = self._state
        ended = [id for _, id in self._ends[:count] if id not in state.preempted]
        with state.trial() as trial:
            trial.free(state.free_later, [state.vectors[id] for id in ended])
            return state.places(claim, state.free_later)

    def _anywhere(self, claim: Claim) -> Places:
        """Places when it is unknown which claim ends first: on as few nodes as possible, those with the most free units."""
        if claim.is_recall or not self._nodes:
            return ()
        free = free_units(self._state.pool, self._state.free_later)
        nodes = [self._nodes[turn] for turn in sorted(self._by_name, key=free.__getitem__, reverse=True)]
        most = 1
        while (places := self._places_on(nodes[:most], claim)) is None and most < len(nodes):
            most = min(2 * most, len(nodes))
        few = bisect_left(range(most), True, most // 2 + 1, key=lambda n: self._places_on(nodes[:n], claim) is not None)
        return (places if few == most else self._places_on(nodes[:few], claim)) or ()

    @cached_property
    def _by_name(self) -> list[int]:
        """The pool's nodes sorted by name, given as positions in the pool's order."""
        return sorted(range(len(self._nodes)), key=lambda turn: self._nodes[turn].name)

    def _places_on(self, nodes: list[Node], claim: Claim) -> Places | None:
        """Places on these nodes alone, as if they were empty."""
        pool = replace(self._state.pool, nodes=tuple(nodes))
        return find_places(claim, pool, Room(Space((pool,))))
