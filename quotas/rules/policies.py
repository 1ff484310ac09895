"""What operators set for pools and departments: the terms for borrowers, the order of the queue, and which work may be
preempted for which."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import F

from portal import audit
from portal.access import Actor
from portal.background.hints import wake
from portal.errors import N_, Problem
from portal.infra.locks import durable
from portal.infra.versions import Stale, check_fresh
from portal.models import Department
from portal.notify.events import emit
from quotas.engine import types as e
from quotas.engine.snapshot_json import policy_from_json
from quotas.models import Pool, PoolGroup, Quota
from quotas.planning.claims import wake_all
from quotas.planning.lock import locked_group

BESIDE_PERCENT = 100
DAY = 86_400


class Bounds(NamedTuple):
    least: int
    most: int


BOUNDS = {
    "notice": Bounds(0, 7 * DAY), "grace": Bounds(0, DAY), "min_runtime": Bounds(0, 30 * DAY), "max_reclaims": Bounds(0, 1_000),
    "beside_percent": Bounds(0, 10_000), "balance_half_life": Bounds(DAY // 24, 90 * DAY),
    "starvation_after": Bounds(0, 30 * DAY), "restart_cost": Bounds(0, DAY),
}  # fmt: skip
"""What each rule of a pool may be: in forms, in the API and in the configuration."""
GROUPS_OWN = ("fair_sharing", "starvation_after", "restart_cost")


class NoQuota(Problem):
    status = 404
    code = "no_quota"
    message = N_("%(department)s has no quota in %(pool)s, so it cannot have a policy there.")


@dataclass(frozen=True, slots=True)
class PoolRules:
    """Times are in seconds. `beside_percent`: CPU and memory for a card, in percent of an even share of its node's.
    `balance_half_life` None: no fairness over time. The last three apply to the whole pool group; None: as in the settings."""

    notice: int
    grace: int
    min_runtime: int
    max_reclaims: int
    beside_percent: int = BESIDE_PERCENT
    balance_half_life: int | None = None
    fair_sharing: bool | None = None
    starvation_after: int | None = None
    restart_cost: int | None = None

    @staticmethod
    def of(pool: Pool) -> PoolRules:
        """The pool's current rules."""
        names = [field.name for field in dataclasses.fields(PoolRules)]
        return PoolRules(**{name: getattr(pool.group if name in GROUPS_OWN else pool, name) for name in names})


def set_pool_rules(*, actor: Actor, pool: Pool, rules: PoolRules, expected_version: int) -> Pool:
    """Set a pool's rules. Notice and grace apply to claims admitted from now on. Raises Stale, NotVisible."""
    actor.require_operator()
    with durable():
        group = locked_group(pool.group_id)
        pool = Pool.objects.select_related("group").get(pk=pool.pk)
        check_fresh(pool.version, expected_version)
        before, after = dataclasses.asdict(PoolRules.of(pool)), dataclasses.asdict(rules)
        own = {name: value for name, value in after.items() if name not in GROUPS_OWN}
        Pool.objects.filter(pk=pool.pk).update(version=F("version") + 1, **own)
        if any(before[name] != after[name] for name in GROUPS_OWN):
            PoolGroup.objects.filter(pk=group.pk).update(**{name: after[name] for name in GROUPS_OWN})
            Pool.objects.filter(group=group).exclude(pk=pool.pk).update(version=F("version") + 1)
        audit.record(actor, "pool.policy_changed", pool.slug, before=before, after=after)
        emit("pool.policy_changed", pool=pool.slug)
        if before["balance_half_life"] != after["balance_half_life"]:
            # The meter keeps the sums for this half-life. Until it has run, every pass counts from the beginning.
            wake("quotas.meter")
        wake("quotas.plan", group_id=group.pk)
    return Pool.objects.select_related("group__cluster").get(pk=pool.pk)


# Whose work may be stopped --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a policy is set: for a pool, for a department, or for a department in one pool."""

    department: Department | None
    pool: Pool | None

    def carrier(self) -> Pool | Department | Quota:
        """The row that stores the scope's policy. Raises NoQuota."""
        match self.department, self.pool:
            case None, Pool() as pool:
                return Pool.objects.get(pk=pool.pk)
            case Department() as department, None:
                return Department.objects.get(pk=department.pk)
            case Department() as department, Pool() as pool:
                quota = Quota.objects.filter(department=department, pool=pool).first()
                if quota is None:
                    raise NoQuota(department=department.name, pool=pool.name)
                return quota
        raise ValueError("a policy is set for a pool, a department or both")

    @property
    def target(self) -> str:
        return "/".join(each.slug for each in (self.department, self.pool) if each is not None)

    def effective(self) -> tuple[e.Policy, str]:
        """The policy in force here, and where it is set: quota, department, pool or default."""
        chain: list[tuple[str, Scope]] = [
            ("department", Scope(self.department, None)),
            ("pool", Scope(None, self.pool)),
        ]
        if self.department is not None and self.pool is not None:
            chain.insert(0, ("quota", self))
        for source, scope in chain:
            row = scope.carrier() if scope.department or scope.pool else None
            if row is not None and row.policy:
                return policy_from_json(row.policy), source
        return e.Policy(), "default"


def policy_json(policy: e.Policy) -> dict[str, Any]:
    """The policy with every key: an empty object means that no policy is set."""
    preempt = policy.borrow_preempt
    return {
        "within": policy.within,
        "reclaim": policy.reclaim,
        "borrow_preempt": {"max_priority": preempt.max_priority} if preempt is not None else None,
    }


def set_policy(*, actor: Actor, scope: Scope, policy: e.Policy | None, expected_version: int) -> None:
    """Set the scope's policy; None: the policy of the next wider scope applies. Raises Stale, NoQuota; NotVisible unless the
    actor is an operator."""
    actor.require_operator()
    with durable():
        row = scope.carrier()
        before, after = row.policy or None, policy_json(policy) if policy is not None else None
        same = type(row)._default_manager.filter(pk=row.pk, version=expected_version)
        if not same.update(policy=after or {}, version=F("version") + 1):
            raise Stale(current=row.version, given=expected_version)
        audit.record(
            actor, "policy.changed", scope.target, department=scope.department,
            before={"policy": before}, after={"policy": after},
        )  # fmt: skip
        emit("policy.changed", department=scope.department, pool=scope.pool.slug if scope.pool else "")
        wake_all()


def default_rules() -> dict[str, Any]:
    """The rules of a pool group that sets none of its own."""
    return {
        "fair_sharing": settings.FAIR_SHARING,
        "starvation_after": settings.STARVATION_AFTER,
        "restart_cost": settings.RESTART_COST,
    }
