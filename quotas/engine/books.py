"""The working state of one planning pass over one pool: the ledger, what is free, and who stands where.

The snapshot never changes; everything the pass decides is an entry here. Two vectors say what is free:
`free_now` counts what holding and leaving claims occupy and what is reserved of the rest – a claim that fits there can
start; `free_later` counts leaving claims as gone and reservations whole – what fits there has a place once they left.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from quotas.engine.departures import Departures, Turn
from quotas.engine.queue import line_of
from quotas.engine.quota_tree import Ledger
from quotas.engine.rights import Hold, Rights
from quotas.engine.room import Common, Room, find_places
from quotas.engine.space import Host, Places, Vector, fits
from quotas.engine.types import Claim, ClaimId, ClaimState, DepartmentId, Pool, Settings, Snapshot
from quotas.engine.units import gone_by, young_until


class Books(Rights):
    """See the module. The free vectors may be shared with the other pools of the group.

    `openings` counts the entries after which answers may change: victims told, and those who may stay after all. `moved`
    collects departments other than the taker's whose usage has changed. `young` has those whose minimum runtime is not over.
    `impossible` are those that can never run.
    """

    def __init__(self, snapshot: Snapshot, pool: Pool, free_now: Room, free_later: Room, free_for_all: Common) -> None:
        mine = [claim for claim in snapshot.claims if claim.pool == pool.id]
        super().__init__(snapshot, pool, mine)
        self.free_now, self.free_later, self._free_for_all = free_now, free_later, free_for_all
        self.claims = {claim.id: claim for claim in mine}
        self.pending = [claim for claim in mine if claim.state is ClaimState.PENDING]
        self.holding: dict[DepartmentId, dict[ClaimId, Claim]] = {}
        self.on_node: dict[str, dict[ClaimId, Claim]] = {}
        self.leaving_on: dict[int, set[ClaimId]] = {}
        self.departures = Departures(partial(_turn, pool, snapshot.settings, snapshot.now))
        self.openings = 0
        self.impossible: set[ClaimId] = set()
        self.ways: dict[tuple[Any, str], tuple[int, Any]] = {}
        self._moved, self._spare = self.ledger.watch(), dict[DepartmentId, int]()
        self.told: dict[ClaimId, Claim] = {}
        self.started: dict[ClaimId, Claim] = {}
        self.drawn: dict[ClaimId, Mapping[ClaimId, int]] = {}
        self.moved: set[DepartmentId] = set()
        self.space, self.pool_slot = free_later.space, free_later.space.pool[pool.id]
        self.hosts = self.space.hosts[pool.id]
        self._fits_empty: dict[tuple[object, ...], bool] = {}
        self.vectors: dict[ClaimId, Vector] = {}
        self.holding_now: dict[ClaimId, None] = {}  # those of the holds that keep something that is free
        self.held_now = 0
        self.young: set[ClaimId] = set()
        self.some_recalls = False
        held: Vector = {}
        charges = self.standing.charges
        self.ledger.fill((claim.department, charges[claim.id]) for claim in mine if claim.id in charges)
        for claim in mine:
            if claim.state is ClaimState.HOLDING:
                self._enter_holding(claim, held)
            elif claim.state is ClaimState.LEAVING:
                self._enter_leaving(claim)
        self.free_now.add(held, -1)
        self.free_later.add(held, -1)
        for claim in sorted(self.pending, key=lambda claim: (not self.departures.of(claim), claim.id)):
            if claim.reserved is not None:  # those whom others leave for first: the free part is theirs
                charged, places = min(claim.reserved.units, self.asked(claim)), claim.reserved.places
                self.reserve(claim, places, self.space.taken(claim, places, charged), self.departures.of(claim))
                self.unsettle(claim)

    def _enter_holding(self, claim: Claim, held: Vector) -> None:
        vector = self.vectors[claim.id] = self._occupied(claim, self.standing.charges[claim.id])
        self._settle_in(claim)
        self._count_user(claim, claim.units)
        if young_until(claim, self.now) > self.now:
            self.young.add(claim.id)
        self.some_recalls = self.some_recalls or claim.is_recall
        for slot, amount in vector.items():
            held[slot] = held.get(slot, 0) + amount

    def _settle_in(self, claim: Claim) -> None:
        """The claim holds: it stands in its department and on its nodes."""
        self.holding.setdefault(claim.department, {})[claim.id] = claim
        for placed in claim.placement or ():
            self.on_node.setdefault(placed.node, {})[claim.id] = claim

    def _enter_leaving(self, claim: Claim) -> None:
        self._leave(claim)
        vector = self.vectors[claim.id] = self._occupied(claim, claim.units)
        self.standing.charges[claim.id] = claim.units
        self.free_now.add(vector, -1)

    def _leave(self, claim: Claim) -> None:
        """The claim leaves, and its nodes."""
        self.departures.enter(claim)
        for machine in self._machines(claim):
            self.leaving_on.setdefault(machine, set()).add(claim.id)

    def _machines(self, claim: Claim) -> set[int]:
        """Those of the pool that the claim stands on."""
        names = [placed.node for placed in claim.placement or ()]
        return {self.hosts[name].number for name in names if name in self.hosts}

    def _occupied(self, claim: Claim, charge: int) -> Vector:
        """What the claim takes of the present capacity."""
        return self.space.taken(claim, claim.placement, charge - self.stranded.get(claim.id, 0))

    def need(self, claim: Claim, places: Places) -> Vector:
        """What a claim that asks would take at `places`."""
        return self.space.taken(claim, places, self.asked(claim))

    def _count_user(self, claim: Claim, units: int) -> None:
        if not claim.is_recall:
            key = claim.department, claim.user
            self.used_by[key] = self.used_by.get(key, 0) + units

    # Where a claim would stand ----------------------------------------------------------------------------------------

    @cached_property
    def line(self) -> Mapping[ClaimId, int]:
        """The place in line of every claim that could run (queue.py)."""
        ledger = Ledger(self.pool, self.departments.values(), sum(self.stranded.values()))
        standing = (claim for claim in self.claims.values() if claim.id not in self.impossible)
        return line_of(ledger, standing, self.settings.fair_sharing)

    def stands_behind(self, claim: Claim, taker: Claim) -> bool:
        """Whether a claim comes after the taker in line."""
        return self.line[claim.id] > self.line[taker.id]

    @cached_property
    def empty(self) -> Room:
        """The pool as it is present, without any claim. Few passes ask."""
        return Room(self.space)

    def in_order(self, names: Iterable[str]) -> list[Host]:
        """The nodes of these names that are there, in the pool's order: of equals the first is taken."""
        return sorted([self.hosts[name] for name in self.hosts.keys() & names], key=attrgetter("turn"))

    def fits_when_empty(self, claim: Claim) -> bool:
        """Whether the claim would fit into the pool as it is present, without any other; what fits soon needs no such look."""
        if self.pool.nodes is None or claim.is_recall:
            return claim.units <= self.ledger.capacity
        key = claim.shape, claim.pods, claim.same_domain
        if key not in self._fits_empty:
            self._fits_empty[key] = any(find_places(claim, self.pool, room) is not None for room in self._rooms())
        return self._fits_empty[key]

    def _rooms(self) -> Iterator[Room]:
        yield self.free_later
        yield self.empty

    @property
    def free_for_all(self) -> Room:
        """What is free now and nobody who waits for others counts on: two may wait for the same leaver, of whom one needs
        its cards, and the other its CPU beside those that are free."""
        return self._free_for_all.as_they_are()

    def places(self, claim: Claim, free: Room, units: int | None = None) -> Places | None:
        """Places for the claim in what is free; those it has reserved if it still can. It may be asked as if it charged other
        `units` to the pool."""
        charged = self.asked(claim) if units is None else units
        kept = claim.reserved.places if claim.reserved is not None else ()
        if kept and fits(free.row, self.space.taken(claim, kept, charged)):
            return kept
        return find_places(claim, self.pool, free, charged)

    # Entries ----------------------------------------------------------------------------------------------------------

    def draw(self, claim: Claim) -> dict[ClaimId, int]:
        """What recalls that departments above it hold give way to the claim, as far as it needs it: by recall, the units."""
        drawn: dict[ClaimId, int] = {}
        wanted, account = 0 if claim.is_recall else self.asked(claim), self.ledger[claim.department].parent
        while account is not None and wanted:
            for recall in self.standing.recalls.get(account.id, ()):
                units = min(wanted, self.standing.charges[recall.id])
                if units:
                    drawn[recall.id] = units
                    wanted -= units
            account = account.parent
        self._give_way(drawn, 1)
        return drawn

    def put_back(self, drawn: Mapping[ClaimId, int]) -> None:
        """The recalls hold again what they had given."""
        self._give_way(drawn, -1)

    def _give_way(self, drawn: Mapping[ClaimId, int], times: int) -> None:
        for id, units in drawn.items():
            department = self.claims[id].department
            self.standing.charges[id] -= times * units
            self.recalled[department] -= times * units
            self.ledger.add(department, -times * units)
            self.free_now.add({self.pool_slot: times * units})
            self.free_later.add({self.pool_slot: times * units})

    def admit(self, claim: Claim, places: Places, drawn: Mapping[ClaimId, int]) -> None:
        """The claim starts at `places`, now, and has `drawn` on recalls of departments above."""
        vector = self.vectors[claim.id] = self.need(claim, places)
        asked = vector[self.pool_slot]
        if asked < claim.units:
            self.recalled[claim.department] -= claim.units - asked
        self.ledger.add(claim.department, asked)
        self._count_user(claim, claim.units)
        self.free_now.add(vector, -1)
        self.free_later.add(vector, -1)
        self.started[claim.id] = claim
        if drawn:
            self.drawn[claim.id] = drawn

    def starts_without_right(self) -> list[Claim]:
        """Who was to start in this pass by a right that others' leaving gave, and these stay after all; the last comes first."""
        return [
            claim
            for claim in reversed(self.started.values())
            if (self.ledger.available(claim.department) < 0 or claim.must_stay_inside)
            and self.starts_above_guarantee(claim)
        ]

    def starts_above_guarantee(self, claim: Claim) -> bool:
        """Whether a claim that is to start does not stay inside the guarantee beside those of its department who hold or are to
        start before it. What others have only reserved since does not count: they come after it."""
        mine, charges, started = claim.department, self.standing.charges, [*self.started]
        before = [id for id in started[: started.index(claim.id) + 1] if self.started[id].department == mine]
        used = sum(charges[id] for id in self.holding.get(mine, {}))
        return used + sum(self.vectors[id][self.pool_slot] for id in before) > self.ledger[mine].subtree

    def take_back(self, claim: Claim) -> None:
        """The claim does not start after all."""
        vector = self.vectors.pop(claim.id)
        charged = vector[self.pool_slot]
        self.recalled[claim.department] = self.recalled.get(claim.department, 0) + claim.units - charged
        del self.started[claim.id]
        self.ledger.remove(claim.department, charged)
        self._count_user(claim, -claim.units)
        self.free_now.add(vector)
        self.free_later.add(vector)
        self.put_back(self.drawn.pop(claim.id, {}))

    def reserve(self, claim: Claim, places: Places, need: Vector, waiting_on: Iterable[Claim]) -> Hold:
        """The claim has a title to `places`: of what it will `need` there, what `waiting_on` occupy is coming, and the rest is
        held now."""
        charged, node = need[self.pool_slot], places[0].node if len(places) == 1 else None
        hold = Hold(claim, charged, later=need, node=node)
        for leaver in waiting_on:
            self.wait_for(hold, leaver)
        if charged < claim.units and claim.department in self.recalled:
            hold.drawn = min(claim.units - charged, self.recalled[claim.department])
            self.recalled[claim.department] -= hold.drawn
        self._count_user(claim, claim.units)
        self.reserved.setdefault(claim.department, {})[claim.id] = None
        self.put(hold)
        return hold

    def wait_for(self, hold: Hold, leaver: Claim) -> None:
        """What the leaver gives is coming for the hold, too."""
        self.departures.hold(leaver, hold.claim)
        for slot, amount in self.vectors[leaver.id].items():
            hold.coming[slot] = hold.coming.get(slot, 0) + amount

    def put(self, hold: Hold) -> None:
        """Enter a hold. Of what is free now it takes what it needs and what is there."""
        free, coming = self.free_now.row, hold.coming
        hold.now = {
            slot: min(max(0, free[slot]), max(0, amount - coming.get(slot, 0))) for slot, amount in hold.later.items()
        }
        self.holds[hold.claim.id] = hold
        self.departures.begin(hold.claim)
        if hold.claim.must_stay_inside:
            self.strict.setdefault(hold.claim.department, {})[hold.claim.id] = None
        self.held_now += hold.now[self.pool_slot]
        if hold.now[self.pool_slot] > 0:
            self.holding_now[hold.claim.id] = None
        self.ledger.add(hold.claim.department, hold.charged)
        self.free_now.add(hold.now, -1)
        self.free_later.add(hold.later, -1)

    def lift(self, hold: Hold) -> None:
        """Take a hold out again, for a while or for good."""
        del self.holds[hold.claim.id]
        self.departures.end(hold.claim)
        self.strict.get(hold.claim.department, {}).pop(hold.claim.id, None)
        self.held_now -= hold.now[self.pool_slot]
        self.holding_now.pop(hold.claim.id, None)
        self.ledger.remove(hold.claim.department, hold.charged)
        self.free_now.add(hold.now)
        self.free_later.add(hold.later)

    @contextmanager
    def without_its_hold(self, claim: Claim) -> Iterator[None]:
        """As if nothing were held for the claim, for a while."""
        hold = self.holds.get(claim.id)
        if hold is None:
            yield
            return
        held = hold.now[self.pool_slot]
        self.ledger.lend(claim.department, -hold.charged)
        self.held_now -= held
        with self.free_now.also([hold.now]), self.free_later.also([hold.later]):
            yield
        self.held_now += held
        self.ledger.lend(claim.department, hold.charged)

    def renew(self, claim: Claim) -> None:
        """A reservation of the snapshot stays as it is, as if it were made now."""
        self.settle(claim)
        for entries in (self.reserved[claim.department], self.strict.get(claim.department, {}), self.holding_now):
            if claim.id in entries:
                del entries[claim.id]
                entries[claim.id] = None

    def give_up(self, claim: Claim) -> None:
        """The claim's reservation ends; those who leave for it leave for nobody until somebody else needs them."""
        hold = self.holds[claim.id]
        if hold.old:
            self.settle(claim)
        self.lift(hold)
        if hold.drawn:
            self.recalled[claim.department] += hold.drawn
        del self.reserved[claim.department][claim.id]
        self._count_user(claim, -claim.units)
        self.departures.release(claim)

    def tell(self, victims: tuple[Claim, ...]) -> None:
        """The victims are told to leave: for rights they are gone, their places are coming."""
        for victim in victims:
            del self.holding[victim.department][victim.id]
            for placed in victim.placement or ():
                self.on_node[placed.node].pop(victim.id, None)
            self.openings += 1
            self.moved.add(victim.department)
            self.told[victim.id] = victim
            self._leave(victim)
            self._stirred(victim)
            self._count_user(victim, -victim.units)
        self.go(victims)

    def untell(self, victim: Claim) -> None:
        """A victim told in this pass is not needed after all. If that is more than is left, others have counted on it."""
        del self.told[victim.id]
        self.departures.stay(victim)
        for machine in self._machines(victim):
            self.leaving_on[machine].discard(victim.id)
        self._settle_in(victim)
        self._stirred(victim)
        self.moved.add(victim.department)
        self._count_user(victim, victim.units)
        self.stay([victim])
        too_little = any(self.free_later.row[slot] < 0 for slot in self.vectors[victim.id])
        too_much = self.ledger.is_overdrawn(victim.department)
        broken = self.breaks_its_word(victim.department) or self.starts_without_right()
        self.openings += bool(too_little or too_much or broken)

    def go(self, claims: Iterable[Claim]) -> None:
        """Count claims as gone, by right and in what is free later."""
        for claim in claims:
            self.ledger.remove(claim.department, self.standing.charges[claim.id])
            self.free_later.add(self.vectors[claim.id])

    def stay(self, claims: Iterable[Claim]) -> None:
        """Count claims that leave as if they stayed."""
        for claim in claims:
            self.ledger.add(claim.department, self.standing.charges[claim.id])
            self.free_later.add(self.vectors[claim.id], -1)

    @contextmanager
    def as_if(self, claims: Collection[Claim], gone: bool) -> Iterator[None]:
        """As if the claims were gone, or as if they stayed, for a while."""
        vectors = [self.vectors[claim.id] for claim in claims]
        with self.by_right_as_if(claims, gone), self.free_later.also(vectors, 1 if gone else -1):
            yield

    @contextmanager
    def by_right_as_if(self, claims: Collection[Claim], gone: bool) -> Iterator[None]:
        """The same for the quotas alone, wherever the claims stand."""
        charges, times = self.standing.charges, 1 if gone else -1
        for claim in claims:
            self.ledger.lend(claim.department, -times * charges[claim.id])
        try:
            yield
        finally:
            for claim in claims:
                self.ledger.lend(claim.department, times * charges[claim.id])

    def short_by(self, claim: Claim) -> int:
        """Units by which its department would fall below its guarantee if the claim alone went."""
        account = self.ledger.accounts[claim.department]
        return max(0, claim.units - max(0, account.usage - account.guaranteed))

    def note_moved(self) -> None:
        """Stopping the claims of a department costs more, or less, when its usage comes nearer to its guarantee: note so on
        their nodes."""
        for department in self._moved:
            account, claims = self.ledger.accounts[department], self.holding.get(department, {}).values()
            spare = min(max(0, account.usage - account.guaranteed), max((claim.units for claim in claims), default=0))
            if self._spare.get(department) != spare:
                self._spare[department] = spare
                for claim in claims:
                    self._stirred(claim)
        self._moved.clear()

    def _stirred(self, claim: Claim) -> None:
        """Something about the claim has changed, be it not what is free where it stands."""
        for placed in claim.placement or ():
            if placed.node in self.hosts:
                self.free_later.note(self.hosts[placed.node])

    def close(self) -> None:
        """Nothing is asked any more. What is remembered refers to the books, and to the rooms: it goes at once, without
        anybody looking for garbage among thousands of entries."""
        self.ways.clear()
        for room in (self.free_now, self.free_later, self._free_for_all, self.__dict__.get("empty")):
            if room is not None:
                room.forget()


def _turn(pool: Pool, settings: Settings, now: int, leaver: Claim) -> Turn:
    return gone_by(leaver, pool, settings, now), leaver.id
