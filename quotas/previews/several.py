"""Preview of several changes at once: the difference between the plans before and after them. Read only.

Each change is written by its own action; this only compares the two plans.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from portal.access import Actor
from portal.infra.confirm import Break
from portal.infra.locks import keep_alive
from portal.models import Department
from quotas.engine import types as e
from quotas.engine.what_if import what_if, with_claim
from quotas.lending import windows
from quotas.models import Pool, PoolGroup, Quota
from quotas.planning.snapshot import load_snapshot, seconds
from quotas.previews.department_move import limits
from quotas.previews.effects import Preview, effect_of, preview_of
from quotas.previews.policy import calls, less_protected
from quotas.previews.quota import lending_lines
from quotas.rules.recalls import recall_for_engine


class Foresight:
    """Create it before the changes, and call `preview` after them in the same transaction."""

    def __init__(self, actor: Actor, groups: Sequence[PoolGroup], *, now: dt.datetime) -> None:
        self._actor, self._groups, self._now = actor, groups, now
        self._before = [self._snapshot(group) for group in groups]

    def _snapshot(self, group: PoolGroup) -> e.Snapshot:
        """The snapshot with the recalls that the next pass would create for lending windows."""
        group = PoolGroup.objects.select_related("cluster").get(pk=group.pk)
        snapshot = load_snapshot(group, now=self._now)
        quotas = Quota.objects.filter(pool__group=group).exclude(windows=[]).select_related("department", "pool")
        for due in windows.due(snapshot, quotas, now=self._now):
            snapshot = with_claim(snapshot, recall_for_engine(due.department, due.pool, due.units, seconds(self._now)))
        return snapshot

    def preview(
        self, *, moved: Iterable[str] = (), lending: Iterable[tuple[str, ...]] = (), breaks: Iterable[Break] = ()
    ) -> Preview:
        """Which claims would be recalled, start or wait at once, and what changes later. `moved`: slugs of departments with a new
        parent or weight; `lending`: (department, pool) of changed lending windows; `breaks`: further breaks of the changes."""
        pairs = list(zip(self._before, map(self._snapshot, self._groups), strict=True))
        differences = []
        for before, after in pairs:
            differences.append(what_if(before, after))
            keep_alive()
        sentences: list[tuple[str, Break | None]] = []
        for (before, after), difference in zip(pairs, differences, strict=True):
            pools = list(Pool.objects.filter(slug__in=[pool.id for pool in after.pools]))
            if before != after:
                sentences += calls(before, after, pools)
            sentences += [("", each) for pool in pools for each in less_protected(before, after, pool)]
            for department in Department.objects.filter(slug__in=moved):
                sentences += limits(before, after, department)
            sentences += self._windows(pools, difference.recalled, lending)
        every = [*(each for _text, each in sentences if each is not None), *breaks]
        return preview_of(effect_of(self._actor, *differences), [text for text, _break in sentences if text], every)

    def _windows(
        self, pools: Sequence[Pool], victims: Iterable[str], lending: Iterable[tuple[str, ...]]
    ) -> Iterable[tuple[str, Break | None]]:
        for department, pool in lending:
            rows = Quota.objects.filter(pool__in=pools, pool__slug=pool, department__slug=department)
            for row in rows.select_related("department", "pool"):
                lines, fall = lending_lines(row, list(victims), now=self._now)
                about = (department, pool, row.lend_limit, *map(str, row.windows))
                yield from ((line, Break("called_back", line, about) if line == fall else None) for line in lines)
