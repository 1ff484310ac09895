"""Phases of runs and their pods."""

from __future__ import annotations

import enum


class Phase(enum.StrEnum):
    """The phase of a run, as reported by the cluster."""

    PENDING = "pending"  # accepted, not yet running (unscheduled, image pull, …)
    RUNNING = "running"
    SUCCEEDED = "succeeded"  # every rank exited 0
    FAILED = "failed"  # a rank exited otherwise; see exit_code and reason
    LOST = "lost"  # its node or its record is gone: how it ended is unknown
