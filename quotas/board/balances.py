"""Fairness over time, as sentences and rows: what each department lent and borrowed lately in a pool, and who borrows first."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from portal.models import Department
from portal.text.words import duration
from quotas.engine import types as e
from quotas.engine.quota_tree import usage_of
from quotas.models import Claim, ClaimState, Pool
from quotas.planning.snapshot import load_snapshot
from quotas.spending.balances import lately
from quotas.tree import upwards

AHEAD = 3
"""The most departments that are named as borrowing before the reader's, or after it."""


@dataclass(frozen=True, slots=True)
class Row:
    """Decayed GPU-hours of a department and its teams in a pool. What they lent each other counts as both borrowed and lent."""

    department: Department
    borrowed: float
    lent: float
    place: int = 0  # among its siblings; 1 borrows the next unit first
    depth: int = 0  # 1: a team of a department

    @property
    def more_lent(self) -> float:
        """GPU-hours lent minus GPU-hours borrowed."""
        return self.lent - self.borrowed


class Balances:
    """The balances of a pool that has a half-life, at one moment."""

    def __init__(self, pool: Pool, *, now: dt.datetime) -> None:
        self.pool, self._now = pool, now

    @cached_property
    def _departments(self) -> dict[int, Department]:
        return {row.pk: row for row in Department.objects.all()}

    @cached_property
    def _of(self) -> dict[int, Row]:
        """Department id → row, for departments that have lent or borrowed lately and the departments above them."""
        rows: dict[int, Row] = {}
        for pk, sums in lately([self.pool], now=self._now)[self.pool.pk].sums.items():
            borrowed, lent = (float(hours / self.pool.units_per_card) for hours in sums.hours())
            for above in upwards(self._departments, pk) if pk in self._departments else ():
                row = rows.get(above.pk, Row(above, 0, 0))
                rows[above.pk] = replace(row, borrowed=row.borrowed + borrowed, lent=row.lent + lent)
        return rows

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Departments that have quota here, or have lent or borrowed lately, by place, each followed by its teams."""
        snapshot = load_snapshot(self.pool.group, now=self._now)
        pool = e.PoolId(self.pool.slug)
        ledger = usage_of(snapshot, pool)
        with_quota = {each.id for each in snapshot.departments if pool in each.quotas}
        of_pool = {
            pk: self._of.get(pk, Row(row, 0, 0))
            for pk, row in self._departments.items()
            if pk in self._of or row.slug in with_quota
        }
        below: dict[int | None, list[Row]] = defaultdict(list)
        for row in of_pool.values():
            parent = row.department.parent_id
            below[parent if parent in of_pool else None].append(row)

        def turn(row: Row) -> tuple[int, str]:
            account = ledger[e.DepartmentId(row.department.slug)]
            above_guarantee = max(0, account.promised - account.usage) + 1
            return ledger.balance_after(account, above_guarantee), row.department.slug

        def tree(parent: int | None, depth: int) -> Iterator[Row]:
            for place, row in enumerate(sorted(below[parent], key=turn), 1):
                yield replace(row, place=place, depth=depth)
                yield from tree(row.department.pk, depth + 1)

        return tuple(tree(None, 0))

    def sentences(self, department: Department, ahead: Iterable[str], position: int | None) -> list[str]:
        """Explain the position of a department's claim in the queue among those that borrow: with the balances of those that the
        planner compared, which for teams may be departments above them. `ahead`: public ids of the first claims before it."""
        first = self._compared(department, Claim.objects.filter(public_id__in=[*ahead]))
        borrowing = Claim.objects.filter(
            pool=self.pool, state=ClaimState.PENDING, released_at=None, own_only=False, preemptible=True, pods__gt=0
        )
        last = self._compared(department, borrowing.filter(position__gte=position)) if position else []
        better = dict.fromkeys(other for own, other in first if other.more_lent > own.more_lent)
        worse: dict[Department, list[str]] = {department: []}
        for own, other in last:
            if other.more_lent < own.more_lent:
                worse.setdefault(own.department, []).append(other.department.name)
        lines = [self.sentence(own, [*dict.fromkeys(names)]) for own, names in worse.items()]
        return [*lines, *(self._ahead(row) for row in [*better][:AHEAD])]

    def sentence(self, department: Department, behind: Sequence[str] = ()) -> str:
        """Say a department's balance. `behind`: the names of the departments that therefore borrow after it."""
        words = {
            "balance": balance_in_words(self._row(department)),
            "half_life": duration(self.pool.balance_half_life or 0),
            "departments": _(", ").join(behind[:AHEAD]),
        }
        if behind:
            return _("%(balance)s (half-life %(half_life)s): ahead of %(departments)s.") % words
        return _("%(balance)s (half-life %(half_life)s).") % words

    def _row(self, department: Department) -> Row:
        return self._of.get(department.pk, Row(department, 0, 0))

    def _compared(self, department: Department, claims: QuerySet[Claim]) -> list[tuple[Row, Row]]:
        """For each other department of these claims, by their submission: the rows that decide which of both borrows first.
        They are of the highest departments above each (or itself) that differ."""
        own = [*upwards(self._departments, department.pk)][::-1]
        pairs: list[tuple[Row, Row]] = []
        for pk in dict.fromkeys(claims.order_by("submitted_at").values_list("department", flat=True)):
            other = [*upwards(self._departments, pk)][::-1] if pk in self._departments else []
            if not other or pk == department.pk:
                continue
            common = sum(one.pk == two.pk for one, two in zip(own, other, strict=False))
            pairs.append((self._row(own[min(common, len(own) - 1)]), self._row(other[min(common, len(other) - 1)])))
        return pairs

    @staticmethod
    def _ahead(row: Row) -> str:
        return _("%(balance)s: when it borrows, it goes first.") % {"balance": balance_in_words(row)}


def balance_in_words(row: Row) -> str:
    """The balance as the beginning of a sentence, without a full stop."""
    numbers = {"department": row.department.name, "hours": f"{abs(row.more_lent):,.0f}"}
    if abs(row.more_lent) < 0.5:
        return _("%(department)s has lent as much as it borrowed lately") % numbers
    if row.more_lent > 0:
        return _("%(department)s has lent %(hours)s GPU-hours more than it borrowed lately") % numbers
    return _("%(department)s has borrowed %(hours)s GPU-hours more than it lent lately") % numbers


def balances_of(pool: Pool, *, now: dt.datetime) -> Balances | None:
    """The pool's balances; None if it has no fairness over time."""
    return None if pool.balance_half_life is None else Balances(pool, now=now)
