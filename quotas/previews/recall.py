"""Preview of a recall. Read only."""

from __future__ import annotations

from dataclasses import replace

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.access import Actor, Right
from portal.models import Department
from portal.text.words import amount
from quotas.amounts import check_not_little
from quotas.engine import types as e
from quotas.engine.quota_tree import usage_of
from quotas.engine.snapshot_json import reason_to_json
from quotas.engine.what_if import what_if, with_claim
from quotas.models import Pool
from quotas.planning.snapshot import load_snapshot, moment, seconds
from quotas.previews.blocking_policy import barred
from quotas.previews.effects import Preview, breaks_of, effect_of
from quotas.rules.recalls import check_recall, recall_for_engine
from quotas.wording import Sentences, named_claims


def preview_recall(*, actor: Actor, department: Department, pool: Pool, units: int) -> Preview:
    """Which claims would be recalled, and when all units would be back. Raises Forbidden, Invalid (more than is guaranteed)."""
    actor.require(Right.STEER, department)
    check_not_little(units, pool)
    check_recall(department, pool, units)
    now = timezone.now()
    recall = recall_for_engine(e.DepartmentId(department.slug), e.PoolId(pool.slug), units, seconds(now))
    snapshot = load_snapshot(pool.group, now=now)
    asked = with_claim(snapshot, recall)
    difference = what_if(snapshot, asked)
    answer = next(each for each in difference.after.decisions if each.claim == recall.id)
    effect = effect_of(actor, difference)
    stopped, breaks = effect.stopped, tuple(each for each in breaks_of(effect) if each.kind == "stopped")
    if answer.decision is e.DecisionKind.ADMIT:
        text = _("%(department)s would have its %(units)s at once from idle capacity; no workload has to be preempted.")
    elif answer.decision is e.DecisionKind.RECLAIM and stopped:
        text = ngettext(
            "%(count)s workload would have to release its capacity; then %(department)s has its "
                "%(units)s.",
            "%(count)s workloads would have to release their capacity; then %(department)s has its "
                "%(units)s.", len(stopped),
        )  # fmt: skip
    elif answer.decision is e.DecisionKind.RECLAIM:
        text = _("%(department)s gets its %(units)s from capacity that is already being released.")
    else:
        return replace(_cannot_come_back(actor, department, pool, asked, answer), breaks=breaks)
    sentence = text % {"units": amount(units, pool), "count": len(stopped), "department": department.name}
    return Preview(stopped, moment(answer.by) if answer.by is not None else None, sentence, breaks=breaks)


def _cannot_come_back(
    actor: Actor, department: Department, pool: Pool, asked: e.Snapshot, answer: e.Decision
) -> Preview:
    """Why the units do not come back (own work, a policy, the engine's reason), and what the recall would do anyway."""
    recall = next(claim for claim in asked.claims if claim.id == answer.claim)
    account = usage_of(asked, recall.pool)[recall.department]
    words = {"department": department.name, "units": amount(recall.units, pool)}
    words |= {"in_use": amount(account.usage, pool), "guaranteed": amount(account.guaranteed, pool)}
    lines: list[str] = []
    if account.usage + recall.units > account.guaranteed:
        text = _("%(units)s cannot be recalled now: %(department)s itself uses %(in_use)s of its %(guaranteed)s.")
        if left := max(0, account.guaranteed - account.usage):
            lines.append(_("At most %(left)s can be recalled.") % {"left": amount(left, pool)})
    elif rule := barred(asked, answer.claim):
        text = _("%(units)s cannot be recalled now: a policy does not allow %(department)s to reclaim them.")
        lines.append(rule.sentence(department, pool))
    else:
        text = _(
            "%(units)s cannot be recalled now, although %(department)s uses only %(in_use)s of its %(guaranteed)s."
        )
        reasons = list(map(reason_to_json, answer.reasons))
        lines += [why for why, _advice in Sentences(actor, named_claims(reasons)).reasons(reasons, pool)]
    lines.append(_("If you recall anyway, the recall waits and takes capacity as it becomes free."))
    return Preview((), None, text % words, tuple(lines))
