"""What a person can request if a workload cannot start: more quota, or a larger budget."""

from __future__ import annotations

import enum
from collections.abc import Collection

QUOTA_HELPS = {
    "above_ceiling", "over_borrow_limit", "not_preemptible", "own_only", "not_lent", "not_enough", "held_for",
    "guarantee_kept_for",
}  # fmt: skip
"""Codes of reasons that more guaranteed quota, or a higher borrow limit, would remove."""


class Remedy(enum.StrEnum):
    QUOTA = "quota"
    BUDGET = "budget"


def remedy_for(reasons: Collection[str]) -> Remedy | None:
    """What would let a request start that waits for `reasons` (codes); None if neither would. A used-up budget prevents a
    start whatever the quota is."""
    if "over_budget" in reasons:
        return Remedy.BUDGET
    return Remedy.QUOTA if reasons and QUOTA_HELPS.issuperset(reasons) else None
