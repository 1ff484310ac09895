"""Builders of database rows for tests: each function creates one row with sensible defaults, all of which can be overridden."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

from django.utils import timezone

from portal.models import Department, Membership, Role, User
from quotas.models import Card, Claim, ClaimState, Cluster, ClusterKind, LedgerEntry, Node, Pool, PoolGroup, Quota

_number = itertools.count(1)


def user(username: str = "", **fields: Any) -> User:
    row = User(username=username or f"user-{next(_number)}", **fields)
    row.set_unusable_password()
    row.save()
    return row


def department(slug: str = "", **fields: Any) -> Department:
    slug = slug or f"department-{next(_number)}"
    return Department.objects.create(slug=slug, **{"name": slug.capitalize(), **fields})


def member(of: Department, role: Role = Role.MEMBER, username: str = "", **fields: Any) -> User:
    new_member = user(username, **fields)
    Membership.objects.create(user=new_member, department=of, role=role)
    return new_member


def cluster(name: str = "", **fields: Any) -> Cluster:
    return Cluster.objects.create(name=name or f"cluster-{next(_number)}", kind=ClusterKind.EMBEDDED, **fields)


def pool(slug: str = "", *, cards: int = 8, nodes: int = 1, group: PoolGroup | None = None, **fields: Any) -> Pool:
    """A pool of whole cards with its nodes: `cards` of them, spread evenly over `nodes`."""
    slug = slug or f"pool-{next(_number)}"
    group = group or PoolGroup.objects.create(name=slug, cluster=cluster(f"{slug}-cluster"))
    per_card = fields.get("units_per_card", 1)
    defaults = {
        "name": slug.capitalize(),
        "product": "NVIDIA-A100-SXM4-80GB",
        "sharing": "whole",
        "unit": "card",
        "nominal": cards * per_card,
    }
    row = Pool.objects.create(slug=slug, group=group, **{**defaults, **fields})
    for n in range(nodes):
        node = Node.objects.create(
            cluster=group.cluster, name=f"{slug}-n{n + 1}", product=row.product, sharing=row.sharing
        )
        count = cards // nodes + (n < cards % nodes)
        Card.objects.bulk_create(Card(node=node, pool=row, index=i, units=per_card) for i in range(count))
    return row


def quota(of: Department, on: Pool, guaranteed: int = 0, **fields: Any) -> Quota:
    return Quota.objects.create(department=of, pool=on, guaranteed=guaranteed, **fields)


def claim(of: Department, on: Pool, units: int = 1, state: str = ClaimState.PENDING, **fields: Any) -> Claim:
    """One pod of `units` units. Holding and leaving claims have started an hour ago."""
    now = timezone.now()
    defaults: dict[str, Any] = {"name": f"claim-{next(_number)}", "units_per_pod": units}
    if fields.get("user"):
        defaults["person"] = fields["user"].username
    if state in {ClaimState.HOLDING, ClaimState.LEAVING}:
        defaults["started_at"] = now - dt.timedelta(hours=1)
    if state == ClaimState.RELEASED:
        defaults["released_at"] = now
    return Claim.objects.create(department=of, pool=on, state=state, **{**defaults, **fields})


def holding(
    of: Department,
    on: Pool,
    own: int = 0,
    borrowed: dict[Department | None, int] | None = None,
    state: str = ClaimState.HOLDING,
    **fields: Any,
) -> Claim:
    """A holding claim with its ledger entries; `borrowed` maps each lender (None: unassigned capacity) to units."""
    borrowed = borrowed or {}
    row = claim(of, on, own + sum(borrowed.values()), state, **fields)
    since = {"claim": row, "pool": on, "department": of, "started_at": row.started_at}
    if own:
        LedgerEntry.objects.create(own=True, units=own, **since)
    for lender, units in borrowed.items():
        LedgerEntry.objects.create(own=False, lender=lender, units=units, **since)
    return row
