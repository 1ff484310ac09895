"""The capacity of pools: nominal capacity and drained nodes. For operators."""

from __future__ import annotations

from typing import Any

from portal import audit
from portal.access import Actor
from portal.background.hints import wake
from portal.errors import N_, Problem
from portal.infra import versions
from portal.infra.locks import durable
from portal.notify.events import emit
from portal.text.words import exact
from quotas.models import Node, Pool
from quotas.planning.lock import locked_group
from quotas.rules.draining import groups_of


class OverPromised(Problem):
    """More would be guaranteed than the pool has; `free` is what is left to guarantee."""

    code = "over_promised"
    message = N_(
        "The guarantees of all departments would add up to %(promised_size)s, but %(pool)s has only %(nominal_size)s. "
        "Free to guarantee: %(free_size)s. Choose less, or lower another guaranteed quota first."
    )


class BelowPromised(OverPromised):
    """A capacity below what is guaranteed; `free` is 0."""

    message = N_(
        "The guarantees of all departments would add up to %(promised_size)s, but %(pool)s has only %(nominal_size)s. "
        "Choose at least %(promised_size)s, or lower guaranteed quotas first."
    )


def numbers_of(pool: Pool, promised: int, nominal: int, free: int = 0) -> dict[str, Any]:
    return {
        "promised": promised, "nominal": nominal, "free": free, "unit": pool.unit, "pool": pool.name,
        "promised_size": exact(promised, pool), "nominal_size": exact(nominal, pool), "free_size": exact(free, pool),
    }  # fmt: skip


def set_nominal(*, actor: Actor, pool: Pool, nominal: int, seen: str = "") -> Pool:
    """Set a pool's nominal capacity in units. Raises OverPromised, Conflict."""
    actor.require_operator()
    with durable():
        locked_group(pool.group_id)
        pool = Pool.objects.get(pk=pool.pk)
        check_nominal(pool, nominal, seen=seen)
        audit.record(
            actor, "pool.nominal_changed", pool.slug, before={"nominal": pool.nominal}, after={"nominal": nominal}
        )
        Pool.objects.filter(pk=pool.pk).update(nominal=nominal)
        wake("quotas.plan", group_id=pool.group_id)
    pool.refresh_from_db()
    return pool


def check_nominal(pool: Pool, nominal: int, *, seen: str = "") -> None:
    """Raise Conflict or OverPromised if the pool cannot have this nominal capacity."""
    versions.check({"nominal": pool.nominal}, seen)
    promised = pool.total_guaranteed()
    if promised > nominal:
        raise BelowPromised(field="nominal", **numbers_of(pool, promised, nominal))


def set_drained(*, actor: Actor, node: Node, drained: bool, seen: str = "") -> Node:
    """Drain a node or return it to use. Running workloads stay; no new ones start on a drained node. Raises Conflict."""
    actor.require_operator()
    groups = groups_of(node)
    with durable():
        for group_id in groups:
            locked_group(group_id)
        versions.check({"drained": Node.objects.select_for_update(no_key=True).get(pk=node.pk).drained}, seen)
        if Node.objects.filter(pk=node.pk, drained=not drained).update(drained=drained):
            audit.record(actor, "node.drained" if drained else "node.returned", node.name)
            emit("node.changed", node=node.name)
        for group_id in groups:
            wake("quotas.plan", group_id=group_id)
    node.refresh_from_db()
    return node
