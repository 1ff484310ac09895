"""Runs the script for pipelines without gpuq that the API guide shows."""

from __future__ import annotations

import os
import subprocess
import textwrap

from tests.architecture.sources import ROOT


def script() -> str:
    """The first block of *From a pipeline*."""
    section = (ROOT / "docs" / "api.md").read_text().split("## From a pipeline\n")[1].split("\n## ")[0]
    return textwrap.dedent("\n".join(line for line in section.splitlines() if line.startswith("    ")))


def run_script(shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    keep = {"PATH": os.environ["PATH"], "CI_JOB_ID": "job-1"}
    return subprocess.run([shell, "-c", script()], env=keep | environment, capture_output=True, text=True, timeout=20)
