"""The ranks of an attempt, for pages and API."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from workloads.models import Attempt, Kind
from workloads.runtime import rank_environment
from workloads.runtime.gangs import was_stopped
from workloads.status.status_line import meaning_of, place_text, reason_word


def ranks_of(attempt: Attempt) -> list[dict[str, Any]]:
    """The ranks as last reported by the cluster, each with its role."""
    return [
        row
        | {
            "role": role_of(attempt, row["rank"]),
            "state": "cancelled"
            if was_stopped(row)
            else {"pending": "starting", "lost": "failed"}.get(row["phase"], row["phase"]),
            "said": _("stopped") if was_stopped(row) else phase_word(row["phase"]),
            "meaning": "" if was_stopped(row) else meaning_of(row["exit_code"]),
            "why": reason_word(row["reason"]),
            "place": place_text(row["node"], row["cards"]),
        }
        for row in attempt.ranks
    ]


def phase_word(phase: str) -> str:
    return {
        "pending": _("starting"), "running": _("running"), "succeeded": _("succeeded"), "failed": _("failed"),
        "lost": _("node or pod lost"),
    }.get(phase, phase)  # fmt: skip


def role_of(attempt: Attempt, rank: int) -> str:
    workload = attempt.workload
    if workload.kind != Kind.DISTRIBUTED:
        return workload.kind
    setup = workload.settings
    return str(
        rank_environment.role(setup.template or rank_environment.Template.GENERIC, rank, setup.parameter_servers)
    )
