"""Snapshots and plans round-trip as JSON; what cannot be read is rejected with its key."""

import json
from typing import Any

import pytest

from quotas.engine.reasons import REASONS, LentOutReturning, NotEnough
from quotas.engine.snapshot_json import (
    SnapshotError,
    parse_snapshot,
    plan_to_json,
    reason_from_json,
    reason_to_json,
    snapshot_to_json,
)
from quotas.engine.types import Claim, ClaimState, Decision, DecisionKind, DepartmentId, Plan


def a_snapshot(**changes: Any) -> dict[str, Any]:
    return {
        "id": "case-1",
        "now": 0,
        "settings": {"fair_sharing": False, "notice": 600, "grace": 120},
        "pools": [{"id": "a100", "unit": "card", "nodes": [{"name": "n1", "cards": [{"units": 1}, {"units": 1}]}]}],
        "departments": [
            {
                "id": "vision",
                "parent": None,
                "weight": 1,
                "quotas": {"a100": {"guaranteed": 8, "borrow_limit": None, "lend_limit": None}},
                "policy": {"within": "lower_priority", "reclaim": "any", "borrow_preempt": None},
            }
        ],
        "claims": [a_claim()],
        **changes,
    }


def a_claim(**changes: Any) -> dict[str, Any]:
    return {
        "id": "w1",
        "department": "vision",
        "user": "alice",
        "pool": "a100",
        "pods": 1,
        "units_per_pod": 2,
        "priority": 0,
        "state": "holding",
        "submitted_at": -900,
        "started_at": -600,
        "placement": [{"pod": 0, "node": "n1", "cards": [0, 1]}],
        **changes,
    }


def test_snapshot_round_trips_as_json() -> None:
    snapshot = parse_snapshot(a_snapshot())
    assert parse_snapshot(json.loads(json.dumps(snapshot_to_json(snapshot)))) == snapshot


def test_key_recorded_by_an_older_version_is_read() -> None:
    [claim] = parse_snapshot(a_snapshot(claims=[a_claim(state="leaving", leave_by=60, held_for="other")])).claims
    assert claim.preempted_for == "other"


def test_absent_keys_take_their_defaults() -> None:
    claim = {"id": "w", "department": "vision", "pool": "a100", "units_per_pod": 4, "state": "pending"}
    snapshot = parse_snapshot(a_snapshot(claims=[{**claim, "submitted_at": 5}]))
    (read,) = snapshot.claims
    assert read == Claim("w", "vision", "a100", 4, ClaimState.PENDING, 5)  # type: ignore[arg-type]
    assert (read.waiting_since, read.units, read.preemptible, read.priority) == (5, 4, True, 0)


def test_compute_is_charged_where_it_is_the_larger_share_of_the_card() -> None:
    shared = [{"id": "a100", "unit": "GiB", "nodes": [{"name": "n1", "cards": [{"units": 16, "cores": 100}]}]}]
    given = a_claim(units_per_pod=1, cores_per_pod=90, placement=None)
    snapshot = parse_snapshot(a_snapshot(pools=shared, claims=[given]))
    assert (snapshot.claims[0].units_per_pod, snapshot.claims[0].on_card) == (15, 1)
    assert parse_snapshot(json.loads(json.dumps(snapshot_to_json(snapshot)))) == snapshot
    charged = a_claim(units_per_pod=15, asked_per_pod=1, cores_per_pod=90, placement=None)
    assert parse_snapshot(a_snapshot(pools=shared, claims=[charged])) == snapshot


def test_a_profile_is_charged_the_memory_slices_it_covers() -> None:
    pools = [{"id": "a100", "unit": "slice", "mig": "A100-80GB", "nodes": []}]
    claims = [a_claim(id=p, profile=p, units_per_pod=None) for p in ("3g.40gb", "1g.20gb", "9g.90gb")]
    snapshot = parse_snapshot(a_snapshot(pools=pools, claims=claims))
    assert [claim.units_per_pod for claim in snapshot.claims] == [4, 2, 0]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"colour": "red"}, "colour"),
        ({"now": "noon"}, "now"),
        ({"now": None}, "now"),
        ({"settings": {"notise": 1}}, "settings.notise"),
        ({"settings": {"fair_sharing": 1}}, "settings.fair_sharing"),
        ({"settings": {"notice": -1}}, "settings.notice"),
        ({"pools": [{"id": ""}]}, "pools[0].id"),
        ({"pools": [{"id": 3}]}, "pools[0].id"),
        ({"pools": {}}, "pools"),
        ({"pools": [{"id": "a100"}, {"id": "a100"}]}, "pools[1]"),
        ({"pools": [{"id": "a100", "nodes": [{"name": "n"}, {"name": "n"}]}]}, "pools[0].nodes[1]"),
        ({"departments": [{"id": "vision", "quotas": {"h100": {}}}]}, "departments[0].quotas.h100"),
        ({"departments": [{"id": "vision", "quotas": []}]}, "departments[0].quotas"),
        ({"departments": [{"id": "vision", "user_caps": {"h100": 1}}]}, "departments[0].user_caps.h100"),
        ({"departments": [{"id": "vision", "parent": "nobody"}]}, "departments[0].parent"),
        ({"departments": [{"id": "vision", "parent": "vision"}]}, "departments[0].parent"),
        ({"departments": [{"id": "vision", "weight": "much"}]}, "departments[0].weight"),
        ({"departments": [{"id": "vision", "weight": -1}]}, "departments[0].weight"),
        ({"claims": [a_claim(department="nlp")]}, "claims[0].department"),
        ({"claims": [a_claim(pool="h100")]}, "claims[0].pool"),
        ({"claims": [a_claim(state="gone")]}, "claims[0].state"),
        ({"claims": [a_claim(units_per_pod=True)]}, "claims[0].units_per_pod"),
        ({"claims": [a_claim(gpus=2)]}, "claims[0].gpus"),
        ({"claims": [a_claim(placement=[{"pod": 0}])]}, "claims[0].placement[0].node"),
        ({"claims": [a_claim(), a_claim()]}, "claims[1]"),
    ],
)
def test_unreadable_value_is_rejected_with_its_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(SnapshotError) as error:
        parse_snapshot(a_snapshot(**changes))
    assert error.value.key == key
    assert str(error.value).startswith(f"{key}: ")


def test_snapshot_that_is_not_an_object_is_rejected() -> None:
    with pytest.raises(SnapshotError, match="expected an object"):
        parse_snapshot([1, 2])


def test_weights_are_read_exactly() -> None:
    departments = [{"id": "vision", "weight": "0.1"}, {"id": "nlp", "weight": 0.5}, {"id": "cv", "weight": "1/3"}]
    snapshot = parse_snapshot(a_snapshot(departments=departments))
    assert [str(department.weight) for department in snapshot.departments] == ["1/10", "1/2", "1/3"]
    assert parse_snapshot(snapshot_to_json(snapshot)) == snapshot


def test_a_plan_is_written_with_every_key() -> None:
    decision = Decision(
        claim="w9",  # type: ignore[arg-type]
        decision=DecisionKind.ADMIT,
        own=2,
        borrowed=2,
        from_={DepartmentId("nlp"): 2},
        reasons=(NotEnough("a100", 2),),
    )
    assert plan_to_json(Plan("case-1", (decision,))) == {
        "id": "case-1",
        "decisions": [
            {
                "claim": "w9",
                "decision": "admit",
                "own": 2,
                "borrowed": 2,
                "from": {"nlp": 2},
                "placement": None,
                "victims": [],
                "waiting_on": [],
                "by": None,
                "reasons": [{"code": "not_enough", "pool": "a100", "short_by": 2}],
                "position": 0,
                "ahead": [],
                "largest": None,
            }
        ],
        "withdrawn": [],
    }


def test_reason_round_trips_as_json() -> None:
    reason = LentOutReturning(("w1", "w2"), at=720)
    assert reason_from_json(json.loads(json.dumps(reason_to_json(reason)))) == reason
    assert len(REASONS) == 19
