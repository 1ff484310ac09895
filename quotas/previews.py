"""What a changed quota, a recall or a drained node would do to others. Read only; the same engine decides."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.utils import timezone
from django.utils.translation import gettext as _

from portal.access import Actor, Right
from portal.ids import new_id
from portal.models import Department
from portal.words import amount
from quotas.actions import check_promises
from quotas.engine import types as e
from quotas.engine.whatif import Difference, what_if, with_claim, with_quota
from quotas.models import Claim, Node, Pool, Quota
from quotas.recalls import check_recall
from quotas.snapshots import load_snapshot, moment, seconds


@dataclass(frozen=True, slots=True)
class ClaimSide:
    """One who would be told to go, as far as the actor may see: the name only of their own departments' work."""

    department: Department
    units: int
    own: bool  # a department the actor sees
    name: str
    workload: str


@dataclass(frozen=True, slots=True)
class Preview:
    """`promised_at`: by when all would be back; None when nobody has to go, or nobody can be made to."""

    stopped: tuple[ClaimSide, ...]
    promised_at: dt.datetime | None
    sentence: str


def preview_quota(
    *,
    actor: Actor,
    department: Department,
    pool: Pool,
    guaranteed: int,
    borrow_limit: int | None,
    lend_limit: int | None,
    expected_version: int | None = None,
) -> Preview:
    """Who would have to go, and who could start, if the quota were this.

    Raises Forbidden, and what set_quota would raise: OverPromised, BelowNonPreemptible.
    """
    actor.require(Right.STEER, department)
    present = Quota.objects.filter(department=department, pool=pool).first()
    check_promises(present or Quota(department=department, pool=pool), guaranteed)
    snapshot = load_snapshot(pool.group, now=timezone.now())
    new = e.Quota(guaranteed=guaranteed, borrow_limit=borrow_limit, lend_limit=lend_limit)
    found = what_if(snapshot, with_quota(snapshot, e.DepartmentId(department.slug), e.PoolId(pool.slug), new))
    stopped = _sides(actor, found)
    starting = sum(_starts(change.after) and not _starts(change.before) for change in found.changes)
    later = sum(units for units in found.recallable.values() if units > 0)
    if stopped:
        text = _("%(count)s workloads would be told to go, %(units)s in all.")
    elif starting:
        text = _("Nobody has to go; %(starting)s waiting workloads would start.")
    elif later:
        text = _("Nobody has to go now; %(later)s more in use would count as borrowed and could be called back.")
    else:
        text = _("Nobody is affected now.")
    numbers = {
        "count": len(stopped), "units": amount(sum(s.units for s in stopped), pool), "starting": starting,
        "later": amount(later, pool),
    }  # fmt: skip
    return Preview(stopped, _last(found), text % numbers)


def preview_recall(*, actor: Actor, department: Department, pool: Pool, units: int) -> Preview:
    """Who would have to go, and by when all is back. Raises Forbidden, Invalid (more than is guaranteed)."""
    actor.require(Right.STEER, department)
    check_recall(department, pool, units)
    now = timezone.now()
    recall = e.Claim(
        id=e.ClaimId(new_id()),
        department=e.DepartmentId(department.slug),
        pool=e.PoolId(pool.slug),
        units_per_pod=units,
        state=e.ClaimState.PENDING,
        submitted_at=seconds(now),
        pods=0,
        preemptible=False,
        own_only=True,
    )
    snapshot = load_snapshot(pool.group, now=now)
    found = what_if(snapshot, with_claim(snapshot, recall))
    answer = next(decision for decision in found.after.decisions if decision.claim == recall.id)
    stopped = _sides(actor, found)
    if answer.decision is e.DecisionKind.ADMIT:
        text = _("%(units)s are idle and would be held for %(department)s at once; nobody has to go.")
    elif answer.decision is e.DecisionKind.RECLAIM and stopped:
        text = _("%(count)s workloads would be told to go; then %(department)s has its %(units)s.")
    elif answer.decision is e.DecisionKind.RECLAIM:
        text = _("%(department)s gets its %(units)s from what is leaving already.")
    else:
        text = _("%(units)s cannot come back now: the department uses its guarantee, or nobody may be stopped yet.")
    sentence = text % {"units": amount(units, pool), "count": len(stopped), "department": department.name}
    return Preview(stopped, moment(answer.by) if answer.by is not None else None, sentence)


def preview_drain(*, actor: Actor, node: Node) -> Preview:
    """What runs on the node now (it stays until it ends), and who would wait longer. For operators."""
    actor.require_operator()
    places = Claim.objects.filter(state__in=["holding", "leaving"], pool__cards__node=node).distinct()
    here = [c for c in places.select_related("department") if any(p["node"] == node.name for p in c.placement or [])]
    text = _("%(count)s workloads run here and stay until they end; nothing new starts on %(node)s.")
    return Preview(tuple(_side(actor, claim) for claim in here), None, text % {"count": len(here), "node": node.name})


def _starts(decision: e.Decision | None) -> bool:
    return decision is not None and decision.decision is e.DecisionKind.ADMIT


def _sides(actor: Actor, found: Difference) -> tuple[ClaimSide, ...]:
    rows = Claim.objects.filter(public_id__in=found.told).select_related("department").order_by("department", "name")
    return tuple(_side(actor, claim) for claim in rows)


def _side(actor: Actor, claim: Claim) -> ClaimSide:
    own = actor.may(Right.SEE, claim.department_id)
    return ClaimSide(claim.department, claim.units, own, claim.name if own else "", claim.workload if own else "")


def _last(found: Difference) -> dt.datetime | None:
    """By when the last of those told would be gone."""
    told = set(found.told)
    by = [d.by for d in found.after.decisions if d.by is not None and told & set(d.victims)]
    return moment(max(by)) if by else None
