"""What holds and what waits in the pools at this moment, read in a constant number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from django.db.models import Sum

from portal.models import Department, User
from quotas.models import LIVE_CLAIMS, OCCUPYING, Card, Claim, ClaimState, LedgerEntry, Pool, Quota, UserCap

CLAIM_COLUMNS = (
    "public_id", "department_id", "pool_id", "user_id", "workload", "name", "pods", "units_per_pod", "state",
    "queued_at", "started_at", "max_runtime", "until", "leave_by", "held_for_id", "promised_at", "reserved", "placement",
    "reasons", "position",
)  # fmt: skip


@dataclass(slots=True)
class Live:
    """Everything that holds or waits now, read once; the questions below are answered from it."""

    pools: dict[int, Pool]
    departments: dict[int, Department]
    children: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    quotas: dict[tuple[int, int], Quota] = field(default_factory=dict)  # (department, pool)
    caps: dict[tuple[int, int], int] = field(default_factory=dict)
    claims: dict[tuple[int, int], list[Claim]] = field(default_factory=lambda: defaultdict(list))
    entries: dict[tuple[int, int], list[LedgerEntry]] = field(default_factory=lambda: defaultdict(list))
    lent: dict[tuple[int, int], list[LedgerEntry]] = field(default_factory=lambda: defaultdict(list))
    presence: dict[int, int] = field(default_factory=dict)  # pool → units on healthy cards of nodes that take pods
    rights: dict[tuple[int, bool], Rights] = field(default_factory=dict)  # worked out once a pool
    on_way: dict[int, defaultdict[int, int]] = field(default_factory=dict)
    unheld: dict[int, int] = field(default_factory=dict)

    def subtree(self, department: int) -> list[int]:
        found = [department]
        for pk in found:  # grows while it is walked
            found += self.children[pk]
        return found

    def claims_of(self, pool: int) -> list[Claim]:
        return [claim for pk in self.departments for claim in self.claims.get((pk, pool), ())]

    def all_claims(self) -> Iterator[Claim]:
        return (claim for claims in self.claims.values() for claim in claims)

    def guaranteed(self, department: int, pool: int) -> int:
        return sum(self.quotas[pk, pool].guaranteed for pk in self.subtree(department) if (pk, pool) in self.quotas)

    def present(self, pool: int) -> int:
        return self.presence.get(pool, 0)


def read(pools: Iterable[Pool] | None = None) -> Live:
    """Eight queries, whatever the size."""
    wanted = {pool.pk: pool for pool in (Pool.objects.select_related("group__cluster") if pools is None else pools)}
    live = Live(wanted, {department.pk: department for department in Department.objects.all()})
    for department in live.departments.values():
        if department.parent_id is not None:
            live.children[department.parent_id].append(department.pk)
    for quota in Quota.objects.filter(pool__in=wanted):
        live.quotas[quota.department_id, quota.pool_id] = quota
    for cap in UserCap.objects.filter(pool__in=wanted):
        live.caps[cap.department_id, cap.pool_id] = cap.units
    _read_claims(live)
    usable = Card.objects.filter(
        pool__in=wanted, healthy=True, node__present=True, node__drained=False, node__held_back=""
    )
    live.presence = dict(usable.order_by().values_list("pool").annotate(units=Sum("units")))
    return live


def _read_claims(live: Live) -> None:
    """Claims, their people and their ledger entries. Rows are joined here: a join in SQL would build each user anew."""
    rows = Claim.objects.filter(pool__in=live.pools, state__in=LIVE_CLAIMS).only(*CLAIM_COLUMNS)
    claims = {claim.pk: claim for claim in rows}
    users = User.objects.in_bulk({claim.user_id for claim in claims.values() if claim.user_id})
    for claim in claims.values():
        claim.user = users.get(claim.user_id or 0)
        live.claims[claim.department_id, claim.pool_id].append(claim)
    for entry in LedgerEntry.objects.filter(pool__in=live.pools, ended_at=None):
        if entry.claim_id not in claims or claims[entry.claim_id].is_recall:
            continue
        entry.claim = claims[entry.claim_id]
        live.entries[entry.department_id, entry.pool_id].append(entry)
        if entry.lender_id is not None:
            live.lent[entry.lender_id, entry.pool_id].append(entry)


def reserved(claim: Claim) -> int:
    """Units that a waiting claim has a title to."""
    return int((claim.reserved or {}).get("units", 0)) if claim.state == ClaimState.PENDING else 0


def recalls_left(claims: Iterable[Claim]) -> dict[str, int]:
    """Public id of each holding recall of one department in one pool → units it still holds.

    Claims that started after a recall draw from it, the oldest recall first.
    """
    claims = list(claims)
    recalls = [claim for claim in claims if claim.is_recall and claim.state == ClaimState.HOLDING]
    recalls.sort(key=lambda claim: (claim.started_at, claim.pk))
    drawing = [(c.started_at, c.units) for c in claims if not c.is_recall and c.state in OCCUPYING and c.started_at]
    left, drawn = {}, 0
    for recall in recalls:
        later = sum(units for started, units in drawing if recall.started_at and started >= recall.started_at)
        drew = min(recall.units, max(0, later - drawn))
        drawn += drew
        left[recall.public_id] = recall.units - drew
    return left


def held(live: Live, department: int, pool: int) -> int:
    """Units kept for the department that none of its workloads uses yet."""
    return sum(reserved(claim) for claim in live.claims.get((department, pool), ())) + recalled(live, department, pool)


def coming(live: Live, department: int, pool: int) -> int:
    """Of `held`: what others still occupy, and will leave to the department's claims."""
    on_way = _on_way(live, pool)
    return sum(min(reserved(claim), on_way[claim.pk]) for claim in live.claims.get((department, pool), ()))


def _on_way(live: Live, pool: int) -> dict[int, int]:
    """Claim id → units that will pass to it from leaving claims."""
    if pool not in live.on_way:
        live.on_way[pool] = defaultdict(int)
        for claim in live.claims_of(pool):
            if claim.state == ClaimState.LEAVING and claim.held_for_id:
                live.on_way[pool][claim.held_for_id] += claim.units
    return live.on_way[pool]


def recalled(live: Live, department: int, pool: int) -> int:
    return sum(recalls_left(live.claims.get((department, pool), ())).values())


def free(live: Live, pool: int, inside: Iterable[int] = ()) -> int:
    """Present units that nobody occupies and that are kept for nobody; recalls of `inside` are theirs to draw from."""
    if pool not in live.unheld:
        claims, on_way = live.claims_of(pool), _on_way(live, pool)
        occupied = sum(claim.units for claim in claims if claim.state in OCCUPYING and not claim.is_recall)
        kept = sum(max(0, reserved(claim) - on_way[claim.pk]) for claim in claims)
        kept += sum(recalled(live, pk, pool) for pk in live.departments)
        live.unheld[pool] = live.present(pool) - occupied - kept
    return max(0, live.unheld[pool] + sum(recalled(live, pk, pool) for pk in inside))


@dataclass(slots=True)
class Rights:
    """The arithmetic of docs/quota-rules.md for one pool, each node of the tree worked out once.

    `empty`: with nobody using anything and every card present, which gives the ceilings.
    """

    live: Live
    pool: int
    empty: bool
    known: dict[tuple[str, int], int] = field(default_factory=dict)
    top: int | None = None

    def _once(self, what: str, pk: int, work: Callable[[int], int]) -> int:
        if (what, pk) not in self.known:
            self.known[what, pk] = work(pk)
        return self.known[what, pk]

    def subtree(self, pk: int) -> int:
        def work(pk: int) -> int:
            quota = self.live.quotas.get((pk, self.pool))
            below = sum(self.subtree(child) - self.kept(child) for child in self.live.children[pk])
            return (quota.guaranteed if quota else 0) + below

        return self._once("subtree", pk, work)

    def kept(self, pk: int) -> int:
        quota = self.live.quotas.get((pk, self.pool))
        return 0 if quota is None or quota.lend_limit is None else max(0, self.subtree(pk) - quota.lend_limit)

    def used(self, pk: int) -> int:
        def work(pk: int) -> int:
            claims = self.live.claims.get((pk, self.pool), [])
            here = sum(c.units for c in claims if c.state == ClaimState.HOLDING and not c.is_recall)
            below = sum(self.passed_on(child) for child in self.live.children[pk])
            return here + held(self.live, pk, self.pool) + below

        return 0 if self.empty else self._once("used", pk, work)

    def passed_on(self, pk: int) -> int:
        return max(0, self.used(pk) - self.kept(pk))

    def at_top(self) -> int:
        """What nobody keeps for itself and nobody uses."""
        if self.top is None:
            departments = self.live.departments.values()
            tops = [department.pk for department in departments if department.parent_id is None]
            capacity = self.live.pools[self.pool].nominal if self.empty else self.live.present(self.pool)
            unpromised = capacity - sum(q.guaranteed for (_, pool), q in self.live.quotas.items() if pool == self.pool)
            self.top = unpromised + sum(self.subtree(pk) - self.kept(pk) - self.passed_on(pk) for pk in tops)
        return self.top

    def available(self, pk: int) -> int:
        def work(pk: int) -> int:
            parent, quota = self.live.departments[pk].parent_id, self.live.quotas.get((pk, self.pool))
            outside = self.at_top() if parent is None else self.available(parent)
            if quota is not None and quota.borrow_limit is not None:
                outside = min(outside, self.subtree(pk) - self.kept(pk) - self.passed_on(pk) + quota.borrow_limit)
            return max(0, self.kept(pk) - self.used(pk)) + outside

        return self._once("available", pk, work)


def available(live: Live, department: int, pool: int, *, empty: bool = False) -> int:
    """What the department may still take by right: its own, and what it may borrow. `empty`: its ceiling."""
    if (pool, empty) not in live.rights:
        live.rights[pool, empty] = Rights(live, pool, empty)
    return live.rights[pool, empty].available(department)
