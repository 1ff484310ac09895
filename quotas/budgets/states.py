"""The state of budgets as shown to people: what is used, when it resets, and a forecast from the last 24 hours."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from django.utils import timezone

from portal.access import Actor
from portal.text.zones import zone_of
from quotas.budgets.actions import may_set
from quotas.models import Budget, BudgetAction
from quotas.spending.budgets import HOUR, WARN, Spent, rates_of, spent_of


class Stage(StrEnum):
    FINE = "fine"
    NEAR = "near"  # from 80 %
    USED_UP = "used_up"
    NOT_BEGUN = "not_begun"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class BudgetState:
    """`spent` None: the term is not running. `expected`: GPU-hours at the end of the period at the rate of the last 24 hours;
    None: not enough data. `used_up_at`: when that rate uses the budget up; None: not within the period, or not enough data."""

    budget: Budget
    spent: Spent | None
    stage: Stage
    expected: float | None
    used_up_at: dt.datetime | None
    may_set: bool

    @property
    def used(self) -> float:
        return self.spent.hours if self.spent else 0.0

    @property
    def left(self) -> float:
        return max(0.0, self.budget.hours - self.used)

    @property
    def holds(self) -> bool:
        """Whether the budget keeps claims waiting."""
        return self.stage is Stage.USED_UP and self.budget.action != BudgetAction.NOTHING

    @property
    def share(self) -> float:
        return float(self.spent.share) if self.spent else 0.0

    # The drawing is 100 wide; its full width is the limit, or what is used or expected if that is more.
    @property
    def _width(self) -> float:
        return max(float(self.budget.hours), self.used, self.expected or 0.0)

    @property
    def bar(self) -> float:
        return round(100 * self.used / self._width, 2)

    @property
    def expected_bar(self) -> float:
        return round(100 * max(self.used, self.expected or 0.0) / self._width, 2)

    @property
    def mark(self) -> float:
        """The position of the limit."""
        return round(100 * self.budget.hours / self._width, 2)


def states_of(actor: Actor, budgets: Iterable[Budget], *, now: dt.datetime | None = None) -> list[BudgetState]:
    """The state of each budget, in order; a constant number of queries."""
    now, rows = now or timezone.now(), list(budgets)
    if not rows:
        return []
    spent = {each.budget.pk: each for each in spent_of(rows, now=now)}
    rates = rates_of(spent.values(), now=now)
    return [_state(actor, row, spent.get(row.pk), rates.get(row.pk), now) for row in rows]


def _state(actor: Actor, budget: Budget, spent: Spent | None, rate: Fraction | None, now: dt.datetime) -> BudgetState:
    expected = used_up_at = None
    if spent is not None and rate is not None:
        left = Fraction(max(0, int((spent.resets_at - now).total_seconds())))
        expected = float((spent.seconds + rate * left) / HOUR)
        missing = budget.hours * HOUR - spent.seconds
        if rate and 0 < missing <= rate * left:
            used_up_at = now + dt.timedelta(seconds=int(missing / rate))
    allowed = may_set(actor, budget.department, budget.person)
    return BudgetState(budget, spent, _stage(budget, spent, now), expected, used_up_at, allowed)


def _stage(budget: Budget, spent: Spent | None, now: dt.datetime) -> Stage:
    if spent is None:
        begins = budget.starts_on is not None and budget.starts_on > timezone.localdate(now, zone_of(""))
        return Stage.NOT_BEGUN if begins else Stage.ENDED
    return Stage.USED_UP if spent.share >= 1 else Stage.NEAR if spent.share >= WARN else Stage.FINE
