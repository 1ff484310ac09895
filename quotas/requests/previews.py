"""What granting a request for quota now would do to others."""

from __future__ import annotations

from portal.access import Actor
from quotas.models import QuotaRequest, RequestState
from quotas.previews.effects import Preview
from quotas.previews.quota import preview_quota
from quotas.requests.actions import check_grant, numbers_with, value_after


def preview_of_grant(actor: Actor, request: QuotaRequest, units: int | None) -> Preview | None:
    """Preview of granting a total of `units`; None for a request that begins later. Raises Invalid (units), and
    the errors of preview_quota."""
    if request.state == RequestState.SCHEDULED:
        return None
    check_grant(request, units)
    numbers = numbers_with(request, value_after(request, units))
    return preview_quota(actor=actor, department=request.department, pool=request.pool, **numbers)
