"""Planning for hundreds of departments, nodes and claims."""

import gc

import pytest

from bench._snapshots import a_snapshot, in_groups
from quotas.engine.pass_state import PassState
from quotas.engine.planning_pass import decide
from quotas.engine.types import Snapshot
from tests.engine.invariants import of_plan


@pytest.mark.parametrize("nodes", [False, True])
def test_victims_are_found_for_hundreds_of_claims_in_a_tree(nodes: bool) -> None:
    snapshot = in_groups(a_snapshot(40, 200, 200, with_nodes=nodes), 3)
    plan = decide(snapshot)
    assert of_plan(snapshot, plan) == ()
    assert len(plan.decisions) == 200
    assert sum(len(decision.victims) for decision in plan.decisions) > 50


def garbage_of(snapshot: Snapshot) -> int:
    """The number of objects of a plan that only Python's garbage collector frees."""
    gc.collect()
    gc.disable()
    try:
        decide(snapshot)
        return gc.collect()
    finally:
        gc.enable()


def test_state_of_a_pass_is_freed_without_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = a_snapshot(20, 200, 200, with_nodes=True)
    few = garbage_of(snapshot)
    monkeypatch.setattr(PassState, "close", lambda self: None)
    assert few * 5 < garbage_of(snapshot)
