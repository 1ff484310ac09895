"""What approving a request for quota would do to others, were it granted now."""

from __future__ import annotations

from typing import Any

from portal.access import Actor
from quotas.models import Quota, QuotaRequest, RequestState, Wanted
from quotas.previews.effects import Preview
from quotas.previews.quota import preview_quota
from quotas.requests.actions import check_grant, value_after


def preview_of_grant(actor: Actor, request: QuotaRequest, units: int | None) -> Preview | None:
    """`units`: the approved total. None for one that begins later. Raises Invalid
    (units), and what preview_quota raises."""
    if request.state == RequestState.SCHEDULED:
        return None
    quota = Quota.objects.filter(department=request.department, pool=request.pool).first()
    numbers: dict[str, Any] = {"guaranteed": 0, "borrow_limit": None, "lend_limit": None}
    numbers |= {name: getattr(quota, name) for name in numbers if quota}
    check_grant(request, units)
    value = value_after(request, units)
    numbers[request.wanted] = (value or 0) if request.wanted == Wanted.GUARANTEED else value
    return preview_quota(actor=actor, department=request.department, pool=request.pool, **numbers)
