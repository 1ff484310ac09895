"""Quotas and user caps: each change is one transaction with its audit entry."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from portal import audit
from portal.access import Actor, Right
from portal.background.hints import wake
from portal.errors import N_, Problem
from portal.infra import versions
from portal.infra.locks import durable
from portal.infra.versions import check_fresh
from portal.models import Department
from portal.notify import notices
from portal.notify.events import emit
from portal.text.words import exact
from quotas.amounts import check_not_little
from quotas.lending import windows
from quotas.lending.schedule import Window
from quotas.models import Claim, ClaimState, Pool, Quota, UserCap
from quotas.planning.lock import locked_group
from quotas.rules.capacity import OverPromised, numbers_of
from quotas.rules.recalls import end_windows


class BelowNonPreemptible(Problem):
    code = "below_non_preemptible"
    message = N_("Non-preemptible workloads hold %(holding_size)s; the guaranteed quota cannot be lower.")


class NothingToSplit(Problem):
    code = "nothing_to_split"
    message = N_(
        "%(parent)s has only %(left_size)s of its own guaranteed quota left to distribute; this "
        "needs %(needed_size)s. An operator can raise the guarantee."
    )


QUOTA_FIELDS = ("guaranteed", "borrow_limit", "lend_limit", "windows", "zone")
OWNERS_FIELDS = frozenset({"lend_limit", "windows", "zone"})


@dataclasses.dataclass(frozen=True, slots=True)
class Lending:
    """Lending windows by the clock of the time zone `zone`."""

    windows: tuple[Window, ...] = ()
    zone: str = ""

    def columns(self) -> dict[str, Any]:
        """Values of the quota's columns; the zone is empty without windows."""
        return {"windows": [windows.to_json(each) for each in self.windows], "zone": self.zone if self.windows else ""}


def set_quota(
    *,
    actor: Actor,
    department: Department,
    pool: Pool,
    guaranteed: int,
    borrow_limit: int | None,
    lend_limit: int | None,
    expected_version: int | None,
    lending: Lending | None = None,
    why: str = "",
) -> Quota:
    """Set the three numbers, and the lending windows if they are given. `expected_version`: the current one; None: create.

    The department's owners set the lend limit and the windows. Operators set everything; so do owners of the parent
    department, who split the parent's quota: its guarantee falls or rises by the difference.

    Raises Stale, OverPromised, NothingToSplit, BelowNonPreemptible, OverlappingWindows, Invalid (windows, zone), Forbidden.
    """
    with durable():
        locked_group(pool.group_id)
        return change_quota(
            actor=actor, department=department, pool=pool, guaranteed=guaranteed, borrow_limit=borrow_limit,
            lend_limit=lend_limit, expected_version=expected_version, lending=lending, why=why,
        )  # fmt: skip


def change_quota(
    *, actor: Actor, department: Department, pool: Pool, why: str = "", giver: Department | None = None, **numbers: Any
) -> Quota:
    """set_quota within the caller's transaction, which has locked the pool's group. `giver`: the parent whose guarantee falls or
    rises by the difference, for any actor."""
    quota, before, after = check_quota(actor=actor, department=department, pool=pool, **numbers)
    guaranteed = numbers["guaranteed"]
    _split(actor, quota, guaranteed, giver)
    check_promises(quota, guaranteed)
    for name, value in after.items():
        setattr(quota, name, value)
    quota.version += 1
    quota.save()
    if before is not None and any(before[name] != after[name] for name in OWNERS_FIELDS):
        end_windows(department, pool, now=timezone.now())
    audit.record(
        actor, "quota.changed", f"{department.slug}/{pool.slug}", department=department, before=before,
        after=after | ({"why": why} if why else {}),
    )  # fmt: skip
    emit("quota.changed", department=department, pool=pool.slug)
    others = [owner for owner in notices.owners_of(department) if owner != actor.user]
    limits = {name: after[name] for name in ("guaranteed", "borrow_limit", "lend_limit")}
    notices.send("quota.changed", to=others, department=department, pool=pool.name, unit=pool.unit, **limits)
    wake("quotas.plan", group_id=pool.group_id)
    return quota


def check_quota(
    *,
    actor: Actor,
    department: Department,
    pool: Pool,
    guaranteed: int,
    borrow_limit: int | None,
    lend_limit: int | None,
    expected_version: int | None,
    lending: Lending | None = None,
) -> tuple[Quota, dict[str, Any] | None, dict[str, Any]]:
    """Return the quota's row (new: version 0) and its values before (None: new) and after the change.

    Raises Stale, OverlappingWindows, Invalid (windows, zone) or Forbidden if the change may not even be requested.
    """
    if lending is not None:
        windows.check(lending.windows, lending.zone)
    row = Quota.objects.filter(department=department, pool=pool).first()
    check_fresh(row.version if row else None, expected_version)
    before = _numbers(row) if row else None
    check_sizes(pool, before or {}, guaranteed=guaranteed, borrow_limit=borrow_limit, lend_limit=lend_limit)
    quota = row or Quota(department=department, pool=pool, version=0)
    after = {"guaranteed": guaranteed, "borrow_limit": borrow_limit, "lend_limit": lend_limit}
    after |= _lending(quota) if lending is None else lending.columns()
    _may_set(actor, department, before, after)
    return quota, before, after


def check_sizes(pool: Pool, before: Mapping[str, Any], **sizes: int | None) -> None:
    """Raise Invalid for an amount that is too small (1 MiB), unless it is stored already."""
    for name, units in sizes.items():
        if before.get(name) != units:
            check_not_little(units, pool, name)


def _numbers(quota: Quota) -> dict[str, Any]:
    return {name: getattr(quota, name) for name in QUOTA_FIELDS}


def _lending(quota: Quota) -> dict[str, Any]:
    return {"windows": quota.windows, "zone": quota.zone}


def _may_set(actor: Actor, department: Department, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    """Raise Forbidden unless the actor may make this change: see set_quota."""
    if actor.may(Right.OPERATE, department):
        return None
    changed = {name for name in QUOTA_FIELDS if (before or {}).get(name) != after[name]}
    if changed <= OWNERS_FIELDS and before is not None:
        return actor.require(Right.STEER, department)
    actor.require(Right.STEER, department)
    return None if may_promise(actor, department) else actor.require(Right.OPERATE, department)


def may_promise(actor: Actor, department: Department) -> bool:
    """Whether the actor may set guarantee and borrow limit: operators, and owners of the parent, who split its quota."""
    if actor.may(Right.OPERATE, department):
        return True
    return department.parent is not None and actor.may(Right.STEER, department.parent)


def giver_of(actor: Actor, department: Department) -> Department | None:
    """The parent from whose guarantee the actor's promise is taken; None: it is taken from unassigned capacity."""
    return None if actor.may(Right.OPERATE, department) else department.parent


def split_of(actor: Actor, quota: Quota, guaranteed: int, giver: Department | None = None) -> Quota | None:
    """The parent's quota, unsaved, after it gives or takes back the difference; None: nothing is split. Raises NothingToSplit."""
    more = guaranteed - (quota.guaranteed if quota.pk else 0)
    parent = giver or giver_of(actor, quota.department)
    if not more or parent is None:
        return None
    row = Quota.objects.filter(department=parent, pool=quota.pool).select_related("department", "pool").first()
    row = row or Quota(department=parent, pool=quota.pool, version=0)
    if row.guaranteed < more:
        raise NothingToSplit(
            field="guaranteed", parent=parent.name, left=row.guaranteed, needed=more, unit=quota.pool.unit,
            left_size=exact(row.guaranteed, quota.pool), needed_size=exact(more, quota.pool),
        )  # fmt: skip
    row.guaranteed -= more
    return row


def _split(actor: Actor, quota: Quota, guaranteed: int, giver: Department | None = None) -> None:
    row = split_of(actor, quota, guaranteed, giver)
    if row is None:
        return
    before = Quota.objects.filter(pk=row.pk).values_list("guaranteed", flat=True).first()
    row.version += 1
    row.save()
    parent = row.department
    audit.record(
        actor, "quota.changed", f"{parent.slug}/{row.pool.slug}", department=parent,
        before=_numbers(row) | {"guaranteed": before or 0},
        after=_numbers(row) | {"why": f"split with {quota.department.slug}"},
    )  # fmt: skip
    emit("quota.changed", department=parent, pool=row.pool.slug)


def check_promises(quota: Quota, guaranteed: int, *, given: bool = False) -> None:
    """Raise OverPromised or BelowNonPreemptible unless Σ guaranteed ≤ nominal and Σ non-preemptible holding ≤ guaranteed.

    Call it with the group locked. `given`: the difference is taken from another guarantee, so the sum is unchanged.
    """
    pool = quota.pool
    before = quota.guaranteed or 0
    others = pool.total_guaranteed(but=quota.department)
    if not given and others + guaranteed > pool.nominal and guaranteed > before:
        free = max(0, pool.nominal - others - before)
        raise OverPromised(field="guaranteed", **numbers_of(pool, others + guaranteed, pool.nominal, free))
    fixed = fixed_units(quota.department, pool)
    if guaranteed < fixed:
        raise BelowNonPreemptible(field="guaranteed", holding=fixed, unit=pool.unit, holding_size=exact(fixed, pool))


def fixed_units(department: Department, pool: Pool) -> int:
    """Units that the department's non-preemptible workloads and recalls hold. Its guarantee cannot be less."""
    holding = Claim.objects.filter(department=department, pool=pool, preemptible=False, state=ClaimState.HOLDING)
    return sum(claim.units for claim in holding)


def set_user_cap(*, actor: Actor, department: Department, pool: Pool, units: int | None, seen: str = "") -> None:
    """Set how much each user of the department may hold; None: no cap. Raises Conflict, Invalid, Forbidden."""
    actor.require(Right.STEER, department)
    with durable():
        locked_group(pool.group_id)
        caps = UserCap.objects.filter(department=department, pool=pool)
        before = caps.values_list("units", flat=True).first()
        versions.check({"units": before}, seen)
        check_sizes(pool, {"units": before}, units=units)
        if units is None:
            caps.delete()
        else:
            UserCap.objects.update_or_create(department=department, pool=pool, defaults={"units": units})
        audit.record(
            actor, "user_cap.changed", f"{department.slug}/{pool.slug}", department=department,
            before={"units": before}, after={"units": units},
        )  # fmt: skip
        wake("quotas.plan", group_id=pool.group_id)
