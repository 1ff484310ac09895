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

from quotas.engine.pass_state import PassState
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
    passes = [PoolPass(PassState(snapshot, pool, *rooms)) for pool in pools]
    for planned in passes:
        planned.run()
        planned.explain()
    decisions = [decision for done in passes for decision in decided(done.state, done.answers, done.charged)]
    stay = [claim for done in passes for claim in withdrawn(done.state, done.answers)]
    for done in passes:
        done.state.close()
    return Plan(snapshot.id, tuple(sorted(decisions, key=lambda d: d.claim)), tuple(sorted(stay)))


ROUNDS = 20
"""Enough for every pass seen; a pass that would still change something goes on next time."""


AGAIN = Decision(ClaimId(""), DecisionKind.WAIT)
"""The answer to who waits in a round after which another comes."""


class PoolPass:
    """The pass over one pool: its state, and the answers in the order in which they were given."""

    def __init__(self, state: PassState) -> None:
        self.state = state
        self._holds = Holds(state)
        self.answers: dict[ClaimId, Decision] = {}
        self.charged: dict[ClaimId, int] = {}
        self._pending_of: dict[DepartmentId, list[Claim]] = {}
        for claim in state.pending:
            self._pending_of.setdefault(claim.department, []).append(claim)
        self._openings: int | None = None
        self._released: set[ClaimId] = set()
        self._line: list[ClaimId] = []

    def run(self) -> None:
        """Steps 1, 2 and 6."""
        state = self.state
        if state.pool.cluster_unreachable_since is not None:
            for claim in sorted(state.pending, key=lambda claim: claim.id):
                self.answers[claim.id] = self._wait(claim)
            return
        self.answers.update(impossible(state))
        state.impossible.update(self.answers)
        for claim in [claim for claim in self._held() if claim.id in self.answers]:
            state.give_up(claim)
        before: dict[ClaimId, Decision] | None = None
        rounds, last = 0, False
        while not last:
            rounds += 1
            self._forget_those_who_wait()
            last = rounds == ROUNDS or self.answers == before  # some change their places and change them back
            before = dict(self.answers)
            self._openings = None if last else state.openings
            self._settle_reservations()
            self._compete([claim for claim in state.pending if claim.id not in self.answers])
            if self._openings == state.openings:
                return
        for claim in self._take_back_without_right():  # what the last of them let stay may have been somebody's right
            self.answers[claim.id] = self._wait(claim)

    @property
    def _is_last(self) -> bool:
        """Whether no round comes after this one, as far as is known. Else who waits is asked again."""
        return self._openings in (None, self.state.openings)

    def _forget_those_who_wait(self) -> None:
        self._holds.clear()
        self._line.clear()
        for id in [id for id, decision in self.answers.items() if decision.decision is DecisionKind.WAIT]:
            del self.answers[id]

    def _settle_reservations(self) -> None:
        """Step 1, and again in later rounds: who has a reservation may start, or need fewer of those preempted for it."""
        state = self.state
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
                state.unsettle(claim)
            self._compete(reserved, settling=True)
            changed = before != [self.answers.get(claim.id) for claim in reserved]
            reserved = [claim for claim in self._held() if self._waits_for(claim, self._released)]
        self._unpreempt(state.preempted)

    def _waits_for(self, claim: Claim, leavers: set[ClaimId]) -> bool:
        decision = self.answers.get(claim.id)
        return decision is not None and not leavers.isdisjoint(decision.waiting_on)

    def _held(self) -> list[Claim]:
        """Those who have a reservation."""
        return [claim for claim in self.state.pending if claim.id in self.state.holds]

    def _take_back_without_right(self) -> list[Claim]:
        """Who was to start in this pass by a right that others' leaving gave, and these stay after all, competes anew."""
        state, taken = self.state, list[Claim]()
        for claim in state.started_without_right():
            free = state.ledger.available(claim.department)
            if (free < 0 or claim.must_stay_inside) and state.starts_above_guarantee(claim):
                state.unadmit(claim)
                self._holds.forget_end(claim)
                del self.answers[claim.id]
                taken.append(claim)
        return taken

    def _give_up_without_right(self) -> None:
        """When more is reserved than the limits bear, since others stay after all or quotas are smaller now, the last of
        those who reserved compete anew."""
        state, root = self.state, self.state.ledger.root
        if root.usage <= root.subtree:
            return
        for claim in self._last_first():
            if root.usage > root.subtree and state.lost_its_right(claim):
                self.answers.pop(claim.id, None)
                state.give_up(claim)

    def _last_first(self) -> list[Claim]:
        """Those who have a reservation, in the order in which they give it up where the pool does not bear all of them."""
        held = sorted(self._held(), key=queue_order, reverse=True)
        held.sort(key=lambda claim: (claim.must_stay_inside, self.state.ledger.inside(claim.department, 0)))
        return held

    def _unpreempt(self, victims: Iterable[ClaimId]) -> None:
        """Of those preempted in this pass, whom nobody waits for any more stays: what it gives cannot be counted on. Whose right
        depends on it may call it back, too."""
        state = self.state
        preempted = [state.preempted[id] for id in victims]
        for victim in preempted:
            self._give_up_what_comes_before(victim)
        for victim in [victim for victim in preempted if not state.departures.awaited.get(victim.id)]:
            heir = next((claim for claim in self._depending_on(victim) if may_call_back(state, claim, victim)), None)
            if heir is None:
                state.unpreempt(victim)
            else:
                self._wait_for(heir, victim)

    def _depending_on(self, victim: Claim) -> list[Claim]:
        """Who would lose the right to a reservation if the victim stayed: those of its department, and the one of all that would
        give up first if the pool did not bear all reservations any more. That one would only have to call back as many units
        anew, others would move to what these leave, and let theirs stay in turn: that does not end."""
        state, root, units = self.state, self.state.ledger.root, self.state.charges[victim.id]
        depending = state.depending_on(victim, units)
        if root.usage > root.subtree:
            return depending
        state.ledger.lend(victim.department, units)
        losing = self._last_first() if root.usage > root.subtree else ()
        first = next((claim for claim in losing if state.lost_its_right(claim)), None)
        state.ledger.lend(victim.department, -units)
        return depending if first is None or first in depending else [*depending, first]

    def _give_up_what_comes_before(self, victim: Claim) -> None:
        """Whoever counts on a victim that comes before it in its own department competes anew if that one is not preempted for
        another any more: else it would go for a claim that it stops itself as soon as it waits again."""
        state = self.state
        if victim.id in state.departures.holder:
            return
        for id in sorted(state.departures.awaited.get(victim.id, ())):
            claim = state.holds[id].claim if id in state.holds else victim
            if claim.department == victim.department and queue_order(claim) > queue_order(victim):
                self.answers.pop(id, None)
                state.give_up(claim)
                state.openings += 1

    def _wait_for(self, claim: Claim, leaver: Claim) -> None:
        """A claim with a reservation waits for one more. What that leaves over may be enough for others."""
        self.state.wait_for(self.state.holds[claim.id], leaver)
        self.state.openings += 1
        decision = self.answers[claim.id]  # nobody is preempted before all reservations of the snapshot are settled
        waiting_on, by = (*decision.waiting_on, leaver.id), max(decision.by or 0, self.state.gone_by(leaver))
        self.answers[claim.id] = replace(decision, waiting_on=tuple(sorted(waiting_on)), by=by)

    def _stays_as_it_is(self, claim: Claim) -> bool:
        """Whether a reservation made in this pass would be made again."""
        state, decision = self.state, self.answers.get(claim.id)
        if decision is None or not_any_more(state, claim, itself_counted=True) is not None:
            return False
        if state.lost_its_right(claim) or could_start(state, claim):
            return False
        return needs_all(state, claim, [id for id in decision.waiting_on if may_stay(state, id)])

    def _compete(self, claims: list[Claim], settling: bool = False) -> None:
        """Answer the claims as their turn comes. Whose usage has moved is ranked anew."""
        state = self.state
        competition = Competition(state.ledger, claims, state.settings.fair_sharing, state.asked)
        while (claim := competition.next()) is not None:
            leavers = state.departures.of(claim) if settling else []
            before = self.answers.get(claim.id)
            decision = self._settle(claim) if settling else self._answer(claim)
            if decision is not None:
                self.answers[claim.id] = decision
            new = decision is not None and not settling and decision.decision is not DecisionKind.WAIT
            if decision is None or (new and state.reserved_behind(claim)):
                state.openings += 1  # what it held may let others start, what it takes now be in their way
            if before is not None and decision is not None:
                self._released.update({*before.waiting_on} - {*decision.waiting_on})
            if leavers:
                self._unpreempt([leaver.id for leaver in leavers if leaver.id in state.preempted])
            competition.again(claim.department)
            for department in state.moved:
                if department != claim.department:
                    competition.again(department)
            state.moved.clear()

    # Answers ----------------------------------------------------------------------------------------------------------

    def _settle(self, claim: Claim) -> Decision | None:
        """Step 1, for a claim with a reservation; None when it gave it up and competes anew."""
        state, before = self.state, self.answers.get(claim.id)
        if claim.id not in state.holds:
            return None  # it counted on whom another needs no more
        if before is not None:  # made in this pass: kept where it is, like those of the snapshot
            if self._stays_as_it_is(claim):
                state.settle(claim)
                return before
            del self.answers[claim.id]
            claim = replace(claim, reserved=Reservation(claim.units, before.placement or ()))
        elif (kept := self._kept(claim)) is not None:
            return kept
        waited_for = before.waiting_on if before else [leaver.id for leaver in state.departures.of(claim)]
        state.give_up(claim)
        left = [state.departures.leaving[id] for id in waited_for if id in state.departures.unclaimed]
        leavers = [leaver for leaver in left if may_stay(state, leaver.id) and leaver.held_for in (None, claim.id)]
        if not_any_more(state, claim, itself_counted=False) is not None:
            return None
        while leavers and (needed := self._needed(claim, leavers)) is not None:
            dropped = [leaver for leaver in leavers if leaver not in needed.victims]
            if not any(state.departures.awaited.get(leaver.id) for leaver in dropped):
                return self._reserved(claim, needed.places, needed.victims)
            leavers = list(needed.victims)  # what others wait for leaves in any case, and is not the claim's any more
        with state.as_if(
            [leaver for leaver in leavers if leaver.id in state.preempted], gone=False
        ):  # it does without them
            return self._start(claim) or self._reserve_what_leaves(claim)

    def _needed(self, claim: Claim, leavers: Collection[Claim]) -> Chosen | None:
        """Of those who leave for a claim, the ones it still needs; None if none of them, or if it would not fit."""
        used, reserved = self._behind(claim, leavers)
        for giving_way in (reserved, 0) if reserved else (0,):  # who comes after it gives way, if that helps
            needed = still_needed(self.state, claim, leavers, used + reserved - giving_way, giving_way)
            if needed is not None and needed.victims:
                return needed
        return None

    def _kept(self, claim: Claim) -> Decision | None:
        """A reservation of the snapshot as it is: most are, where little has changed."""
        state, leavers = self.state, self.state.departures.of(claim)
        if not leavers or any(
            leaver.held_for not in (None, claim.id) or not may_stay(state, leaver.id) for leaver in leavers
        ):
            return None
        if not_any_more(state, claim, itself_counted=True) is not None:
            return None
        if not still_needs_all(state, claim, leavers, sum(self._behind(claim, leavers))):
            return None
        own, borrowed = self._charge(claim)
        state.renew(claim)
        return self._reclaim(claim, own, borrowed, claim.reserved.places if claim.reserved else (), leavers)

    def _behind(self, claim: Claim, leavers: Iterable[Claim]) -> tuple[int, int]:
        """Units that claims of its department use that come after it and started since the `leavers` were preempted for it, and
        units that such claims have reserved."""
        state, order = self.state, queue_order(claim)
        before = [leaver for leaver in leavers if leaver.id not in state.preempted]
        used = 0
        if before:
            since = min(told_at(leaver, state.pool, state.settings, state.now) for leaver in before)
            holding = state.holding.get(claim.department, {}).values()
            later = (other for other in holding if queue_order(other) > order and entered_at(other) >= since)
            used = sum(state.charges[other.id] for other in later)
        behind = [other.id for other in self._pending_of[claim.department] if queue_order(other) > order]
        started = [id for id in behind if id in self.answers and id not in state.holds]
        reserved = sum(state.holds[id].charged for id in behind if id in state.holds)
        return used + sum(self.charged.get(id, 0) for id in started), reserved

    def _answer(self, claim: Claim) -> Decision:
        """Steps 3 to 5."""
        if not_now(self.state, claim) is not None:
            return self._wait(claim)
        return (
            self._holds.passing(claim, self._start)
            or self._holds.outranking(claim, self._reserve)
            or self._wait_and_hold(claim)
        )

    def _start(self, claim: Claim) -> Decision | None:
        """Step 3."""
        state = self.state
        drawn = state.draw(claim) if state.some_recalls else {}
        places = state.places(claim, state.free_in_both) if state.entitled(claim) else None
        if places is None:
            state.put_back(drawn)
            return None
        own, borrowed = self._charge(claim)
        state.admit(claim, places, drawn)
        self._holds.count_on_end(claim)
        if borrowed:
            state.openings += 1  # its department may be taken from now, by who was asked before
        return Decision(claim.id, DecisionKind.ADMIT, own, borrowed, placement=places or None)

    def _charge(self, claim: Claim) -> tuple[int, int]:
        """The claim's units as own and borrowed; what it draws from a recall is its department's own."""
        asked = self.charged[claim.id] = self.state.asked(claim)
        own = self.state.own_after(claim)
        return own + claim.units - asked, asked - own

    def _reserve(self, claim: Claim) -> Decision | None:
        """Step 4."""
        return self._reserve_what_leaves(claim) or self._take(claim)

    def _reserve_what_leaves(self, claim: Claim) -> Decision | None:
        """Step 4, first half: all it needs is free or leaves already."""
        state = self.state
        places = state.places(claim, state.free_later) if state.entitled(claim) else None
        return None if places is None else self._reserved(claim, places, ())

    def _take(self, claim: Claim) -> Decision | None:
        """Step 4, second half."""
        chosen = choose(self.state, claim)
        if chosen is None:
            return None
        self.state.preempt(chosen.victims)
        return self._reserved(claim, chosen.places, chosen.victims)

    def _reserved(self, claim: Claim, places: Places, needed: tuple[Claim, ...]) -> Decision:
        """Reserve the places, and wait for those `needed` and whoever else stands there."""
        state = self.state
        own, borrowed = self._charge(claim)
        need = state.need(claim, places)
        waiting_on = leavers_needed(state, claim, need, needed)
        state.reserve(claim, places, need, waiting_on)
        return self._reclaim(claim, own, borrowed, places, waiting_on)

    def _reclaim(
        self, claim: Claim, own: int, borrowed: int, places: Places, waiting_on: Collection[Claim]
    ) -> Decision:
        """It starts once those have gone."""
        state = self.state
        return Decision(
            claim.id,
            DecisionKind.RECLAIM,
            own,
            borrowed,
            placement=places or None,
            waiting_on=tuple(sorted(leaver.id for leaver in waiting_on)),
            by=max((state.gone_by(leaver) for leaver in waiting_on), default=state.now),
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
        state = self.state
        decision = self._wait(claim)
        if state.inside(claim):
            self._holds.make(claim, starving=False)
        elif state.now - claim.waiting_since > state.settings.starvation_after and not claim.must_stay_inside:
            self._holds.make(claim, starving=True)
        return decision

    # Reasons ----------------------------------------------------------------------------------------------------------

    def explain(self) -> None:
        """Say why those wait who wait, and what is in the way of those that can never run: once all are answered, so that every
        number is the one after all who start in this pass. What is held for a claim itself is not in its way."""
        state = self.state
        for claim in state.pending:
            decision = self.answers[claim.id]
            if decision.decision is DecisionKind.WAIT:
                with state.without_its_hold(claim):
                    self.answers[claim.id] = replace(decision, reasons=self._reasons(claim))
            elif decision.decision is DecisionKind.IMPOSSIBLE:
                self.answers[claim.id] = replace(decision, reasons=impossible_now(state, claim, decision.reasons))

    def _reasons(self, claim: Claim) -> tuple[Reason, ...]:
        reasons = waiting_reasons(self.state, claim)
        held_up = self.state.pool.cluster_unreachable_since is not None or not_now(self.state, claim) is not None
        returning = None if held_up else self._returning(claim)
        return (returning, *reasons) if returning else reasons

    def _returning(self, claim: Claim) -> LentOutReturning | None:
        """Victims there would be, were their minimum runtime over: who, and by when they would be gone."""
        state = self.state
        if not state.young or not state.inside(claim):
            return None
        chosen = choose(state, claim, ignore_min_runtime=True)
        if chosen is None or not chosen.victims:  # what it lacks may have come free since it was answered
            return None
        return LentOutReturning(
            tuple(victim.id for victim in chosen.victims), max(state.gone_by(victim) for victim in chosen.victims)
        )


# The plan -------------------------------------------------------------------------------------------------------------

Answers = Mapping[ClaimId, Decision]
"""In the order in which they were given."""


def decided(state: PassState, answers: Answers, charged: Mapping[ClaimId, int]) -> list[Decision]:
    """The answers, complete. `charged` is what those who use units now or have a title to them count in the ledger."""
    asking = {claim.id: claim for claim in state.pending}
    lending = any(decision.borrowed for decision in answers.values())
    borrowed = _lenders(state, answers, _entries(state, answers, charged, asking)) if lending else {}
    victims_for: dict[ClaimId, list[ClaimId]] = {}
    waiting = {leaver: id for id, decision in answers.items() for leaver in decision.waiting_on}
    for victim in sorted(state.preempted):  # for its holder; if that one gave up, for who waits for the same victim
        victims_for.setdefault(state.departures.holder.get(victim, waiting[victim]), []).append(victim)
    hints = Consolidation(state)
    complete: list[Decision] = []
    for id, decision in answers.items():
        reasons = hints.hinted(asking[id], decision.reasons) if decision.position else decision.reasons
        lent, victims = borrowed.get(id, {}), tuple(victims_for.get(id, ()))
        if lent or victims or decision.borrowed or reasons is not decision.reasons:
            units, of_others = decision.own + decision.borrowed, sum(lent.values())  # as it is once all are answered
            decision = Decision(
                id, decision.decision, units - of_others, of_others, lent, decision.placement, victims, decision.waiting_on,
                decision.by, reasons, decision.position, decision.ahead, decision.largest,
            )  # fmt: skip  # thousands of them: half the time of replace()
        complete.append(decision)
    return complete


def _lenders(
    state: PassState, answers: Answers, entries: Iterable[Entry]
) -> Mapping[ClaimId, Mapping[DepartmentId, int]]:
    """Of whom each claim borrows. What is only held for those who wait is idle, and lent."""
    waiting = [hold for id, hold in state.holds.items() if answers[id].decision is DecisionKind.WAIT]
    for hold in waiting:
        state.ledger.lend(hold.claim.department, -hold.charged)
    found = lenders(state.ledger, entries)
    for hold in waiting:
        state.ledger.lend(hold.claim.department, hold.charged)
    return found


def _entries(
    state: PassState, answers: Answers, charged: Mapping[ClaimId, int], asking: Mapping[ClaimId, Claim]
) -> Iterator[Entry]:
    """Who uses units, in the order in which they came by them. Who starts and must stay inside the guarantee holds from now on,
    as in the next pass: what others of its department have reserved stands behind it."""
    for claims in state.holding.values():
        for claim in claims.values():
            yield Entry(claim.id, claim.department, state.charges[claim.id], (0, entered_at(claim)))
    for turn, id in enumerate(id for id, decision in answers.items() if decision.own + decision.borrowed):
        claim = asking[id]
        holds = answers[id].decision is DecisionKind.ADMIT and claim.must_stay_inside
        yield Entry(id, claim.department, charged[id], (0, state.now) if holds else (1, turn))


def withdrawn(state: PassState, answers: Answers) -> list[ClaimId]:
    """Step 7: leaving claims that were preempted for somebody, are needed by nobody now, have time left before their
    deadline, and whose units the limits still bear."""
    needed = {leaver for decision in answers.values() for leaver in decision.waiting_on}
    stay: list[ClaimId] = []
    if state.pool.cluster_unreachable_since is not None:
        return stay
    for leaver in sorted(state.departures.leaving.values(), key=lambda leaver: leaver.id):
        preempted = leaver.held_for is not None and (leaver.leave_by is None or leaver.leave_by > state.now)
        if preempted and leaver.id not in needed and state.may_return(leaver):
            state.ledger.add(leaver.department, leaver.units)
            stay.append(leaver.id)
    return stay
