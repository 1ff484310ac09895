"""What holds and what waits in the pools at this moment, read in a constant number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from portal.models import Department
from quotas.models import LIVE_CLAIMS, OCCUPYING, Card, Claim, ClaimState, LedgerEntry, Pool, Quota, UserCap


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
    cards: dict[int, list[Card]] = field(default_factory=lambda: defaultdict(list))  # of each pool
    rights: dict[tuple[int, bool], Rights] = field(default_factory=dict)

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
        """Units on healthy cards of nodes that take pods."""
        return sum(card.units for card in self.cards[pool] if card.healthy and card.node.takes_pods)


def read(pools: Iterable[Pool] | None = None) -> Live:
    """Seven queries, whatever the size."""
    wanted = {pool.pk: pool for pool in (Pool.objects.select_related("group__cluster") if pools is None else pools)}
    live = Live(wanted, {department.pk: department for department in Department.objects.all()})
    for department in live.departments.values():
        if department.parent_id is not None:
            live.children[department.parent_id].append(department.pk)
    for quota in Quota.objects.filter(pool__in=wanted):
        live.quotas[quota.department_id, quota.pool_id] = quota
    for cap in UserCap.objects.filter(pool__in=wanted):
        live.caps[cap.department_id, cap.pool_id] = cap.units
    for claim in Claim.objects.filter(pool__in=wanted, state__in=LIVE_CLAIMS).select_related("user"):
        live.claims[claim.department_id, claim.pool_id].append(claim)
    open_entries = LedgerEntry.objects.filter(pool__in=wanted, ended_at=None, claim__pods__gt=0)
    for entry in open_entries.select_related("claim__user"):
        live.entries[entry.department_id, entry.pool_id].append(entry)
        if entry.lender_id is not None:
            live.lent[entry.lender_id, entry.pool_id].append(entry)
    for card in Card.objects.filter(pool__in=wanted).select_related("node"):
        live.cards[card.pool_id or 0].append(card)
    return live


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


def recalled(live: Live, department: int, pool: int) -> int:
    return sum(recalls_left(live.claims.get((department, pool), ())).values())


def free(live: Live, pool: int, inside: Iterable[int] = ()) -> int:
    """Present units that nobody occupies and that are kept for nobody; recalls of `inside` are theirs to draw from."""
    claims, here = live.claims_of(pool), set(inside)
    occupied = sum(claim.units for claim in claims if claim.state in OCCUPYING and not claim.is_recall)
    coming = defaultdict[int, int](int)  # units that will pass from leaving claims to the claim they are held for
    for claim in claims:
        if claim.state == ClaimState.LEAVING and claim.held_for_id:
            coming[claim.held_for_id] += claim.units
    kept = sum(max(0, reserved(claim) - coming[claim.pk]) for claim in claims)
    kept += sum(recalled(live, pk, pool) for pk in live.departments if pk not in here)
    return max(0, live.present(pool) - occupied - kept)


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
