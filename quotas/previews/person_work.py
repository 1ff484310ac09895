"""The workloads that a person has queued or running in a department."""

from __future__ import annotations

from portal.models import Department, User
from quotas.models import Claim, ClaimState


def names_of(user: User, department: Department) -> list[str]:
    """Names of the person's workloads that have not ended, the oldest first."""
    rows = Claim.objects.filter(department=department, user=user).exclude(state=ClaimState.RELEASED)
    return list(rows.exclude(workload="").order_by("submitted_at", "pk").values_list("name", flat=True))
