"""Runs of the fault campaign: the short list in CI, 200 with NIGHTLY=1, or as many as FAULT_RUNS says (docs/operations.md:
how to repeat a seed). CI does not run the short list again on code with which it has passed on this machine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.realcluster import ROOT, cannot, kit

RUNS = int(os.environ.get("FAULT_RUNS") or (200 if os.environ.get("NIGHTLY") else 0))
WHICH = ["--runs", str(RUNS)] if RUNS else ["--short"]

INPUTS = (
    "gpuq", "portal", "quotas", "workloads", "bench/_installation.py", "deploy", "manage.py", "requirements/base.txt",
    "tests/cluster", "tests/clusters/realcluster.py", "tests/faults", "tests/servers.py",
)  # fmt: skip


def input_files() -> Iterator[Path]:
    """Every file that a process of the installation, or the campaign, reads. It requests no page: templates are left out."""
    for name in INPUTS:
        path = Path(ROOT, name)
        found = path.rglob("*") if path.is_dir() else (path,)
        yield from (each for each in found if each.is_file() and "__pycache__" not in each.parts)


def digest() -> str:
    """The digest of the names and contents of these files."""
    total = hashlib.sha256()
    for path in sorted(input_files()):
        total.update(f"{path.relative_to(ROOT)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def test_digest_covers_everything_that_the_campaign_runs() -> None:
    """If a folder were renamed and left out, the digest would no longer change with it."""
    assert [name for name in INPUTS if not Path(ROOT, name).exists()] == []
    names = {str(path.relative_to(ROOT)) for path in input_files()}
    assert {"manage.py", "quotas/models.py", "tests/faults/faults.py", "workloads/models.py"} <= names


@pytest.mark.skipif(
    not RUNS and not os.environ.get("CI"), reason="takes minutes: CI=1, FAULT_RUNS=3 or NIGHTLY=1 runs it"
)
@pytest.mark.cluster
@pytest.mark.timeout(120 + (RUNS or 20) * 240)
def test_installation_survives_injected_faults() -> None:
    path = kit("path-of-cache").stdout.strip()
    if not os.path.isdir(f"{path}/bin"):
        cannot("the test cluster is not built here: `make cluster` builds and starts it")
    passed, code = Path(path).parent / "faults-passed", digest()
    if not RUNS and passed.exists() and code in passed.read_text().split():
        pytest.skip("it has passed here with this code (the file faults-passed in the cache says so)")
    if not os.environ["DATABASE_URL"].startswith("postgres") or not os.environ["TEST_REDIS_URL"]:
        cannot("needs PostgreSQL and Redis")
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL", "EMBEDDED")}
    command = [sys.executable, "-m", "tests.faults.campaign", *WHICH, "--rest", "120"]
    ran = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    if not RUNS:
        passed.write_text(f"{code}\n")
