"""Preview of a changed quota. Read only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import replace

from django.utils import timezone
from django.utils.translation import gettext as _

from portal.access import Actor, Right
from portal.infra.confirm import Break
from portal.models import Department
from portal.text.words import amount
from quotas.amounts import check_not_little
from quotas.board.usage_now import read
from quotas.engine import types as e
from quotas.engine.what_if import what_if, with_claim, with_quota
from quotas.lending import windows
from quotas.lending.schedule import height
from quotas.models import ClaimState, Pool, Quota, UserCap
from quotas.planning.snapshot import load_snapshot, lowest_caps, quota_of, seconds
from quotas.previews.blocking_policy import policy_against_reclaim
from quotas.previews.effects import Preview, effect_of, preview_of
from quotas.rules.quotas import OWNERS_FIELDS, Lending, check_promises, check_sizes, split_of
from quotas.rules.recalls import of_windows, recall_for_engine
from quotas.tree import upwards
from quotas.wording import clock_of, lends


def preview_quota(
    *,
    actor: Actor,
    department: Department,
    pool: Pool,
    guaranteed: int,
    borrow_limit: int | None,
    lend_limit: int | None,
    lending: Lending | None = None,
    expected_version: int | None = None,
) -> Preview:
    """Which claims would be recalled, and which could start, with this quota.

    Raises Forbidden and the errors of set_quota: OverPromised, NothingToSplit, BelowNonPreemptible, OverlappingWindows, Invalid.
    """
    actor.require(Right.STEER, department)
    if lending is not None:
        windows.check(lending.windows, lending.zone)
    row = Quota.objects.filter(department=department, pool=pool).first() or Quota(department=department, pool=pool)
    row.pool, row.department = pool, department
    giver = split_of(actor, row, guaranteed)
    check_promises(row, guaranteed, given=giver is not None)
    present = {name: getattr(row, name) for name in ("guaranteed", "borrow_limit", "lend_limit")} if row.pk else {}
    check_sizes(pool, present, guaranteed=guaranteed, borrow_limit=borrow_limit, lend_limit=lend_limit)
    before = {name: getattr(row, name) for name in OWNERS_FIELDS}
    row.guaranteed, row.borrow_limit, row.lend_limit = guaranteed, borrow_limit, lend_limit
    for name, value in (lending.columns() if lending is not None else {}).items():
        setattr(row, name, value)
    lends_otherwise = any(getattr(row, name) != before[name] for name in OWNERS_FIELDS)
    now = timezone.now()
    snapshot = load_snapshot(pool.group, now=now)
    changed = _with_row(snapshot, row, lends_otherwise=lends_otherwise, now=now)
    difference = what_if(snapshot, changed)
    lines, fall = lending_lines(row, difference.recalled, now=now)
    if giver is not None:
        parent = e.DepartmentId(giver.department.slug)
        changed = with_quota(changed, parent, e.PoolId(pool.slug), quota_of(giver, now))
        text = _("%(parent)s would keep %(left)s for itself.")
        lines.append(text % {"parent": giver.department.name, "left": amount(giver.guaranteed, pool)})
        difference = what_if(snapshot, changed)
    breaks = [Break("called_back", fall, (row.lend_limit, *map(str, row.windows)))] if fall and lends_otherwise else ()
    return preview_of(effect_of(actor, difference), lines, breaks)


def preview_cap(*, actor: Actor, department: Department, pool: Pool, units: int | None) -> Preview:
    """Which claims could no longer start if each user of the department could hold only this much; None: no cap.

    A cap stops no running workload. Raises Forbidden, Invalid.
    """
    actor.require(Right.STEER, department)
    check_not_little(units or 0, pool)
    snapshot = load_snapshot(pool.group, now=timezone.now())
    caps = {cap.department_id: {e.PoolId(pool.slug): cap.units} for cap in UserCap.objects.filter(pool=pool)}
    caps[department.pk] = {} if units is None else {e.PoolId(pool.slug): units}
    tree = Department.objects.in_bulk()
    lowest = {row.slug: lowest_caps(caps.get(above.pk, {}) for above in upwards(tree, row.pk)) for row in tree.values()}
    changed = replace(snapshot, departments=tuple(_with_cap(row, pool, lowest[row.id]) for row in snapshot.departments))
    return preview_of(effect_of(actor, what_if(snapshot, changed)))


def _with_cap(department: e.Department, pool: Pool, cap: Mapping[e.PoolId, int]) -> e.Department:
    others = {id: units for id, units in department.user_caps.items() if id != pool.slug}
    return replace(department, user_caps={**others, **cap})


def _with_row(snapshot: e.Snapshot, row: Quota, *, lends_otherwise: bool, now: dt.datetime) -> e.Snapshot:
    """The snapshot with this quota, and with the recalls that its lending windows would create at once."""
    changed = with_quota(snapshot, e.DepartmentId(row.department.slug), e.PoolId(row.pool.slug), quota_of(row, now))
    if lends_otherwise:
        over = {claim.public_id for claim in of_windows(row.department, row.pool)}
        changed = replace(changed, claims=tuple(claim for claim in changed.claims if claim.id not in over))
    for due in windows.due(changed, [row] if row.windows else [], now=now):
        changed = with_claim(changed, recall_for_engine(due.department, due.pool, due.units, seconds(now)))
    return changed


def lending_lines(quota: Quota, victims: Collection[str], *, now: dt.datetime) -> tuple[list[str], str]:
    """Sentences about the lending windows, or about what stays lent above a limit without windows; then, separately, the one
    about a window's next recall ("" if there is none).

    `victims`: public ids of claims that are recalled at once; their units come back then and are not recalled again.
    """
    if not quota.windows:
        return _stays_lent(quota), ""
    schedule, pool = windows.schedule_of(quota), quota.pool
    lines = [_("After this change the department %(lends)s.") % {"lends": lends(quota, now=now)}]
    live = read([pool])
    entries = live.lent_by(quota.department_id, pool.pk)
    going = sum(claim.units for claim in live.claims_of(pool.pk) if claim.public_id in victims)
    staying = sum(entry.units for entry in entries if entry.claim.state == ClaimState.HOLDING) - going
    stays = int(min(staying, height(schedule.at(now))))
    fall = schedule.next_fall(now, stays)
    if entries and quota.pk and (rule := policy_against_reclaim(quota.department, pool)):
        lines.append(rule.sentence(quota.department, pool))
    elif fall is not None and fall[1] is not None:
        lent = sum(entry.units for entry in entries)
        back = {"lent": amount(lent, pool), "units": amount(stays - fall[1], pool), "at": clock_of(fall[0])}
        called_back = _("Of the %(lent)s lent now, %(units)s would be recalled by %(at)s.") % back
        return [*lines, called_back], called_back
    return lines, ""


def _stays_lent(quota: Quota) -> list[str]:
    pool, limit = quota.pool, quota.lend_limit
    lent = sum(entry.units for entry in read([pool]).lent_by(quota.department_id, pool.pk)) if limit is not None else 0
    if limit is None or lent <= limit:
        return []
    text = _(
        "%(lent)s are lent now and stay lent until they are returned or you recall them: the limit is for new loans."
    )
    return [text % {"lent": amount(lent, pool)}]
