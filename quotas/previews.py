"""What a changed quota, a recall or a drained node would do to others. Read only; the same engine decides."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator
from dataclasses import replace

from django.db.models import Sum
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.access import Actor, Right
from portal.models import Department
from portal.text.words import amount
from quotas import windows
from quotas.actions import OWNERS_FIELDS, Lending, check_promises, check_sizes, split_of
from quotas.amounts import check_not_little
from quotas.barred import barred, nothing_comes_back
from quotas.effects import Preview, effect_of, preview_of, side_of
from quotas.engine import types as e
from quotas.engine.quota_tree import usage_of
from quotas.engine.snapshot_json import reason_to_json
from quotas.engine.what_if import what_if, with_claim, with_quota, without_nodes
from quotas.lending import height
from quotas.live import read
from quotas.models import Card, Claim, ClaimState, Node, Pool, PoolGroup, Quota
from quotas.recalls import check_recall, of_windows, recall_for_engine
from quotas.snapshots import load_snapshot, moment, quota_of, seconds
from quotas.telling import Teller, clock_of, lends, named_claims


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
    """Who would have to go, and who could start, if the quota were this.

    Raises Forbidden, and what set_quota would raise: OverPromised, BelowNonPreemptible, OverlappingWindows, Invalid.
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
    found = what_if(snapshot, changed)
    lines = windows_lines(row, found.told, now=now)
    if giver is not None:
        parent = e.DepartmentId(giver.department.slug)
        changed = with_quota(changed, parent, e.PoolId(pool.slug), quota_of(giver, now))
        text = _("%(parent)s would keep %(left)s of its own.")
        lines.append(text % {"parent": giver.department.name, "left": amount(giver.guaranteed, pool)})
        found = what_if(snapshot, changed)
    return preview_of(effect_of(actor, found), lines)


def _with_row(snapshot: e.Snapshot, row: Quota, *, lends_otherwise: bool, now: dt.datetime) -> e.Snapshot:
    """The snapshot with this quota instead, and with what its windows would call back at once."""
    changed = with_quota(snapshot, e.DepartmentId(row.department.slug), e.PoolId(row.pool.slug), quota_of(row, now))
    if lends_otherwise:
        over = {claim.public_id for claim in of_windows(row.department, row.pool)}
        changed = replace(changed, claims=tuple(claim for claim in changed.claims if claim.id not in over))
    for due in windows.due(changed, [row] if row.windows else [], now=now):
        changed = with_claim(changed, recall_for_engine(due.department, due.pool, due.units, seconds(now)))
    return changed


def windows_lines(quota: Quota, told: Collection[str], *, now: dt.datetime) -> list[str]:
    """What the lending windows mean now, and when they next call back what is lent beside what goes at once: all that the
    claims hold that are `told`, since what they leave too much is idle then. Nothing without windows."""
    if not quota.windows:
        return []
    schedule, pool = windows.schedule_of(quota), quota.pool
    said = [_("With this the department %(lends)s.") % {"lends": lends(quota, now=now)}]
    live = read([pool])
    inside = live.subtree(quota.department_id)
    entries = [e for pk in inside for e in live.lent.get((pk, pool.pk), ()) if e.department_id not in inside]
    going = sum(claim.units for claim in live.claims_of(pool.pk) if claim.public_id in told)
    staying = sum(entry.units for entry in entries if entry.claim.state == ClaimState.HOLDING) - going
    stays = int(min(staying, height(schedule.at(now))))
    fall = schedule.next_fall(now, stays)
    if entries and quota.pk and (rule := nothing_comes_back(quota.department, pool)):
        said.append(rule.sentence(quota.department, pool))
    elif fall is not None and fall[1] is not None:
        lent = sum(entry.units for entry in entries)
        back = {"lent": amount(lent, pool), "units": amount(stays - fall[1], pool), "at": clock_of(fall[0])}
        said.append(_("Of the %(lent)s lent now, %(units)s would be called back by %(at)s.") % back)
    return said


def preview_recall(*, actor: Actor, department: Department, pool: Pool, units: int) -> Preview:
    """Who would have to go, and by when all is back. Raises Forbidden, Invalid (more than is guaranteed)."""
    actor.require(Right.STEER, department)
    check_not_little(units, pool)
    check_recall(department, pool, units)
    now = timezone.now()
    recall = recall_for_engine(e.DepartmentId(department.slug), e.PoolId(pool.slug), units, seconds(now))
    snapshot = load_snapshot(pool.group, now=now)
    asked = with_claim(snapshot, recall)
    found = what_if(snapshot, asked)
    answer = next(each for each in found.after.decisions if each.claim == recall.id)
    stopped = effect_of(actor, found).stopped
    if answer.decision is e.DecisionKind.ADMIT:
        text = _("Of what is idle %(department)s would have its %(units)s at once; nobody has to go.")
    elif answer.decision is e.DecisionKind.RECLAIM and stopped:
        text = ngettext(
            "%(count)s workload would be told to go; then %(department)s has its %(units)s.",
            "%(count)s workloads would be told to go; then %(department)s has its %(units)s.", len(stopped),
        )  # fmt: skip
    elif answer.decision is e.DecisionKind.RECLAIM:
        text = _("%(department)s gets its %(units)s from what is leaving already.")
    else:
        return _cannot_come_back(actor, department, pool, asked, answer)
    sentence = text % {"units": amount(units, pool), "count": len(stopped), "department": department.name}
    return Preview(stopped, moment(answer.by) if answer.by is not None else None, sentence)


def _cannot_come_back(
    actor: Actor, department: Department, pool: Pool, asked: e.Snapshot, answer: e.Decision
) -> Preview:
    """Why not: its own work stands there, a policy says no, or what the engine says; and what asking anyway would do."""
    recall = next(claim for claim in asked.claims if claim.id == answer.claim)
    account = usage_of(asked, recall.pool)[recall.department]
    words = {"department": department.name, "units": amount(recall.units, pool)}
    words |= {"in_use": amount(account.usage, pool), "guaranteed": amount(account.guaranteed, pool)}
    lines: list[str] = []
    if account.usage + recall.units > account.guaranteed:
        text = _("%(units)s cannot come back now: %(department)s itself uses %(in_use)s of its %(guaranteed)s.")
        if left := max(0, account.guaranteed - account.usage):
            lines.append(_("At most %(left)s can.") % {"left": amount(left, pool)})
    elif rule := barred(asked, answer.claim):
        text = _("%(units)s cannot come back now: a policy does not let %(department)s take them.")
        lines.append(rule.sentence(department, pool))
    else:
        text = _("%(units)s cannot come back now, though %(department)s uses only %(in_use)s of its %(guaranteed)s.")
        reasons = list(map(reason_to_json, answer.reasons))
        lines += [why for why, _advice in Teller(actor, named_claims(reasons)).reasons(reasons, pool)]
    lines.append(_("Recalled all the same, it waits and takes what becomes free."))
    return Preview((), None, text % words, tuple(lines))


def preview_drain(*, actor: Actor, node: Node) -> Preview:
    """What runs on the node now (it stays until it ends), and for whom the next pass would decide otherwise without the
    node. For operators."""
    actor.require_operator()
    now = timezone.now()
    groups = PoolGroup.objects.filter(pools__cards__node=node).distinct().order_by("name")
    snapshots = [load_snapshot(group, now=now) for group in groups]
    there = {
        claim.id
        for each in snapshots
        for claim in each.claims
        for placed in claim.placement or ()
        if placed.node == node.name
    }
    places = Claim.objects.filter(public_id__in=there, state__in=["holding", "leaving"])
    here = places.select_related("department", "pool").order_by("pool", "department", "name")
    effect = effect_of(actor, *(what_if(each, without_nodes(each, [node.name])) for each in snapshots))
    otherwise = preview_of(effect) if effect.stopped or effect.staying or effect.starting or effect.waiting else None
    lines = (otherwise.sentence, *otherwise.lines) if otherwise else ()
    text = ngettext(
        "%(count)s workload runs here and stays until it ends; nothing new starts on %(node)s.",
        "%(count)s workloads run here and stay until they end; nothing new starts on %(node)s.", len(here),
    )  # fmt: skip
    said = text % {"count": len(here), "node": node.name}
    return Preview(tuple(side_of(actor, claim) for claim in here), None, said, lines, tuple(_shorter(node)))


def _shorter(node: Node) -> Iterator[str]:
    """The pools of which more is promised than would be there without the node."""
    if not node.takes_pods:
        return
    for pool in Pool.objects.filter(cards__node=node).distinct():
        cards = Card.objects.filter(
            pool=pool, healthy=True, node__present=True, node__drained=False, node__held_back=""
        )
        left = cards.exclude(node=node).aggregate(total=Sum("units"))["total"] or 0
        promised = Quota.objects.filter(pool=pool).aggregate(total=Sum("guaranteed"))["total"] or 0
        if promised > left:
            text = _("%(pool)s would have %(left)s, and %(promised)s are promised to departments: %(short)s too few.")
            numbers = {
                "left": amount(left, pool),
                "promised": amount(promised, pool),
                "short": amount(promised - left, pool),
            }
            yield text % ({"pool": pool.name} | numbers)
