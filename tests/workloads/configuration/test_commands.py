"""`manage.py export` and `apply`: their output and exit codes."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from portal.models import AuditEntry, Department
from quotas.models import Quota
from tests import builders as make
from workloads.configuration import plan

pytestmark = pytest.mark.django_db
LESS = f"apiVersion: {plan.API_VERSION}\ndepartments:\n  vision: {{quotas: {{a100: {{guaranteed: 4 cards}}}}}}\n"


@pytest.fixture(autouse=True)
def vision(db: None) -> Department:
    pool, vision = make.pool("a100", cards=16), make.department("vision")
    make.quota(vision, pool, 8)
    make.holding(vision, pool, own=8, name="train")
    return vision


def run(text: str, *words: str, tmp_path: Path) -> tuple[int, str]:
    """Returns the exit code and the output."""
    file, out = tmp_path / "gpu.yaml", io.StringIO()
    file.write_text(text)
    try:
        call_command("apply", str(file), *words, stdout=out)
    except CommandError as error:
        return error.returncode, str(error)
    except SystemExit as error:
        return int(error.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_an_export_applied_again_changes_nothing(tmp_path: Path) -> None:
    out = io.StringIO()
    call_command("export", stdout=out)
    assert run(out.getvalue(), tmp_path=tmp_path) == (0, "Nothing to change.\n")
    assert run(out.getvalue(), "--dry-run", tmp_path=tmp_path) == (0, "Nothing to change.\n")


def test_dry_run_that_finds_differences_exits_with_1(tmp_path: Path) -> None:
    code, out = run(LESS, "--dry-run", tmp_path=tmp_path)
    lines = out.splitlines()
    assert (code, lines[0]) == (1, "~ departments.vision.quotas.a100.guaranteed: 8 cards → 4 cards")
    assert "could be recalled" in lines[1]
    assert lines[-1].endswith("nothing was changed.")
    assert Quota.objects.get().guaranteed == 8


def test_plan_that_takes_capacity_needs_yes_or_the_confirmation_of_a_dry_run(tmp_path: Path) -> None:
    code, out = run(LESS, tmp_path=tmp_path)
    assert (code, Quota.objects.get().guaranteed) == (2, 8)
    assert "4 cards more in use would count as borrowed" in out
    mark = run(LESS, "--dry-run", tmp_path=tmp_path)[1].split("Plan ")[1].split(":")[0]
    assert run(LESS, "--confirm", "0" * 16, tmp_path=tmp_path)[0] == 2
    assert run(LESS, "--confirm", mark, "--source", "repo@1", tmp_path=tmp_path)[0] == 0
    assert (Quota.objects.get().guaranteed, AuditEntry.objects.get().source) == (4, "repo@1")
    assert run(LESS.replace("4 cards", "3 cards"), "--yes", tmp_path=tmp_path)[0] == 0
    assert Quota.objects.get().guaranteed == 3


def test_rejected_file_is_reported_with_line_and_path_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out = run(LESS.replace("4 cards", "99 cards"), tmp_path=tmp_path)
    assert code == 2
    assert "line 3: departments.vision.quotas.a100.guaranteed: The guarantees of all departments" in out
    assert run("a: [", tmp_path=tmp_path)[0] == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO(LESS))
    with pytest.raises(CommandError) as refused:
        call_command("apply", "-")
    assert refused.value.returncode == 2
    with pytest.raises(CommandError, match="cannot read"):
        call_command("apply", str(tmp_path / "nowhere.yaml"))


def test_output_marks_added_and_removed_values(tmp_path: Path) -> None:
    text = f"apiVersion: {plan.API_VERSION}\ndepartments: {{vision: {{user_caps: {{a100: %s}}}}}}"
    added: tuple[Any, ...] = run(text % "2 cards", tmp_path=tmp_path)
    assert (added[0], added[1].splitlines()[0]) == (0, "+ departments.vision.user_caps.a100: 2 cards")
    assert run(text % "null", tmp_path=tmp_path)[1].splitlines()[0] == "- departments.vision.user_caps.a100: 2 cards"
