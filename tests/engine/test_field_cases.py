"""Cases from the field: every snapshot of cases/field, decided as its `.expected.json` says (see cases/README.md)."""

import json
from pathlib import Path
from typing import Any

import pytest

from quotas.engine.planning_pass import decide
from quotas.engine.snapshot_json import decision_to_json, parse_snapshot
from quotas.engine.types import Snapshot
from tests.engine import invariants

FIELD = Path(__file__).parent / "cases" / "field"


def _cases() -> list[Any]:
    """One case for each snapshot with expected decisions."""
    cases = []
    for file in sorted(FIELD.glob("*.jsonl")):
        expected = json.loads(file.with_suffix(".expected.json").read_text())
        for line in file.read_text().splitlines():
            data = json.loads(line)
            wanted = {claim: want for claim, want in expected[data["id"]].items() if isinstance(want, dict)}
            if wanted:
                cases.append(
                    pytest.param(data, wanted, expected[data["id"]].get("withdrawn"), id=f"{file.stem}: {data['id']}")
                )
    return cases


def _facts(snapshot: Snapshot, decision: dict[str, Any]) -> dict[str, Any]:
    """The facts of one decision that a case can expect."""
    domain = {node.name: node.domain for pool in snapshot.pools for node in pool.nodes or ()}
    node_names = {placed["node"] for placed in decision.get("placement") or ()}
    reasons = decision.get("reasons", [])
    return decision | {
        "victims_count": len(decision.get("victims") or ()),
        "nodes": len(node_names),
        "domains": len({domain[name] for name in node_names}),
        "short_by": next((reason["short_by"] for reason in reasons if "short_by" in reason), None),
        "reason": next((reason["code"] for reason in reasons), None),
    }


@pytest.mark.parametrize(("data", "wanted", "withdrawn"), _cases())
def test_field_case_gets_the_expected_decisions(
    data: dict[str, Any], wanted: dict[str, dict[str, Any]], withdrawn: list[str] | None
) -> None:
    snapshot = parse_snapshot(data)
    plan = decide(snapshot)
    decisions = {str(decision.claim): _facts(snapshot, decision_to_json(decision)) for decision in plan.decisions}
    assert withdrawn in (None, [*plan.withdrawn])
    for claim, facts in wanted.items():
        assert {fact: decisions[claim].get(fact) for fact in facts} == facts, claim
    assert invariants.of_plan(snapshot, plan) == ()
