"""The victim sets of a flat pool that only counts, by trying every one: what the rules page says, written a second time
and without any cleverness."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from quotas.engine.types import Claim, ClaimState, Department, Policy, Quota, Snapshot

Victims = tuple[Claim, ...]


class Flat:
    """A snapshot of one pool without leaving claims or reservations, and one taker."""

    def __init__(self, snapshot: Snapshot, taker: Claim) -> None:
        self.snapshot, self.taker = snapshot, taker
        self.capacity = snapshot.pools[0].capacity or 0
        self.departments: dict[str, Department] = {d.id: d for d in snapshot.departments}
        self.holding = [claim for claim in snapshot.claims if claim.state is ClaimState.HOLDING]
        self.asked = taker.units
        self.strict = taker.own_only or not taker.preemptible or taker.is_recall

    def quota(self, department: str) -> Quota:
        return self.departments[department].quotas["gpu"]

    def kept(self, department: str) -> int:
        quota = self.quota(department)
        return 0 if quota.lend_limit is None else max(0, quota.guaranteed - quota.lend_limit)

    def usage(self, department: str, without: Victims = ()) -> int:
        return sum(c.units for c in self.holding if c.department == department and c not in without)

    @property
    def inside(self) -> bool:
        return self.usage(self.taker.department) + self.asked <= self.quota(self.taker.department).guaranteed

    def fits(self, victims: Victims) -> bool:
        mine, quota = self.taker.department, self.quota(self.taker.department)
        usage = self.usage(mine, victims)
        if self.strict and usage + self.asked > quota.guaranteed:
            return False
        if sum(c.units for c in self.holding if c not in victims) + self.asked > self.capacity:
            return False
        above = sum(max(0, self.usage(d, victims) - self.kept(d)) for d in self.departments)
        common = self.capacity - sum(self.kept(d) for d in self.departments) - above
        if quota.borrow_limit is not None:
            lendable = quota.guaranteed - self.kept(mine)
            common = min(common, lendable - max(0, usage - self.kept(mine)) + quota.borrow_limit)
        return max(0, self.kept(mine) - usage) + common >= self.asked

    def policy(self) -> Policy:
        return self.departments[self.taker.department].policy or Policy()

    def permitted(self, victims: Victims) -> bool:
        policy = self.policy()
        own = [v for v in victims if v.department == self.taker.department]
        after = self.usage(self.taker.department, victims) + self.asked
        reclaims = after <= self.quota(self.taker.department).guaranteed
        if not all(v.preemptible and (v.started_at or 0) + v.min_runtime <= 0 for v in victims):
            return False
        if not all(self._within(policy, v) for v in own):
            return False
        for department in {v.department for v in victims} - {self.taker.department}:
            theirs = [v for v in victims if v.department == department]
            left = self.usage(department, victims) + max(v.units for v in theirs)
            if left <= self.quota(department).guaranteed:
                return False
            if not all(self._reclaim(policy, v) if reclaims else self._borrow(policy, v) for v in theirs):
                return False
        return True

    def _within(self, policy: Policy, victim: Claim) -> bool:
        lower = victim.priority < self.taker.priority
        newer = victim.priority == self.taker.priority and victim.submitted_at > self.taker.submitted_at
        return {"never": False, "lower_priority": lower, "lower_or_newer_equal": lower or newer}[policy.within]

    def _reclaim(self, policy: Policy, victim: Claim) -> bool:
        lower = victim.priority < self.taker.priority
        return {"never": False, "lower_priority": lower, "any": True}[policy.reclaim]

    def _borrow(self, policy: Policy, victim: Claim) -> bool:
        rule = policy.borrow_preempt
        if rule is None or victim.priority >= self.taker.priority:
            return False
        return rule.max_priority is None or victim.priority <= rule.max_priority

    def minimal(self, victims: Victims) -> bool:
        smaller = (tuple(v for v in victims if v is not put_back) for put_back in victims)
        return not any(self.permitted(rest) and self.fits(rest) for rest in smaller)

    def cost(self, victims: Victims) -> tuple[Any, ...]:
        own = sum(v.units for v in victims if v.department == self.taker.department)
        others = sum(v.units for v in victims) - own
        taken_from = {v.department for v in victims} - {self.taker.department}
        below = sum(max(0, self.quota(d).guaranteed - self.usage(d, victims)) for d in taken_from)
        lost = sum(v.units * -(v.started_at or 0) for v in victims)
        return (
            own if self.inside else others,
            below,
            max(v.priority for v in victims),
            lost,
            len(victims),
            own + others,
            sorted(v.id for v in victims),
        )

    def sets(self) -> Iterator[Victims]:
        """Every set of holding claims that is permitted, makes room, and from which nobody can be put back."""
        for size in range(1, len(self.holding) + 1):
            for victims in combinations(self.holding, size):
                if self.permitted(victims) and self.fits(victims) and self.minimal(victims):
                    yield victims

    def best(self) -> Victims | None:
        return min(self.sets(), key=self.cost, default=None)
