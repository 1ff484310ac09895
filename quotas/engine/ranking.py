"""Nodes in the order of what is asked of each, where only those that changed are asked again.

Pods of one shape ask the same of every node, and between two questions only few nodes change.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from quotas.engine.types import Node

Rank = tuple[Any, ...]


class Falls(NamedTuple):
    """Why else bounds may fall: in turn, on which node what may have come to cost less, and the `least` that the bound of a
    node may be for all that has, None if it does not matter."""

    what: Sequence[tuple[str, Any]]
    least: Callable[[Node, list[Any]], Rank | None]


class Changed:
    """When a node changed last: at all (below 0: only for a while), and so that there is more of something."""

    __slots__ = ("risen", "version")

    def __init__(self) -> None:
        self.version = self.risen = 0


class Ranking:
    """Nodes by a rank that depends only on what is free there; None is no rank. `changes` grows by those that change.
    Of each node it knows the rank as it is, as it was before what is only for a while, and as it last was in such a while."""

    def __init__(
        self,
        changes: list[Changed],
        noted: Sequence[Changed],
        nodes: Sequence[Node],
        rank: Callable[[Node], Rank | None],
        falls: Falls | None,
    ) -> None:
        self._changes, self._seen = changes, len(changes)
        self._noted, self._nodes, self._rank, self._falls = noted, nodes, rank, falls
        self._fallen = 0 if falls is None else len(falls.what)
        self._at = {changed: index for index, changed in enumerate(noted)}
        self._index = {node.name: index for index, node in enumerate(nodes)}
        self._ranks = [rank(node) for node in nodes]
        self._lasting = [*self._ranks]
        self._lasting_of = [changed.version for changed in noted]
        self._lent: dict[int, tuple[int, Rank | None]] = {}
        self._heap: list[tuple[Rank, int]] = []
        self._order()

    def first(self) -> Node | None:
        """The node of the lowest rank, the first of those that are equal."""
        ranks = self.ranks()
        while self._heap and ranks[self._heap[0][1]] != self._heap[0][0]:
            heappop(self._heap)
        return self._nodes[self._heap[0][1]] if self._heap else None

    def walk(self, ask: Callable[[Node], Rank | None], enough: Callable[[Rank], bool]) -> Iterator[tuple[Rank, Node]]:
        """The nodes from the lowest rank on, where ranks are only known to be no lower than they were. Each is asked when
        its turn comes, until it is `enough`."""
        self.ranks()
        passed: dict[int, Rank] = {}
        try:
            while self._heap:
                rank, index = heappop(self._heap)
                if index in passed or rank != self._ranks[index]:
                    continue
                if enough(rank):
                    heappush(self._heap, (rank, index))
                    return
                now = self._keep(index, ask(self._nodes[index]))
                if now == rank:
                    passed[index] = rank
                    yield rank, self._nodes[index]
                elif now is not None:
                    heappush(self._heap, (now, index))
        finally:
            for index, rank in passed.items():
                heappush(self._heap, (rank, index))

    def ranks(self) -> Sequence[Rank | None]:
        """The rank of every node, in the order of the nodes."""
        seen, ranks = self._seen, self._ranks
        for changed in {*self._changes[seen:]} if seen < len(self._changes) else ():
            index = self._at.get(changed)
            if index is None:
                continue
            before, more = ranks[index], changed.risen > seen
            if changed.version == self._lasting_of[index]:
                rank = ranks[index] = self._lasting[index]
            elif index in self._lent and changed.version == self._lent[index][0]:
                rank = ranks[index] = self._lent[index][1]
            elif before is None and not more:
                continue  # no rank comes of None
            else:
                rank = self._keep(index, self._rank(self._nodes[index]) if more or self._falls is None else before)
            if rank is not None and rank != before:
                heappush(self._heap, (rank, index))
        self._seen = len(self._changes)
        if self._falls is not None and self._fallen < len(self._falls.what):
            self._fall(self._falls)
        if len(self._heap) > 4 * len(self._nodes):
            self._order()
        return self._ranks

    def _fall(self, falls: Falls) -> None:
        """Lower the bounds of the nodes where something may cost less."""
        there: dict[str, list[Any]] = {}
        for name, what in falls.what[self._fallen :]:
            there.setdefault(name, []).append(what)
        self._fallen = len(falls.what)
        for index, what in [(self._index[name], what) for name, what in there.items() if name in self._index]:
            least = falls.least(self._nodes[index], what)
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
        self._ranks[index], version = rank, self._noted[index].version
        if version < 0:
            self._lent[index] = version, rank
        else:
            self._lasting[index], self._lasting_of[index] = rank, version
        return rank

    def _order(self) -> None:
        self._heap = [(rank, index) for index, rank in enumerate(self._ranks) if rank is not None]
        heapify(self._heap)


def _lower(rank: Rank | None, least: Rank) -> Rank:
    """The rank, or the `least` if it is higher than that."""
    return least if rank is None or rank[: len(least)] > least else rank
