"""The lock on a pool group's row, for everything that makes capacity less available (docs/concurrency.md)."""

from __future__ import annotations

from portal.prepared import NUMBER, Prepared
from quotas.models import PoolGroup

LOCKED = Prepared(
    lambda pk: PoolGroup.objects.select_related("cluster").select_for_update(no_key=True, of=("self",)).filter(pk=pk),
    placeholder=NUMBER,
)


def locked_group(group_id: int) -> PoolGroup:
    """Lock the pool group's row. Raises Busy, DoesNotExist."""
    group = LOCKED.first(group_id)
    if group is None:
        raise PoolGroup.DoesNotExist(group_id)
    return group
