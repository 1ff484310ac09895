"""The API guide's script for pipelines always ends, with a code other than 0 if anything went wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from tests.architecture.sources import ROOT
from tests.gpuq.front import TOKEN, Front, front
from tests.gpuq.readme_script import run_script, script

SHELLS = [shell for shell in ("sh", "bash") if shutil.which(shell)]
pytestmark = pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")


@pytest.fixture
def portal() -> Iterator[Front]:
    with front() as server:
        yield server


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b'{"detail": "This token is not valid here."}'), (403, b"{}"), (404, b"<h1>Not found</h1>"), (422, b"{}"),
        (200, b"<title>Log in</title>"), (200, b""), (200, b"{}"), (200, b"null"), (200, b'{"id": null}'), (301, b""),
    ],
)  # fmt: skip
def test_script_ends_when_the_submission_fails(portal: Front, shell: str, status: int, body: bytes) -> None:
    portal.status, portal.body = status, body
    ran = run_script(shell, GPUQ_URL=portal.url, GPUQ_TOKEN=TOKEN)
    assert ran.returncode not in {0, 120}
    assert len(portal.requests) == 1
    assert TOKEN not in ran.stdout + ran.stderr


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("code", "expected"), [(0, 0), (7, 7), (-9, 137), (None, 120), ("lost", None), ("garbage", None)]
)
def test_script_ends_with_the_jobs_code_or_an_error(
    portal: Front, shell: str, code: int | str | None, expected: int | None
) -> None:
    states: list[bytes] = [b'{"id": "01", "finished_at": null, "exit_code": null}'] * 2
    states += {"lost": [b"{}", b""], "garbage": [b"<html>"]}.get(str(code)) or [
        json.dumps({"id": "01", "finished_at": "2026-01-01T00:00:00Z", "exit_code": code}).encode()
    ]
    portal.next_bodies = [*states, b"its log\n"]
    ran = run_script(shell, GPUQ_URL=portal.url, GPUQ_TOKEN=TOKEN)
    if expected is None:
        assert ran.returncode not in {0, 120}, ran
    else:
        assert (ran.returncode, ran.stdout) == (expected, "its log\n"), ran.stderr


@pytest.mark.parametrize("missing", ["GPUQ_URL", "GPUQ_TOKEN"])
def test_script_ends_if_a_variable_is_not_set(portal: Front, missing: str) -> None:
    variables = {"GPUQ_URL": portal.url, "GPUQ_TOKEN": TOKEN} | {missing: ""}
    ran = run_script("sh", **variables)
    assert ran.returncode != 0
    assert missing in ran.stderr
    assert portal.requests == []


def test_variables_have_the_same_names_in_all_texts() -> None:
    assert re.findall(r"\$\{?([A-Z_]+)", script()) != []
    assert {*re.findall(r"\$\{?([A-Z_]{2,})", script())} <= {"API", "CI_JOB_ID", "GPUQ_TOKEN", "GPUQ_URL"}
    texts = [path for folder in ("workloads", "portal", "templates", "docs", "gpuq") for path in (ROOT / folder).rglob("*")
             if path.suffix in {".py", ".html", ".md"}]  # fmt: skip
    other = re.compile(r"Bearer \$\{?(?!GPUQ_TOKEN\b)\w+|\$\{?(PORTAL_URL|PORTAL_API|GPU_TOKEN|API_TOKEN)\b|\$TOKEN\b")
    assert [path.name for path in [ROOT / "README.md", *texts] if other.search(path.read_text())] == []
