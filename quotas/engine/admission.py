"""One planning pass: every pending claim of a snapshot gets its answer.

`decide` is pure, deterministic and total. It reads as docs/quota-rules.md does, "One planning pass":

1. Reservations come first: who waits for others to leave starts when they are gone, or keeps waiting, or gives up.
2. Then the departments' next claims compete; each is answered before the next is chosen.
3. A claim starts if its department is entitled to it and it fits where nobody else holds.
4. If not, what already leaves for nobody is reserved for it; only then are victims named.
5. If not, it waits, says why, and holds what it may hold.
6. What was freed beyond need is offered again to those who wait.
7. Who was told to leave and is not needed any more may stay.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from quotas.engine.books import Books, free_vectors
from quotas.engine.consolidation import Consolidation
from quotas.engine.holds import Holds
from quotas.engine.loans import Entry, lenders
from quotas.engine.ordering import Competition, queue_order
from quotas.engine.permission import may_stop_own
from quotas.engine.placement import Places, shape_of
from quotas.engine.reasons import LentOutReturning
from quotas.engine.types import (
    AHEAD_SHOWN,
    Claim,
    ClaimId,
    Decision,
    DecisionKind,
    DepartmentId,
    Plan,
    Reservation,
    Snapshot,
)
from quotas.engine.units import entered_at, must_stay_inside
from quotas.engine.victims import choose, still_needed
from quotas.engine.why import never, not_now, waiting_reasons


def decide(snapshot: Snapshot) -> Plan:
    """Answer every pending claim. The snapshot is not changed; the order of its parts does not matter."""
    free_now, free_later = free_vectors(snapshot)
    pools = sorted(snapshot.pools, key=lambda pool: pool.id)
    passes = [PoolPass(Books(snapshot, pool, free_now, free_later)) for pool in pools]
    for planned in passes:
        planned.run()
    decisions = (decision for planned in passes for decision in planned.decisions())
    withdrawn = (claim for planned in passes for claim in planned.withdrawn())
    return Plan(snapshot.id, tuple(sorted(decisions, key=lambda d: d.claim)), tuple(sorted(withdrawn)))


ROUNDS = 20
"""Enough for every pass seen; a pass that would still change something goes on next time."""


class PoolPass:
    """The pass over one pool: its books, and the answers in the order in which they were given."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._holds = Holds(books)
        self._answers: dict[ClaimId, Decision] = {}
        self._charged: dict[ClaimId, int] = {}
        self._pending_of: dict[DepartmentId, list[Claim]] = {}
        for claim in books.pending:
            self._pending_of.setdefault(claim.department, []).append(claim)
        self._waited: Counter[ClaimId] = Counter()
        self._released: set[ClaimId] = set()
        self._line: list[ClaimId] = []
        self._hopeless: set[tuple[object, ...]] = set()

    def run(self) -> None:
        """Steps 1, 2 and 6."""
        books = self._books
        if books.pool.cluster_unreachable_since is not None:
            for claim in sorted(books.pending, key=lambda claim: claim.id):
                self._answers[claim.id] = self._wait(claim)
            return
        openings, rounds = -1, 0
        while openings != books.openings and rounds < ROUNDS:
            openings, rounds = books.openings, rounds + 1
            self._forget_those_who_wait()
            self._settle_reservations()
            self._compete([claim for claim in books.pending if claim.id not in self._answers])

    def _forget_those_who_wait(self) -> None:
        self._holds.clear()
        self._line.clear()
        self._hopeless.clear()
        for id in [id for id, decision in self._answers.items() if decision.decision is DecisionKind.WAIT]:
            del self._answers[id]

    def _settle_reservations(self) -> None:
        """Step 1, and again in later rounds: who has a reservation may start, or need fewer of those told."""
        books = self._books
        self._take_back_without_right()
        self._give_up_without_right()
        held = self._held()
        again = {claim.id for claim in held if not self._stays_as_it_is(claim)}
        whole = {claim.department for claim in held if claim.id in again and must_stay_inside(claim)}
        reserved, rounds = [claim for claim in held if claim.id in again or claim.department in whole], 0
        while reserved and rounds < ROUNDS:
            self._released.clear()
            rounds += 1
            for claim in reserved:
                books.unsettle(claim)
            self._compete([claim for claim in reserved if must_stay_inside(claim)], settling=True)
            self._compete([claim for claim in reserved if not must_stay_inside(claim)], settling=True)
            reserved = [claim for claim in self._held() if self._waits_for(claim, self._released)]
        self._untell(books.told)

    def _waits_for(self, claim: Claim, leavers: set[ClaimId]) -> bool:
        decision = self._answers.get(claim.id)
        return decision is not None and not leavers.isdisjoint(decision.waiting_on)

    def _held(self) -> list[Claim]:
        """Those who have a reservation."""
        return [claim for claim in self._books.pending if claim.id in self._books.holds]

    def _take_back_without_right(self) -> None:
        """Who was to start in this pass by a right that others' leaving gave, and these stay after all, competes anew."""
        books = self._books
        for claim in books.starts_without_right():
            if self._answers[claim.id].borrowed and books.ledger.available(claim.department) < 0:
                books.take_back(claim)
                self._holds.forget_end(claim)
                del self._answers[claim.id]

    def _give_up_without_right(self) -> None:
        """When more is reserved than the limits bear, since others stay after all or quotas are smaller now, the last of
        those who reserved compete anew."""
        books, root = self._books, self._books.ledger.root
        if root.usage <= root.subtree:
            return
        held = sorted(self._held(), key=queue_order, reverse=True)
        held.sort(key=lambda claim: (must_stay_inside(claim), books.ledger.inside(claim.department, 0)))
        for claim in held:
            if root.usage > root.subtree and books.lost_its_right(claim):
                before = self._answers.pop(claim.id, None)
                self._waited.subtract(before.waiting_on if before else ())
                books.give_up(claim)

    def _untell(self, victims: Iterable[ClaimId]) -> None:
        """Of those told in this pass, whom nobody waits for any more stays: what it gives cannot be counted on. Whose right
        depends on it may call it back, too."""
        books = self._books
        for victim in [books.told[id] for id in victims if not self._waited[id]]:
            depending = books.depending_on(victim, books.standing.charges[victim.id])
            heir = next((claim for claim in depending if may_stop_own(books, claim, victim)), None)
            if heir is None:
                books.untell(victim)
            else:
                self._wait_for(heir, victim)

    def _wait_for(self, claim: Claim, leaver: Claim) -> None:
        """A claim with a reservation waits for one more. What that leaves over may be enough for others."""
        self._books.departures.hold(leaver, claim)
        self._books.openings += 1
        self._waited[leaver.id] += 1
        decision = self._answers[claim.id]  # nobody is told before all reservations of the snapshot are settled
        waiting_on, by = (*decision.waiting_on, leaver.id), max(decision.by or 0, self._books.gone_by(leaver))
        self._answers[claim.id] = replace(decision, waiting_on=tuple(sorted(waiting_on)), by=by)

    def _stays_as_it_is(self, claim: Claim) -> bool:
        """Whether a reservation made in this pass would be made again."""
        books, decision = self._books, self._answers.get(claim.id)
        if decision is None or not_now(books, claim, itself_counted=True) is not None:
            return False
        if books.lost_its_right(claim):
            return False
        return books.needs_all(claim, decision.waiting_on)

    def _compete(self, claims: list[Claim], settling: bool = False) -> None:
        """Answer the claims as their turn comes. Whose usage has moved is ranked anew."""
        books = self._books
        competition = Competition(books.ledger, claims, books.settings.fair_sharing, books.asked)
        while (claim := competition.next()) is not None:
            told = books.departures.of(claim) if settling else []
            before = self._answers.get(claim.id)
            decision = self._settle(claim) if settling else self._answer(claim)
            if decision is not None:
                self._answers[claim.id] = decision
                self._waited.update(decision.waiting_on)
            else:
                books.openings += 1  # what it held may let others start that were settled before
            if before is not None and decision is not None:
                self._released.update({*before.waiting_on} - {*decision.waiting_on})
            if told:
                self._untell([leaver.id for leaver in told if leaver.id in books.told])
            competition.again(claim.department)
            for department in books.moved:
                if department != claim.department:
                    competition.again(department)
            books.moved.clear()

    # Answers ----------------------------------------------------------------------------------------------------------

    def _settle(self, claim: Claim) -> Decision | None:
        """Step 1, for a claim with a reservation; None when it gave it up and competes anew."""
        books, before = self._books, self._answers.get(claim.id)
        if before is not None:  # made in this pass: kept where it is, like those of the snapshot
            self._waited.subtract(before.waiting_on)
            if self._stays_as_it_is(claim):
                books.settle(claim)
                return before
            del self._answers[claim.id]
            claim = replace(claim, reserved=Reservation(claim.units, before.placement or ()))
        waited_for = before.waiting_on if before else [leaver.id for leaver in books.departures.of(claim)]
        books.give_up(claim)
        left = [books.departures.leaving[id] for id in waited_for if id in books.departures.for_nobody]
        told = [leaver for leaver in left if leaver.held_for in (None, claim.id)]  # as the next pass would see it
        if never(books, claim) or not_now(books, claim):
            return None
        used, reserved = self._behind(claim)
        for giving_way in (reserved, 0) if reserved else (0,):  # who comes after it gives way, if that helps
            needed = still_needed(books, claim, told, used + reserved - giving_way, giving_way)
            if needed is not None and needed.victims:
                return self._reserved(claim, needed.places, needed.victims)
        with books.as_if([leaver for leaver in told if leaver.id in books.told], gone=False):  # it does without them
            return self._start(claim) or self._reserve_what_leaves(claim)

    def _behind(self, claim: Claim) -> tuple[int, int]:
        """Units that claims of its department use that come after it, and units that such claims have reserved."""
        books, order = self._books, queue_order(claim)
        holding = books.holding.get(claim.department, {}).values()
        used = sum(books.standing.charges[other.id] for other in holding if queue_order(other) > order)
        behind = [other.id for other in self._pending_of[claim.department] if queue_order(other) > order]
        started = [id for id in behind if id in self._answers and id not in books.holds]
        reserved = sum(books.holds[id].charged for id in behind if id in books.holds)
        return used + sum(self._charged.get(id, 0) for id in started), reserved

    def _answer(self, claim: Claim) -> Decision:
        """Steps 3 to 5."""
        impossible = never(self._books, claim)
        if impossible is not None:
            reasons = (impossible.reason,)
            return Decision(claim.id, DecisionKind.IMPOSSIBLE, reasons=reasons, largest=impossible.largest)
        if not_now(self._books, claim) is not None:
            return self._wait(claim)
        return (
            self._holds.passing(claim, self._start)
            or self._holds.outranking(claim, self._reserve)
            or self._wait_and_hold(claim)
        )

    def _start(self, claim: Claim) -> Decision | None:
        """Step 3."""
        books = self._books
        places = books.places(claim, books.free_now) if books.entitled(claim) else None
        if places is None:
            return None
        own, borrowed = self._charge(claim)
        books.admit(claim, places)
        self._holds.count_on_end(claim)
        if borrowed and books.settings.fair_sharing:
            books.openings += 1  # who borrows more may be taken from by those who borrow less
        return Decision(claim.id, DecisionKind.ADMIT, own, borrowed, placement=places or None)

    def _charge(self, claim: Claim) -> tuple[int, int]:
        """The claim's units as own and borrowed; what it draws from a recall is its department's own."""
        asked = self._charged[claim.id] = self._books.asked(claim)
        own = self._books.own_after(claim)
        return own + claim.units - asked, asked - own

    def _reserve(self, claim: Claim) -> Decision | None:
        """Step 4."""
        return self._reserve_what_leaves(claim) or self._take(claim)

    def _reserve_what_leaves(self, claim: Claim) -> Decision | None:
        """Step 4, first half: all it needs is free or leaves already."""
        books = self._books
        places = books.places(claim, books.free_later) if books.entitled(claim) else None
        return None if places is None else self._reserved(claim, places, ())

    def _take(self, claim: Claim) -> Decision | None:
        """Step 4, second half. A shape that found no victims finds none again before somebody is told to leave."""
        shape = self._shape(claim)
        chosen = None if shape in self._hopeless else choose(self._books, claim)
        if chosen is None:
            self._hopeless.add(shape)
            return None
        self._books.tell(chosen.victims)
        return self._reserved(claim, chosen.places, chosen.victims)

    def _shape(self, claim: Claim) -> tuple[object, ...]:
        """What matters for victims; claims behind in the same department never outrank those before."""
        inside, asked = self._books.inside(claim), self._books.asked(claim)
        return (
            claim.department,
            inside,
            asked,
            claim.units_per_pod,
            claim.pods,
            *shape_of(claim),
            claim.same_domain,
            must_stay_inside(claim),
        )

    def _reserved(self, claim: Claim, places: Places, needed: tuple[Claim, ...]) -> Decision:
        """Reserve the places, and wait for those `needed` and whoever else stands there."""
        books = self._books
        own, borrowed = self._charge(claim)
        waiting_on = books.leavers_needed(claim, places, needed)
        books.reserve(claim, places, waiting_on)
        return Decision(
            claim.id,
            DecisionKind.RECLAIM,
            own,
            borrowed,
            placement=places or None,
            waiting_on=tuple(sorted(leaver.id for leaver in waiting_on)),
            by=max((books.gone_by(leaver) for leaver in waiting_on), default=books.now),
        )

    def _wait(self, claim: Claim) -> Decision:
        """Step 5."""
        reasons = waiting_reasons(self._books, claim)
        ahead = tuple(self._line[:AHEAD_SHOWN])
        self._line.append(claim.id)
        return Decision(claim.id, DecisionKind.WAIT, reasons=reasons, position=len(self._line), ahead=ahead)

    def _wait_and_hold(self, claim: Claim) -> Decision:
        """Step 5, for a claim whose limits would let it start."""
        books = self._books
        decision = self._wait(claim)
        returning = self._returning(claim)
        if books.inside(claim):
            self._holds.make(claim, starving=False)
        elif books.now - claim.waiting_since > books.settings.starvation_after and not must_stay_inside(claim):
            self._holds.make(claim, starving=True)
        return replace(decision, reasons=(returning, *decision.reasons)) if returning else decision

    def _returning(self, claim: Claim) -> LentOutReturning | None:
        """Victims there would be, were their minimum runtime over: who, and by when they would be gone."""
        books = self._books
        shape = ("returning", *self._shape(claim))
        if not books.some_young or not books.inside(claim) or shape in self._hopeless:
            return None
        chosen = choose(books, claim, patient=True)
        if chosen is None:
            self._hopeless.add(shape)
            return None
        return LentOutReturning(
            tuple(victim.id for victim in chosen.victims), max(books.gone_by(victim) for victim in chosen.victims)
        )

    # Results ----------------------------------------------------------------------------------------------------------

    def decisions(self) -> list[Decision]:
        """The answers, with who is told for each and the lenders of what it borrows."""
        books = self._books
        asking = {claim.id: claim for claim in books.pending}
        lending = any(decision.borrowed for decision in self._answers.values())
        borrowed = lenders(books.ledger, self._entries(asking)) if lending else {}
        told: dict[ClaimId, list[ClaimId]] = {}
        waiting = {leaver: id for id, decision in self._answers.items() for leaver in decision.waiting_on}
        for victim in sorted(books.told):  # for its holder; if that one gave up, for who waits for the same victim
            told.setdefault(books.departures.holder.get(victim, waiting[victim]), []).append(victim)
        hints = Consolidation(books)
        answers: list[Decision] = []
        for id, decision in self._answers.items():
            reasons = hints.hinted(asking[id], decision.reasons) if decision.position else decision.reasons
            changed = id in borrowed or id in told or reasons is not decision.reasons
            lent, victims = borrowed.get(id, {}), tuple(told.get(id, ()))
            answers.append(replace(decision, from_=lent, victims=victims, reasons=reasons) if changed else decision)
        return answers

    def _entries(self, asking: Mapping[ClaimId, Claim]) -> Iterator[Entry]:
        """Who uses units, in the order in which they came by them."""
        books = self._books
        for claims in books.holding.values():
            for claim in claims.values():
                yield Entry(claim.id, claim.department, books.standing.charges[claim.id], (0, entered_at(claim)))
        for turn, id in enumerate(id for id, d in self._answers.items() if d.own + d.borrowed):
            yield Entry(id, asking[id].department, self._charged[id], (1, turn))

    def withdrawn(self) -> list[ClaimId]:
        """Step 7: told for somebody, needed by nobody, before its deadline, and within the limits with it."""
        books = self._books
        needed = {leaver for decision in self._answers.values() for leaver in decision.waiting_on}
        stay: list[ClaimId] = []
        if books.pool.cluster_unreachable_since is not None:
            return stay
        for leaver in sorted(books.departures.leaving.values(), key=lambda leaver: leaver.id):
            told = leaver.held_for is not None and (leaver.leave_by is None or leaver.leave_by > books.now)
            if told and leaver.id not in needed and books.may_return(leaver):
                books.ledger.add(leaver.department, leaver.units)
                stay.append(leaver.id)
        return stay
