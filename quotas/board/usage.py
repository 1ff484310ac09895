"""Who uses how much of each pool now, for pages, API and metrics.

Usage is not counted but summed each time from live claims and open ledger entries. A department's numbers
cover its whole subtree, so a loan between two teams of one department is own use when seen from that department.
Amounts are in the pool's unit. The number of queries does not grow with departments, pools or claims.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from portal.models import Department, User
from quotas.board.usage_now import Live, LiveEntry, available, ceiling, coming, free, held, read, recalled
from quotas.models import ClaimState, Pool, Quota
from quotas.planning.snapshot import lowest_caps
from quotas.tree import upwards

UNASSIGNED = ""  # the lender's slug when units come from the pool's unassigned capacity


@dataclass(frozen=True, slots=True)
class UserUsage:
    user: User | None  # None: the account was deleted
    own: int
    borrowed: int
    cap: int | None  # the most that each user of the department may hold


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """One department's use of one pool."""

    pool: Pool
    department: Department
    quota: Quota | None
    guaranteed: int  # to the department and all below it
    ceiling: int  # the most it could use
    own: int
    borrowed: int
    borrowed_from: dict[str, int]  # department slug → units; "" is unassigned capacity
    lent: int
    lent_to: dict[str, int]  # department slug → units
    held: int  # reserved for its waiting claims, or held by its recalls
    coming: int  # the part of held that victims still occupy
    leaving: int  # the part of own + borrowed that is being recalled and not released yet
    free_now: int  # what it could start now without preemption
    queue_units: int
    queue_len: int
    per_user: tuple[UserUsage, ...]  # users of the departments that the reader may see

    @property
    def used(self) -> int:
        return self.own + self.borrowed

    @property
    def idle(self) -> int:
        """Guaranteed units that are neither used by the department, nor lent, nor kept by a reservation or recall."""
        return max(0, self.guaranteed - self.own - self.lent - self.held_here)

    @property
    def held_here(self) -> int:
        """The part of `held` that nobody occupies any more."""
        return self.held - self.coming

    @property
    def comes_back(self) -> int:
        """Lent units that the department would get back within the pool's notice and grace if it asked for them."""
        return max(0, min(self.lent, self.guaranteed - self.own - self.held))

    @property
    def borrow_left(self) -> int:
        return max(0, self.ceiling - self.guaranteed - self.borrowed)


def department_usage(
    department: Department, pools: Iterable[Pool] | None = None, *, seen: Collection[int] = ()
) -> list[PoolUsage]:
    """One row for each pool in which the department or one below it has a quota or a live claim.

    `seen`: ids of the departments whose users may be named; use by other departments is not split by user.
    """
    return usages(read(pools), department.pk, seen=seen)


def usages(live: Live, department: int, *, seen: Collection[int] = ()) -> list[PoolUsage]:
    """The same as `department_usage`, from a Live that was read before."""
    return [pool_usage(live, department, pool, seen=seen) for pool in live.pools if _concerned(live, department, pool)]


def _concerned(live: Live, department: int, pool: int) -> bool:
    return any((pk, pool) in live.quotas or live.claims.get((pk, pool)) for pk in live.subtree(department))


def pool_usage(live: Live, department: int, pool: int, *, seen: Collection[int] = ()) -> PoolUsage:
    """One department's use of one pool."""
    inside = live.subtree(department)
    entries = [entry for pk in inside for entry in live.entries.get((pk, pool), ())]
    foreign = [entry for entry in entries if not entry.own and entry.lender_id not in inside]
    lent = [e for pk in inside for e in live.lent.get((pk, pool), ()) if e.department_id not in inside]
    claims = [claim for pk in inside for claim in live.claims.get((pk, pool), ())]
    waiting = [claim for claim in claims if claim.state == ClaimState.PENDING and not claim.is_recall]
    borrowed_from, lent_to = defaultdict[str, int](int), defaultdict[str, int](int)
    for entry in foreign:
        borrowed_from[live.departments[entry.lender_id].slug if entry.lender_id else UNASSIGNED] += entry.units
    for entry in lent:
        lent_to[live.departments[entry.department_id].slug] += entry.units
    borrowed = sum(entry.units for entry in foreign)
    right = available(live, department, pool) + sum(recalled(live, pk, pool) for pk in inside)
    return PoolUsage(
        pool=live.pools[pool],
        department=live.departments[department],
        quota=live.quotas.get((department, pool)),
        guaranteed=live.guaranteed(department, pool),
        ceiling=ceiling(live, department, pool),
        own=sum(entry.units for entry in entries) - borrowed,
        borrowed=borrowed,
        borrowed_from=dict(borrowed_from),
        lent=sum(lent_to.values()),
        lent_to=dict(lent_to),
        held=sum(held(live, pk, pool) for pk in inside),
        coming=sum(coming(live, pk, pool) for pk in inside),
        leaving=sum(entry.units for entry in entries if entry.claim.state == ClaimState.LEAVING),
        free_now=max(0, min(free(live, pool, inside), right)),
        queue_units=sum(claim.units for claim in waiting),
        queue_len=len(waiting),
        per_user=_per_user(
            *([entry for entry in each if entry.department_id in seen] for each in (entries, foreign)),
            cap=_cap(live, department, pool),
        ),
    )


def _cap(live: Live, department: int, pool: int) -> int | None:
    caps = live.caps
    above = (each.pk for each in upwards(live.departments, department))
    return lowest_caps({pool: caps[pk, pool]} for pk in above if (pk, pool) in caps).get(pool)


def _per_user(entries: list[LiveEntry], foreign: list[LiveEntry], *, cap: int | None) -> tuple[UserUsage, ...]:
    users: dict[int | None, User | None] = {}
    total, borrowed = defaultdict[int | None, int](int), defaultdict[int | None, int](int)
    for entry in entries:
        users[entry.claim.user_id] = entry.claim.user
        total[entry.claim.user_id] += entry.units
    for entry in foreign:
        borrowed[entry.claim.user_id] += entry.units
    rows = [UserUsage(user, total[pk] - borrowed[pk], borrowed[pk], cap) for pk, user in users.items()]
    return tuple(sorted(rows, key=lambda row: (-row.own - row.borrowed, row.user.username if row.user else "")))
