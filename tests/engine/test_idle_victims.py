"""A workload measured idle loses only its restart cost when it is preempted (rule 15); nothing else depends on idleness."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.planning_pass import decide
from quotas.engine.snapshot_json import parse_snapshot, snapshot_to_json
from quotas.engine.types import ClaimState, Settings, Snapshot
from quotas.engine.units import lost_work
from tests.engine.builders import a_department, a_pool, a_snapshot, answers, holding, pending
from tests.engine.effort import patient
from tests.engine.strategies import snapshots

pytestmark = patient
HOUR = 3600


def a_request_for_lent_cards(**changes_of_old: int) -> Snapshot:
    """Vision requests 2 of the 4 cards that two claims of nlp borrow: one has run for an hour, one for ten hours."""
    departments = [a_department("vision", 4), a_department("nlp", 0)]
    young = holding("young", "nlp", 2, started_at=-HOUR)
    old = holding("old", "nlp", 2, started_at=-10 * HOUR, **changes_of_old)
    return a_snapshot(a_pool(4), departments, [young, old, pending("mine", "vision", 2)], restart_cost=60)


def test_idle_borrower_is_preempted_before_a_busy_one() -> None:
    assert answers(a_request_for_lent_cards())["mine"].victims == ("young",)
    assert answers(a_request_for_lent_cards(idle_since=-2 * HOUR))["mine"].victims == ("old",)


def test_priority_and_minimum_runtime_still_come_before_idleness() -> None:
    assert answers(a_request_for_lent_cards(idle_since=-2 * HOUR, priority=5))["mine"].victims == ("young",)
    assert answers(a_request_for_lent_cards(idle_since=-2 * HOUR, min_runtime=20 * HOUR))["mine"].victims == ("young",)


@given(snapshots(), st.data())
def test_idleness_never_raises_lost_work_or_permits_a_preemption(snapshot: Snapshot, data: st.DataObject) -> None:
    running = [claim for claim in snapshot.claims if claim.state is ClaimState.HOLDING and claim.pods]
    if not running:
        return
    claim = data.draw(st.sampled_from(running))
    idle = replace(claim, idle_since=snapshot.now - 5)
    pool = snapshot.pool(claim.pool)
    assert lost_work(idle, pool, snapshot.settings, snapshot.now) <= lost_work(
        claim, pool, snapshot.settings, snapshot.now
    )
    assert lost_work(idle, pool, Settings(restart_cost=7), snapshot.now) == 7 * claim.units
    plan = decide(replace(snapshot, claims=tuple(idle if each is claim else each for each in snapshot.claims)))
    if claim.id in {victim for decision in plan.decisions for victim in decision.victims}:
        assert claim.preemptible


def test_idle_since_round_trips_as_json_and_is_optional() -> None:
    snapshot = a_request_for_lent_cards(idle_since=-2 * HOUR)
    data = snapshot_to_json(snapshot)
    assert parse_snapshot(data) == snapshot
    for claim in data["claims"]:
        claim.pop("idle_since", None)
    assert answers(parse_snapshot(data))["mine"].victims == ("young",)
