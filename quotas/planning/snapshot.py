"""Database rows → the engine's Snapshot, in a constant number of queries. Decisions use only snapshots loaded under the lock.

Ids in a snapshot are slugs (departments, pools) and public ids (claims); times are whole seconds since 1970.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import orjson
from django.conf import settings
from django.db.models import Field, Func, Q

from portal.models import Department
from quotas.engine import types as e
from quotas.engine.snapshot_json import policy_from_json
from quotas.lending.windows import most_lent, planned_limit
from quotas.models import LIVE_CLAIMS, Budget, Card, Claim, Node, Pool, PoolGroup, Quota, UserCap
from quotas.planning import rules_cache
from quotas.spending.balances import balances
from quotas.spending.budgets import used_up
from quotas.tree import upwards

K = TypeVar("K", bound=Hashable)


def load_snapshot(group: PoolGroup, *, now: dt.datetime, id: str = "", claims: bool = True) -> e.Snapshot:
    """All input of one pass over this pool group. `claims` False: only its rules and nodes."""
    rules = rules_of(group)
    budgets = used_up(rules.budgets, now=now, departments=rules.departments)
    lately = balances(rules.pools, rules.departments, now=now)
    snapshot = snapshot_of(group, rules, budgets, _optional(group.cluster.unreachable_since), lately, now=now, id=id)
    return replace(snapshot, claims=_claims(rules)) if claims else snapshot


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything but the claims: rows, and nodes by pool as the engine takes them. Do not change it: it is cached."""

    pools: tuple[Pool, ...]
    departments: tuple[Department, ...]
    quotas: tuple[Quota, ...]
    caps: tuple[UserCap, ...]
    budgets: tuple[Budget, ...]  # for these pools, and for all pools
    nodes: Mapping[int, tuple[e.Node, ...]]


def snapshot_of(
    group: PoolGroup,
    rules: Rules,
    budgets: Mapping[int, tuple[e.SpentBudget, ...]],
    unreachable_since: int | None,
    lately: Mapping[int, Mapping[e.DepartmentId, int]],
    *,
    now: dt.datetime,
    id: str = "",
) -> e.Snapshot:
    """The snapshot of rules and nodes, without claims. `group` and `rules` may differ from what is stored. `lately`: balances of
    pools with fairness over time."""
    return e.Snapshot(
        id=id or group.name,
        now=seconds(now),
        settings=settings_of(group),
        pools=_pools(rules, unreachable_since, lately),
        departments=_departments(rules, now, budgets),
        claims=(),
    )


def rules_of(group: PoolGroup) -> Rules:
    """The group's rules: from the database, or from the cache if nothing has changed."""
    of_pools = "pool_id IN (SELECT id FROM quotas_pool WHERE group_id = %s)"
    stamp = rules_cache.stamp(
        (Pool, "group_id = %s", [group.pk]), (Department, "true", []), (Quota, of_pools, [group.pk]),
        (UserCap, of_pools, [group.pk]), (Card, of_pools, [group.pk]), (Node, "cluster_id = %s", [group.cluster_id]),
        (Budget, f"pool_id IS NULL OR {of_pools}", [group.pk]),
    )  # fmt: skip
    return rules_cache.read(group.pk, stamp, lambda: _read_rules(group))


def _read_rules(group: PoolGroup) -> Rules:
    pools = tuple(Pool.objects.filter(group=group))
    return Rules(
        pools,
        tuple(Department.objects.all()),
        tuple(Quota.objects.filter(pool__in=pools).select_related("pool")),
        tuple(UserCap.objects.filter(pool__in=pools).select_related("pool")),
        tuple(Budget.objects.filter(Q(pool=None) | Q(pool__in=pools)).select_related("pool", "person")),
        _nodes(pools),
    )


def settings_of(group: PoolGroup) -> e.Settings:
    """The group's own settings where the operator has set them, else the installation's."""
    return e.Settings(
        fair_sharing=settings.FAIR_SHARING if group.fair_sharing is None else group.fair_sharing,
        starvation_after=settings.STARVATION_AFTER if group.starvation_after is None else group.starvation_after,
        restart_cost=settings.RESTART_COST if group.restart_cost is None else group.restart_cost,
    )


def seconds(moment: dt.datetime) -> int:
    return int(moment.timestamp())


def moment(seconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def _pools(
    rules: Rules, unreachable_since: int | None, lately: Mapping[int, Mapping[e.DepartmentId, int]]
) -> tuple[e.Pool, ...]:
    return tuple(
        e.Pool(
            id=e.PoolId(pool.slug),
            unit=pool.unit,
            nodes=rules.nodes.get(pool.pk, ()),
            nominal=pool.nominal,
            units_per_card=pool.units_per_card,
            cores_per_card=pool.card_cores,
            cpu_per_card=pool.with_a_card[0],
            memory_per_card=pool.with_a_card[1],
            mig=pool.mig or None,
            cluster_unreachable_since=unreachable_since,
            policy=policy_from_json(pool.policy) if pool.policy else None,
            notice=pool.notice,
            grace=pool.grace,
            balances=lately.get(pool.pk),
        )
        for pool in rules.pools
    )


def _nodes(pools: Sequence[Pool]) -> dict[int, tuple[e.Node, ...]]:
    """Pool id → its nodes, sorted by name. Cards are read as tuples, because a cluster has thousands of them."""
    cards: dict[tuple[int, int], dict[int, e.Card]] = defaultdict(dict)
    names = ("pool_id", "node_id", "index", "units", "cores", "healthy", "quarantined", "outside", "outside_cores")
    for pool_id, node_id, index, units, cores, healthy, quarantined, outside, more in Card.objects.filter(
        pool__in=pools
    ).values_list(*names):
        usable = healthy and not quarantined
        left = None if cores is None else max(0, cores - more)
        cards[pool_id or 0, node_id][index] = e.Card(units if usable else 0, left, outside if usable else 0)
    fixed = {pool.pk for pool in pools if pool.mig}
    known = Node.objects.filter(pk__in={node for _, node in cards}).defer("labels").in_bulk()
    nodes: dict[int, list[e.Node]] = defaultdict(list)
    for (pool_id, node_id), on_node in sorted(cards.items(), key=lambda item: known[item[0][1]].name):
        nodes[pool_id].append(_node(known[node_id], on_node, fixed=pool_id in fixed))
    return {pool: tuple(in_pool) for pool, in_pool in nodes.items()}


NO_CARD = e.Card(units=0)


def _node(node: Node, cards: dict[int, e.Card], *, fixed: bool) -> e.Node:
    """Unusable cards stay in the list with 0 units, so that the indexes of the others do not change."""
    usable = node.takes_pods
    instances = _less(node.instances, node.outside.get("instances"))
    return e.Node(
        name=node.name,
        cards=tuple(cards.get(index, NO_CARD) if usable else NO_CARD for index in range(max(cards) + 1)),
        instances=(instances if usable else {}) if fixed and node.instances else None,
        domain=node.domain or None,
        cpu_milli=_left(node, "cpu_milli"),
        memory_mib=_left(node, "memory_mib"),
        pods=_left(node, "pods"),
        devices=_less(node.devices, node.outside.get("devices")),
    )


def _left(node: Node, resource: str) -> int | None:
    """What a node has left after pods that the portal did not start, which its kubelet counts too."""
    has: int | None = getattr(node, resource)
    return None if has is None else max(0, has - node.outside.get(resource, 0))


def _less(has: Mapping[str, int], taken: Mapping[str, int] | None) -> dict[str, int]:
    return {name: max(0, count - (taken or {}).get(name, 0)) for name, count in has.items()}


def _departments(
    rules: Rules, now: dt.datetime, budgets: Mapping[int, tuple[e.SpentBudget, ...]]
) -> tuple[e.Department, ...]:
    rows = rules.departments
    quotas: dict[int, dict[e.PoolId, e.Quota]] = defaultdict(dict)
    for quota in rules.quotas:
        quotas[quota.department_id][e.PoolId(quota.pool.slug)] = quota_of(quota, now)
    caps: dict[int, dict[e.PoolId, int]] = defaultdict(dict)
    for cap in rules.caps:
        caps[cap.department_id][e.PoolId(cap.pool.slug)] = cap.units
    tree = {row.pk: row for row in rows}
    slugs = {row.pk: e.DepartmentId(row.slug) for row in rows}
    return tuple(
        e.Department(
            id=slugs[row.pk],
            parent=slugs[row.parent_id] if row.parent_id else None,
            weight=row.weight,
            quotas=quotas[row.pk],
            policy=policy_from_json(row.policy) if row.policy else None,
            paused=any(above.paused for above in upwards(tree, row.pk)),
            user_caps=lowest_caps(caps[above.pk] for above in upwards(tree, row.pk)),
            budgets=budgets.get(row.pk, ()),
        )
        for row in rows
    )


def lowest_caps(caps: Iterable[Mapping[K, int]]) -> dict[K, int]:
    """The smallest cap for each pool: a cap applies to all teams below, too."""
    lowest: dict[K, int] = {}
    for each in caps:
        for pool, units in each.items():
            lowest[pool] = min(units, lowest.get(pool, units))
    return lowest


def quota_of(quota: Quota, now: dt.datetime) -> e.Quota:
    return e.Quota(
        guaranteed=quota.guaranteed,
        borrow_limit=quota.borrow_limit,
        lend_limit=planned_limit(quota, now),
        lend_limit_most=most_lent(quota),
        policy=policy_from_json(quota.policy) if quota.policy else None,
    )


CLAIM_COLUMNS = (
    "public_id", "department__slug", "pool__slug", "user_id", "pods", "units_per_pod", "priority", "state", "submitted_at",
    "queued_at", "started_at", "checkpointed_at", "checkpoint_every", "idle_since", "min_runtime", "max_runtime",
    "preemptible", "own_only", "cores_per_pod", "asked_per_pod", "profile", "same_domain", "cpu_milli", "memory_mib",
    "devices", "backoff_until", "leave_by", "preempted_for__public_id", "reserved", "placement", "notice", "grace",
    "pool__min_runtime",
)  # fmt: skip


def _claims(rules: Rules) -> tuple[e.Claim, ...]:
    rows = Claim.objects.filter(pool__in=[pool.pk for pool in rules.pools], state__in=LIVE_CLAIMS).order_by("public_id")
    return tuple(_read_claim(values) for values in rows.values_list(*READ))


MOMENTS = {"submitted_at", "queued_at", "started_at", "checkpointed_at", "idle_since", "backoff_until", "leave_by"}


class Seconds(Func):
    """A timestamp in whole seconds since 1970, computed by the database to avoid thousands of datetime objects: without this
    and AsWritten, reading 2,000 claims takes twice as long."""

    output_field = Field()  # without conversion: the integer as the database returns it
    template = "FLOOR(EXTRACT(EPOCH FROM %(expressions)s))::bigint"

    def as_sqlite(self, compiler: Any, connection: Any, **more: Any) -> Any:
        return self.as_sql(compiler, connection, template="CAST(strftime('%%%%s', %(expressions)s) AS INTEGER)", **more)


class AsWritten(Func):
    """A JSON column as text, parsed by orjson."""

    output_field = Field()
    template = "%(expressions)s"


WRITTEN = {"reserved", "placement", "devices"}
READ = [Seconds(c) if c in MOMENTS else AsWritten(c) if c in WRITTEN else c for c in CLAIM_COLUMNS]


def _read_claim(values: tuple[Any, ...]) -> e.Claim:
    row = dict(zip(CLAIM_COLUMNS, values, strict=True))
    for column in WRITTEN:
        if row[column] is not None:
            row[column] = orjson.loads(row[column])
    return _claim(row)


def claim_of(claim: Claim) -> e.Claim:
    """One claim, saved or not, for previews."""
    row = {column: getattr(claim, column) for column in CLAIM_COLUMNS if "__" not in column}
    row |= {column: None if row[column] is None else seconds(row[column]) for column in MOMENTS}
    return _claim(
        row
        | {
            "department__slug": claim.department.slug,
            "pool__slug": claim.pool.slug,
            "pool__min_runtime": claim.pool.min_runtime,
            "preempted_for__public_id": claim.preempted_for.public_id if claim.preempted_for else None,
        }
    )


def _claim(row: Mapping[str, Any]) -> e.Claim:
    pending = row["state"] == e.ClaimState.PENDING
    return e.Claim(
        id=e.ClaimId(row["public_id"]),
        department=e.DepartmentId(row["department__slug"]),
        pool=e.PoolId(row["pool__slug"]),
        units_per_pod=row["units_per_pod"],
        state=e.ClaimState(row["state"]),
        submitted_at=row["submitted_at"],
        pods=row["pods"],
        user=str(row["user_id"] or ""),
        priority=row["priority"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
        checkpointed_at=row["checkpointed_at"],
        checkpoint_every=row["checkpoint_every"],
        idle_since=row["idle_since"],
        min_runtime=max(row["min_runtime"], row["pool__min_runtime"]),
        max_runtime=row["max_runtime"],
        preemptible=row["preemptible"],
        own_only=row["own_only"],
        cores_per_pod=row["cores_per_pod"],
        asked_per_pod=row["asked_per_pod"],
        profile=row["profile"] or None,
        same_domain=row["same_domain"],
        cpu_milli=row["cpu_milli"] or 0,
        memory_mib=row["memory_mib"] or 0,
        devices=row["devices"] or {},
        backoff_until=row["backoff_until"],
        leave_by=row["leave_by"],
        preempted_for=e.ClaimId(row["preempted_for__public_id"]) if row["preempted_for__public_id"] else None,
        reserved=reservation_of(row["reserved"]) if row["reserved"] else None,
        placement=places_of(row["placement"]) if row["placement"] else None,
        # Frozen at admission; for a pending claim the pool's current values apply.
        notice=None if pending else row["notice"],
        grace=None if pending else row["grace"],
    )


def places_of(data: list[dict[str, Any]]) -> tuple[e.Placed, ...]:
    return tuple(e.Placed(p["pod"], p["node"], tuple(p.get("cards", ())), p.get("start")) for p in data)


def reservation_of(data: dict[str, Any]) -> e.Reservation:
    return e.Reservation(units=data["units"], places=places_of(data.get("places", [])))


def _optional(value: dt.datetime | None) -> int | None:
    return None if value is None else seconds(value)
