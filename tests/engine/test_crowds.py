"""Among many departments and nodes most are not looked at: the answers are those that looking at all of them gives."""

import gc

import pytest

from bench._snapshots import a_snapshot, in_groups
from quotas.engine.pass_state import PassState
from quotas.engine.planning_pass import decide
from quotas.engine.types import Snapshot
from tests.engine.invariants import of_plan


@pytest.mark.parametrize("nodes", [False, True])
def test_in_a_tree_too_victims_are_found_for_hundreds(nodes: bool) -> None:
    snapshot = in_groups(a_snapshot(40, 200, 200, with_nodes=nodes), 3)
    plan = decide(snapshot)
    assert of_plan(snapshot, plan) == ()
    assert len(plan.decisions) == 200
    assert sum(len(decision.victims) for decision in plan.decisions) > 50


def garbage_of(snapshot: Snapshot) -> int:
    """Objects that a plan leaves behind and that only Python's search for garbage finds."""
    gc.collect()
    gc.disable()
    try:
        decide(snapshot)
        return gc.collect()
    finally:
        gc.enable()


def test_what_a_plan_worked_with_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = a_snapshot(20, 200, 200, with_nodes=True)
    few = garbage_of(snapshot)
    monkeypatch.setattr(PassState, "close", lambda self: None)
    assert few * 5 < garbage_of(snapshot)
