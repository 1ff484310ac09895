"""Among many departments and nodes most are not looked at: the answers are those that looking at all of them gives."""

import gc
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bench._snapshots import a_snapshot, in_groups
from quotas.engine import victim_search
from quotas.engine.invariants import of_plan
from quotas.engine.pass_state import PassState
from quotas.engine.planning_pass import decide
from quotas.engine.preemption_rules import Preemptor, permitted
from quotas.engine.types import Claim, Snapshot
from tests.engine.towns import a_town


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


def test_in_a_tree_who_may_not_go_alone_may_not_go_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = [in_groups(a_snapshot(20, 160, 120, fair), 5) for fair in (True, False)]
    snapshots += [replace(town, settings=replace(town.settings, fair_sharing=True)) for town in map(a_town, range(30))]
    quick = [decide(snapshot) for snapshot in snapshots]
    asked: list[int] = []

    def each(preemptor: Preemptor, _: list[Claim]) -> victim_search.IsPermitted:
        def may_go(victims: Sequence[Claim]) -> bool:
            asked.append(len(victims))
            return permitted(preemptor, victims)

        return may_go

    monkeypatch.setattr(victim_search, "_permission", each)
    assert quick == [decide(snapshot) for snapshot in snapshots]
    assert sum(many > 2 for many in asked) > 1000


def test_what_a_plan_worked_with_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = a_snapshot(20, 200, 200, with_nodes=True)
    few = garbage_of(snapshot)
    monkeypatch.setattr(PassState, "close", lambda self: None)
    assert few * 5 < garbage_of(snapshot)
