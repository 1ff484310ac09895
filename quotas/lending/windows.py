"""Apply lending windows: what the planner may lend, what is recalled when a window closes, and who is affected when.

If a window closes at T, its units are back at T. So the planner makes no new loan that could not be back by then (minimum
runtime, notice and grace before T), and one notice and grace before T, the units that will no longer be lent are recalled on
the usual terms. That recall holds the units until more may be lent again.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django.db.models import Sum
from django.utils.dates import WEEKDAYS_ABBR
from django.utils.translation import gettext as _

from portal.errors import N_, Invalid
from portal.models import Department
from quotas.engine import types as e
from quotas.engine.quota_tree import Account, Ledger, usage_of
from quotas.engine.units import grace_of, notice_of
from quotas.lending.schedule import DAY, Limit, Schedule, Window, overlap
from quotas.models import WINDOW, Claim, LedgerEntry, Pool, PoolGroup, Quota
from quotas.tree import upwards

MOST_WINDOWS = 20
SLACK = dt.timedelta(seconds=15)  # planning passes are a few seconds apart


def schedule_of(quota: Quota) -> Schedule:
    """The quota's lend limit over time."""
    return Schedule(quota.lend_limit, tuple(map(from_json, quota.windows)), ZoneInfo(quota.zone or "UTC"))


def from_json(data: dict[str, Any]) -> Window:
    """A window from the quota's stored JSON, with times in minutes of the day."""
    return Window(tuple(data["days"]), data["start"], data["end"], data["lend_limit"])


def to_json(window: Window) -> dict[str, Any]:
    return {"days": list(window.days), "start": window.start, "end": window.end, "lend_limit": window.lend_limit}


class OverlappingWindows(Invalid):
    code = "overlapping_windows"
    message = N_("Two lending windows overlap: %(one)s and %(other)s.")


def check(windows: tuple[Window, ...], zone: str) -> None:
    """Raise OverlappingWindows or Invalid (windows, zone) for invalid windows."""
    for window in windows:
        if not window.days or not set(window.days) <= set(range(7)) or len(set(window.days)) != len(window.days):
            raise Invalid(N_("List the weekdays on which the window begins, each once."), field="windows")
        if not (0 <= window.start < DAY and 0 < window.end <= DAY) or window.start == window.end:
            raise Invalid(N_("A window must begin and end at different times of day."), field="windows")
        if window.lend_limit is not None and window.lend_limit < 0:
            raise Invalid(N_("A lend limit must be 0 or more, or not set."), field="windows")
    if len(windows) > MOST_WINDOWS:
        raise Invalid(N_("At most %(most)s lending windows."), field="windows", most=MOST_WINDOWS)
    if windows and zone not in available_timezones():
        raise Invalid(N_("Unknown time zone %(zone)s. Example: Asia/Shanghai."), field="zone", zone=zone)
    both = overlap(windows)
    if both is not None:
        raise OverlappingWindows(field="windows", one=when_of(both[0]), other=when_of(both[1]))


def when_of(window: Window) -> str:
    """The window in the reader's language, such as "Mon–Fri 09:00–18:00"."""
    runs: list[list[int]] = []
    for day in sorted(window.days):
        if runs and day == runs[-1][-1] + 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    days = [[str(WEEKDAYS_ABBR[day]) for day in run] for run in runs]
    names = _(", ").join(f"{run[0]}–{run[-1]}" if len(run) > 2 else _(", ").join(run) for run in days)
    return f"{names} {time_of_day(window.start)}–{time_of_day(window.end)}"


def time_of_day(minute: int) -> str:
    """A minute of the day as a time such as 09:00; the end of the day is 24:00."""
    return f"{minute // 60:02}:{minute % 60:02}"


def planned_limit(quota: Quota, now: dt.datetime) -> Limit:
    """The lend limit for the planner now: only what could be back before a window closes."""
    if not quota.windows:
        return quota.lend_limit
    pool = quota.pool
    lead = dt.timedelta(seconds=pool.min_runtime + pool.notice + pool.grace) + SLACK
    return schedule_of(quota).lowest(now, now + lead)


def most_lent(quota: Quota) -> Limit:
    """The largest lend limit at any time, by which the engine recognises work that can run later; None without windows."""
    if not quota.windows:
        return None
    most = schedule_of(quota).most
    return quota.pool.nominal if most is None else most


# Calling back ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Due:
    """A recall that a closing window requires: `units` for the department, until more may be lent again."""

    department: e.DepartmentId
    pool: e.PoolId
    units: int
    until: dt.datetime | None


def recall_due(group: PoolGroup, snapshot: e.Snapshot, *, now: dt.datetime) -> bool:
    """Create the recalls that are due; call it with the group locked. Returns whether the snapshot must be loaded again."""
    if all(quota.lend_limit_most is None for each in snapshot.departments for quota in each.quotas.values()):
        return False  # no quota has windows
    quotas = Quota.objects.filter(pool__group=group).exclude(windows=[]).select_related("department", "pool")
    overdue = due(snapshot, quotas, now=now)
    if not overdue:
        return False
    departments = {row.slug: row for row in Department.objects.filter(slug__in={each.department for each in overdue})}
    pools = {row.slug: row for row in Pool.objects.filter(group=group)}
    for each in overdue:
        Claim.objects.create(
            department=departments[each.department], pool=pools[each.pool], name=WINDOW, pods=0,
            units_per_pod=each.units, until=each.until, submitted_at=now, queued_at=now, preemptible=False, own_only=True,
        )  # fmt: skip
    return True


def due(snapshot: e.Snapshot, quotas: Iterable[Quota], *, now: dt.datetime) -> list[Due]:
    """The recalls needed now so that no quota lends more than it may when notice and grace are over."""
    parents = {department.id: department.parent for department in snapshot.departments}
    pools = {pool.id: pool for pool in snapshot.pools}
    by_pool: dict[str, list[Quota]] = defaultdict(list)
    for quota in quotas:
        by_pool[quota.pool.slug].append(quota)
    recalls: list[Due] = []
    for slug, rows in by_pool.items():
        pool = pools[e.PoolId(slug)]
        ledger = _with_pending_recalls(snapshot, pool)
        if not ledger.above:
            continue  # without borrowers, guaranteed units are free, and the lend limit keeps them free
        end = now + _longest(snapshot, pool) + SLACK
        rows.sort(key=lambda quota: -_depth(parents, e.DepartmentId(quota.department.slug)))
        for quota in rows:
            schedule = schedule_of(quota)
            limit = schedule.lowest(now, end)
            if limit is not None:
                until = schedule.next_above(end, limit)
                account = ledger[e.DepartmentId(quota.department.slug)]
                recalls += [Due(d, pool.id, units, until) for d, units in _recalls_for(ledger, account, limit)]
    return recalls


def _with_pending_recalls(snapshot: e.Snapshot, pool: e.Pool) -> Ledger:
    """The ledger as if pending recalls without a reservation held their units."""
    ledger = usage_of(snapshot, pool.id)
    for claim in snapshot.claims:
        waits = claim.state is e.ClaimState.PENDING and claim.reserved is None
        if claim.pool == pool.id and claim.is_recall and waits:
            ledger.add(claim.department, claim.units)
    return ledger


def _longest(snapshot: e.Snapshot, pool: e.Pool) -> dt.timedelta:
    """The longest notice plus grace of the claims that hold in the pool, as frozen at their admission."""
    holding = (claim for claim in snapshot.claims if claim.pool == pool.id and claim.state is e.ClaimState.HOLDING)
    times = [notice_of(c, pool, snapshot.settings) + grace_of(c, pool, snapshot.settings) for c in holding]
    return dt.timedelta(seconds=max(times, default=0))


def _depth(parents: dict[e.DepartmentId, e.DepartmentId | None], department: e.DepartmentId) -> int:
    above = parents[department]
    return 0 if above is None else 1 + _depth(parents, above)


def _recalls_for(ledger: Ledger, top: Account, limit: int) -> Iterator[tuple[e.DepartmentId, int]]:
    """(department, units) of recalls after which the subtree of `top` uses or holds all of its guarantee but `limit`. Adds them
    to the ledger."""
    accounts = [top]
    for account in accounts:  # grows during the loop
        accounts += account.children
    for account in sorted(accounts, key=lambda each: (-each.own_left, each.id)):
        units = min(top.promised - limit - top.usage, account.own_left)
        if units > 0:
            ledger.add(account.id, units)
            yield account.id, units


# Who is affected -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Return:
    """The time at which borrowed units may have to be returned, because `lender` then lends at most `limit`."""

    at: dt.datetime
    lender: Department
    limit: int


def next_return(borrower: Department, pool: Pool, asked: dict[str, int], *, now: dt.datetime) -> Return | None:
    """The earliest closing window that affects the borrower; None if none does. `asked`: lender's slug → units to borrow.

    Loans to other borrowers count too: they may not all fit when less is lent.
    """
    quotas = {q.department_id: q for q in Quota.objects.filter(pool=pool).exclude(windows=[]).select_related("pool")}
    if not quotas:
        return None
    rows = Department.objects.in_bulk()
    lent = dict(
        LedgerEntry.objects.filter(pool=pool, own=False, ended_at=None, lender__isnull=False)
        .values_list("lender__slug")
        .annotate(units=Sum("units"))
    )
    own_line = {above.pk for above in upwards(rows, borrower.pk)}
    total: dict[int, int] = defaultdict(int)
    concerned: set[int] = set()
    for row in rows.values():
        for pk in [above.pk for above in upwards(rows, row.pk)]:
            if pk not in own_line and pk in quotas:
                total[pk] += lent.get(row.slug, 0) + asked.get(row.slug, 0)
                concerned |= {pk} if row.slug in asked else set()
    returns = []
    for pk in concerned:
        fall = schedule_of(quotas[pk]).next_fall(now, total[pk])
        if fall is not None and fall[1] is not None:
            returns.append(Return(fall[0], rows[pk], fall[1]))
    return min(returns, key=lambda each: (each.at, each.lender.slug), default=None)
