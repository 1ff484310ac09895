"""Nodes in the order of what is asked of each, where only those that changed are asked again.

Pods of one shape ask the same of every node, and between two questions only few nodes change.
"""

from collections.abc import Callable, Sequence
from typing import Any

from quotas.engine.space import Host

Rank = tuple[Any, ...]
LAST: Rank = (float("inf"),)
"""The rank of a node that is out of the question."""


class Versions:
    """A number for each machine that names the state it is in, and the machines that changed, in turn."""

    def __init__(self, machines: int) -> None:
        self.of = [0] * machines
        self.changed: list[int] = []
        self._latest = 0

    def note(self, machine: int) -> None:
        """The machine is in a state that it was never in before."""
        self._latest += 1
        self.restore(machine, self._latest)

    def restore(self, machine: int, version: int) -> None:
        """The machine is in that state again."""
        self.of[machine] = version
        self.changed.append(machine)


class Ranking:
    """Nodes by a rank that depends on the state of each alone; None is no rank."""

    def __init__(self, versions: Versions, hosts: Sequence[Host], rank: Callable[[Host], Rank | None]) -> None:
        self._versions, self._hosts, self._rank = versions, hosts, rank
        self._index = {host.number: index for index, host in enumerate(hosts)}
        self._seen = len(versions.changed)
        self._known = [versions.of[host.number] for host in hosts]
        self._ranks = [(rank(host) or LAST, index) for index, host in enumerate(hosts)]

    def first(self) -> Host | None:
        """The node of the lowest rank, the first of those that are equal."""
        rank, index = min(self._fresh(), default=(LAST, 0))
        return None if rank == LAST else self._hosts[index]

    def ranks(self) -> list[Rank]:
        """The rank of every node, in the order of the nodes; LAST where it has none."""
        return [rank for rank, _ in self._fresh()]

    def _fresh(self) -> list[tuple[Rank, int]]:
        changed, seen = self._versions.changed, self._seen
        if seen < len(changed):
            self._seen = len(changed)
            for machine in {*changed[seen:]}:
                index, version = self._index.get(machine), self._versions.of[machine]
                if index is not None and version != self._known[index]:
                    self._known[index] = version
                    self._ranks[index] = self._rank(self._hosts[index]) or LAST, index
        return self._ranks
