"""`manage.py plan --snapshots`: a plan for every line, and the line and key of what cannot be read."""

import io
import json
from copy import deepcopy
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given, settings
from hypothesis import strategies as st

from quotas.engine.snapshot_json import snapshot_to_json
from quotas.engine.types import Snapshot
from quotas.management.commands.plan import answers
from tests.engine.builders import a_department, a_pool, a_snapshot, holding, nodes, pending
from tests.engine.strategies import snapshots


def test_every_line_gets_a_plan_or_an_error(tmp_path: Path) -> None:
    good = json.dumps(snapshot_to_json(a_snapshot(a_pool(4), [a_department("a", 4)], [pending("w", "a", 2)])))
    lines = [
        good,
        "nonsense",
        '{"id": "b", "now": 0, "colour": 1}',
        "",
        good.replace('"department": "a"', '"department": "z"'),
    ]
    file = tmp_path / "snapshots.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    out = io.StringIO()
    call_command("plan", snapshots=str(file), stdout=out)
    plan, broken, unknown, stranger = [json.loads(line) for line in out.getvalue().splitlines()]
    assert plan["id"] == "case"
    assert [(d["claim"], d["decision"], d["own"]) for d in plan["decisions"]] == [("w", "admit", 2)]
    assert broken["id"] is None
    assert broken["error"].startswith("line 2: not JSON")
    assert unknown == {"id": "b", "error": "line 3: colour: unknown key"}
    assert stranger == {"id": "case", "error": "line 5: claims[0].department: unknown department 'z'"}


WORLD = snapshot_to_json(
    a_snapshot(a_pool(nodes=nodes(2, 2)), [a_department("a", 4)], [holding("h", "a", 1), pending("w", "a", 2)])
)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("[]", "expected an object, got []"),
        ("null", "expected an object, got None"),
        ("\x00\x01", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"id": "x", "id": "y"}', "id: stands here twice"),
        ('{"id": "x", "now": ' + "9" * 5000 + "}", "not JSON"),
        (
            '{"pools": [], "departments": [], "id": "x", "now": ' + "9" * 400 + "}",
            "now: expected at most 9007199254740991, got about 10^400",
        ),
        ('{"pools": [], "departments": [], "id": "x", "now": 1e999}', "now: expected an integer, got inf"),
        ('{"pools": [], "departments": [], "id": "x", "now": NaN}', "now: expected an integer, got nan"),
        ('{"pools": [], "departments": [], "id": "\\ud800", "now": "soon"}', "now: expected an integer, got 'soon'"),
        ('{"pools": [], "departments": [], "id": {"deep": []}, "now": 0}', "id: expected a string"),
    ],
)
def test_invalid_line_gives_an_error_that_names_the_line(line: str, error: str) -> None:
    [result] = answers([line])
    assert result["error"].startswith("line 1: ")
    assert error in result["error"]
    assert len(result["error"]) < 300


@pytest.mark.parametrize(
    ("where", "value", "error"),
    [
        ("claims.1.pods", 10**6, "claims[1].pods: expected at most 10000, got 1000000"),
        ("claims.1.units_per_pod", -1, "claims[1].units_per_pod: expected at least 0, got -1"),
        ("claims.1.priority", True, "claims[1].priority: expected an integer, got True"),
        ("claims.1.state", ["pending"], "claims[1].state: expected one of pending, holding, leaving, got ['pending']"),
        ("claims.1.id", "h", "claims[1]: 'h' stands here twice"),
        ("claims", {}, "claims: expected a list, got {}"),
        ("departments.0.weight", "1e999999999", "departments[0].weight: expected a number of at least 0"),
        ("departments.0.weight", "1/0", "departments[0].weight: expected a number of at least 0"),
        ("departments.0.weight", -1, "departments[0].weight: expected a number of at least 0, got -1"),
        ("departments.0.parent", "a", "departments[0].parent: 'a' is below itself"),
        ("departments.0.quotas", [], "departments[0].quotas: expected an object, got []"),
        ("pools.0.nodes.1.name", "n1", "pools[0].nodes[1]: 'n1' stands here twice"),
        ("pools.0.nodes.0.cards", None, None),
        ("pools.0.nodes.0.cards.0.units", 2**53 - 1, None),
    ],
)
def test_wrong_value_gives_an_error_that_names_its_key_or_is_harmless(
    where: str, value: object, error: str | None
) -> None:
    line = json.loads(json.dumps(WORLD))
    *path, last = [int(step) if step.isdigit() else step for step in where.split(".")]
    place = line
    for step in path:
        place = place[step]
    place[last] = value
    [result] = answers([json.dumps(line)])
    assert error in result["error"] if error is not None else "decisions" in result


def test_mig_cards_with_too_many_slices_are_refused() -> None:
    pool = a_pool(nodes=nodes(1, units=10**9), mig="A100-80GB")
    [result] = answers([json.dumps(snapshot_to_json(a_snapshot(pool, [], [])))])
    assert result["error"] == "line 1: pools[0].nodes[0].cards[0].units: expected at most 64 slices, got 1000000000"


VALUES = st.sampled_from(
    [None, True, -1, 0, 1, 3, 2**53, 10**30, 0.5, "", "a", "h", "w", "gpu", "n1", [], {}, [1], {"a": 1}]
)


@settings(max_examples=200, deadline=None)
@given(snapshots() | snapshots(placed=True, nested=True), st.data())
def test_line_with_arbitrary_values_gets_a_plan_or_an_error(snapshot: Snapshot, data: st.DataObject) -> None:
    line = json.loads(json.dumps(snapshot_to_json(snapshot)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = line
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys)) if keys else None
            if key is None or not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
                break
            place = place[key]
        if key is not None:
            place[key] = deepcopy(data.draw(VALUES))  # the next round may write into it
    [result] = answers([json.dumps(line)])
    assert ("error" in result) != ("decisions" in result)


def test_what_if_is_answered_for_every_line() -> None:
    lines = [json.dumps(WORLD), json.dumps(WORLD | {"departments": [], "claims": []})]
    changed, broken = answers(lines, [["drain", "n1"], ["request", "a", "gpu", "units_per_pod=2"]])
    assert [change["claim"] for change in changed["what_if"]["changes"]] == ["w", "what-if-1"]
    assert broken == {"id": "case", "error": "line 2: unknown department 'a'; known: none"}


def test_what_if_of_a_drain_lists_the_claims_on_the_nodes() -> None:
    placed = {"placement": [{"pod": 0, "node": "n2", "cards": [0]}]}
    world = WORLD | {"claims": [claim | (placed if claim["id"] == "h" else {}) for claim in WORLD["claims"]]}
    [result] = answers([json.dumps(world)], [["drain", "n2", "n1"]])
    assert result["what_if"]["standing"] == {"n2": ["h"], "n1": []}
    [result] = answers([json.dumps(world)], [["request", "a", "gpu", "units_per_pod=1"]])
    assert "standing" not in result["what_if"]


def test_departments_can_be_nested_to_any_depth() -> None:
    chain = [a_department(f"d{n}", 1, parent=f"d{n - 1}" if n else None) for n in range(2_000)]
    deep = a_snapshot(a_pool(2_000), chain, [pending("w", "d1999", 2)])
    [planned] = answers([json.dumps(snapshot_to_json(deep))])
    assert planned["decisions"][0]["decision"] == "admit"


def test_snapshots_are_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"id": "e", "now": 0, "pools": [], "departments": []}\n'))
    out = io.StringIO()
    call_command("plan", snapshots="-", stdout=out)
    assert json.loads(out.getvalue()) == {"id": "e", "decisions": [], "withdrawn": []}


def test_missing_file_is_an_error() -> None:
    with pytest.raises(CommandError, match="cannot read /nowhere"):
        call_command("plan", snapshots="/nowhere")
