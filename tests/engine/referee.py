"""Whether a permitted set of victims exists for a claim inside its guarantee, in a flat pool with nodes: decided without any
of the engine's code, by trying all subsets of the claims on each node.

The rules in short: claims of other departments can be preempted while their department is above its guarantee, the largest
last; claims of the own department as its policy permits; and afterwards every pod must have a place.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise, product

from quotas.engine.types import Claim, ClaimState, Node, Placed, Snapshot

Taken = tuple[tuple[int, int], ...]
"""For each other department: units taken, and the largest claim taken."""
STARTS = {"1g.10gb": (1, range(7)), "2g.20gb": (2, range(0, 6, 2)), "3g.40gb": (4, (0, 4)), "4g.40gb": (4, (0,))}
"""Of the A100-80GB: each profile's memory slices, and the slices at which it can start."""


class Referee:
    """One snapshot of one pool without reservations or leaving claims, and the one pending claim."""

    def __init__(self, snapshot: Snapshot, preemptor: Claim) -> None:
        self.snapshot, self.preemptor = snapshot, preemptor
        (self.pool,) = snapshot.pools
        self.holding = [claim for claim in snapshot.claims if claim.state is ClaimState.HOLDING]
        self.promised = {d.id: d.quotas[self.pool.id].guaranteed for d in snapshot.departments}
        self.others = sorted(self.promised.keys() - {preemptor.department})
        self.used = {d: sum(c.units for c in self.holding if c.department == d) for d in self.promised}
        self.candidates = [claim for claim in self.holding if self._is_candidate(claim)]

    @property
    def inside(self) -> bool:
        mine = self.preemptor.department
        return self.used[mine] + self.preemptor.units <= self.promised[mine]

    def _is_candidate(self, claim: Claim) -> bool:
        """Whether the claim could be preempted alone."""
        (policy,) = {d.policy for d in self.snapshot.departments if d.id == self.preemptor.department}
        if not claim.preemptible or (claim.started_at or 0) + claim.min_runtime > self.snapshot.now:
            return False
        lower = claim.priority < self.preemptor.priority
        if claim.department == self.preemptor.department:
            newer = claim.priority == self.preemptor.priority and claim.submitted_at > self.preemptor.submitted_at
            within = policy.within if policy else "lower_priority"
            return {"never": False, "lower_priority": lower, "lower_or_newer_equal": lower or newer}[within]
        reclaim = policy.reclaim if policy else "any"
        return reclaim == "any" or (reclaim == "lower_priority" and lower)

    def victims_exist(self) -> bool:
        """Whether some permitted set, the empty one included, makes room for all pods."""
        wide = [claim for claim in self.candidates if len({p.node for p in claim.placement or ()}) > 1]
        return any(
            self._victims_exist_with(preempted)
            for many in range(len(wide) + 1)
            for preempted in combinations(wide, many)
        )

    def _victims_exist_with(self, preempted: tuple[Claim, ...]) -> bool:
        """The same, if of the claims on several nodes exactly `gone` are preempted."""
        nodes = self.pool.nodes or ()
        domains: list[tuple[Node, ...]] = [nodes]
        if self.preemptor.same_domain:
            names = {node.domain for node in nodes if node.domain is not None}
            domains = [tuple(node for node in nodes if node.domain == name) for name in names]
        start = self._taken(preempted)
        return self._is_permitted(start) and any(self._room_on(domain, start, preempted) for domain in domains)

    def _room_on(self, nodes: tuple[Node, ...], start: Taken, preempted: tuple[Claim, ...]) -> bool:
        """Node by node: every combination of victims, as the units taken and the number of pods that get a place."""
        states = {(0, start)}
        for node in nodes:
            ways = self._ways(node, preempted)
            sums = {
                (min(pods + more, self.preemptor.pods), _added(taken, added))
                for pods, taken in states
                for more, added in ways
            }
            states = {state for state in sums if self._is_permitted(state[1])}
        return any(pods >= self.preemptor.pods for pods, _ in states)

    def _ways(self, node: Node, preempted: tuple[Claim, ...]) -> set[tuple[int, Taken]]:
        """Every subset of the candidates on this node alone: how many pods fit without it, and the units taken."""
        on_node = [
            c for c in self.holding if any(p.node == node.name for p in c.placement or ()) and c not in preempted
        ]
        narrow = [c for c in on_node if c in self.candidates and len({p.node for p in c.placement or ()}) == 1]
        ways = set()
        for many in range(len(narrow) + 1):
            for victims in combinations(narrow, many):
                taken = self._taken(victims)
                if self._is_permitted(taken):
                    ways.add((self._pods(node, [c for c in on_node if c not in victims]), taken))
        return ways

    def _taken(self, victims: Iterable[Claim]) -> Taken:
        units = {d: [v.units for v in victims if v.department == d] for d in self.others}
        return tuple((sum(units[d]), max(units[d], default=0)) for d in self.others)

    def _is_permitted(self, taken: Taken) -> bool:
        """Whether each department is above its guarantee whenever one of its claims is taken, the largest last."""
        return all(
            not units or self.used[d] - (units - largest) > self.promised[d]
            for d, (units, largest) in zip(self.others, taken, strict=True)
        )

    def permits(self, victims: Iterable[Claim]) -> bool:
        victims = list(victims)
        return all(victim in self.candidates for victim in victims) and self._is_permitted(self._taken(victims))

    def fits_without(self, victims: Iterable[Claim]) -> bool:
        """Whether all pods have a place once the victims are gone."""
        ids, nodes = {victim.id for victim in victims}, self.pool.nodes or ()
        staying = [claim for claim in self.holding if claim.id not in ids]
        names = {node.domain for node in nodes if node.domain is not None} if self.preemptor.same_domain else {None}
        return any(
            sum(self._pods(node, staying) for node in nodes if name is None or node.domain == name)
            >= self.preemptor.pods
            for name in names
        )

    # How many pods fit on a node --------------------------------------------------------------------------------------

    def _pods(self, node: Node, staying: Iterable[Claim]) -> int:
        standing = [
            (claim, placed) for claim in staying for placed in claim.placement or () if placed.node == node.name
        ]
        cpu = (node.cpu_milli or 10**9) - sum(claim.cpu_milli for claim, _ in standing)
        memory = (node.memory_mib or 10**9) - sum(claim.memory_mib for claim, _ in standing)
        many = self._on_cards(node, standing)
        if node.pods is not None:
            many = min(many, node.pods - len(standing))
        if self.preemptor.cpu_milli:
            many = min(many, cpu // self.preemptor.cpu_milli)
        return min(many, memory // self.preemptor.memory_mib) if self.preemptor.memory_mib else many

    def _on_cards(self, node: Node, standing: list[tuple[Claim, Placed]]) -> int:
        requested, whole = self.preemptor.units_per_pod, max(card.units for card in node.cards)
        if self.pool.mig is not None:
            return sum(self._instances(card, standing) for card in range(len(node.cards)))
        left = [card.units for card in node.cards]
        cores = [card.cores for card in node.cards]
        for claim, placed in standing:
            for card in placed.cards:
                left[card] -= claim.units_per_pod // len(placed.cards)
                cores[card] = (cores[card] or 0) - (claim.cores_per_pod or 0)
        if whole > 1 and requested <= whole:
            compute = self.preemptor.cores_per_pod
            return sum(
                min(units // requested, (c or 0) // compute if compute else units)
                for units, c in zip(left, cores, strict=True)
            )
        return left.count(whole) // (requested // whole)

    def _instances(self, card: int, standing: list[tuple[Claim, Placed]]) -> int:
        """How many instances of the profile still fit beside those on the card, with the best choice of starts."""
        busy: set[int] = set()
        for claim, placed in standing:
            if placed.cards == (card,) and placed.start is not None:
                busy |= set(range(placed.start, placed.start + STARTS[claim.profile or ""][0]))
        size, starts = STARTS[self.preemptor.profile or ""]
        free = [start for start in starts if busy.isdisjoint(range(start, start + size))]
        return max(len(chosen) for chosen in _apart(free, size))


def _apart(starts: list[int], size: int) -> Iterator[tuple[int, ...]]:
    """Every choice of starts that do not overlap."""
    for taken in product((False, True), repeat=len(starts)):
        chosen = tuple(start for start, is_taken in zip(starts, taken, strict=True) if is_taken)
        if all(second - first >= size for first, second in pairwise(chosen)):
            yield chosen


def _added(one: Taken, other: Taken) -> Taken:
    return tuple((a + b, max(large, larger)) for (a, large), (b, larger) in zip(one, other, strict=True))
