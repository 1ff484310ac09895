"""The ranks of an attempt as people and programs are told of them."""

from __future__ import annotations

from typing import Any

from workloads import distributed
from workloads.models import Attempt, Kind


def ranks_of(attempt: Attempt) -> list[dict[str, Any]]:
    """As the cluster told last, each with its role."""
    return [row | {"role": role_of(attempt, row["rank"])} for row in attempt.ranks]


def role_of(attempt: Attempt, rank: int) -> str:
    workload = attempt.workload
    if workload.kind != Kind.DISTRIBUTED:
        return workload.kind
    setup = workload.settings
    return str(distributed.role(setup.template or distributed.Template.GENERIC, rank, setup.parameter_servers))
