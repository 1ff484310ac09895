"""Nodes in the order of what is asked of each, where only those that changed are asked again.

Pods of one shape ask the same of every node, and between two questions only few nodes change.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, NamedTuple

from quotas.engine.space import Host

Rank = tuple[Any, ...]


class Falls(NamedTuple):
    """Why else bounds may fall: in turn, on which node what may have come to cost less, and the `least` that the bound of a
    node may be for all that has, None if it does not matter."""

    what: Sequence[tuple[str, Any]]
    least: Callable[[Host, list[Any]], Rank | None]


class Changes:
    """Which machines changed, in `turn`. Of each machine, by its number: the turn at which it changed last (below 0: only for a
    while), and the last at which there came to be more of something there."""

    __slots__ = ("risen", "turns", "version")

    def __init__(self, machines: int) -> None:
        self.turns: list[int] = []
        self.version = [0] * machines
        self.risen = [0] * machines

    def note(self, machine: int, more: bool) -> None:
        self.turns.append(machine)
        self.version[machine] = len(self.turns)
        if more:
            self.risen[machine] = len(self.turns)


class Ranking:
    """Nodes by a rank that depends only on what is free there; None is no rank. Of each node it knows the rank as it is, as
    it was before what is only for a while, and as it last was in such a while."""

    def __init__(
        self, changes: Changes, hosts: Sequence[Host], rank: Callable[[Host], Rank | None], falls: Falls | None
    ) -> None:
        self._changes, self._seen = changes, len(changes.turns)
        self._hosts, self._rank, self._falls = hosts, rank, falls
        self._fallen = 0 if falls is None else len(falls.what)
        self._at = {host.number: index for index, host in enumerate(hosts)}
        self._index = {host.name: index for index, host in enumerate(hosts)}
        self._ranks = [rank(host) for host in hosts]
        self._lasting = [*self._ranks]
        self._lasting_of = [changes.version[host.number] for host in hosts]
        self._lent: dict[int, tuple[int, Rank | None]] = {}
        self._heap: list[tuple[Rank, int]] = []
        self._order()

    def first(self) -> Host | None:
        """The node of the lowest rank, the first of those that are equal."""
        ranks = self.ranks()
        while self._heap and ranks[self._heap[0][1]] != self._heap[0][0]:
            heappop(self._heap)
        return self._hosts[self._heap[0][1]] if self._heap else None

    def walk(self, ask: Callable[[Host], Rank | None], enough: Callable[[Rank], bool]) -> Iterator[tuple[Rank, Host]]:
        """The nodes from the lowest rank on, where ranks are only known to be no lower than they were. Each is asked when
        its turn comes, until it is `enough`."""
        self.ranks()
        heap, ranks, hosts = self._heap, self._ranks, self._hosts
        passed: dict[int, Rank] = {}
        try:
            while heap:
                rank, index = heap[0]
                if index in passed or rank != ranks[index]:
                    heappop(heap)
                    continue
                if enough(rank):
                    return
                now = self._keep(index, ask(hosts[index]))
                if now is None:
                    heappop(heap)
                elif now != rank:
                    heapreplace(heap, (now, index))
                else:
                    heappop(heap)
                    passed[index] = rank
                    yield rank, hosts[index]
        finally:
            for index, rank in passed.items():
                heappush(heap, (rank, index))

    def ranks(self) -> Sequence[Rank | None]:
        """The rank of every node, in the order of the nodes."""
        turns, seen = self._changes.turns, self._seen
        if seen < len(turns):
            self._seen = len(turns)
            self._look_again({*turns[seen:]}, seen)
        if self._falls is not None and self._fallen < len(self._falls.what):
            self._fall(self._falls)
        return self._ranks

    def _look_again(self, machines: Iterable[int], seen: int) -> None:
        """Rank anew the nodes on these machines, as far as they are not as they were."""
        ranks, versions, risen = self._ranks, self._changes.version, self._changes.risen
        for machine in machines:
            index = self._at.get(machine)
            if index is None:
                continue
            before, version = ranks[index], versions[machine]
            if version == self._lasting_of[index]:
                rank = ranks[index] = self._lasting[index]
            elif index in self._lent and version == self._lent[index][0]:
                rank = ranks[index] = self._lent[index][1]
            elif risen[machine] > seen:
                rank = self._keep(index, self._rank(self._hosts[index]))
            elif before is None:
                continue  # no rank comes of None
            else:
                rank = self._keep(index, before if self._falls is not None else self._rank(self._hosts[index]))
            if rank is not None and rank != before:
                heappush(self._heap, (rank, index))
        if len(self._heap) > 4 * len(self._hosts):
            self._order()

    def _fall(self, falls: Falls) -> None:
        """Lower the bounds of the nodes where something may cost less."""
        there: dict[str, list[Any]] = {}
        for name, what in falls.what[self._fallen :]:
            there.setdefault(name, []).append(what)
        self._fallen = len(falls.what)
        for index, what in [(self._index[name], what) for name, what in there.items() if name in self._index]:
            least = falls.least(self._hosts[index], what)
            if least is None:
                continue
            self._lasting[index] = _lower(self._lasting[index], least)
            if index in self._lent:
                version, rank = self._lent[index]
                self._lent[index] = version, _lower(rank, least)
            before = self._ranks[index]
            rank = self._ranks[index] = _lower(before, least)
            if rank is not before:
                heappush(self._heap, (least, index))

    def _keep(self, index: int, rank: Rank | None) -> Rank | None:
        """The node's rank as it is now, beside that which it has again when what is only for a while is over."""
        self._ranks[index], version = rank, self._changes.version[self._hosts[index].number]
        if version < 0:
            self._lent[index] = version, rank
        else:
            self._lasting[index], self._lasting_of[index] = rank, version
        return rank

    def _order(self) -> None:
        self._heap[:] = [(rank, index) for index, rank in enumerate(self._ranks) if rank is not None]
        heapify(self._heap)


def _lower(rank: Rank | None, least: Rank) -> Rank:
    """The rank, or the `least` if it is higher than that."""
    return least if rank is None or rank[: len(least)] > least else rank
