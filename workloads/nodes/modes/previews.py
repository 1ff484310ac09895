"""Preview of a mode change: which workloads must leave, what is written, and what pools lose and gain."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.utils import timezone
from django.utils.translation import gettext as _

from portal.access import Actor
from portal.errors import N_, Invalid
from portal.infra.confirm import Break
from portal.text.words import amount
from quotas.engine import types as e
from quotas.engine.mig_profiles import PRODUCTS, profile_of
from quotas.engine.quota_tree import usage_of
from quotas.models import Claim, ClaimState, Node, OutsidePod, Pool, Quota
from quotas.planning.snapshot import load_snapshot
from quotas.previews.drain import preview_drain
from quotas.previews.effects import Effect, side_of
from quotas.previews.effects import breaks_of as breaks_of_effect
from quotas.rules.draining import leaves_by, on_node
from workloads.models import ModeChange
from workloads.nodes.modes.keepers import Keeper
from workloads.nodes.modes.mig_layouts import Demand, Layout, Proposal, fits_one_card, layout_of, propose, propose_named
from workloads.nodes.modes.recipes import MODES, ConfigEntry, Target, difference, named_layouts, recipe, with_entry
from workloads.nodes.pools import units_by_pool
from workloads.sharing.mig import labelled_memory
from workloads.sharing.mig import table_of as table_of_product


@dataclass(frozen=True, slots=True)
class Leaver:
    """A claim on the node. `by`: when SIGTERM would be sent; None: it must not be stopped, so the change waits for it."""

    claim: Claim
    by: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Preview:
    leavers: tuple[Leaver, ...]
    outside: int  # pods with a GPU that the portal did not start: the change waits for them, too
    empty_by: dt.datetime | None  # None: the node is empty, or something on it must not be stopped
    labels: dict[str, str | None]
    entry: ConfigEntry | None
    diff: tuple[str, ...]
    fault: str  # why the change cannot start; "": it can


def preview(node: Node, target: Target, keeper: Keeper) -> Preview:
    """The preview. Raises ClusterError if the cluster cannot be queried."""
    now = timezone.now()
    leavers = tuple(Leaver(c, _by(c, now)) for c in on_node(node))
    ends = [each.by + dt.timedelta(seconds=each.claim.grace) for each in leavers if each.by is not None]
    wanted = recipe(target, keeper.labels(node.name))
    diff: tuple[str, ...] = ()
    fault = ""
    if wanted.entry is not None:
        try:
            data = keeper.config(wanted.entry.which)
            diff = tuple(difference(data, with_entry(wanted.entry, data)))
        except ValueError as error:
            fault = str(error)
    outside = OutsidePod.objects.filter(node=node).count()
    waits = outside or any(each.by is None for each in leavers)
    return Preview(
        leavers, outside, max(ends) if ends and not waits else None, dict(wanted.labels), wanted.entry, diff, fault
    )


def _by(claim: Claim, now: dt.datetime) -> dt.datetime | None:
    if claim.state == ClaimState.LEAVING:
        return claim.leave_by or now
    return leaves_by(claim, now=now) if claim.preemptible else None


BEST_EACH, BEST_ALIKE = "best-each", "best-alike"


def modes_of(node: Node) -> list[str]:
    """Modes the node can have; MIG only if the product's profiles are known."""
    return [mode for mode in MODES if mode != "mig" or table_of(node)]


def target_of(
    node: Node, *, mode: str, replicas: int = 0, rename: bool = True, config: str = "",
    layouts: Sequence[Mapping[str, int]] = (),
) -> Target:  # fmt: skip
    """The target of an operator's choice; a best layout is computed from the present queue. Raises Invalid (mode, config)."""
    table = table_of(node)
    if mode not in modes_of(node):
        raise Invalid(N_("There is no mode %(mode)s."), field="mode", mode=mode)
    if mode in ("timeslicing", "mps"):
        return Target(mode, replicas=replicas, rename=rename)
    if mode != "mig" or table is None:
        return Target(mode)
    if layouts:
        return Target(mode, layouts=tuple(map(layout_of, layouts)), mig=table)
    if config in (BEST_EACH, BEST_ALIKE):
        proposal = proposal_for(node, table, each_its_own=config == BEST_EACH)
        return Target(mode, config=proposal.config, layouts=proposal.layouts, mig=table)
    named = named_layouts(table)
    if config not in named:
        text = N_("There is no configuration %(config)s. Available: %(configs)s.")
        raise Invalid(text, field="config", config=config or "–", configs=", ".join([BEST_EACH, BEST_ALIKE, *named]))
    return Target(mode, config=config, layouts=(named[config],) * card_count(node), mig=table)


@dataclass(frozen=True, slots=True)
class Loss:
    """A pool that loses capacity. `short`: by how many units the guaranteed quota would exceed what is left."""

    pool: Pool
    before: int
    after: int
    short: int


def losses(node: Node, target: Target) -> list[Loss]:
    lost = []
    held = units_by_pool(node)
    for pool in Pool.objects.filter(pk__in=held).exclude(sharing=target.mode):
        left = max(0, pool.nominal - held[pool.pk])
        promised = sum(Quota.objects.filter(pool=pool).values_list("guaranteed", flat=True))
        lost.append(Loss(pool, pool.nominal, left, max(0, promised - left)))
    return lost


def breaks_of(actor: Actor, node: Node, target: Target) -> list[Break]:
    """What the change breaks: claims that must leave, claims that start later, and pools with more guaranteed than is left."""
    leaving = [claim for claim in on_node(node) if claim.preemptible and claim.state == ClaimState.HOLDING]
    text = _("%(pool)s would have %(left)s, which is %(short)s less than guaranteed to departments.")
    short = [
        Break(
            "short",
            text
            % {"pool": loss.pool.name, "left": amount(loss.after, loss.pool), "short": amount(loss.short, loss.pool)},
            (loss.pool.slug, loss.short),
        )
        for loss in losses(node, target)
        if loss.short
    ]
    waits = [each for each in preview_drain(actor=actor, node=node).breaks if each.kind not in ("stopped", "short")]
    return [*short, *breaks_of_effect(Effect(stopped=tuple(side_of(actor, claim) for claim in leaving))), *waits]


def check_target(node: Node, target: Target) -> None:
    """Raise Invalid if the node cannot have this mode."""
    if target.mode not in MODES:
        raise Invalid(N_("There is no mode %(mode)s."), field="mode", mode=target.mode)
    if target.mode in ("timeslicing", "mps") and not 2 <= target.replicas <= 128:
        raise Invalid(
            N_("The number of shares per card must be 2 to %(most)s, not %(asked)s."),
            field="replicas",
            most=128,
            asked=target.replicas,
        )
    if target.mode != "mig":
        return
    table = table_of(node)
    if table is None or target.mig != table:
        raise Invalid(
            N_("The MIG profiles of %(product)s are not known."), field="mode", product=node.product or node.name
        )
    for layout in target.layouts:
        if not fits_one_card(table, layout):
            text = ", ".join(f"{count} × {profile}" for profile, count in layout)
            raise Invalid(N_("One card cannot hold %(layout)s at the same time."), field="layouts", layout=text)
    if len(target.layouts) != card_count(node):
        raise Invalid(N_("Specify a layout for each of the %(cards)s cards."), field="layouts", cards=card_count(node))


# MIG: layouts that serve the queue ------------------------------------------------------------------------------------


def table_of(node: Node) -> str | None:
    """The key of the MIG profile table for the node's cards; None if it is unknown."""
    return table_of_product(node.product, labelled_memory(node.labels))


def card_count(node: Node) -> int:
    return node.cards.count()


def present_layouts(node: Node, table: str) -> tuple[Layout, ...]:
    """The present layout of each card, if it is known: evenly partitioned, or as the last change left it; else () for each."""
    cards = card_count(node)
    counts = {profile: count for profile, count in node.instances.items() if profile in PRODUCTS[table]}
    if cards and counts and all(count % cards == 0 for count in counts.values()):
        even = tuple(sorted((profile, count // cards) for profile, count in counts.items()))
        if fits_one_card(table, even):
            return (even,) * cards
    last = ModeChange.objects.filter(node=node, stage="done").first()
    target = Target.from_json(last.target) if last else None
    if target is not None and target.mode == "mig" and target.instances == counts and len(target.layouts) == cards:
        return target.layouts
    return ((),) * cards


def demand_on(node: Node, table: str) -> list[Demand]:
    """The demand for MIG instances of this product, by profile, within guaranteed quota and beyond it: from claims that wait,
    and from those that run on the node and would be queued again."""
    inside, other = Counter[str](), Counter[str]()
    for pool in Pool.objects.filter(mig=table, group__cluster=node.cluster_id).select_related("group__cluster"):
        snapshot = load_snapshot(pool.group, now=timezone.now())
        on_this_node = {claim.public_id for claim in on_node(node) if claim.pool_id == pool.pk}
        ledger = usage_of(snapshot, e.PoolId(pool.slug))
        in_pool = [c for c in snapshot.claims if c.pool == pool.slug and c.profile and not c.is_recall]
        for claim in in_pool:
            if claim.id in on_this_node and claim.state is e.ClaimState.HOLDING:
                ledger.remove(claim.department, claim.units)
        asking = [c for c in in_pool if c.id in on_this_node or c.state is e.ClaimState.PENDING]
        for claim in sorted(asking, key=lambda c: (c.id not in on_this_node, -c.priority, c.waiting_since, c.id)):
            if profile_of(table, claim.profile) is None or claim.profile is None:
                continue
            if ledger.inside(claim.department, claim.units):
                inside[claim.profile] += claim.pods
                ledger.add(claim.department, claim.units)
            else:
                other[claim.profile] += claim.pods
    return [Demand(profile, inside[profile], other[profile]) for profile in sorted({*inside, *other})]


def proposal_for(node: Node, table: str, *, each_its_own: bool) -> Proposal:
    """The best layouts for the queue. `each_its_own`: separately for each card; else one named configuration for all cards."""
    cards, demand = present_layouts(node, table), demand_on(node, table)
    if each_its_own:
        return propose(table, cards, demand)
    return propose_named(table, cards, demand, named_layouts(table))
