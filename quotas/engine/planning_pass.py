"""One planning pass: every pending claim of a snapshot gets its answer.

The sections of `PlanningPass` are the steps of docs/quota-rules.md. Read as far as *Details*; the rest, with step 1, is for
reference. quotas/planning/run_pass writes the plan to the database.

An *earmark* keeps units and places for a pending claim. A *reservation* (`Claim.reserved`) lasts over passes, until the claim
starts or gives it up. A *hold* is made anew in each round (steps 1, 7, 2 to 5).

`with state.trial() as trial` undoes at its end only what `trial` changed.

Why a claim waits (waiting.py), in brackets the rule, and where that is decided:

    department_paused (5), user_cap (5), over_budget (24), backoff_until (19)    waiting.py: `not_now`
    over_borrow_limit (2), not_lent (3), not_preemptible (14), own_only (5)      `PassState.entitled`, by quota_tree.py
    not_enough (8): in the pool, or for its department; also by policy (13)      `PassState.entitled`, `places`; `open_by`
    fragmented (8), waiting_for_gang (8)                                         `PassState.places`, by placement.py
    held_for (11), also by reservations (9)                                      `PassState.add_earmark`; `Holds`
    guarantee_kept_for (11)                                                      `PassState.guarantee_kept_for`
    lent_out_returning (14), no_node_to_clear (10)              preemption_rules.py: `may_be_preempted`, `open_to`
    pool_short (22)                                                              units.py: `capacity_of`
    cluster_unreachable (22)                                                     `PlanningPass.run`
    above_ceiling (5), no_such_profile (5): impossible                           waiting.py: `impossible`
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from quotas.engine.pass_state import PassState
from quotas.engine.placement import Places, rooms_of
from quotas.engine.preemption import Chosen, choose, still_needed
from quotas.engine.preemption_rules import may_call_back
from quotas.engine.queue import Competition, queue_order
from quotas.engine.quota_tree import Entry, lenders
from quotas.engine.reservations import Holds, could_start, initial_state, leavers_needed, may_stay, needs_all
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
from quotas.engine.units import entered_at, notice_began
from quotas.engine.waiting import (
    Consolidation,
    barred,
    barred_from_borrowing,
    impossible,
    not_now,
    waiting_reasons,
    with_present_usage,
)


def decide(snapshot: Snapshot, *, hints: bool = True) -> Plan:
    """Answer every pending claim: pure, deterministic, total, whatever the order of the snapshot's parts. With `hints` it
    looks for moves that help."""
    rooms = rooms_of(snapshot)
    passes = [
        PlanningPass(initial_state(snapshot, pool, *rooms)) for pool in sorted(snapshot.pools, key=lambda pool: pool.id)
    ]
    for each in passes:
        each.run()
    decisions = sorted((decision for each in passes for decision in each.decisions(hints)), key=lambda d: d.claim)
    withdrawn = sorted(leaver for each in passes for leaver in each.withdraw())
    for each in passes:
        each.state.close()
    return Plan(snapshot.id, tuple(decisions), tuple(withdrawn))


ROUNDS = 5
"""The most rounds in a pass, and in settling reservations. If they run out, all limits hold; the next pass goes on."""


class PlanningPass:
    """The pass over one pool, with the answers in their order."""

    def __init__(self, state: PassState) -> None:
        self.state = state
        self.answers: dict[ClaimId, Decision] = {}
        self._holds = Holds(state)
        self._stay_after_all: set[ClaimId] = set()
        self._in_vain: set[object] = set()

    def run(self) -> None:
        """Answer all claims, then explain."""
        if self.state.pool.cluster_unreachable_since is not None:
            self._let_wait(sorted(self.state.pending, key=lambda claim: claim.id))
        else:
            self._refuse_impossible()
            self._answer_in_rounds()
        self._explain()

    def _answer_in_rounds(self) -> None:
        """Steps 1, 7 (the queue must not count on leavers that stay), 2 to 5; again (step 6) while answers may change."""
        for _ in range(ROUNDS):
            self._forget_waiting()
            self.state.ask_again = False
            self._settle_reservations()  # step 1
            not_started = {claim.id for claim in self.state.pending} - self.state.started.keys()
            self._let_earlier_victims_stay(preemptors=not_started)  # any of these may still need its victims
            self._answer_queue()  # steps 2 to 5
            if not self.state.ask_again:
                return
        self._end_without_right()

    # Step 2: whose turn it is -----------------------------------------------------------------------------------------

    def _answer_queue(self) -> None:
        """Answer in turn all that have no answer yet."""
        state = self.state
        for claim in self._in_turn([claim for claim in state.pending if claim.id not in self.answers]):
            decision = self.answers[claim.id] = self._answer(claim)
            if decision.decision is not DecisionKind.WAIT and state.has_later_reservation(claim):
                state.ask_again = True  # it may have taken quota that the later claim has reserved

    def _answer(self, claim: Claim) -> Decision:
        """It starts, reserves or waits; holds that it may pass do not hinder it."""
        if not_now(self.state, claim) is not None:  # then it gets no hold
            return Decision(claim.id, DecisionKind.WAIT)
        return (
            self._holds.start_despite(claim, self._start)
            or self._holds.reserve_despite(claim, self._reserve_or_preempt)
            or self._wait_and_hold(claim)
        )

    # Step 3: start ----------------------------------------------------------------------------------------------------

    def _start(self, claim: Claim) -> Decision | None:
        """If quotas allow, start it where there is room both now and later, when all reservations are filled."""
        state = self.state
        drawn = state.draw_from_recalls(claim)  # returned below if it does not start
        places = state.places(claim, state.free_now_and_later) if state.entitled(claim) else None
        if places is None:
            state.return_to_recalls(drawn)
            return None
        own, borrowed = self._charge(claim)
        state.admit(claim, places, drawn)
        self._holds.expect_end(claim)
        if borrowed:
            state.ask_again = True  # owners may now reclaim earlier starts of its department
        return Decision(claim.id, DecisionKind.ADMIT, own, borrowed, placement=places or None)

    # Step 4: reserve what leaves, or preempt --------------------------------------------------------------------------

    def _reserve_or_preempt(self, claim: Claim) -> Decision | None:
        """Reserve what leaves already, else what the best permitted victims leave."""
        decision = self._reserve_what_leaves(claim)
        if decision is None and (chosen := self._choose(claim)) is not None:
            self.state.preempt(chosen.victims)
            decision = self._reserve_at(claim, chosen.places, chosen.victims)
        return decision

    def _reserve_what_leaves(self, claim: Claim) -> Decision | None:
        """Reserve places that are free once all leavers have left, or already."""
        state = self.state
        places = state.places(claim, state.free_later) if state.entitled(claim) else None
        return None if places is None else self._reserve_at(claim, places, ())

    # Step 5: wait, and hold -------------------------------------------------------------------------------------------

    def _wait_and_hold(self, claim: Claim) -> Decision:
        """Wait, with a hold if inside the guarantee, or if it is the pool's first starving borrower (`Holds.add`)."""
        state = self.state
        inside = state.inside(claim)
        starves = state.now - claim.waiting_since > state.settings.starvation_after and not claim.must_stay_inside
        if inside or starves:
            self._holds.add(claim, starving=not inside)
        return Decision(claim.id, DecisionKind.WAIT)

    # Step 7: who stays after all --------------------------------------------------------------------------------------

    def _let_earlier_victims_stay(self, preemptors: Collection[ClaimId]) -> None:
        """Victims of earlier passes that none of these `preemptors`, and no reservation, needs stay while their notice runs and
        the limits allow."""
        state = self.state
        for leaver in sorted(state.departures.leaving.values(), key=lambda leaver: leaver.id):
            if leaver.preempted_for is None or (leaver.leave_by is not None and leaver.leave_by <= state.now):
                continue  # not preempted by an earlier pass, or its notice is over
            needed = leaver.preempted_for in preemptors or state.departures.awaited.get(leaver.id)
            if not needed and state.may_return(leaver):
                state.unpreempt(leaver)
                self._stay_after_all.add(leaver.id)

    # Details: turns, answers ------------------------------------------------------------------------------------------

    def _refuse_impossible(self) -> None:
        """Refuse claims that can never run: they reserve nothing and take no turn, so their departments' next claims compete."""
        state = self.state
        for claim in state.pending:
            refused = impossible(state, claim)
            if refused is not None:
                self.answers[claim.id] = refused
                state.impossible.add(claim.id)
        for claim in self._with_reservation():
            if claim.id in self.answers:
                state.give_up(claim)

    def _forget_waiting(self) -> None:
        """Discard all answers to wait, and all holds: these claims are answered again."""
        self._holds.clear()
        for id in [id for id, decision in self.answers.items() if decision.decision is DecisionKind.WAIT]:
            del self.answers[id]

    def _let_wait(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self.answers[claim.id] = Decision(claim.id, DecisionKind.WAIT)

    def _charge(self, claim: Claim) -> tuple[int, int]:
        """The claim's units as own and borrowed; what it draws from a recall is its department's own."""
        asked, own = self.state.asked(claim), self.state.own_units(claim)
        drawn = claim.units - asked
        return drawn + own, asked - own

    def _in_turn(self, claims: list[Claim]) -> Iterator[Claim]:
        """The claims in their departments' turn; departments whose usage an answer has changed are ranked again."""
        state = self.state
        competition = Competition(state.ledger, claims, state.settings.fair_sharing, state.asked)
        self._in_vain.clear()  # kinds of borrowers that found no victims
        while (claim := competition.next()) is not None:
            earmarks_before = len(state.earmarks)
            yield claim
            answer = self.answers.get(claim.id)
            if answer is None or answer.decision is not DecisionKind.WAIT or len(state.earmarks) != earmarks_before:
                self._in_vain.clear()
            for department in {claim.department, *state.changed_departments}:
                competition.enter_next(department)
            state.changed_departments.clear()

    def _choose(self, claim: Claim) -> Chosen | None:
        """The best victims. If a borrower has none, later ones of its `_kind` in its department are not tried until something
        changes: what is open to a later one was open to the first."""
        kind = None if claim.reserved or self.state.inside(claim) else _kind(claim)
        chosen = None if kind in self._in_vain else choose(self.state, claim)
        if chosen is None and kind is not None:
            self._in_vain.add(kind)
        return chosen

    def _reserve_at(self, claim: Claim, places: Places, needed: tuple[Claim, ...]) -> Decision:
        """Reserve the places, and wait for the victims `needed` and for other leavers there."""
        state = self.state
        own, borrowed = self._charge(claim)
        need = state.need(claim, places)
        waiting_on = leavers_needed(state, claim, need, needed)
        state.reserve(claim, places, need, waiting_on)
        return Decision(
            claim.id,
            DecisionKind.RECLAIM,
            own,
            borrowed,
            placement=places or None,
            waiting_on=tuple(sorted(leaver.id for leaver in waiting_on)),
            by=max((state.gone_by(leaver) for leaver in waiting_on), default=state.now),
        )

    # Reasons ----------------------------------------------------------------------------------------------------------

    def _explain(self) -> None:
        """Add the reasons why claims wait or can never run: once all are answered, so that the numbers include all that start
        in this pass. What is held for a claim itself does not count against it."""
        state = self.state
        waiting: list[ClaimId] = []
        for id, decision in self.answers.items():
            claim = state.claims[id]
            if decision.decision is DecisionKind.WAIT:
                with state.trial() as trial:
                    if id in state.earmarks:
                        trial.remove_earmark(state.earmarks[id])
                    reasons = waiting_reasons(state, claim)
                ahead = tuple(waiting[:AHEAD_SHOWN])
                waiting.append(id)
                self.answers[id] = replace(decision, reasons=reasons, position=len(waiting), ahead=ahead)
            elif decision.decision is DecisionKind.IMPOSSIBLE:
                self.answers[id] = replace(decision, reasons=with_present_usage(state, claim, decision.reasons))

    # The plan ---------------------------------------------------------------------------------------------------------

    def withdraw(self) -> list[ClaimId]:
        """Step 7 once more, now that all claims are answered. Returns all leavers that stay. To be called after `decisions`."""
        if self.state.pool.cluster_unreachable_since is None:
            self._let_earlier_victims_stay(preemptors=())
        return sorted(self._stay_after_all)

    def decisions(self, hints: bool) -> list[Decision]:
        """The complete answers, with victims, lenders and, with `hints`, the moves that would help."""
        borrowed, victims_for = self._lenders(), self._victims()
        consolidation = Consolidation(self.state) if hints else None
        complete: list[Decision] = []
        for id, decision in self.answers.items():
            reasons = decision.reasons
            if consolidation is not None and decision.decision is DecisionKind.WAIT:
                reasons = consolidation.hinted(self.state.claims[id], reasons)
            lent, victims = borrowed.get(id, {}), tuple(victims_for.get(id, ()))
            if lent or victims or decision.borrowed or reasons is not decision.reasons:
                units = sum(lent.values())  # lenders were worked out again once all were answered
                own = decision.own + decision.borrowed - units
                decision = replace(decision, own=own, borrowed=units, from_=lent, victims=victims, reasons=reasons)
            complete.append(decision)
        return complete

    def _victims(self) -> dict[ClaimId, list[ClaimId]]:
        """The victims of this pass by the claim for which they leave; if that one gave up, by one that waits for them."""
        waiting = {leaver: id for id, decision in self.answers.items() for leaver in decision.waiting_on}
        victims: dict[ClaimId, list[ClaimId]] = {}
        for victim in sorted(self.state.preempted):
            waits_for_it = waiting[victim]  # `_let_new_victims_stay` has left no victim for which nobody waits
            victims.setdefault(self.state.departures.leaves_for.get(victim, waits_for_it), []).append(victim)
        return victims

    def _lenders(self) -> Mapping[ClaimId, Mapping[DepartmentId, int]]:
        """The lenders of each claim. What is only held for waiting claims is idle, and lent."""
        state = self.state
        if not any(decision.borrowed for decision in self.answers.values()):
            return {}
        with state.trial() as trial:
            for id, earmark in state.earmarks.items():
                if self.answers[id].decision is DecisionKind.WAIT:
                    trial.uncharge_earmark(earmark)
            return lenders(state.ledger, self._entries())

    def _entries(self) -> Iterator[Entry]:
        """Claims that use units, in the order in which they got them. One that starts and must stay inside the guarantee comes
        before what others of its department have reserved, as it will in the next pass."""
        state = self.state
        for claims in state.holding.values():
            for claim in claims.values():
                yield Entry(claim.id, claim.department, state.charges[claim.id], (0, entered_at(claim)))
        for turn, (id, decision) in enumerate(self.answers.items()):
            if decision.own + decision.borrowed:
                claim = state.claims[id]
                before_reserved = decision.decision is DecisionKind.ADMIT and claim.must_stay_inside
                yield Entry(id, claim.department, state.charged(id), (0, state.now) if before_reserved else (1, turn))

    # Step 1: each reservation -----------------------------------------------------------------------------------------

    def _settle_reservations(self) -> None:
        """Each claim with a reservation starts, keeps it, perhaps waiting for fewer leavers, or gives it up. What one no
        longer needs may be enough for others: they are settled again."""
        state = self.state
        self._take_back_starts()
        self._give_up_overcommitted()
        reserved = self._to_settle()
        for _ in range(ROUNDS):
            for claim in reserved:
                state.earmarks[claim.id].unsettled = True
            before = [self.answers.get(claim.id) for claim in reserved]
            released = {leaver for claim in self._in_turn(reserved) for leaver in self._settle(claim)}
            if before == [self.answers.get(claim.id) for claim in reserved]:
                break
            waiting = {id for id, decision in self.answers.items() if not released.isdisjoint(decision.waiting_on)}
            reserved = [claim for claim in self._with_reservation() if claim.id in waiting]
        self._let_new_victims_stay(state.preempted.values())

    def _to_settle(self) -> list[Claim]:
        """The reservations to answer again, in their turn: those that would not be made again as they are and, if one of these
        must stay inside the guarantee, all of its department. Until it is answered, a reservation is `unsettled`: a claim before
        it counts its units as free (`PassState.own_units`) and may take them."""
        reserved = self._with_reservation()
        changed = {claim.id for claim in reserved if not self._would_be_made_again(claim)}
        whole = {claim.department for claim in reserved if claim.id in changed and claim.must_stay_inside}
        return [claim for claim in reserved if claim.id in changed or claim.department in whole]

    def _with_reservation(self) -> list[Claim]:
        return [claim for claim in self.state.pending if claim.id in self.state.reserved.get(claim.department, ())]

    def _settle(self, claim: Claim) -> set[ClaimId]:
        """Answer one claim with a reservation; returns leavers it no longer waits for. Without an answer it competes again."""
        state = self.state
        before = self.answers.get(claim.id)
        leavers = state.departures.of(claim)
        decision = self._answer_reservation(claim)
        if decision is None:
            state.ask_again = True
        else:
            self.answers[claim.id] = decision
        self._let_new_victims_stay([leaver for leaver in leavers if leaver.id in state.preempted])
        return set() if before is None or decision is None else {*before.waiting_on} - {*decision.waiting_on}

    def _answer_reservation(self, claim: Claim) -> Decision | None:
        """The answer to one claim with a reservation; None if it gave it up and competes again."""
        state = self.state
        if claim.id not in state.earmarks:
            return None  # given up since this turn began: `_let_later_claims_give_up`
        if self._would_be_made_again(claim):  # it was made in this pass
            state.earmarks[claim.id].unsettled = False
            return self.answers[claim.id]
        waited_for = [leaver.id for leaver in state.departures.of(claim)]
        made_before = self.answers.pop(claim.id, None)
        if made_before is not None:
            waited_for = [*made_before.waiting_on]
            claim = replace(claim, reserved=Reservation(claim.units, made_before.placement or ()))
        state.give_up(claim)
        unclaimed = [state.departures.leaving[id] for id in waited_for if state.departures.is_unclaimed(id)]
        could_stay = [each for each in unclaimed if may_stay(state, each.id) and each.preempted_for in (None, claim.id)]
        return self._renew(claim, could_stay)

    def _renew(self, claim: Claim, leavers: Collection[Claim]) -> Decision | None:
        """A new reservation for as few of these leavers as possible, or a start or a reservation without them; None if neither is
        possible. All of them could stay if the claim did not need them."""
        state = self.state
        if barred(state, claim, itself_counted=False) is not None:
            return None
        if barred_from_borrowing(state, claim) is not None and not state.inside(claim):
            return None
        while leavers and (needed := self._needed(claim, leavers)) is not None:
            dropped = [leaver for leaver in leavers if leaver not in needed.victims]
            if not any(state.departures.awaited.get(leaver.id) for leaver in dropped):
                return self._reserve_at(claim, needed.places, needed.victims)
            # Another claim still waits for one that this claim could spare, so it leaves in any case: try without it.
            leavers = needed.victims
        with state.trial() as trial:  # ends only the stay of the leavers, not a start or a reservation made meanwhile
            trial.stay([leaver for leaver in leavers if leaver.id in state.preempted])
            return self._start(claim) or self._reserve_what_leaves(claim)

    def _would_be_made_again(self, claim: Claim) -> bool:
        """Whether a reservation made in this pass would be made again as it is. Making each again instead would let others take
        what was promised (`_to_settle`), and cost a pass over a crowd a third more time (ADR 75)."""
        state = self.state
        decision = self.answers.get(claim.id)
        if decision is None or barred(state, claim, itself_counted=True) is not None:
            return False
        if state.lost_its_right(claim) or could_start(state, claim):
            return False
        return needs_all(state, claim, [id for id in decision.waiting_on if may_stay(state, id)])

    def _needed(self, claim: Claim, leavers: Collection[Claim]) -> Chosen | None:
        """The leavers that a claim still needs; None if it needs none, or would not fit. First as if later claims of its
        department gave up what they have reserved, then as if they used it."""
        used, reserved = self._taken_by_later(claim, leavers)
        needed = still_needed(self.state, claim, leavers, used_by_later=used, reserved_by_later=reserved)
        if reserved and (needed is None or not needed.victims):
            needed = still_needed(self.state, claim, leavers, used_by_later=used + reserved)
        return needed if needed is not None and needed.victims else None

    def _taken_by_later(self, claim: Claim, leavers: Iterable[Claim]) -> tuple[int, int]:
        """(used, reserved) by claims of its department that come after it in the queue. Use counts only if they started since
        the `leavers` were preempted for it."""
        state, used = self.state, 0
        pool, settings, now = state.pool, state.settings, state.now

        order = queue_order(claim)

        def is_later(other: Claim) -> bool:
            return other.department == claim.department and queue_order(other) > order

        began = [notice_began(leaver, pool, settings, now) for leaver in leavers if leaver.id not in state.preempted]
        if began:
            first = min(began)
            holding = state.holding.get(claim.department, {}).values()
            since = [each for each in holding if entered_at(each) >= first]
            used += sum(state.charges[other.id] for other in since if is_later(other))
        used += sum(state.charged(other.id) for other in state.started.values() if is_later(other))
        earmarks = [state.earmarks[id] for id in state.reserved.get(claim.department, ())]
        return used, sum(earmark.charged for earmark in earmarks if is_later(earmark.claim))

    # Step 1: what the limits do not bear, and victims that nobody needs -----------------------------------------------

    def _take_back_starts(self) -> list[Claim]:
        """Claims that were to start in this pass on units of others that now stay after all do not start: they compete again."""
        state = self.state
        taken_back: list[Claim] = []
        for claim in state.started_without_right():
            state.unadmit(claim)
            self._holds.forget_end(claim)
            del self.answers[claim.id]
            taken_back.append(claim)
        return taken_back

    def _end_without_right(self) -> None:
        """Out of rounds: claims that have lost the right to their start or reservation wait; all other answers stand."""
        with self._holds.lifted():
            while self._take_back_starts() or self._give_up_without_right():
                self._let_new_victims_stay(self.state.preempted.values())
        self._let_wait(claim for claim in self.state.pending if claim.id not in self.answers)

    def _give_up_without_right(self) -> bool:
        """Whether any reservation was given up because the limits do not allow it."""
        state = self.state
        for claim in self._last_first():
            overdrawn = claim.must_stay_inside or state.ledger.available(claim.department) < 0
            if overdrawn and state.lost_its_right(claim):
                self._give_up(claim)
                return True
        return False

    def _give_up_overcommitted(self) -> None:
        """If more is reserved than the limits allow, because others stay after all or quotas were lowered, some give up and
        compete again: `_last_first`."""
        state = self.state
        if not state.ledger.is_overcommitted():
            return
        for claim in self._last_first():
            if state.ledger.is_overcommitted() and state.lost_its_right(claim):
                self._give_up(claim)

    def _give_up(self, claim: Claim) -> None:
        """The claim gives up its reservation and competes again."""
        self.answers.pop(claim.id, None)
        self.state.give_up(claim)

    def _last_first(self) -> list[Claim]:
        """Claims with a reservation, in the order in which they give it up if the pool has too little for all: those of
        departments above their guarantee first, those that must stay inside last; in each group from the end of the queue."""
        reserved = sorted(self._with_reservation(), key=queue_order, reverse=True)
        reserved.sort(key=lambda claim: (claim.must_stay_inside, self.state.ledger.inside(claim.department, 0)))
        return reserved

    def _let_new_victims_stay(self, victims: Iterable[Claim]) -> None:
        """Let victims of this pass stay if no claim waits for them any more. A claim that would thereby lose the right to its
        reservation waits for such a victim instead, if it may preempt it."""
        state = self.state
        victims = list(victims)
        for victim in victims:
            self._let_later_claims_give_up(victim)
        for victim in [victim for victim in victims if not state.departures.awaited.get(victim.id)]:
            heir = next((claim for claim in self._depending_on(victim) if may_call_back(state, claim, victim)), None)
            if heir is None:
                state.unpreempt(victim)
            else:
                self._wait_for_one_more(heir, victim)

    def _depending_on(self, victim: Claim) -> list[Claim]:
        """Claims that would lose the right to a reservation if the victim stayed: those of its department and, if the pool then
        had too little for all reservations, the first that would give up. If that one gave up instead of waiting for this victim,
        it would preempt as many units again; other reservations would move to these and let their own victims stay; and it
        would have to preempt once more, without end."""
        state = self.state
        units = state.charges[victim.id]
        depending = state.depending_on(victim, units)
        if state.ledger.is_overcommitted():
            return depending
        with state.trial() as trial:
            trial.charge(victim.department, units)
            losing = self._last_first() if state.ledger.is_overcommitted() else ()
            first = next((claim for claim in losing if state.lost_its_right(claim)), None)
        return depending if first is None or first in depending else [*depending, first]

    def _let_later_claims_give_up(self, victim: Claim) -> None:
        """Claims of the victim's department that come after it in the queue compete again if its preemptor has given up and only
        they still wait for it: otherwise it would leave for a claim that it precedes as soon as it is queued again."""
        state = self.state
        if victim.id in state.departures.leaves_for:
            return
        for id in sorted(state.departures.awaited.get(victim.id, ())):
            if id not in state.earmarks:
                continue
            claim = state.earmarks[id].claim
            if claim.department == victim.department and queue_order(claim) > queue_order(victim):
                self._give_up(claim)
                state.ask_again = True

    def _wait_for_one_more(self, claim: Claim, leaver: Claim) -> None:
        """A claim with a reservation waits for one more leaver. What that leaves over may be enough for others."""
        self.state.wait_for(self.state.earmarks[claim.id], leaver)
        self.state.ask_again = True
        decision = self.answers[claim.id]  # nobody is preempted before all reservations of the snapshot are settled
        waiting_on, by = (*decision.waiting_on, leaver.id), max(decision.by or 0, self.state.gone_by(leaver))
        self.answers[claim.id] = replace(decision, waiting_on=tuple(sorted(waiting_on)), by=by)


def _kind(claim: Claim) -> object:
    """What the victims of a claim depend on, beside its place in the queue."""
    return (
        claim.department,
        claim.priority,
        claim.pods,
        claim.shape,
        claim.units,
        claim.same_domain,
        claim.must_stay_inside,
    )
