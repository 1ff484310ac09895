"""The working state of one planning pass over one pool: the ledger, what is free, where claims are, and which leave for which.

The snapshot never changes; everything that the pass decides is entered here. Two rooms have what is free. `free_now`: what is
neither occupied by holding and leaving claims nor reserved; a claim that fits into it can start. `free_later`: what would be
free if all leavers had left and every reservation were occupied; a claim that fits into it has a place once they have left.

A leaver leaves for the pending claim that it is held for, if that claim has an earmark now; otherwise for none, until a claim
needs it. What it frees beyond that claim's need may serve others: `Departures.awaited` has all claims that wait for it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from quotas.engine.placement import FreeNowAndLater, Host, Places, Room, Slot, Trial, Vector, add, find_places, fits
from quotas.engine.queue import line_of, queue_order
from quotas.engine.quota_tree import Ledger, Standing, standing_of
from quotas.engine.types import (
    Claim,
    ClaimId,
    ClaimState,
    Department,
    DepartmentId,
    Policy,
    Pool,
    Snapshot,
    SpentBudget,
)
from quotas.engine.units import gone_by, lost_work, policy_of, spent_budget, stranded_units, young_until


class Departures:
    """The leaving claims of one pool: by when each has left, the claim for which it leaves, and the claims that wait for it.
    A leaver `leaves_for` one pending claim at most. `awaited` has all claims that wait for a leaver.
    """

    def __init__(self, gone_by: Callable[[Claim], int], earmarks: Collection[ClaimId]) -> None:
        self._gone_by, self._earmarks = gone_by, earmarks
        self.leaving: dict[ClaimId, Claim] = {}
        self.leaves_for: dict[ClaimId, ClaimId] = {}  # leaver → pending claim
        self.awaited: dict[ClaimId, set[ClaimId]] = {}  # leaver → pending claims that wait for it

    def enter(self, leaver: Claim) -> None:
        """The claim leaves: for the claim that the snapshot says, if any."""
        self.leaving[leaver.id] = leaver
        if leaver.preempted_for is not None:
            self.leaves_for[leaver.id] = leaver.preempted_for

    def stay(self, leaver: Claim) -> None:
        """The claim does not leave after all."""
        del self.leaving[leaver.id]
        self.leaves_for.pop(leaver.id, None)

    def wait_for(self, leaver: Claim, claim: Claim) -> None:
        """The claim waits for the leaver, which leaves for it unless it already leaves for another."""
        self.awaited.setdefault(leaver.id, set()).add(claim.id)
        self.leaves_for.setdefault(leaver.id, claim.id)

    def release(self, claim: Claim) -> None:
        """No leaver leaves for the claim any more."""
        for waiting in self.awaited.values():
            waiting.discard(claim.id)
        for leaver in self._ids_of(claim):
            del self.leaves_for[leaver]

    def is_unclaimed(self, leaver: ClaimId) -> bool:
        """Whether the leaver leaves for no claim that has an earmark now."""
        return self.leaves_for.get(leaver) not in self._earmarks

    def of(self, claim: Claim) -> list[Claim]:
        """The leavers that leave for the claim."""
        return [self.leaving[leaver] for leaver in sorted(self._ids_of(claim))]

    def _ids_of(self, claim: Claim) -> list[ClaimId]:
        return [leaver for leaver, other in self.leaves_for.items() if other == claim.id]

    def in_turn_for(self, claim: Claim, among: Collection[ClaimId] | None = None) -> list[Claim]:
        """The leavers (only those `among` these), in the order in which the claim may count on them: those that leave for it,
        then unclaimed ones, then others; each group by the time at which they have left."""

        def order(leaver: Claim) -> tuple[int, int, ClaimId]:
            its_own = claim.id in (self.leaves_for.get(leaver.id), leaver.preempted_for)
            return 0 if its_own else 1 if self.is_unclaimed(leaver.id) else 2, self._gone_by(leaver), leaver.id

        ids = self.leaving.keys() if among is None else self.leaving.keys() & among
        return sorted([self.leaving[id] for id in ids], key=order)


# What is kept for a claim ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Earmark:
    """Units and places kept for a pending claim: a reservation, which waits for leavers, or a hold, which waits for room.
    `charged` is what it counts in its department's usage (0 for a `starving` claim). Of all that it will `need`, as much as
    possible is expected `from_leavers`; only the rest, the `free_part`, is kept for it now. `unsettled` reservations are those
    of the snapshot and those to be settled again. `starts_by` is the latest time at which it could start, if known, and `drawn`
    what it will draw from its department's recalls.
    """

    claim: Claim
    charged: int
    need: Vector
    from_leavers: Vector = field(default_factory=dict)
    free_part: Vector = field(default_factory=dict)
    starts_by: int | None = None
    starving: bool = False
    unsettled: bool = False
    drawn: int = 0

    def needs_of(self, slot: Slot, amount: int) -> int:
        """How much it needs of the `amount` that one of its leavers frees: the rest comes from others, or is free already."""
        return max(0, self.need.get(slot, 0) - self.free_part.get(slot, 0) - self.from_leavers.get(slot, 0) + amount)


class PassState:
    """See the module. `free_now` and `free_later` may be shared with the other pools of the group.

    By department, `reserved` has all reservations, and `inside_only` the earmarks of claims that must stay inside the guarantee.
    `ask_again` is set by everything that may change other claims' answers: victims, victims that stay after all, a start that
    borrows, a start that takes what a later claim has reserved, a reservation that is given up or waits for one more leaver, a
    hold that is pushed out. `changed_departments` collects departments other than the preemptor's whose usage has changed.
    `young` has the claims whose minimum runtime is not over (units.young_until), `impossible` those that can never run, and
    `budgets`, by pending claim, the used-up budget that binds it.
    """

    def __init__(
        self, snapshot: Snapshot, pool: Pool, free_now: Room, free_later: Room, free_now_and_later: FreeNowAndLater
    ) -> None:
        self.now, self.settings, self.pool = snapshot.now, snapshot.settings, pool
        if pool.balances is not None:  # balances decide who starts first; present shares would preempt those again
            self.settings = replace(self.settings, fair_sharing=False)
        self.departments: dict[DepartmentId, Department] = {d.id: d for d in snapshot.departments}
        self.budgets: dict[ClaimId, SpentBudget] = {}
        mine = [self._bound(claim) for claim in snapshot.claims if claim.pool == pool.id]
        self.stranded = stranded_units(pool, (c for c in mine if c.state is not ClaimState.PENDING))
        holding = [claim for claim in mine if claim.state is ClaimState.HOLDING]
        stay = sum(self.stranded.get(claim.id, 0) for claim in holding)
        self.ledger = Ledger(pool, snapshot.departments, stay)
        self.standing: Standing = standing_of(holding, self.now, snapshot.departments)
        self.charges = self.standing.charges
        self.left_of_recalls = dict(self.standing.left)
        self._lost_work: dict[ClaimId, int] = {}
        self._policies: dict[DepartmentId, Policy] = {}
        self.used_by: dict[tuple[DepartmentId, str], int] = {}
        self.earmarks: dict[ClaimId, Earmark] = {}
        self.inside_only: dict[DepartmentId, dict[ClaimId, None]] = {}
        self.reserved: dict[DepartmentId, dict[ClaimId, None]] = {}
        self.free_now, self.free_later, self._free_now_and_later = free_now, free_later, free_now_and_later
        self.claims = {claim.id: claim for claim in mine}
        self.pending = [claim for claim in mine if claim.state is ClaimState.PENDING]
        self.holding: dict[DepartmentId, dict[ClaimId, Claim]] = {}
        self.on_node: dict[str, dict[ClaimId, Claim]] = {}
        self.leaving_on: dict[int, set[ClaimId]] = {}
        self.departures = Departures(self.gone_by, self.earmarks)
        self.ask_again = False
        self.impossible: set[ClaimId] = set()
        self.node_costs: dict[tuple[Any, Any], dict[int, tuple[int, Any]]] = {}
        self._spare: dict[DepartmentId, int] = {}
        self.preempted: dict[ClaimId, Claim] = {}
        self.started: dict[ClaimId, Claim] = {}
        self.drawn: dict[ClaimId, Mapping[ClaimId, int]] = {}
        self.changed_departments: set[DepartmentId] = set()
        self.space, self.pool_slot = free_later.space, free_later.space.pool[pool.id]
        self.hosts = self.space.hosts[pool.id]
        self._fits_empty: dict[tuple[object, ...], bool] = {}
        self.vectors: dict[ClaimId, Vector] = {}
        self.units_earmarked = 0
        self.young: set[ClaimId] = set()
        held: Vector = {}
        charges = self.charges
        self.ledger.fill((claim.department, charges[claim.id]) for claim in mine if claim.id in charges)
        for claim in mine:
            if claim.state is ClaimState.HOLDING:
                self._enter_holding(claim, held)
            elif claim.state is ClaimState.LEAVING:
                self._enter_leaving(claim)
        self.free_now.add(held, -1)
        self.free_later.add(held, -1)

    def _bound(self, claim: Claim) -> Claim:
        """The claim; `own_only` if a used-up budget forbids it to borrow."""
        if claim.state is not ClaimState.PENDING:
            return claim
        budget = spent_budget(self.departments[claim.department], claim)
        if budget is None:
            return claim
        self.budgets[claim.id] = budget
        return replace(claim, own_only=True) if budget.borrowing_only else claim

    def _enter_holding(self, claim: Claim, held: Vector) -> None:
        vector = self.vectors[claim.id] = self._occupied(claim, self.charges[claim.id])
        self._enter_on_nodes(claim)
        self._count_user(claim, claim.units)
        if young_until(claim, self.now) > self.now:
            self.young.add(claim.id)
        add(held, vector)

    def _enter_on_nodes(self, claim: Claim) -> None:
        """Enter a holding claim in its department and on its nodes."""
        self.holding.setdefault(claim.department, {})[claim.id] = claim
        for placed in claim.placement or ():
            self.on_node.setdefault(placed.node, {})[claim.id] = claim

    def _enter_leaving(self, claim: Claim) -> None:
        self._leave(claim)
        vector = self.vectors[claim.id] = self._occupied(claim, claim.units)
        self.charges[claim.id] = claim.units
        self.free_now.add(vector, -1)

    def _leave(self, claim: Claim) -> None:
        """Enter a leaving claim, also by its nodes."""
        self.departures.enter(claim)
        for machine in self._machines(claim):
            self.leaving_on.setdefault(machine, set()).add(claim.id)

    def _machines(self, claim: Claim) -> set[int]:
        """Numbers of the pool's machines that the claim occupies."""
        names = [placed.node for placed in claim.placement or ()]
        return {self.hosts[name].number for name in names if name in self.hosts}

    def _occupied(self, claim: Claim, charge: int) -> Vector:
        """What the claim occupies of the present capacity."""
        return self.space.taken(claim, claim.placement, charge - self.stranded.get(claim.id, 0))

    def need(self, claim: Claim, places: Places) -> Vector:
        """What a pending claim would take at `places`."""
        return self.space.taken(claim, places, self.asked(claim))

    def _count_user(self, claim: Claim, units: int) -> None:
        if not claim.is_recall:
            key = claim.department, claim.user
            self.used_by[key] = self.used_by.get(key, 0) + units

    # What the quotas allow --------------------------------------------------------------------------------------------

    def asked(self, claim: Claim) -> int:
        """Units that the claim would add to its department's usage: all but those that it draws, or has reserved, from its
        department's recalls."""
        if not self.left_of_recalls or claim.is_recall:
            return claim.units
        earmark = self.earmarks.get(claim.id)
        left = self.left_of_recalls.get(claim.department, 0) + (0 if earmark is None else earmark.drawn)
        return max(0, claim.units - left)

    def inside(self, claim: Claim) -> bool:
        """Whether all units that the claim would add stay inside its department's guarantee."""
        return self.asked(claim) <= self.ledger.accounts[claim.department].own_left

    def own_units(self, claim: Claim) -> int:
        """How many of the `asked` units would be its department's own; unsettled reservations come after it."""
        reserved = [self.earmarks[id] for id in self.reserved.get(claim.department, ())]
        left = self.ledger[claim.department].own_left + sum([each.charged for each in reserved if each.unsettled])
        return min(self.asked(claim), max(0, left))

    def entitled(self, claim: Claim) -> bool:
        """Whether its own quota and what others lend allow it now, regardless of places."""
        asked = self.asked(claim)
        may_not_borrow = claim.must_stay_inside or self.guarantee_kept_for(claim) is not None
        if may_not_borrow and self.own_units(claim) < asked:
            return False
        return self.ledger.available(claim.department) >= asked

    def guarantee_kept_for(self, claim: Claim) -> ClaimId | None:
        """An earmarked claim that must stay inside the guarantee of this claim's department, or of one above it: if others
        borrowed before it starts, it would no longer be inside."""
        if not self.inside_only:
            return None
        return next((id for id in self._inside_only_upwards(claim.department) if id != claim.id), None)

    def _inside_only_upwards(self, department: DepartmentId) -> Iterator[ClaimId]:
        """The earmarks of claims that must stay inside the guarantee of the department, or of one above it."""
        account = self.ledger.accounts[department]
        while account.parent is not None:
            yield from self.inside_only.get(account.id, ())
            account = account.parent

    def lets_pass(self, hold: Earmark, claim: Claim, end: int) -> bool:
        """Whether a claim that ends by `end` may start on what is held: before the one with the hold could, and leaving it inside
        the guarantee if they are of one department."""
        if hold.starts_by is None or end > hold.starts_by:
            return False
        return hold.starving or hold.claim.department != claim.department or self.own_units(claim) >= self.asked(claim)

    def has_later_reservation(self, claim: Claim) -> bool:
        """Whether a claim of its department that comes after it in the queue has a reservation."""
        mine = self.reserved.get(claim.department, {})
        return any(queue_order(self.earmarks[id].claim) > queue_order(claim) for id in mine)

    def lost_its_right(self, claim: Claim) -> bool:
        """Whether the quotas no longer allow the claim's reservation, for example because others stay after all."""
        with self.trial() as trial:
            trial.uncharge_earmark(self.earmarks[claim.id])
            return not self.entitled(claim)

    def depending_on(self, leaver: Claim, units: int) -> list[Claim]:
        """Claims of its department that would lose the right to their reservation if the leaver stayed; the last one that
        reserved comes first."""
        reserved = [self.earmarks[id].claim for id in reversed(self.reserved.get(leaver.department, {}))]
        claims = [claim for claim in reserved if not self.lost_its_right(claim)]
        with self.trial() as trial:
            trial.charge(leaver.department, units)
            return [claim for claim in claims if self.lost_its_right(claim)]

    def above_cap(self, claim: Claim, itself_counted: bool = False) -> tuple[int, int] | None:
        """(cap for each user of the department, units that the claim's user holds) if the claim would exceed the cap; None if
        not."""
        cap = self.departments[claim.department].user_caps.get(self.pool.id)
        if cap is None or claim.is_recall:
            return None
        used = self.used_by.get((claim.department, claim.user), 0) - (claim.units if itself_counted else 0)
        return (cap, used) if used + claim.units > cap else None

    def policy(self, claim: Claim) -> Policy:
        """The preemption policy of the claim."""
        if claim.department not in self._policies:
            department = self.departments[claim.department]
            self._policies[claim.department] = policy_of(department, self.pool, self.settings)
        return self._policies[claim.department]

    def lost_work(self, claim: Claim) -> int:
        """The work that stopping the claim would lose, in unit-seconds."""
        if claim.id not in self._lost_work:
            self._lost_work[claim.id] = lost_work(claim, self.pool, self.settings, self.now)
        return self._lost_work[claim.id]

    def gone_by(self, leaver: Claim) -> int:
        """The latest time at which the claim's units are free."""
        return gone_by(leaver, self.pool, self.settings, self.now)

    def may_return(self, leaver: Claim) -> bool:
        """Whether the quotas allow a leaving claim to stay after all, so that no reservation loses its right."""
        department, units = leaver.department, leaver.units
        if self.ledger.available(department) < units or self.above_cap(leaver):
            return False
        with self.trial() as trial:
            trial.charge(department, units)
            if any(self.lost_its_right(self.earmarks[id].claim) for id in self._inside_only_upwards(department)):
                return False  # that claim must stay inside the guarantee
        return not self.depending_on(leaver, units)

    # Where a claim would stand ----------------------------------------------------------------------------------------

    @cached_property
    def queue_position(self) -> Mapping[ClaimId, int]:
        """The position in line of every claim that could run (queue.py)."""
        ledger = Ledger(self.pool, self.departments.values(), sum(self.stranded.values()))
        possible = (claim for claim in self.claims.values() if claim.id not in self.impossible)
        return line_of(ledger, possible, self.settings.fair_sharing)

    def comes_after(self, claim: Claim, preemptor: Claim) -> bool:
        """Whether a claim comes after the preemptor in line."""
        return self.queue_position[claim.id] > self.queue_position[preemptor.id]

    @cached_property
    def empty_pool(self) -> Room:
        """The present pool without any claim. Few passes need it."""
        return Room(self.space)

    def in_order(self, names: Iterable[str]) -> list[Host]:
        """The present nodes of these names, in the pool's order: of equals, the first is taken."""
        return sorted([self.hosts[name] for name in self.hosts.keys() & names], key=attrgetter("turn"))

    def fits_when_empty(self, claim: Claim) -> bool:
        """Whether the claim would fit into the present pool if nothing else ran there."""
        if self.pool.nodes is None or claim.is_recall:
            return claim.units <= self.ledger.capacity
        key = claim.shape, claim.pods, claim.same_domain
        if key not in self._fits_empty:
            fits_now = find_places(claim, self.pool, self.free_later) is not None  # seldom needs the empty pool
            self._fits_empty[key] = fits_now or find_places(claim, self.pool, self.empty_pool) is not None
        return self._fits_empty[key]

    @property
    def free_now_and_later(self) -> Room:
        """What is free now and on which no reservation counts later. Two claims may wait for the same leaver, one for its cards
        and the other for its CPU beside cards that are free: no other claim may start on those."""
        return self._free_now_and_later.refreshed()

    def places(self, claim: Claim, free: Room, units: int | None = None) -> Places | None:
        """Places for the claim in what is free, its reserved ones if they are free; None if it does not fit. `units`: what it
        would take of the pool as a whole, if not the units `asked`."""
        charged = self.asked(claim) if units is None else units
        kept = claim.reserved.places if claim.reserved is not None else ()
        if kept and fits(free.row, self.space.taken(claim, kept, charged)):
            return kept
        return find_places(claim, self.pool, free, charged)

    # On trial ---------------------------------------------------------------------------------------------------------

    def trial(self) -> "PassTrial":
        """`with state.trial() as trial: trial.charge(…)`: what is tried is undone at the end."""
        return PassTrial(self)

    # Entries ----------------------------------------------------------------------------------------------------------

    def draw_from_recalls(self, claim: Claim) -> dict[ClaimId, int]:
        """Let the claim draw units that it needs from recalls of departments above its own. Returns units by recall."""
        drawn: dict[ClaimId, int] = {}
        if not self.standing.recalls:
            return drawn
        wanted, account = 0 if claim.is_recall else self.asked(claim), self.ledger[claim.department].parent
        while account is not None and wanted:
            for recall in self.standing.recalls.get(account.id, ()):
                units = min(wanted, self.charges[recall.id])
                if units:
                    drawn[recall.id] = units
                    wanted -= units
            account = account.parent
        self._give_way(drawn, 1)
        return drawn

    def return_to_recalls(self, drawn: Mapping[ClaimId, int]) -> None:
        """Give back to the recalls what a claim had drawn from them."""
        self._give_way(drawn, -1)

    def _give_way(self, drawn: Mapping[ClaimId, int], times: int) -> None:
        for id, units in drawn.items():
            department = self.claims[id].department
            self.charges[id] -= times * units
            self.left_of_recalls[department] -= times * units
            self.ledger.add(department, -times * units)
            self.free_now.add({self.pool_slot: times * units})
            self.free_later.add({self.pool_slot: times * units})

    def admit(self, claim: Claim, places: Places, drawn: Mapping[ClaimId, int]) -> None:
        """The claim starts now at `places`. `drawn`: units that it draws from recalls of departments above."""
        vector = self.vectors[claim.id] = self.need(claim, places)
        asked = vector[self.pool_slot]
        if asked < claim.units:
            self.left_of_recalls[claim.department] -= claim.units - asked
        self.ledger.add(claim.department, asked)
        self._count_user(claim, claim.units)
        self.free_now.add(vector, -1)
        self.free_later.add(vector, -1)
        self.started[claim.id] = claim
        if drawn:
            self.drawn[claim.id] = drawn

    def started_without_right(self) -> Iterator[Claim]:
        """Claims that were to start in this pass on units of others that stay after all; the last comes first. Each is checked
        after the caller has taken back those before it."""
        for claim in reversed([*self.started.values()]):
            overdrawn = claim.must_stay_inside or self.ledger.available(claim.department) < 0
            if overdrawn and self.starts_above_guarantee(claim):
                yield claim

    def charged(self, claim: ClaimId) -> int:
        """Units that count in the department's usage for a claim that starts or has an earmark."""
        return self.earmarks[claim].charged if claim in self.earmarks else self.vectors[claim][self.pool_slot]

    def starts_above_guarantee(self, claim: Claim) -> bool:
        """Whether a claim that is to start would be above its department's guarantee, counting claims that hold or are to start
        before it, but not reservations, which come after it."""
        mine, charges, started = claim.department, self.charges, [*self.started]
        before = [id for id in started[: started.index(claim.id) + 1] if self.started[id].department == mine]
        used = sum(charges[id] for id in self.holding.get(mine, {}))
        return used + sum(self.vectors[id][self.pool_slot] for id in before) > self.ledger[mine].promised

    def unadmit(self, claim: Claim) -> None:
        """The claim does not start after all."""
        vector = self.vectors.pop(claim.id)
        charged = vector[self.pool_slot]
        self.left_of_recalls[claim.department] = self.left_of_recalls.get(claim.department, 0) + claim.units - charged
        del self.started[claim.id]
        self.ledger.remove(claim.department, charged)
        self._count_user(claim, -claim.units)
        self.free_now.add(vector)
        self.free_later.add(vector)
        self.return_to_recalls(self.drawn.pop(claim.id, {}))

    def reserve(self, claim: Claim, places: Places, need: Vector, waiting_on: Iterable[Claim]) -> Earmark:
        """Reserve `places` for the claim. The leavers that it is `waiting_on` give their part of what it will `need` there when
        they leave; the rest is held now."""
        charged = need[self.pool_slot]
        earmark = Earmark(claim, charged, need=need)
        for leaver in waiting_on:
            self.wait_for(earmark, leaver)
        if charged < claim.units and claim.department in self.left_of_recalls:
            earmark.drawn = min(claim.units - charged, self.left_of_recalls[claim.department])
            self.left_of_recalls[claim.department] -= earmark.drawn
        self._count_user(claim, claim.units)
        self.reserved.setdefault(claim.department, {})[claim.id] = None
        self.add_earmark(earmark)
        return earmark

    def wait_for(self, earmark: Earmark, leaver: Claim) -> None:
        """The earmark's claim waits for this leaver, too."""
        self.departures.wait_for(leaver, earmark.claim)
        add(earmark.from_leavers, self.vectors[leaver.id])

    def add_earmark(self, earmark: Earmark) -> None:
        """Enter an earmark. It takes at once the part of its need that will not come from leavers, as far as it is free now."""
        free, coming = self.free_now.row, earmark.from_leavers
        earmark.free_part = {
            slot: min(max(0, free[slot]), max(0, amount - coming.get(slot, 0))) for slot, amount in earmark.need.items()
        }
        self.earmarks[earmark.claim.id] = earmark
        if earmark.claim.must_stay_inside:
            self.inside_only.setdefault(earmark.claim.department, {})[earmark.claim.id] = None
        self.units_earmarked += earmark.free_part[self.pool_slot]
        self.ledger.add(earmark.claim.department, earmark.charged)
        self.free_now.add(earmark.free_part, -1)
        self.free_later.add(earmark.need, -1)

    def remove_earmark(self, earmark: Earmark) -> None:
        """Remove an earmark, for a while or for good."""
        del self.earmarks[earmark.claim.id]
        self.inside_only.get(earmark.claim.department, {}).pop(earmark.claim.id, None)
        self.units_earmarked -= earmark.free_part[self.pool_slot]
        self.ledger.remove(earmark.claim.department, earmark.charged)
        self.free_now.add(earmark.free_part)
        self.free_later.add(earmark.need)

    def give_up(self, claim: Claim) -> None:
        """End the claim's reservation; its leavers are unclaimed until another claim needs them."""
        earmark = self.earmarks[claim.id]
        self.remove_earmark(earmark)
        if earmark.drawn:
            self.left_of_recalls[claim.department] += earmark.drawn
        del self.reserved[claim.department][claim.id]
        self._count_user(claim, -claim.units)
        self.departures.release(claim)

    def preempt(self, victims: tuple[Claim, ...]) -> None:
        """The victims leave: they no longer count in quotas; their places are free later."""
        for victim in victims:
            del self.holding[victim.department][victim.id]
            for placed in victim.placement or ():
                self.on_node[placed.node].pop(victim.id, None)
            self.ask_again = True
            self.changed_departments.add(victim.department)
            self.preempted[victim.id] = victim
            self._leave(victim)
            self._mark_nodes_changed(victim)
            self._count_user(victim, -victim.units)
            self.ledger.remove(victim.department, self.charges[victim.id])
            self.free_later.add(self.vectors[victim.id])

    def unpreempt(self, victim: Claim) -> None:
        """A victim stays after all. Claims that counted on its units are answered again."""
        self.preempted.pop(victim.id, None)
        self.departures.stay(victim)
        if victim.state is ClaimState.LEAVING:
            victim = replace(victim, state=ClaimState.HOLDING, leave_by=None, preempted_for=None)
            self.claims[victim.id] = victim
        for machine in self._machines(victim):
            self.leaving_on[machine].discard(victim.id)
        self._enter_on_nodes(victim)
        self._mark_nodes_changed(victim)
        self.changed_departments.add(victim.department)
        self._count_user(victim, victim.units)
        self.ledger.add(victim.department, self.charges[victim.id])
        self.free_later.add(self.vectors[victim.id], -1)
        self.ask_again = True

    def short_of_guarantee(self, claim: Claim) -> int:
        """Units by which its department would fall below its guarantee if only this claim left."""
        account = self.ledger.accounts[claim.department]
        return max(0, claim.units - max(0, account.usage - account.guaranteed))

    def note_changed_spare(self) -> None:
        """When a department's usage moves closer to its guarantee or away from it, stopping its claims costs more or less: mark
        their nodes as changed."""
        for department in self.ledger.moved:
            account, claims = self.ledger.accounts[department], self.holding.get(department, {}).values()
            spare = min(max(0, account.usage - account.guaranteed), max((claim.units for claim in claims), default=0))
            if self._spare.get(department) != spare:
                self._spare[department] = spare
                for claim in claims:
                    self._mark_nodes_changed(claim)
        self.ledger.moved.clear()

    def _mark_nodes_changed(self, claim: Claim) -> None:
        """Mark the claim's nodes as changed, even if what is free on them has not."""
        for placed in claim.placement or ():
            if placed.node in self.hosts:
                self.free_later.note(self.hosts[placed.node])

    def close(self) -> None:
        """End of use: clear the caches, which refer to the state and the rooms, so that memory is freed at once without a garbage
        collection over thousands of entries."""
        self.node_costs.clear()
        for room in (self.free_now, self.free_later, self._free_now_and_later, self.__dict__.get("empty_pool")):
            if room is not None:
                room.forget()


class PassTrial(Trial):
    """A trial of a pass: as if claims left or stayed, units were charged or not, or nothing were held for a claim."""

    __slots__ = ("_state",)

    def __init__(self, state: PassState) -> None:
        super().__init__()
        self._state = state

    def charge(self, department: DepartmentId, units: int) -> None:
        """As if the department used `units` more (negative: fewer)."""
        charge = self._state.ledger.charge
        charge(department, units)
        self._undo.append((charge, (department, -units)))

    def uncharge(self, claims: Iterable[Claim]) -> None:
        """As if the claims did not count in their departments' quotas."""
        for claim in claims:
            self.charge(claim.department, -self._state.charges[claim.id])

    def recharge(self, leavers: Iterable[Claim]) -> None:
        """As if leaving claims still counted in their departments' quotas."""
        for leaver in leavers:
            self.charge(leaver.department, self._state.charges[leaver.id])

    def leave(self, claims: Collection[Claim]) -> None:
        """As if the claims had left, in the quotas and in what is free later."""
        self.uncharge(claims)
        self.free(self._state.free_later, [self._state.vectors[claim.id] for claim in claims])

    def stay(self, leavers: Collection[Claim]) -> None:
        """As if leaving claims stayed."""
        self.recharge(leavers)
        self.take(self._state.free_later, [self._state.vectors[leaver.id] for leaver in leavers])

    def uncharge_earmark(self, earmark: Earmark) -> None:
        """As if the earmark did not count in its department's quota."""
        self.charge(earmark.claim.department, -earmark.charged)
        if earmark.unsettled:
            earmark.unsettled = False
            self._undo.append((setattr, (earmark, "unsettled", True)))

    def remove_earmark(self, earmark: Earmark) -> None:
        """As if nothing were held for the claim."""
        state, units = self._state, earmark.free_part[self._state.pool_slot]
        self.uncharge_earmark(earmark)
        self.free(state.free_now, [earmark.free_part])
        self.free(state.free_later, [earmark.need])
        self._count_earmarked(-units)
        self._undo.append((self._count_earmarked, (units,)))

    def _count_earmarked(self, units: int) -> None:
        self._state.units_earmarked += units
