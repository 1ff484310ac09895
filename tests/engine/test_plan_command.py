"""`manage.py plan --snapshots`: a plan for every line, and the line and key of what cannot be read."""

import io
import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from quotas.engine.wire import snapshot_to_json
from tests.engine.builders import a_department, a_pool, a_snapshot, pending


def test_every_line_gets_a_plan_and_a_bad_one_an_error(tmp_path: Path) -> None:
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


def test_snapshots_are_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"id": "e", "now": 0, "pools": [], "departments": []}\n'))
    out = io.StringIO()
    call_command("plan", snapshots="-", stdout=out)
    assert json.loads(out.getvalue()) == {"id": "e", "decisions": [], "withdrawn": []}


def test_a_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(CommandError, match="cannot read /nowhere"):
        call_command("plan", snapshots="/nowhere")
