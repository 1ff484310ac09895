"""One planning pass: every pending claim of a snapshot gets its answer.

`decide` is pure, deterministic and total. It reads as docs/quota-rules.md does, "One planning pass":

1. Reservations come first: who waits for others to leave starts when they are gone, or keeps waiting, or gives up.
2. Then the departments' next claims compete; each is answered before the next is chosen.
3. A claim starts if its department is entitled to it and it fits where nobody else holds.
4. If not, what already leaves for nobody is reserved for it; only then are victims named.
5. If not, it waits, and holds what it may hold.
6. What was freed beyond need is offered again to those who wait.
7. Who was told to leave and is not needed any more may stay.

Why a claim waits is said when all have their answers; so are the lenders of what each borrows and the moves that would help.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from quotas.engine.pass_state import Books
from quotas.engine.placement import Places, rooms_of
from quotas.engine.preemption import Chosen, choose, still_needed, still_needs_all
from quotas.engine.preemption_rules import may_call_back
from quotas.engine.queue import Competition, queue_order
from quotas.engine.quota_tree import Entry, lenders
from quotas.engine.reasons import LentOutReturning, Reason
from quotas.engine.reservations import Holds, could_start, leavers_needed, may_stay, needs_all
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
from quotas.engine.units import entered_at, told_at
from quotas.engine.waiting import Consolidation, impossible, impossible_now, not_any_more, not_now, waiting_reasons


def decide(snapshot: Snapshot) -> Plan:
    """Answer every pending claim. The snapshot is not changed; the order of its parts does not matter."""
    rooms = rooms_of(snapshot)
    pools = sorted(snapshot.pools, key=lambda pool: pool.id)
    passes = [PoolPass(Books(snapshot, pool, *rooms)) for pool in pools]
    for planned in passes:
        planned.run()
        planned.explain()
    decisions = [decision for done in passes for decision in decided(done.books, done.answers, done.charged)]
    stay = [claim for done in passes for claim in withdrawn(done.books, done.answers)]
    for done in passes:
        done.books.close()
    return Plan(snapshot.id, tuple(sorted(decisions, key=lambda d: d.claim)), tuple(sorted(stay)))


ROUNDS = 20
"""Enough for every pass seen; a pass that would still change something goes on next time."""


AGAIN = Decision(ClaimId(""), DecisionKind.WAIT)
"""The answer to who waits in a round after which another comes."""


class PoolPass:
    """The pass over one pool: its books, and the answers in the order in which they were given."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self._holds = Holds(books)
        self.answers: dict[ClaimId, Decision] = {}
        self.charged: dict[ClaimId, int] = {}
        self._pending_of: dict[DepartmentId, list[Claim]] = {}
        for claim in books.pending:
            self._pending_of.setdefault(claim.department, []).append(claim)
        self._openings: int | None = None
        self._released: set[ClaimId] = set()
        self._line: list[ClaimId] = []

    def run(self) -> None:
        """Steps 1, 2 and 6."""
        books = self.books
        if books.pool.cluster_unreachable_since is not None:
            for claim in sorted(books.pending, key=lambda claim: claim.id):
                self.answers[claim.id] = self._wait(claim)
            return
        self.answers.update(impossible(books))
        books.impossible.update(self.answers)
        for claim in [claim for claim in self._held() if claim.id in self.answers]:
            books.give_up(claim)
        before: dict[ClaimId, Decision] | None = None
        rounds, last = 0, False
        while not last:
            rounds += 1
            self._forget_those_who_wait()
            last = rounds == ROUNDS or self.answers == before  # some change their places and change them back
            before = dict(self.answers)
            self._openings = None if last else books.openings
            self._settle_reservations()
            self._compete([claim for claim in books.pending if claim.id not in self.answers])
            if self._openings == books.openings:
                return
        for claim in self._take_back_without_right():  # what the last of them let stay may have been somebody's right
            self.answers[claim.id] = self._wait(claim)

    @property
    def _is_last(self) -> bool:
        """Whether no round comes after this one, as far as is known. Else who waits is asked again."""
        return self._openings in (None, self.books.openings)

    def _forget_those_who_wait(self) -> None:
        self._holds.clear()
        self._line.clear()
        for id in [id for id, decision in self.answers.items() if decision.decision is DecisionKind.WAIT]:
            del self.answers[id]

    def _settle_reservations(self) -> None:
        """Step 1, and again in later rounds: who has a reservation may start, or need fewer of those told."""
        books = self.books
        self._take_back_without_right()
        self._give_up_without_right()
        held = self._held()
        again = {claim.id for claim in held if not self._stays_as_it_is(claim)}
        whole = {claim.department for claim in held if claim.id in again and claim.must_stay_inside}
        reserved = [claim for claim in held if claim.id in again or claim.department in whole]
        turns, changed = 0, True
        while changed and turns < ROUNDS:
            turns += 1
            self._released.clear()
            before = [self.answers.get(claim.id) for claim in reserved]
            for claim in reserved:
                books.unsettle(claim)
            self._compete(reserved, settling=True)
            changed = before != [self.answers.get(claim.id) for claim in reserved]
            reserved = [claim for claim in self._held() if self._waits_for(claim, self._released)]
        self._untell(books.told)

    def _waits_for(self, claim: Claim, leavers: set[ClaimId]) -> bool:
        decision = self.answers.get(claim.id)
        return decision is not None and not leavers.isdisjoint(decision.waiting_on)

    def _held(self) -> list[Claim]:
        """Those who have a reservation."""
        return [claim for claim in self.books.pending if claim.id in self.books.holds]

    def _take_back_without_right(self) -> list[Claim]:
        """Who was to start in this pass by a right that others' leaving gave, and these stay after all, competes anew."""
        books, taken = self.books, list[Claim]()
        for claim in books.starts_without_right():
            free = books.ledger.available(claim.department)
            if (free < 0 or claim.must_stay_inside) and books.starts_above_guarantee(claim):
                books.take_back(claim)
                self._holds.forget_end(claim)
                del self.answers[claim.id]
                taken.append(claim)
        return taken

    def _give_up_without_right(self) -> None:
        """When more is reserved than the limits bear, since others stay after all or quotas are smaller now, the last of
        those who reserved compete anew."""
        books, root = self.books, self.books.ledger.root
        if root.usage <= root.subtree:
            return
        for claim in self._last_first():
            if root.usage > root.subtree and books.lost_its_right(claim):
                self.answers.pop(claim.id, None)
                books.give_up(claim)

    def _last_first(self) -> list[Claim]:
        """Those who have a reservation, in the order in which they give it up where the pool does not bear all of them."""
        held = sorted(self._held(), key=queue_order, reverse=True)
        held.sort(key=lambda claim: (claim.must_stay_inside, self.books.ledger.inside(claim.department, 0)))
        return held

    def _untell(self, victims: Iterable[ClaimId]) -> None:
        """Of those told in this pass, whom nobody waits for any more stays: what it gives cannot be counted on. Whose right
        depends on it may call it back, too."""
        books = self.books
        told = [books.told[id] for id in victims]
        for victim in told:
            self._give_up_what_comes_before(victim)
        for victim in [victim for victim in told if not books.departures.awaited.get(victim.id)]:
            heir = next((claim for claim in self._depending_on(victim) if may_call_back(books, claim, victim)), None)
            if heir is None:
                books.untell(victim)
            else:
                self._wait_for(heir, victim)

    def _depending_on(self, victim: Claim) -> list[Claim]:
        """Who would lose the right to a reservation if the victim stayed: those of its department, and the one of all that would
        give up first if the pool did not bear all reservations any more. That one would only have to call back as many units
        anew, others would move to what these leave, and let theirs stay in turn: that does not end."""
        books, root, units = self.books, self.books.ledger.root, self.books.standing.charges[victim.id]
        depending = books.depending_on(victim, units)
        if root.usage > root.subtree:
            return depending
        books.ledger.lend(victim.department, units)
        losing = self._last_first() if root.usage > root.subtree else ()
        first = next((claim for claim in losing if books.lost_its_right(claim)), None)
        books.ledger.lend(victim.department, -units)
        return depending if first is None or first in depending else [*depending, first]

    def _give_up_what_comes_before(self, victim: Claim) -> None:
        """Whoever counts on a victim that comes before it in its own department competes anew if that one is not told for
        another any more: else it would go for a claim that it stops itself as soon as it waits again."""
        books = self.books
        if victim.id in books.departures.holder:
            return
        for id in sorted(books.departures.awaited.get(victim.id, ())):
            claim = books.holds[id].claim if id in books.holds else victim
            if claim.department == victim.department and queue_order(claim) > queue_order(victim):
                self.answers.pop(id, None)
                books.give_up(claim)
                books.openings += 1

    def _wait_for(self, claim: Claim, leaver: Claim) -> None:
        """A claim with a reservation waits for one more. What that leaves over may be enough for others."""
        self.books.wait_for(self.books.holds[claim.id], leaver)
        self.books.openings += 1
        decision = self.answers[claim.id]  # nobody is told before all reservations of the snapshot are settled
        waiting_on, by = (*decision.waiting_on, leaver.id), max(decision.by or 0, self.books.gone_by(leaver))
        self.answers[claim.id] = replace(decision, waiting_on=tuple(sorted(waiting_on)), by=by)

    def _stays_as_it_is(self, claim: Claim) -> bool:
        """Whether a reservation made in this pass would be made again."""
        books, decision = self.books, self.answers.get(claim.id)
        if decision is None or not_any_more(books, claim, itself_counted=True) is not None:
            return False
        if books.lost_its_right(claim) or could_start(books, claim):
            return False
        return needs_all(books, claim, [id for id in decision.waiting_on if may_stay(books, id)])

    def _compete(self, claims: list[Claim], settling: bool = False) -> None:
        """Answer the claims as their turn comes. Whose usage has moved is ranked anew."""
        books = self.books
        competition = Competition(books.ledger, claims, books.settings.fair_sharing, books.asked)
        while (claim := competition.next()) is not None:
            told = books.departures.of(claim) if settling else []
            before = self.answers.get(claim.id)
            decision = self._settle(claim) if settling else self._answer(claim)
            if decision is not None:
                self.answers[claim.id] = decision
            new = decision is not None and not settling and decision.decision is not DecisionKind.WAIT
            if decision is None or (new and books.reserved_behind(claim)):
                books.openings += 1  # what it held may let others start, what it takes now be in their way
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
        books, before = self.books, self.answers.get(claim.id)
        if claim.id not in books.holds:
            return None  # it counted on whom another needs no more
        if before is not None:  # made in this pass: kept where it is, like those of the snapshot
            if self._stays_as_it_is(claim):
                books.settle(claim)
                return before
            del self.answers[claim.id]
            claim = replace(claim, reserved=Reservation(claim.units, before.placement or ()))
        elif (kept := self._kept(claim)) is not None:
            return kept
        waited_for = before.waiting_on if before else [leaver.id for leaver in books.departures.of(claim)]
        books.give_up(claim)
        left = [books.departures.leaving[id] for id in waited_for if id in books.departures.for_nobody]
        told = [leaver for leaver in left if may_stay(books, leaver.id) and leaver.held_for in (None, claim.id)]
        if not_any_more(books, claim, itself_counted=False) is not None:
            return None
        while told and (needed := self._needed(claim, told)) is not None:
            dropped = [leaver for leaver in told if leaver not in needed.victims]
            if not any(books.departures.awaited.get(leaver.id) for leaver in dropped):
                return self._reserved(claim, needed.places, needed.victims)
            told = list(needed.victims)  # what others wait for leaves in any case, and is not the claim's any more
        with books.as_if([leaver for leaver in told if leaver.id in books.told], gone=False):  # it does without them
            return self._start(claim) or self._reserve_what_leaves(claim)

    def _needed(self, claim: Claim, told: Collection[Claim]) -> Chosen | None:
        """Of those who leave for a claim, the ones it still needs; None if none of them, or if it would not fit."""
        used, reserved = self._behind(claim, told)
        for giving_way in (reserved, 0) if reserved else (0,):  # who comes after it gives way, if that helps
            needed = still_needed(self.books, claim, told, used + reserved - giving_way, giving_way)
            if needed is not None and needed.victims:
                return needed
        return None

    def _kept(self, claim: Claim) -> Decision | None:
        """A reservation of the snapshot as it is: most are, where little has changed."""
        books, told = self.books, self.books.departures.of(claim)
        if not told or any(
            leaver.held_for not in (None, claim.id) or not may_stay(books, leaver.id) for leaver in told
        ):
            return None
        if not_any_more(books, claim, itself_counted=True) is not None:
            return None
        if not still_needs_all(books, claim, told, sum(self._behind(claim, told))):
            return None
        own, borrowed = self._charge(claim)
        books.renew(claim)
        return self._reclaim(claim, own, borrowed, claim.reserved.places if claim.reserved else (), told)

    def _behind(self, claim: Claim, told: Iterable[Claim]) -> tuple[int, int]:
        """Units that claims of its department use that come after it and started since those were `told` who leave for it, and
        units that such claims have reserved."""
        books, order = self.books, queue_order(claim)
        before = [leaver for leaver in told if leaver.id not in books.told]
        used = 0
        if before:
            since = min(told_at(leaver, books.pool, books.settings, books.now) for leaver in before)
            holding = books.holding.get(claim.department, {}).values()
            later = (other for other in holding if queue_order(other) > order and entered_at(other) >= since)
            used = sum(books.standing.charges[other.id] for other in later)
        behind = [other.id for other in self._pending_of[claim.department] if queue_order(other) > order]
        started = [id for id in behind if id in self.answers and id not in books.holds]
        reserved = sum(books.holds[id].charged for id in behind if id in books.holds)
        return used + sum(self.charged.get(id, 0) for id in started), reserved

    def _answer(self, claim: Claim) -> Decision:
        """Steps 3 to 5."""
        if not_now(self.books, claim) is not None:
            return self._wait(claim)
        return (
            self._holds.passing(claim, self._start)
            or self._holds.outranking(claim, self._reserve)
            or self._wait_and_hold(claim)
        )

    def _start(self, claim: Claim) -> Decision | None:
        """Step 3."""
        books = self.books
        drawn = books.draw(claim) if books.some_recalls else {}
        places = books.places(claim, books.free_for_all) if books.entitled(claim) else None
        if places is None:
            books.put_back(drawn)
            return None
        own, borrowed = self._charge(claim)
        books.admit(claim, places, drawn)
        self._holds.count_on_end(claim)
        if borrowed:
            books.openings += 1  # its department may be taken from now, by who was asked before
        return Decision(claim.id, DecisionKind.ADMIT, own, borrowed, placement=places or None)

    def _charge(self, claim: Claim) -> tuple[int, int]:
        """The claim's units as own and borrowed; what it draws from a recall is its department's own."""
        asked = self.charged[claim.id] = self.books.asked(claim)
        own = self.books.own_after(claim)
        return own + claim.units - asked, asked - own

    def _reserve(self, claim: Claim) -> Decision | None:
        """Step 4."""
        return self._reserve_what_leaves(claim) or self._take(claim)

    def _reserve_what_leaves(self, claim: Claim) -> Decision | None:
        """Step 4, first half: all it needs is free or leaves already."""
        books = self.books
        places = books.places(claim, books.free_later) if books.entitled(claim) else None
        return None if places is None else self._reserved(claim, places, ())

    def _take(self, claim: Claim) -> Decision | None:
        """Step 4, second half."""
        chosen = choose(self.books, claim)
        if chosen is None:
            return None
        self.books.tell(chosen.victims)
        return self._reserved(claim, chosen.places, chosen.victims)

    def _reserved(self, claim: Claim, places: Places, needed: tuple[Claim, ...]) -> Decision:
        """Reserve the places, and wait for those `needed` and whoever else stands there."""
        books = self.books
        own, borrowed = self._charge(claim)
        need = books.need(claim, places)
        waiting_on = leavers_needed(books, claim, need, needed)
        books.reserve(claim, places, need, waiting_on)
        return self._reclaim(claim, own, borrowed, places, waiting_on)

    def _reclaim(
        self, claim: Claim, own: int, borrowed: int, places: Places, waiting_on: Collection[Claim]
    ) -> Decision:
        """It starts once those have gone."""
        books = self.books
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
        if not self._is_last:
            return AGAIN
        ahead = tuple(self._line[:AHEAD_SHOWN])
        self._line.append(claim.id)
        return Decision(claim.id, DecisionKind.WAIT, position=len(self._line), ahead=ahead)

    def _wait_and_hold(self, claim: Claim) -> Decision:
        """Step 5, for a claim whose limits would let it start."""
        books = self.books
        decision = self._wait(claim)
        if books.inside(claim):
            self._holds.make(claim, starving=False)
        elif books.now - claim.waiting_since > books.settings.starvation_after and not claim.must_stay_inside:
            self._holds.make(claim, starving=True)
        return decision

    # Reasons ----------------------------------------------------------------------------------------------------------

    def explain(self) -> None:
        """Say why those wait who wait, and what is in the way of those that can never run: once all are answered, so that every
        number is the one after all who start in this pass. What is held for a claim itself is not in its way."""
        books = self.books
        for claim in books.pending:
            decision = self.answers[claim.id]
            if decision.decision is DecisionKind.WAIT:
                with books.without_its_hold(claim):
                    self.answers[claim.id] = replace(decision, reasons=self._reasons(claim))
            elif decision.decision is DecisionKind.IMPOSSIBLE:
                self.answers[claim.id] = replace(decision, reasons=impossible_now(books, claim, decision.reasons))

    def _reasons(self, claim: Claim) -> tuple[Reason, ...]:
        reasons = waiting_reasons(self.books, claim)
        held_up = self.books.pool.cluster_unreachable_since is not None or not_now(self.books, claim) is not None
        returning = None if held_up else self._returning(claim)
        return (returning, *reasons) if returning else reasons

    def _returning(self, claim: Claim) -> LentOutReturning | None:
        """Victims there would be, were their minimum runtime over: who, and by when they would be gone."""
        books = self.books
        if not books.young or not books.inside(claim):
            return None
        chosen = choose(books, claim, patient=True)
        if chosen is None or not chosen.victims:  # what it lacks may have come free since it was answered
            return None
        return LentOutReturning(
            tuple(victim.id for victim in chosen.victims), max(books.gone_by(victim) for victim in chosen.victims)
        )


# The plan -------------------------------------------------------------------------------------------------------------

Answers = Mapping[ClaimId, Decision]
"""In the order in which they were given."""


def decided(books: Books, answers: Answers, charged: Mapping[ClaimId, int]) -> list[Decision]:
    """The answers, complete. `charged` is what those who use units now or have a title to them count in the ledger."""
    asking = {claim.id: claim for claim in books.pending}
    lending = any(decision.borrowed for decision in answers.values())
    borrowed = _lenders(books, answers, _entries(books, answers, charged, asking)) if lending else {}
    told: dict[ClaimId, list[ClaimId]] = {}
    waiting = {leaver: id for id, decision in answers.items() for leaver in decision.waiting_on}
    for victim in sorted(books.told):  # for its holder; if that one gave up, for who waits for the same victim
        told.setdefault(books.departures.holder.get(victim, waiting[victim]), []).append(victim)
    hints = Consolidation(books)
    complete: list[Decision] = []
    for id, decision in answers.items():
        reasons = hints.hinted(asking[id], decision.reasons) if decision.position else decision.reasons
        lent, victims = borrowed.get(id, {}), tuple(told.get(id, ()))
        if lent or victims or decision.borrowed or reasons is not decision.reasons:
            units, of_others = decision.own + decision.borrowed, sum(lent.values())  # as it is once all are answered
            decision = Decision(
                id, decision.decision, units - of_others, of_others, lent, decision.placement, victims, decision.waiting_on,
                decision.by, reasons, decision.position, decision.ahead, decision.largest,
            )  # fmt: skip  # thousands of them: half the time of replace()
        complete.append(decision)
    return complete


def _lenders(books: Books, answers: Answers, entries: Iterable[Entry]) -> Mapping[ClaimId, Mapping[DepartmentId, int]]:
    """Of whom each claim borrows. What is only held for those who wait is idle, and lent."""
    waiting = [hold for id, hold in books.holds.items() if answers[id].decision is DecisionKind.WAIT]
    for hold in waiting:
        books.ledger.lend(hold.claim.department, -hold.charged)
    found = lenders(books.ledger, entries)
    for hold in waiting:
        books.ledger.lend(hold.claim.department, hold.charged)
    return found


def _entries(
    books: Books, answers: Answers, charged: Mapping[ClaimId, int], asking: Mapping[ClaimId, Claim]
) -> Iterator[Entry]:
    """Who uses units, in the order in which they came by them. Who starts and must stay inside the guarantee holds from now on,
    as in the next pass: what others of its department have reserved stands behind it."""
    for claims in books.holding.values():
        for claim in claims.values():
            yield Entry(claim.id, claim.department, books.standing.charges[claim.id], (0, entered_at(claim)))
    for turn, id in enumerate(id for id, decision in answers.items() if decision.own + decision.borrowed):
        claim = asking[id]
        holds = answers[id].decision is DecisionKind.ADMIT and claim.must_stay_inside
        yield Entry(id, claim.department, charged[id], (0, books.now) if holds else (1, turn))


def withdrawn(books: Books, answers: Answers) -> list[ClaimId]:
    """Step 7: told for somebody, needed by nobody, before its deadline, and within the limits with it."""
    needed = {leaver for decision in answers.values() for leaver in decision.waiting_on}
    stay: list[ClaimId] = []
    if books.pool.cluster_unreachable_since is not None:
        return stay
    for leaver in sorted(books.departures.leaving.values(), key=lambda leaver: leaver.id):
        told = leaver.held_for is not None and (leaver.leave_by is None or leaver.leave_by > books.now)
        if told and leaver.id not in needed and books.may_return(leaver):
            books.ledger.add(leaver.department, leaver.units)
            stay.append(leaver.id)
    return stay
