"""Claims are submitted, finish, are cancelled; quotas change, nodes are lost, units are recalled, time passes – and a plan is
made after every step. All invariants of docs/quota-rules-reference.md hold (those of invariants.py, and 4 to 8 here), and
every promise is kept."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from quotas.engine.pass_state import PassState
from quotas.engine.placement import rooms_of
from quotas.engine.planning_pass import decide
from quotas.engine.preemption_rules import (
    Fairness,
    Preemptor,
    may_be_preempted,
    own_candidates,
    permitted,
    preemptor_of,
)
from quotas.engine.quota_tree import loans_of, usage_of
from quotas.engine.reservations import initial_state
from quotas.engine.types import Claim, ClaimId, ClaimState, Decision, DecisionKind, Plan, Pool, Settings, Snapshot
from quotas.engine.units import ends_at, resized
from quotas.engine.victim_search import makes_room
from tests.engine import invariants
from tests.engine.builders import carried_out, nodes
from tests.engine.effort import examples, patient
from tests.engine.strategies import SIZES, departments
from tests.engine.test_properties import changes_of

GRACE = 10


def started_in(plan: Plan) -> set[str]:
    return {decision.claim for decision in plan.decisions if decision.decision is DecisionKind.ADMIT}


def allowed(state: PassState, claim: Claim, victims: Iterable[Claim]) -> bool:
    """Whether the claim may preempt each of the victims alone, and all together."""
    preemptor, victims = preemptor_of(state, claim), list(victims)
    return all(is_candidate(state, preemptor, victim) for victim in victims) and any(
        permitted(replace(preemptor, fairness=fairness), victims) for fairness in Fairness
    )


def is_candidate(state: PassState, preemptor: Preemptor, victim: Claim) -> bool:
    if victim.department == preemptor.account.id:
        return victim in own_candidates(preemptor)
    return may_be_preempted(state, False, victim)


class Portal(RuleBasedStateMachine):
    @initialize(tenants=departments(), kind=st.sampled_from(["counted", "cards", "shared"]), fair=st.booleans())
    def begin(self, tenants: Any, kind: str, fair: bool) -> None:
        promised = sum(department.quotas["gpu"].guaranteed for department in tenants)
        self.machines = {"cards": nodes(4, 4, 4, 4), "shared": nodes(1, 1, 2, units=4, cores=100)}.get(kind)
        if self.machines is not None and promised > 16:
            self.machines = None
        pool = Pool("gpu", nodes=self.machines, capacity=promised + 2 if self.machines is None else None)
        settings_ = Settings(fair_sharing=fair, notice=60, grace=GRACE, starvation_after=100)
        self.now = Snapshot("machine", 0, (pool,), tenants, (), settings_)
        self.serial = 0
        self.promised: dict[str, int] = {}

    def submit(self, **what: Any) -> None:
        self.serial += 1
        now = self.now.now
        claim = Claim(f"w{self.serial:03}", state=ClaimState.PENDING, submitted_at=now, pool="gpu", **what)  # type: ignore[arg-type]
        claim = claim if claim.is_recall else resized(claim, claim.units_per_pod, self.now.pools[0])
        self.now = replace(self.now, claims=(*self.now.claims, claim))
        self.plan()

    def drop(self, *ids: str) -> None:
        self.now = replace(self.now, claims=tuple(claim for claim in self.now.claims if claim.id not in ids))
        self.plan()

    def plan(self) -> None:
        """Plan a second later, carry out the plan, and check all that the rules promise of a pass."""
        self.later(1)
        before = self.now
        plan = decide(before)
        assert invariants.of_plan(before, plan) == ()
        backwards = replace(before, claims=before.claims[::-1], departments=before.departments[::-1])
        assert decide(backwards) == plan
        self.now = carried_out(before, plan)
        self.promised = {
            d.claim: d.by for d in plan.decisions if d.decision is DecisionKind.RECLAIM and d.by is not None
        }
        self.no_claim_inside_waits_while_victims_would_make_room(plan)
        self.nothing_is_left_to_decide(plan)
        self.every_victim_is_needed(plan)
        self.borrowed_units_equal_lent_units()

    def state(self, snapshot: Snapshot) -> PassState:
        return initial_state(snapshot, snapshot.pools[0], *rooms_of(snapshot))

    def no_claim_inside_waits_while_victims_would_make_room(self, plan: Plan) -> None:
        """4, for the first in line: others may wait for what it holds. All sets of up to three victims are tried; claims
        started in this pass are not victims yet."""
        state, started = self.state(self.now), started_in(plan)
        line = {d.claim: d.position for d in plan.decisions if d.decision is DecisionKind.WAIT}
        inside = [claim for claim in state.pending if claim.id in line and state.inside(claim)]
        if not inside:
            return
        preemptor = preemptor_of(state, min(inside, key=lambda claim: line[claim.id]))
        running = [claim for claims in state.holding.values() for claim in claims.values() if claim.id not in started]
        for victims in (some for size in range(4) for some in combinations(running, size)):
            assert makes_room(preemptor, victims) is None or not allowed(state, preemptor.claim, victims)

    def nothing_is_left_to_decide(self, plan: Plan) -> None:
        """6, with its exception: a claim inside its guarantee whose turn came after a borrower had started may preempt that
        borrower in the next pass, since no claim is preempted in the pass that starts it. That comes to an end, too."""
        again, world = decide(self.now), self.now
        if not any(started_in(plan) & {*decision.victims} for decision in again.decisions):
            assert changes_of(again) == []
        for _ in world.claims:
            if not changes_of(again):
                return
            world = carried_out(world, again)
            again = decide(world)
        assert changes_of(again) == []

    def every_victim_is_needed(self, plan: Plan) -> None:
        """7. A victim that another claim waits for too is needed in any case."""
        waited = Counter(leaver for decision in plan.decisions for leaver in decision.waiting_on)
        for decision in plan.decisions:
            for victim in decision.victims:
                assert waited[victim] > 1 or not self.starts_without(decision, victim)

    def starts_without(self, decision: Decision, victim: str) -> bool:
        """Whether the claim would start once all its other victims have gone, and could preempt those without this one."""
        claims = [
            replace(claim, state=ClaimState.HOLDING, leave_by=None, preempted_for=None)
            if claim.id == victim
            else replace(claim, reserved=None)
            if claim.id == decision.claim
            else claim
            for claim in self.now.claims
        ]
        state = self.state(replace(self.now, claims=tuple(claims)))
        for hold in state.earmarks.values():  # what the others have reserved counts, in whatever order
            hold.unsettled = False
        claim = next(claim for claim in state.pending if claim.id == decision.claim)
        if makes_room(preemptor_of(state, claim), ()) is None:
            return False
        rest = [leaver for leaver in state.departures.leaving.values() if leaver.id in decision.victims]
        for leaver in rest:
            state.ledger.add(leaver.department, state.charges[leaver.id])
            state.free_later.add(state.vectors[leaver.id], -1)
        preemptor, whole = preemptor_of(state, claim), [*rest, state.claims[ClaimId(victim)]]
        # with fair sharing the second way to compare shares is tried only where the first finds no victims
        by = next(
            (fairness for fairness in Fairness if permitted(replace(preemptor, fairness=fairness), whole)),
            Fairness.BEFORE,
        )
        return allowed(state, claim, rest) and permitted(replace(preemptor, fairness=by), rest)

    def borrowed_units_equal_lent_units(self) -> None:
        """8."""
        holding = tuple(claim for claim in self.now.claims if claim.state is ClaimState.HOLDING)
        pool = self.now.pools[0].id
        loans, ledger = loans_of(self.now, pool), usage_of(replace(self.now, claims=holding), pool)
        for department, account in ledger.accounts.items():
            borrowed = sum(loan.units for loan in loans if loan.borrower == department)
            assert borrowed == max(0, account.usage - account.guaranteed)

    @rule(
        department=st.sampled_from("ab"),
        units=SIZES,
        pods=st.sampled_from([1, 1, 2]),
        priority=st.integers(0, 2),
        max_runtime=st.sampled_from([None, 200]),
        preemptible=st.booleans(),
        cores_per_pod=st.sampled_from([None, 20, 50, 75]),
    )
    def a_workload_is_submitted(self, department: str, units: int, **more: Any) -> None:
        self.submit(department=department, units_per_pod=units, **more)

    @rule(department=st.sampled_from("ab"), units=st.integers(1, 4))
    def units_are_recalled(self, department: str, units: int) -> None:
        self.submit(department=department, units_per_pod=units, pods=0)

    @rule(data=st.data())
    def a_claim_ends(self, data: st.DataObject) -> None:
        if self.now.claims:
            self.drop(data.draw(st.sampled_from([claim.id for claim in self.now.claims])))

    @rule()
    def a_node_comes_back(self) -> None:
        (pool,) = self.now.pools
        if self.machines is not None and pool.nodes != self.machines:
            self.now = replace(self.now, pools=(replace(pool, nodes=self.machines),))
            self.plan()

    @rule(data=st.data(), guaranteed=st.integers(0, 6))
    def a_quota_changes(self, data: st.DataObject, guaranteed: int) -> None:
        index = data.draw(st.integers(0, len(self.now.departments) - 1))
        changed = list(self.now.departments)
        held = sum(c.units for c in self.now.claims if c.department == changed[index].id and not c.preemptible)
        others = sum(d.quotas["gpu"].guaranteed for d in changed if d is not changed[index])
        capacity = self.now.pools[0].capacity if self.now.pools[0].nodes is None else 16
        if held <= guaranteed and others + guaranteed <= (capacity or 0):
            changed[index] = replace(
                changed[index], quotas={"gpu": replace(changed[index].quotas["gpu"], guaranteed=guaranteed)}
            )
            self.now = replace(self.now, departments=tuple(changed))
            self.plan()

    @rule()
    def a_node_is_lost(self) -> None:
        (pool,) = self.now.pools
        if pool.nodes is not None and len(pool.nodes) > 2:
            self.now = replace(self.now, pools=(replace(pool, nodes=pool.nodes[:-1], nominal=16),))
            self.plan()

    @rule(seconds=st.sampled_from([1, 30, 70, 200]))
    def time_passes(self, seconds: int) -> None:
        promised = self.promised
        self.later(seconds - 1)
        self.plan()
        waiting = {claim.id for claim in self.now.claims if claim.state is ClaimState.PENDING}
        for claim_id in promised.keys() & waiting:
            assert self.now.now < promised[claim_id]
            assert self.promised[claim_id] <= promised[claim_id]

    def later(self, seconds: int) -> None:
        """Time passes; claims that must be gone by then are removed."""
        now = self.now.now + seconds
        claims = [claim for claim in self.now.claims if not self.is_over(claim, now)]
        self.now = replace(self.now, now=now, claims=tuple(claims))

    def is_over(self, claim: Claim, now: int) -> bool:
        if claim.leave_by is not None and claim.leave_by + GRACE <= now:
            return True
        end = ends_at(claim)
        return end is not None and end <= now

    @invariant()
    def state_has_no_violations(self) -> None:
        if hasattr(self, "now"):
            assert [v for v in invariants.of_state(self.now) if v.rule != 2] == []


TestPortal = Portal.TestCase
TestPortal.pytestmark = [patient]  # type: ignore[attr-defined]
TestPortal.settings = settings(
    max_examples=examples(100, 2000), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
