"""An independent implementation of the rules for victims (rules 1, 2 and 13 to 15 of docs/quota-rules-by-number.md) that
tries every set: for pools without nodes, departments of any nesting, with and without fair sharing."""

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any

from quotas.engine.preemption_rules import Fairness
from quotas.engine.types import Claim, ClaimState, Department, Policy, Quota, Snapshot

Victims = tuple[Claim, ...]
Usage = dict[str, int]
ROOT = ""


class Brute:
    """A snapshot of one pool without leaving claims or reservations, and one preemptor."""

    def __init__(self, snapshot: Snapshot, preemptor: Claim) -> None:
        self.snapshot, self.preemptor, self.mine = snapshot, preemptor, str(preemptor.department)
        self.capacity = snapshot.pools[0].capacity or 0
        self.departments: dict[str, Department] = {d.id: d for d in snapshot.departments}
        self.holding = [claim for claim in snapshot.claims if claim.state is ClaimState.HOLDING]
        self.asked = preemptor.units
        self.strict = preemptor.own_only or not preemptor.preemptible or preemptor.is_recall
        self.fair, self.notice = snapshot.settings.fair_sharing, snapshot.settings.notice

    # The arithmetic: each line is one of "The arithmetic" in docs/quota-rules-reference.md

    def quota(self, department: str) -> Quota:
        return self.departments[department].quotas.get("gpu", Quota())  # type: ignore[call-overload,no-any-return]

    def parent(self, department: str) -> str:
        return str(self.departments[department].parent or ROOT)

    def children(self, node: str) -> list[str]:
        return [d for d in self.departments if self.parent(d) == node]

    @cached_property
    def promised(self) -> dict[str, int]:
        own = {d: self.quota(d).guaranteed for d in self.departments}
        own[ROOT] = self.capacity - sum(own.values())
        totals: dict[str, int] = {}

        def add(node: str) -> int:
            totals[node] = own[node]
            for child in self.children(node):
                totals[node] += add(child) - self._kept(child, totals[child])
            return totals[node]

        add(ROOT)
        return totals

    def _kept(self, department: str, promised: int) -> int:
        limit = self.quota(department).lend_limit
        return 0 if limit is None else max(0, promised - limit)

    def kept(self, node: str) -> int:
        return 0 if node == ROOT else self._kept(node, self.promised[node])

    def usage(self, holding: list[Claim], more: int = 0) -> Usage:
        """Usage of every node of the tree, with `more` units added for the preemptor."""
        totals: Usage = {}

        def add(node: str) -> int:
            totals[node] = sum(claim.units for claim in holding if claim.department == node)
            totals[node] += more if node == self.mine else 0
            for child in self.children(node):
                totals[node] += max(0, add(child) - self.kept(child))
            return totals[node]

        add(ROOT)
        return totals

    def available(self, node: str, usage: Usage) -> int:
        if node == ROOT:
            return self.promised[ROOT] - usage[ROOT]
        kept, above = self.kept(node), self.available(self.parent(node), usage)
        limit = self.quota(node).borrow_limit
        if limit is not None:
            above = min(above, self.promised[node] - kept - max(0, usage[node] - kept) + limit)
        return max(0, kept - usage[node]) + above

    def ceiling(self, node: str) -> int:
        return self.available(node, self.usage([]))

    def share(self, node: str, usage: Usage) -> tuple[int, Fraction]:
        excess = max(0, usage[node] - self.promised[node])
        if not excess:
            return 0, Fraction(0)
        weight, ceiling = self.departments[node].weight, self.ceiling(self.parent(node))
        return (1, Fraction(excess)) if not weight or ceiling <= 0 else (0, Fraction(excess * 1000, ceiling) / weight)

    # The rules

    @property
    def inside(self) -> bool:
        return self.usage(self.holding)[self.mine] + self.asked <= self.quota(self.mine).guaranteed

    @property
    def impossible(self) -> bool:
        limit = self.quota(self.mine).guaranteed if self.strict else self.ceiling(self.mine)
        return self.asked > min(limit, self.ceiling(self.mine), self.capacity)

    def fits(self, victims: Victims) -> bool:
        staying = [claim for claim in self.holding if claim not in victims]
        if sum(claim.units for claim in staying) + self.asked > self.capacity:
            return False
        usage = self.usage(staying)
        if self.strict and usage[self.mine] + self.asked > self.quota(self.mine).guaranteed:
            return False
        return self.available(self.mine, usage) >= self.asked

    def policy(self) -> Policy:
        return self.departments[self.mine].policy or Policy()

    def permitted(self, victims: Victims, fairness: Fairness = Fairness.BEFORE) -> bool:
        """Rules 13 and 14. The victims are removed one by one, the nearest in the tree first and the largest last. Each must
        be permitted in the state that the ones before it leave: at its department, and at every node up to where its path
        meets the preemptor's."""
        if not all(v.preemptible and (v.started_at or 0) + v.min_runtime <= 0 for v in victims):
            return False
        own = [v for v in victims if v.department == self.mine]
        if not all(self._within(v) for v in own):
            return False
        staying = [claim for claim in self.holding if claim not in own]
        others = [v for v in victims if v not in own]
        for victim in sorted(others, key=lambda v: (self.path(self.mine).index(self.meeting(v)), v.units, v.id)):
            rest = [claim for claim in staying if claim is not victim]
            if not self._takeable(victim, self.usage(staying, self.asked), self.usage(rest, self.asked), fairness):
                return False
            staying = rest
        return not others or self._needs(own, victims)

    def _needs(self, own: list[Claim], victims: Victims) -> bool:
        """With fair sharing, a borrower preempts work of its own department only where it needs every one of these victims."""
        after = self.usage([claim for claim in self.holding if claim not in own], self.asked)[self.mine]
        if not self.fair or after <= self.promised[self.mine]:
            return True
        return not any(self.fits(tuple(v for v in victims if v is not spared)) for spared in own)

    @cached_property
    def line(self) -> list[Claim]:
        """The order in which all claims would start if nothing ran yet and there were room for all (rule 13)."""
        order = sorted([*self.holding, self.preemptor], key=lambda c: (-c.priority, c.submitted_at, c.id))
        line: list[Claim] = []

        def next_of(node: str, usage: Usage) -> Claim | None:
            mine = [claim for claim in order if claim.department == node and claim not in line]
            next_claims = [(child, next_of(child, usage)) for child in self.children(node)]
            waiting = [(child, claim) for child, claim in next_claims if claim is not None]

            def rank(one: tuple[str, Claim]) -> tuple[Any, ...]:
                (child, claim), leaf = one, str(one[1].department)
                then = usage | {child: usage[child] + claim.units}
                borrows = usage[leaf] + claim.units > self.promised[leaf]
                return borrows, self.share(child, then) if self.fair else 0, order.index(claim)

            return mine[0] if mine else min(waiting, key=rank)[1] if waiting else None

        while (claim := next_of(ROOT, self.usage(line))) is not None:
            line.append(claim)
        return line

    def path(self, department: str) -> list[str]:
        return [department, *(self.path(self.parent(department)) if department != ROOT else [])]

    def meeting(self, victim: Claim) -> str:
        """The lowest node of the tree that is, or is above, both the preemptor's department and the victim's."""
        return next(node for node in self.path(self.mine) if node in self.path(victim.department))

    def _takeable(self, victim: Claim, before: Usage, after: Usage, fairness: Fairness) -> bool:
        """Whether the victim may be preempted, by the usage `before` and `after` it is gone; both include the preemptor."""
        common = self.meeting(victim)
        mine = self.path(self.mine)[self.path(self.mine).index(common) - 1] if common != self.mine else self.mine
        *below, top = self.path(victim.department)[: self.path(victim.department).index(common)]
        if not all(before[node] > self.promised[node] for node in below):
            return False
        if before[mine] <= self.promised[mine]:
            return self._reclaim(victim) and before[top] > self.promised[top]
        if any(before[node] - victim.units < self.promised[node] for node in (*below, top)):
            return False  # a borrower leaves every other department its guarantee
        if not self.fair:
            return self._borrow(victim)
        if self.line.index(victim) < self.line.index(self.preemptor):
            return False
        if fairness is Fairness.AFTER:
            return self._reclaim(victim) and self.share(mine, before) <= self.share(top, after)
        return self._reclaim(victim) and self.share(mine, before) < self.share(top, before)

    def _within(self, victim: Claim) -> bool:
        lower = victim.priority < self.preemptor.priority
        newer = victim.priority == self.preemptor.priority and victim.submitted_at > self.preemptor.submitted_at
        return {"never": False, "lower_priority": lower, "lower_or_newer_equal": lower or newer}[self.policy().within]

    def _reclaim(self, victim: Claim) -> bool:
        lower = victim.priority < self.preemptor.priority
        return {"never": False, "lower_priority": lower, "any": True}[self.policy().reclaim]

    def _borrow(self, victim: Claim) -> bool:
        rule = self.policy().borrow_preempt
        if rule is None or victim.priority >= self.preemptor.priority:
            return False
        return rule.max_priority is None or victim.priority <= rule.max_priority

    def minimal(self, victims: Victims, fairness: Fairness = Fairness.BEFORE) -> bool:
        smaller = (tuple(v for v in victims if v is not put_back) for put_back in victims)
        return not any(self.fits(rest) and self.permitted(rest, fairness) for rest in smaller)

    def cost(self, victims: Victims) -> tuple[Any, ...]:
        usage = self.usage([claim for claim in self.holding if claim not in victims])
        own = sum(v.units for v in victims if v.department == self.mine)
        others = sum(v.units for v in victims) - own
        taken_from = {str(v.department) for v in victims} - {self.mine}
        leaves = [d for d in self.departments if d != self.mine and not self.children(d)] if self.fair else []
        return (
            own if self.inside else others,
            sorted((self.share(d, usage) for d in leaves), reverse=True),
            sum(max(0, self.quota(d).guaranteed - usage[d]) for d in taken_from),
            max(v.priority for v in victims),
            sum(v.units * self.lost_seconds(v) for v in victims if v.idle_since is None),
            len(victims),
            own + others,
            sorted(v.id for v in victims),
        )

    def lost_seconds(self, victim: Claim) -> int:
        """Seconds of work from the last checkpoint until SIGTERM. If the claim saves regularly, the checkpoints that it will
        have saved by then count."""
        saved, every, end = victim.started_at or 0, victim.checkpoint_every, self.notice
        if victim.checkpointed_at is not None:
            saved = max(saved, victim.checkpointed_at)
        if every and -saved < 2 * every:
            while saved + every <= end:
                saved += every
        return end - saved

    def sets(self, fairness: Fairness = Fairness.BEFORE) -> Iterator[Victims]:
        """Every set of holding claims that is permitted, makes room, and needs each of its victims."""
        for size in range(1, len(self.holding) + 1):
            for victims in combinations(self.holding, size):
                if self.fits(victims) and self.permitted(victims, fairness) and self.minimal(victims, fairness):
                    yield victims

    def best(self) -> Victims | None:
        """The best set. With fair sharing, sets permitted by the shares after each victim is gone come first, and those by
        the shares before only where there are none."""
        flat = not any(department.parent for department in self.departments.values())
        by_right = not self.fair or (self.inside and flat)  # in a tree it may still borrow further up
        ways = [Fairness.BEFORE] if by_right else [Fairness.AFTER, Fairness.BEFORE]
        best_sets = (min(self.sets(way), key=self.cost, default=None) for way in ways)
        return next((victims for victims in best_sets if victims is not None), None)

    def kind(self) -> str:
        """The kind of decision for a claim that has no competitors."""
        if self.impossible:
            return "impossible"
        return "admit" if self.fits(()) else "wait" if self.best() is None else "reclaim"
