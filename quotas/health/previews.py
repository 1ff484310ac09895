"""Preview of a quarantine: which workloads have to leave, by when, and what the pool then lacks. Read only."""

from __future__ import annotations

import datetime as dt

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.access import Actor
from quotas.engine.what_if import what_if, without_card, without_nodes
from quotas.models import Claim, ClaimState, Node, PoolGroup
from quotas.planning.snapshot import load_snapshot
from quotas.previews.drain import shorter
from quotas.previews.effects import Effect, Preview, breaks_of, effect_of, side_of
from quotas.rules.draining import notice_ends, on_node
from quotas.wording import clock_of


def preview_quarantine(*, actor: Actor, node: Node, card: int | None) -> Preview:
    """Preview of quarantining a node, or one card of it. Raises NotVisible unless the actor is an operator."""
    actor.require_operator()
    now = timezone.now()
    there = [claim for claim in on_node(node, card) if claim.state == ClaimState.HOLDING]
    leaving, staying = [c for c in there if c.preemptible], [c for c in there if not c.preemptible]
    snapshots = [load_snapshot(group, now=now) for group in groups_with(node)]
    effect = effect_of(actor, *(
        what_if(each, without_nodes(each, [node.name]) if card is None else without_card(each, node.name, card))
        for each in snapshots
    ))  # fmt: skip
    own = Effect(stopped=tuple(side_of(actor, claim) for claim in leaving))
    leavers = {claim.public_id for claim in there}
    others = [each for each in breaks_of(effect) if each.kind != "stopped" or each.about[0] not in leavers]
    last = max((notice_ends(claim, now=now) for claim in leaving), default=None)
    sentence = _headline(leaving, last)
    lines = [_staying(staying)] if staying else []
    return Preview(own.stopped, last, sentence, tuple(lines), (*breaks_of(own), *others, *shorter(node, card)))


def groups_with(node: Node) -> list[PoolGroup]:
    return list(PoolGroup.objects.filter(pools__cards__node=node).distinct().order_by("name"))


def _headline(leaving: list[Claim], last: dt.datetime | None) -> str:
    if last is None:
        return _("No workload has to leave.")
    text = ngettext(
        "%(count)s workload has to leave by %(by)s. It is queued again, and nothing is counted against it.",
        "%(count)s workloads have to leave, the last one by %(by)s. They are queued again, and nothing is counted against "
        "them.",
        len(leaving),
    )  # fmt: skip
    return text % {"count": len(leaving), "by": clock_of(last)}


def _staying(staying: list[Claim]) -> str:
    text = ngettext(
        "%(count)s non-preemptible workload runs there. It is not stopped; its author is told.",
        "%(count)s non-preemptible workloads run there. They are not stopped; their authors are told.",
        len(staying),
    )  # fmt: skip
    return text % {"count": len(staying)}
