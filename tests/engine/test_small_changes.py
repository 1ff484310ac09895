"""Decisions that one small change (mutation) of the engine would alter and no other test would notice (docs/mutation.md):
found by planning thousands of generated towns with the change, and reduced to what it takes (cases/small_changes.jsonl)."""

import json
from pathlib import Path
from typing import Any

import pytest

from quotas.engine.planning_pass import decide
from quotas.engine.snapshot_json import parse_snapshot
from tests.engine.invariants import of_plan

CASES = [
    json.loads(line) for line in (Path(__file__).parent / "cases" / "small_changes.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["snapshot"]["id"])
def test_decisions_sensitive_to_a_small_change_of_the_engine_stay_the_same(case: dict[str, Any]) -> None:
    snapshot = parse_snapshot(case["snapshot"])
    plan = decide(snapshot)
    decisions = {d.claim: [str(d.decision), [*d.victims], [*d.waiting_on]] for d in plan.decisions}
    assert (decisions, [*plan.withdrawn]) == (case["answers"], case["withdrawn"])
    assert of_plan(snapshot, plan) == ()
