"""Claims that hold or wait in the pools now, read in a constant number of queries."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from django.db.models import F, Q, Sum
from django.utils import timezone

from portal.models import Department, User
from quotas.engine import types as e
from quotas.engine.mig_profiles import profile_of
from quotas.engine.quota_tree import Ledger, standing_of
from quotas.models import (
    LIVE_CLAIMS,
    OCCUPYING,
    Card,
    Claim,
    ClaimAmounts,
    ClaimState,
    LedgerEntry,
    Pool,
    Quota,
    UserCap,
)
from quotas.planning.snapshot import quota_of

EVER = 2**62


@dataclass(slots=True, eq=False)
class LiveClaim(ClaimAmounts):
    """The columns of a claim that the functions below need. A plain row: a page reads every live claim, and model objects cost
    several times as much."""

    pk: int
    public_id: str
    department_id: int
    pool_id: int
    user_id: int | None
    workload: str
    name: str
    pods: int
    units_per_pod: int
    asked_per_pod: int | None
    state: str
    queued_at: dt.datetime
    started_at: dt.datetime | None
    max_runtime: int | None
    until: dt.datetime | None
    leave_by: dt.datetime | None
    preempted_for_id: int | None
    promised_at: dt.datetime | None
    reserved: dict[str, Any] | None
    placement: list[dict[str, Any]] | None
    profile: str
    cores_per_pod: int | None
    reasons: list[Any]
    position: int | None
    waiting_on: list[str]
    user: User | None = None


@dataclass(slots=True, eq=False)
class LiveEntry:
    """An open ledger entry, a plain row for the same reason."""

    claim_id: int
    department_id: int
    pool_id: int
    lender_id: int | None
    own: bool
    units: int
    claim: LiveClaim = field(init=False)


CLAIM_COLUMNS = tuple(each.name for each in fields(LiveClaim) if each.name != "user")
ENTRY_COLUMNS = tuple(each.name for each in fields(LiveEntry) if each.name != "claim")
AnyClaim = TypeVar("AnyClaim", Claim, LiveClaim)


@dataclass(slots=True)
class Live:
    """All claims that hold or wait now, with quotas and capacity, read once. The functions below derive their figures from it."""

    pools: dict[int, Pool]
    departments: dict[int, Department]
    children: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    quotas: dict[tuple[int, int], Quota] = field(default_factory=dict)  # (department, pool)
    caps: dict[tuple[int, int], int] = field(default_factory=dict)
    claims: dict[tuple[int, int], list[LiveClaim]] = field(default_factory=lambda: defaultdict(list))
    entries: dict[tuple[int, int], list[LiveEntry]] = field(default_factory=lambda: defaultdict(list))
    lent: dict[tuple[int, int], list[LiveEntry]] = field(default_factory=lambda: defaultdict(list))
    presence: dict[int, int] = field(default_factory=dict)  # pool → units on healthy cards of nodes that take pods
    stranded: dict[int, int] = field(default_factory=dict)  # claim → its units on cards that are not present
    ledgers: dict[int, Ledger] = field(default_factory=dict)  # these four are caches by pool
    on_way: dict[int, defaultdict[int, int]] = field(default_factory=dict)
    unheld: dict[int, int] = field(default_factory=dict)
    recalls_left: dict[int, Mapping[e.DepartmentId, int]] = field(default_factory=dict)

    def subtree(self, department: int) -> list[int]:
        departments = [department]
        for pk in departments:  # grows during the loop
            departments += self.children[pk]
        return departments

    def claims_of(self, pool: int) -> list[LiveClaim]:
        return [claim for pk in self.departments for claim in self.claims.get((pk, pool), ())]

    def all_claims(self) -> Iterator[LiveClaim]:
        return (claim for claims in self.claims.values() for claim in claims)

    def lent_by(self, department: int, pool: int) -> list[LiveEntry]:
        """Entries of what the department and those below it lend to departments outside."""
        inside = self.subtree(department)
        return [e for pk in inside for e in self.lent.get((pk, pool), ()) if e.department_id not in inside]

    def guaranteed(self, department: int, pool: int) -> int:
        return sum(self.quotas[pk, pool].guaranteed for pk in self.subtree(department) if (pk, pool) in self.quotas)

    def present(self, pool: int) -> int:
        return self.presence.get(pool, 0)


def read(pools: Iterable[Pool] | None = None, *, claims: bool = True) -> Live:
    """Read pools (None: all) with nine queries, whatever their size. Without claims it takes six: enough for ceilings,
    which depend on quotas and cards only."""
    wanted = {pool.pk: pool for pool in (Pool.objects.select_related("group__cluster") if pools is None else pools)}
    live = Live(wanted, {department.pk: department for department in Department.objects.all()})
    for department in live.departments.values():
        if department.parent_id is not None:
            live.children[department.parent_id].append(department.pk)
    for quota in Quota.objects.filter(pool__in=wanted).order_by():
        quota.pool = wanted[quota.pool_id]
        live.quotas[quota.department_id, quota.pool_id] = quota
    for cap in UserCap.objects.filter(pool__in=wanted):
        live.caps[cap.department_id, cap.pool_id] = cap.units
    _read_presence(live)
    if claims:
        _read_claims(live)
        _read_stranded(live)
    return live


IS_USABLE = Q(healthy=True, quarantined=False)  # Card.is_usable
IS_PRESENT = IS_USABLE & Q(node__present=True, node__drained=False, node__quarantined=False, node__held_back="")


def _read_presence(live: Live) -> None:
    """Present units: on a node with fixed MIG geometry those of its instances, else those of its cards."""
    usable = Card.objects.filter(IS_PRESENT, pool__in=live.pools)
    nodes = usable.order_by().values_list("pool", "node", "node__instances", "node__outside")
    for pool, _node, instances, outside, units in nodes.annotate(units=Sum(F("units") - F("outside"))):
        table = live.pools[pool].mig
        if table and instances:
            taken = outside.get("instances", {})
            counts = {name: max(0, count - taken.get(name, 0)) for name, count in instances.items()}
            profiles = [(profile_of(table, name), count) for name, count in counts.items()]
            units = sum(profile.size * count for profile, count in profiles if profile is not None)
        live.presence[pool] = live.presence.get(pool, 0) + units


def _read_stranded(live: Live) -> None:
    """Units on cards that are not present, which do not use up present capacity (as quotas.engine.units.stranded_units)."""
    rows = Card.objects.filter(~IS_PRESENT, pool__in=live.pools).values_list(
        "pool_id", "node__name", "index", "healthy", "quarantined"
    )
    absent: dict[tuple[int | None, str], set[int]] = defaultdict(set)
    closed = set()
    for pool, name, index, healthy, quarantined in rows:
        absent[pool, name].add(index)
        if healthy and not quarantined:  # so it is the node that takes no pods
            closed.add((pool, name))
    for claim in live.all_claims() if absent else ():
        for place in (claim.placement or ()) if claim.state in OCCUPYING else ():
            node = claim.pool_id, place["node"]
            if node in closed or not absent.get(node, set()).isdisjoint(place.get("cards") or ()):
                live.stranded[claim.pk] = live.stranded.get(claim.pk, 0) + claim.units_per_pod


def _read_claims(live: Live) -> None:
    """Claims with their users and ledger entries, joined here: a join in SQL would build a user object for each row."""
    rows = Claim.objects.filter(pool__in=live.pools, state__in=LIVE_CLAIMS).values_list(*CLAIM_COLUMNS)
    claims = {row[0]: LiveClaim(*row) for row in rows}
    users = User.objects.in_bulk({claim.user_id for claim in claims.values() if claim.user_id})
    for claim in claims.values():
        claim.user = users.get(claim.user_id or 0)
        live.claims[claim.department_id, claim.pool_id].append(claim)
    for row in LedgerEntry.objects.filter(pool__in=live.pools, ended_at=None).values_list(*ENTRY_COLUMNS):
        held_by = claims.get(row[0])
        if held_by is None or held_by.is_recall:
            continue
        entry = LiveEntry(*row)
        entry.claim = held_by
        live.entries[entry.department_id, entry.pool_id].append(entry)
        if entry.lender_id is not None:
            live.lent[entry.lender_id, entry.pool_id].append(entry)


def reserved(claim: LiveClaim) -> int:
    """Units reserved for a waiting claim."""
    return int((claim.reserved or {}).get("units", 0)) if claim.state == ClaimState.PENDING else 0


def _recalls_left(live: Live, pool: int) -> Mapping[e.DepartmentId, int]:
    """Department → units that its holding recalls still hold after the workloads of it and those below have drawn from them."""
    if pool not in live.recalls_left:
        standing = [claim for claim in live.claims_of(pool) if claim.state in OCCUPYING and claim.started_at]
        recalls = [claim for claim in standing if claim.is_recall and claim.state == ClaimState.HOLDING]
        live.recalls_left[pool] = _left_of(live, recalls, standing) if recalls else {}
    return live.recalls_left[pool]


def _left_of(live: Live, recalls: list[LiveClaim], standing: list[LiveClaim]) -> Mapping[e.DepartmentId, int]:
    """What is left of the recalls, as the engine computes it: workloads draw from the oldest recall first, and from their own
    department's before those of departments above it."""
    workloads = [claim for claim in standing if not claim.is_recall]
    tree = [_in_tree(live, department) for department in live.departments.values()]
    return standing_of([_holding_for_engine(live, claim) for claim in (*recalls, *workloads)], EVER, tree).left


def _holding_for_engine(live: Live, claim: LiveClaim) -> e.Claim:
    department = live.departments[claim.department_id].slug
    started = int((claim.started_at or timezone.now()).timestamp())
    return e.Claim(
        e.ClaimId(claim.public_id), e.DepartmentId(department), e.PoolId(live.pools[claim.pool_id].slug), claim.units_per_pod,
        e.ClaimState.HOLDING, started, pods=claim.pods, started_at=started,
    )  # fmt: skip


def _in_tree(live: Live, department: Department, quotas: Mapping[e.PoolId, e.Quota] | None = None) -> e.Department:
    parent = live.departments[department.parent_id].slug if department.parent_id else None
    above = e.DepartmentId(parent) if parent else None
    return e.Department(e.DepartmentId(department.slug), above, department.weight, quotas or {})


def held(live: Live, department: int, pool: int) -> int:
    """Units reserved for the department or recalled by it that none of its workloads uses yet."""
    return sum(reserved(claim) for claim in live.claims.get((department, pool), ())) + recalled(live, department, pool)


def coming(live: Live, department: int, pool: int) -> int:
    """The part of `held` that victims still occupy."""
    on_way = _on_way(live, pool)
    return sum(on_way[claim.pk] for claim in live.claims.get((department, pool), ()))


def leavers(claims: Iterable[AnyClaim]) -> dict[int, list[AnyClaim]]:
    """Claim id → the leaving claims it waits for: those that leave for it, and those that leave for others and release more
    than these need."""
    claims = list(claims)
    leaving = {claim.public_id: claim for claim in claims if claim.state == ClaimState.LEAVING}
    by_claim: dict[int, dict[str, AnyClaim]] = defaultdict(dict)
    for leaver in leaving.values():
        if leaver.preempted_for_id:
            by_claim[leaver.preempted_for_id][leaver.public_id] = leaver
    for claim in claims:
        for id in claim.waiting_on if claim.state == ClaimState.PENDING else ():
            if id in leaving:
                by_claim[claim.pk][id] = leaving[id]
    return {pk: list(leaving_claims.values()) for pk, leaving_claims in by_claim.items()}


def _on_way(live: Live, pool: int) -> dict[int, int]:
    """Claim id → reserved units that leaving claims still occupy.

    The units that a claim releases go first to the claim it leaves for, then to the others that wait for it. Leaving claims
    that only one claim waits for are counted first.
    """
    if pool in live.on_way:
        return live.on_way[pool]
    claims = live.claims_of(pool)
    on_way = live.on_way[pool] = defaultdict(int)
    titles = {claim.pk: reserved(claim) for claim in claims}
    awaiting: dict[LiveClaim, list[int]] = defaultdict(list)
    for pk, leaving_claims in leavers(claims).items():
        for leaver in leaving_claims:
            awaiting[leaver].append(pk)
    for leaver, waiting in sorted(awaiting.items(), key=lambda each: (len(each[1]), each[0].pk)):
        left = leaver.units
        for pk in sorted(waiting, key=lambda pk: (pk != leaver.preempted_for_id, pk)):
            given = min(left, titles.get(pk, 0) - on_way[pk])
            left, on_way[pk] = left - given, on_way[pk] + given
    return on_way


def recalled(live: Live, department: int, pool: int) -> int:
    return _recalls_left(live, pool).get(e.DepartmentId(live.departments[department].slug), 0)


def held_unoccupied(live: Live, pool: int) -> int:
    """Units that are held for departments and that nothing occupies: they have no fixed cards, which are drawn as free."""
    return sum(held(live, pk, pool) - coming(live, pk, pool) for pk in live.departments)


def free(live: Live, pool: int, inside: Iterable[int] = ()) -> int:
    """Present units that are neither occupied nor reserved. What recalls of the departments in `inside` hold counts as free."""
    if pool not in live.unheld:
        occupying = [claim for claim in live.claims_of(pool) if claim.state in OCCUPYING and not claim.is_recall]
        occupied = sum(claim.units - live.stranded.get(claim.pk, 0) for claim in occupying)
        live.unheld[pool] = live.present(pool) - occupied - held_unoccupied(live, pool)
    return max(0, live.unheld[pool] + sum(recalled(live, pk, pool) for pk in inside))


def available(live: Live, department: int, pool: int) -> int:
    """The most units that the department may still take: its own and what it may borrow."""
    return _ledger_of(live, pool).available(e.DepartmentId(live.departments[department].slug))


def ceiling(live: Live, department: int, pool: int) -> int:
    """The most units that the department could have in an empty pool with every card present."""
    return _ledger_of(live, pool)[e.DepartmentId(live.departments[department].slug)].ceiling


def _ledger_of(live: Live, pool: int) -> Ledger:
    """The engine's ledger of this pool, charged with what is held now."""
    if pool not in live.ledgers:
        row = live.pools[pool]
        id = e.PoolId(row.slug)
        departments = [_for_engine(live, department, pool, id) for department in live.departments.values()]
        holding = [claim.pk for claim in live.claims_of(pool) if claim.state == ClaimState.HOLDING]
        stranded = sum(live.stranded.get(pk, 0) for pk in holding)
        ledger = Ledger(e.Pool(id, row.unit, capacity=live.present(pool), nominal=row.nominal), departments, stranded)
        for pk, department in live.departments.items():
            claims = live.claims.get((pk, pool), ())
            used = sum(claim.units for claim in claims if claim.state == ClaimState.HOLDING and not claim.is_recall)
            ledger.add(e.DepartmentId(department.slug), used + held(live, pk, pool))
        live.ledgers[pool] = ledger
    return live.ledgers[pool]


def _for_engine(live: Live, department: Department, pool: int, id: e.PoolId) -> e.Department:
    quota = live.quotas.get((department.pk, pool))
    return _in_tree(live, department, {} if quota is None else {id: quota_of(quota, timezone.now())})
