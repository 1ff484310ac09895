"""Which moves would make room, where enough is free but not together.

Nothing is moved: the answer is a hint to people. A move takes one running pod that may be stopped from its node and
names another place for it. For each pod of the waiting claim the fewest moves on one node are looked for, one, two and
three at a time, each moved pod going where something is free already. The search is bounded; when it finds nothing,
more moves, or moves that wait for each other, might still do.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations

from quotas.engine.books import Books
from quotas.engine.permission import stoppable
from quotas.engine.placement import best_spot
from quotas.engine.reasons import Fragmented, Machine, Move, Reason
from quotas.engine.room import best_in, free_units, has_spot, nearest_machine
from quotas.engine.space import Host, Places, Vector
from quotas.engine.types import Claim, Placed

MOST_MOVES = 3
"""For each pod that asks."""
TRIES, LOOKS = 100, 5_000
"""In one pass over a pool, for all who wait: how many sets of pods are moved to see, and how many are looked at."""


@dataclass(frozen=True, slots=True)
class Running:
    """One pod that may be moved, as a claim of its own, with what it occupies."""

    claim: Claim
    placed: Placed
    vector: Vector

    @property
    def key(self) -> tuple[str, int]:
        return self.claim.id, self.placed.pod


class Consolidation:
    """The hints of one pass, looked for when it is over."""

    def __init__(self, books: Books) -> None:
        self._books, self._pool, self._free = books, books.pool, books.free_now
        self._hosts = tuple(books.hosts.values())
        self._tries, self._looks = TRIES, LOOKS
        self._known: dict[tuple[object, ...], tuple[Move, ...]] = {}
        self._machines: dict[tuple[object, ...], Machine | None] = {}
        self._running: dict[str, list[Running]] | None = None

    def hinted(self, claim: Claim, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
        """The reasons why the claim waits; one that says "fragmented" also with the moves that would make room, and with the
        nearest machine if it is CPU or memory that is missing."""
        if not any(isinstance(reason, Fragmented) for reason in reasons):
            return reasons
        machine, moves = self.machine(claim), self.moves(claim)
        return tuple(replace(r, moves=moves, machine=machine) if isinstance(r, Fragmented) else r for r in reasons)

    def machine(self, claim: Claim) -> Machine | None:
        """See room.nearest_machine; one answer for all claims that ask for the same, unless something is held for them."""
        hold = self._books.holds.get(claim.id)
        key = claim.shape, claim.pods, claim.same_domain, hold and claim.id
        if key not in self._machines:
            with self._free.also([hold.now] if hold else []):
                self._machines[key] = nearest_machine(claim, self._pool, self._free)
        return self._machines[key]

    def moves(self, claim: Claim) -> tuple[Move, ...] | None:
        """The fewest moves found that would let the claim start now; () for none, None when there were too many tries."""
        key = claim.shape, claim.pods, claim.same_domain
        if key not in self._known:
            if not self._tries:
                return None
            found = [moves for hosts in self._parts(claim) if (moves := self._all_pods(claim, hosts)) is not None]
            self._known[key] = min(found, key=len, default=())
        return self._known[key]

    def _parts(self, claim: Claim) -> list[tuple[Host, ...]]:
        """The nodes that all pods of the claim may share: the whole pool, or each domain."""
        if not claim.same_domain:
            return [self._hosts]
        domains = sorted({host.domain for host in self._hosts if host.domain is not None})
        return [tuple(host for host in self._hosts if host.domain == domain) for domain in domains]

    def _all_pods(self, claim: Claim, hosts: tuple[Host, ...]) -> tuple[Move, ...] | None:
        """Pod by pod: where one fits it goes there, else moves make room for it."""
        one, moves, hold = replace(claim, pods=1, same_domain=False), list[Move](), self._books.holds.get(claim.id)
        with ExitStack() as done:
            done.enter_context(self._free.also([hold.now] if hold else []))  # what is held for the claim itself
            for _ in range(claim.pods):
                if self._take(one, hosts, done):
                    continue
                made = self._room_for(one, hosts, {(move.claim, move.pod) for move in moves}, done)
                if made is None:
                    return None
                moves += made
        return tuple(moves)

    def _take(self, one: Claim, hosts: Sequence[Host], done: ExitStack) -> Places:
        """The best place for a pod on these nodes, if there is any: taken until all is undone."""
        everywhere = hosts is self._hosts
        spot = best_in(self._free, one, self._pool) if everywhere else best_spot(one, hosts, self._free.row)
        if spot is None:
            return ()
        done.enter_context(self._free.also([self._free.space.taken(one, (spot.placed,))], -1))
        return (spot.placed,)

    def _room_for(
        self, one: Claim, hosts: tuple[Host, ...], moved: set[tuple[str, int]], done: ExitStack
    ) -> list[Move] | None:
        """The fewest moves that free a place for one more pod. They, and the pod, are done until all is undone."""
        short = list(self._short(one, hosts, moved))
        for count in range(1, MOST_MOVES + 1):
            for host, pods in self._candidates(short, count):
                if not self._tries:
                    return None
                self._tries -= 1
                made = self._moved(one, host, pods, done)
                if made is not None:
                    return made
        return None

    def _short(
        self, one: Claim, hosts: tuple[Host, ...], moved: set[tuple[str, int]]
    ) -> Iterator[tuple[Host, int, list[Running]]]:
        """The nodes where moves could make room, those where least is lacking first: how many units are, and the pods that
        could go elsewhere, small ones first."""
        running, elsewhere = self._movable(), self._with_a_place()
        free = dict(zip(self._books.hosts, free_units(self._pool, self._free), strict=True))
        for host in sorted(hosts, key=lambda host: (-free[host.name], host.name)):
            lacking, pods_here = one.on_card - free[host.name], running.get(host.name, [])
            if sum(pod.claim.on_card for pod in pods_here[-MOST_MOVES:]) >= lacking:
                yield host, lacking, [pod for pod in pods_here if pod.key not in moved and elsewhere(pod.claim)]

    def _candidates(
        self, short: Iterable[tuple[Host, int, list[Running]]], count: int
    ) -> Iterator[tuple[Host, tuple[Running, ...]]]:
        """So many pods of one node that give enough units."""
        for host, lacking, here in short:
            if sum(pod.claim.on_card for pod in here[-count:]) < lacking:
                continue
            for pods in combinations(here, count):
                if not self._looks:
                    return
                self._looks -= 1
                if sum(pod.claim.on_card for pod in pods) >= lacking:
                    yield host, pods

    def _with_a_place(self) -> Callable[[Claim], bool]:
        """Whether a pod could go anywhere else as things are."""
        known: dict[tuple[object, ...], bool] = {}

        def has(pod: Claim) -> bool:
            shape = pod.shape
            if shape not in known:
                known[shape] = has_spot(self._free, pod, self._pool)
            return known[shape]

        return has

    def _movable(self) -> dict[str, list[Running]]:
        """Every pod that may be stopped, by node, smallest first. Pods of a gang in one domain stay together."""
        if self._running is None:
            books, self._running = self._books, {}
            for claim in (claim for claims in books.holding.values() for claim in claims.values()):
                if stoppable(books, False, claim) and not (claim.same_domain and claim.pods > 1):
                    one = claim if claim.pods == 1 else replace(claim, pods=1, same_domain=False)
                    for placed in claim.placement or ():
                        vector = (
                            books.vectors[claim.id] if one is claim else books.space.taken(one, (placed,), one.units)
                        )
                        self._running.setdefault(placed.node, []).append(Running(one, placed, vector))
            for pods in self._running.values():
                pods.sort(key=lambda pod: (pod.claim.on_card, pod.key))
        return self._running

    def _moved(self, one: Claim, host: Host, pods: tuple[Running, ...], done: ExitStack) -> list[Move] | None:
        """The moves of these pods, if one more then fits on the node and each of them elsewhere."""
        with ExitStack() as tried:
            tried.enter_context(self._free.also(pod.vector for pod in pods))
            moves = list(self._placed(one, host, pods, tried))
            if len(moves) == len(pods):
                done.enter_context(tried.pop_all())
                return moves
        return None

    def _placed(self, one: Claim, host: Host, pods: Iterable[Running], tried: ExitStack) -> Iterator[Move]:
        """The pod that asks goes to the node; then the largest pods choose first, as long as each finds a place."""
        if not self._take(one, [host], tried):
            return
        for pod in sorted(pods, key=lambda pod: (-pod.claim.on_card, pod.key)):
            for placed in self._take(pod.claim, self._hosts, tried):
                yield Move(pod.claim.id, pod.placed.pod, pod.placed.node, placed.node, placed.cards, placed.start)
