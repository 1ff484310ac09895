"""Runs of the fault campaign: the short list in CI, 200 with NIGHTLY=1, or as many as FAULT_RUNS says (docs/operations.md:
how to repeat a seed)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.clusters.realcluster import ROOT, cannot, kit

RUNS = int(os.environ.get("FAULT_RUNS") or (200 if os.environ.get("NIGHTLY") else 0))
WHICH = ["--runs", str(RUNS)] if RUNS else ["--short"]


@pytest.mark.skipif(
    not RUNS and not os.environ.get("CI"), reason="takes minutes: CI=1, FAULT_RUNS=3 or NIGHTLY=1 runs it"
)
@pytest.mark.cluster
@pytest.mark.timeout(120 + (RUNS or 20) * 240)
def test_an_installation_survives_what_goes_wrong_around_it() -> None:
    path = kit("path-of-cache").stdout.strip()
    if not os.path.isdir(f"{path}/bin"):
        cannot("the test cluster is not built here: `make cluster` builds and starts it")
    if not os.environ["DATABASE_URL"].startswith("postgres") or not os.environ["TEST_REDIS_URL"]:
        cannot("needs PostgreSQL and Redis")
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL", "EMBEDDED")}
    command = [sys.executable, "-m", "tests.faults.campaign", *WHICH, "--rest", "120"]
    ran = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
