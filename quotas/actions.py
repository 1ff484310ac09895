"""What owners and operators change about quotas. Each is one transaction with its audit row; previews change nothing."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Sum
from django.utils import timezone

from portal import audit
from portal.access import Actor, Right
from portal.background.hints import wake
from portal.errors import N_, Problem
from portal.infra import versions
from portal.infra.locks import durable
from portal.models import Department
from portal.notify import notices
from portal.notify.events import emit
from quotas import windows
from quotas.admission import locked_group
from quotas.amounts import check_not_little, exact
from quotas.lending import Window
from quotas.models import Card, Claim, ClaimState, Node, Pool, Quota, UserCap
from quotas.recalls import ask_recall, check_end, end_recall, end_windows


class Stale(Problem):
    status = 412
    code = "stale"
    message = N_("Somebody changed this meanwhile (version %(current)s, you had %(given)s). Look again, then decide.")


class OverPromised(Problem):
    code = "over_promised"
    field = "guaranteed"
    message = N_("Departments would be promised %(promised_size)s of %(pool)s, which has %(nominal_size)s.")


class BelowNonPreemptible(Problem):
    code = "below_non_preemptible"
    message = N_("Work that must not be stopped holds %(holding_size)s; the guarantee cannot go below that.")


class NothingToSplit(Problem):
    code = "nothing_to_split"
    field = "guaranteed"
    message = N_(
        "%(parent)s has %(left_size)s of its own left to give; this takes %(needed_size)s. The operator can promise more."
    )


class OfWindow(Problem):
    code = "of_lending_window"
    message = N_("A lending window of %(department)s called this back. Change the window instead.")


QUOTA_FIELDS = ("guaranteed", "borrow_limit", "lend_limit", "windows", "zone")
OWNERS_FIELDS = frozenset({"lend_limit", "windows", "zone"})


@dataclasses.dataclass(frozen=True, slots=True)
class Lending:
    """Times of another lend limit, by the wall clock of `zone`."""

    windows: tuple[Window, ...] = ()
    zone: str = ""

    def columns(self) -> dict[str, Any]:
        """As they are kept with the quota: no windows, no zone."""
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
    """Sets all three numbers, and the lending windows if given (else they stay). `expected_version` None creates; else
    it must be the present one.

    Lend limit and windows are their owner's to set; guarantee and borrow limit are the operator's, or an owner's of the
    parent department, who splits what the parent has: the parent's own guarantee gives and takes the difference.
    Raises Stale, OverPromised, NothingToSplit, BelowNonPreemptible, OverlappingWindows, Invalid (windows, zone), Forbidden.
    """
    with durable():
        locked_group(pool.group_id)
        quota, before, after = check_quota(
            actor=actor, department=department, pool=pool, guaranteed=guaranteed, borrow_limit=borrow_limit,
            lend_limit=lend_limit, expected_version=expected_version, lending=lending,
        )  # fmt: skip
        _split(actor, quota, guaranteed)
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
        numbers = {"guaranteed": guaranteed, "borrow_limit": borrow_limit, "lend_limit": lend_limit}
        told: dict[str, Any] = {"pool": pool.name, "unit": pool.unit, **numbers}
        notices.tell("quota.changed", to=others, department=department, **told)
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
    """Whether it may be asked at all: the row as it is (new: version 0), its values before (None: new) and after.

    Raises Stale, OverlappingWindows, Invalid (windows, zone), Forbidden."""
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
    """Raises Invalid for 1 MiB where it is newly said; what stands there already may stay."""
    for name, units in sizes.items():
        if before.get(name) != units:
            check_not_little(units, pool, name)


def check_fresh(current: int | None, given: int | None) -> None:
    """None: there is none, or there should be none. Raises Stale when the caller has seen another version."""
    if current != given:
        raise Stale(current=current or 0, given=given or 0)


def _numbers(quota: Quota) -> dict[str, Any]:
    return {name: getattr(quota, name) for name in QUOTA_FIELDS}


def _lending(quota: Quota) -> dict[str, Any]:
    return {"windows": quota.windows, "zone": quota.zone}


def _may_set(actor: Actor, department: Department, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    """An owner sets the lend limit and its windows; a parent's owner splits; the operator does all."""
    if actor.may(Right.OPERATE, department):
        return None
    changed = {name for name in QUOTA_FIELDS if (before or {}).get(name) != after[name]}
    if changed <= OWNERS_FIELDS and before is not None:
        return actor.require(Right.STEER, department)
    actor.require(Right.STEER, department)
    if department.parent and actor.may(Right.STEER, department.parent):
        return None
    return actor.require(Right.OPERATE, department)


def split_of(actor: Actor, quota: Quota, guaranteed: int) -> Quota | None:
    """The parent's quota as it would be when its owner gives (or takes back) the difference; None: nothing is split.

    Raises NothingToSplit.
    """
    more = guaranteed - (quota.guaranteed if quota.pk else 0)
    parent = quota.department.parent
    if actor.may(Right.OPERATE, quota.department) or not more or parent is None:
        return None
    giver = Quota.objects.filter(department=parent, pool=quota.pool).select_related("department", "pool").first()
    giver = giver or Quota(department=parent, pool=quota.pool, version=0)
    if giver.guaranteed < more:
        raise NothingToSplit(
            field="guaranteed", parent=parent.name, left=giver.guaranteed, needed=more, unit=quota.pool.unit,
            left_size=exact(giver.guaranteed, quota.pool), needed_size=exact(more, quota.pool),
        )  # fmt: skip
    giver.guaranteed -= more
    return giver


def _split(actor: Actor, quota: Quota, guaranteed: int) -> None:
    giver = split_of(actor, quota, guaranteed)
    if giver is None:
        return
    before = Quota.objects.filter(pk=giver.pk).values_list("guaranteed", flat=True).first()
    giver.version += 1
    giver.save()
    parent = giver.department
    audit.record(
        actor, "quota.changed", f"{parent.slug}/{giver.pool.slug}", department=parent,
        before=_numbers(giver) | {"guaranteed": before or 0},
        after=_numbers(giver) | {"why": f"split with {quota.department.slug}"},
    )  # fmt: skip
    emit("quota.changed", department=parent, pool=giver.pool.slug)


def check_promises(quota: Quota, guaranteed: int, *, given: bool = False) -> None:
    """Σ guaranteed ≤ nominal; Σ non-preemptible holding ≤ guaranteed. Called under the group's lock. `given`: somebody
    else's guarantee gives the difference, so the sum stays."""
    pool = quota.pool
    others = Quota.objects.filter(pool=pool).exclude(department=quota.department)
    promised = (others.aggregate(total=Sum("guaranteed"))["total"] or 0) + guaranteed
    if not given and promised > pool.nominal and guaranteed > (quota.guaranteed or 0):
        raise _over_promised("guaranteed", pool, promised, pool.nominal)
    fixed = sum(
        claim.units
        for claim in Claim.objects.filter(
            department=quota.department, pool=pool, preemptible=False, state=ClaimState.HOLDING
        )
    )
    if guaranteed < fixed:
        raise BelowNonPreemptible(field="guaranteed", holding=fixed, unit=pool.unit, holding_size=exact(fixed, pool))


def _over_promised(field: str, pool: Pool, promised: int, nominal: int) -> OverPromised:
    return OverPromised(
        field=field, promised=promised, nominal=nominal, unit=pool.unit, pool=pool.name,
        promised_size=exact(promised, pool), nominal_size=exact(nominal, pool),
    )  # fmt: skip


def set_user_cap(*, actor: Actor, department: Department, pool: Pool, units: int | None, seen: str = "") -> None:
    """How much each single user of the department may hold; None lifts the cap. Raises Conflict, Invalid, Forbidden."""
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


def recall(
    *,
    actor: Actor,
    department: Department,
    pool: Pool,
    units: int,
    until: dt.datetime | None,
    also: Callable[[Claim], None] | None = None,
    now: dt.datetime | None = None,
) -> Claim:
    """The owner calls `units` guaranteed units back until a time. `also` runs inside the transaction.

    Raises Invalid (with numbers), Forbidden.
    """
    actor.require(Right.STEER, department)
    now = now or timezone.now()
    check_end(until, now=now)
    check_not_little(units, pool)
    with durable():
        locked_group(pool.group_id)
        claim = ask_recall(actor, department, pool, units, until, now=now)
        audit.record(
            actor, "recall.asked", claim.public_id, department=department,
            after={"pool": pool.slug, "units": units, "until": until.isoformat() if until else None},
        )  # fmt: skip
        emit("recall.asked", department=department, recall=claim.public_id, pool=pool.slug, units=units)
        if also is not None:
            also(claim)
    return claim


def withdraw_recall(*, actor: Actor, claim: Claim) -> Claim:
    """Gives the recalled units back to the pool; what was told to go but is still there goes on. Raises OfWindow."""
    actor.require(Right.STEER, claim.department)
    if claim.is_of_window:
        raise OfWindow(department=claim.department.name)
    with durable():
        if end_recall(claim, now=timezone.now()):
            audit.record(actor, "recall.withdrawn", claim.public_id, department=claim.department)
            emit("recall.withdrawn", department=claim.department, recall=claim.public_id)
    claim.refresh_from_db()
    return claim


def set_nominal(*, actor: Actor, pool: Pool, nominal: int, seen: str = "") -> Pool:
    """What may be promised of a pool, in units. Raises OverPromised, Conflict."""
    actor.require_operator()
    with durable():
        locked_group(pool.group_id)
        pool = Pool.objects.get(pk=pool.pk)
        versions.check({"nominal": pool.nominal}, seen)
        promised = Quota.objects.filter(pool=pool).aggregate(total=Sum("guaranteed"))["total"] or 0
        if promised > nominal:
            raise _over_promised("nominal", pool, promised, nominal)
        audit.record(
            actor, "pool.nominal_changed", pool.slug, before={"nominal": pool.nominal}, after={"nominal": nominal}
        )
        Pool.objects.filter(pk=pool.pk).update(nominal=nominal)
        wake("quotas.plan", group_id=pool.group_id)
    pool.refresh_from_db()
    return pool


def set_drained(*, actor: Actor, node: Node, drained: bool, seen: str = "") -> Node:
    """Takes a node out of (or back into) present capacity. What runs on it stays; nothing new goes there. Raises Conflict."""
    actor.require_operator()
    groups = sorted(set(Card.objects.filter(node=node, pool__isnull=False).values_list("pool__group", flat=True)))
    with durable():
        for group_id in groups:
            locked_group(group_id)
        versions.check({"drained": Node.objects.select_for_update(no_key=True).get(pk=node.pk).drained}, seen)
        if Node.objects.filter(pk=node.pk, drained=not drained).update(drained=drained):
            audit.record(actor, "node.drained" if drained else "node.returned", node.name)
            emit("node.changed", node=node.name)
        for group_id in groups:
            wake("quotas.plan", group_id=group_id)
    node.refresh_from_db()
    return node
