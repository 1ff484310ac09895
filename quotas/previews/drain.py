"""Preview of draining a node or changing a pool's capacity. Read only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from django.db.models import Q, Sum
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.access import Actor
from portal.infra.confirm import Break
from portal.text.words import amount
from quotas.board.usage_now import IS_PRESENT
from quotas.engine.what_if import what_if, without_nodes
from quotas.models import Card, Claim, Node, Pool, PoolGroup
from quotas.planning.snapshot import load_snapshot
from quotas.previews.effects import Preview, breaks_of, effect_of, preview_of, side_of


def preview_drain(*, actor: Actor, node: Node) -> Preview:
    """The claims on the node, which stay until they end, and the claims whose decision would differ without it. For operators."""
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
    standing = places.select_related("department", "pool").order_by("pool", "department", "name")
    effect = effect_of(actor, *(what_if(each, without_nodes(each, [node.name])) for each in snapshots))
    otherwise = preview_of(effect) if effect.stopped or effect.staying or effect.starting or effect.waiting else None
    lines = (otherwise.sentence, *otherwise.lines) if otherwise else ()
    text = ngettext(
        "%(count)s workload runs here and continues until it ends; no new workload starts on %(node)s.",
        "%(count)s workloads run here and continue until they end; no new workload starts on %(node)s.",
        len(standing),
    )  # fmt: skip
    headline = text % {"count": len(standing), "node": node.name}
    breaks = (*breaks_of(effect), *shorter(node))
    return Preview(tuple(side_of(actor, claim) for claim in standing), None, headline, lines, breaks)


def shorter(node: Node, card: int | None = None) -> Iterator[Break]:
    """A break for each pool that guarantees more than would be present without the node, or this card of it."""
    if not node.takes_pods:
        return
    place = Q(node=node) if card is None else Q(node=node, index=card)
    for pool in Pool.objects.filter(pk__in=Card.objects.filter(place).values("pool")):
        cards = Card.objects.filter(IS_PRESENT, pool=pool)
        left = cards.exclude(place).aggregate(total=Sum("units"))["total"] or 0
        promised = pool.total_guaranteed()
        if promised > left:
            text = _("%(pool)s would have %(left)s, but %(promised)s are guaranteed to departments: %(short)s too few.")
            numbers = {
                "left": amount(left, pool),
                "promised": amount(promised, pool),
                "short": amount(promised - left, pool),
            }
            yield Break("short", text % ({"pool": pool.name} | numbers), (pool.slug, left, promised))


def preview_nominal(*, actor: Actor, pool: Pool, nominal: int) -> Preview:
    """Who would be recalled or wait if the pool's nominal capacity were this. For operators."""
    actor.require_operator()
    snapshot = load_snapshot(pool.group, now=timezone.now())
    rows = (replace(row, nominal=nominal) if row.id == pool.slug else row for row in snapshot.pools)
    return preview_of(effect_of(actor, what_if(snapshot, replace(snapshot, pools=tuple(rows)))))
