"""Which pool a node's cards belong to: that of their product and sharing system on their cluster.
For a new kind of cards a pool is created, without any guaranteed quota; if the cluster's option `new_pools` is "ask", the
cards wait until an operator creates one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import F, Sum
from django.db.models.functions import Greatest
from django.utils.text import slugify

from portal import audit
from portal.access import Actor
from portal.background.hints import wake
from portal.errors import N_, Invalid
from portal.infra.locks import durable
from quotas.engine.mig_profiles import KNOWN
from quotas.models import Card, Cluster, Node, Pool, PoolGroup
from quotas.planning.lock import locked_group
from workloads.runtime.base import CardInfo, NodeInfo, Offer
from workloads.sharing import SYSTEMS
from workloads.sharing.mig import labelled_table, slices

Key = tuple[str, str, int]
"""(product, sharing system, units per card or 0): the same for cards that are interchangeable for a request. The units count
for replicas, for slices of an unknown MIG product, and for the MiB of an unknown product."""


def key_of(kind: Offer | Pool) -> Key:
    # Derived from the node's instances, and so different by node.
    guessed = kind.unit == "slice" and (kind.mig or "") not in KNOWN
    counts = kind.unit == "replica" or guessed or (kind.unit == "MiB" and not kind.product)
    return kind.product, kind.sharing, kind.units_per_card if counts else 0


def pools_of(cluster: Cluster) -> dict[Key, Pool]:
    rows = Pool.objects.filter(group__cluster=cluster).order_by("-pk")  # the oldest of its kind wins
    return {key_of(pool): pool for pool in rows}


def servable(info: NodeInfo) -> tuple[Offer, ...]:
    """The node's offers that can form a pool; MIG cards with unknown profiles cannot."""
    return tuple(offer for offer in info.offers if offer.unit != "slice" or offer.mig)


def ensure_pools(cluster: Cluster, info: NodeInfo, known: dict[Key, Pool]) -> dict[Key, Pool]:
    """The pools of a node's offers, created if needed and added to `known`. Pools that share a node get one group,
    because they are planned together."""
    by_key: dict[Key, Pool] = {}
    for offer in servable(info):
        key = key_of(offer)
        if not offer.product:
            if key in known and Card.objects.filter(pool=known[key], node__name=info.name).exists():
                by_key[key] = known[key]  # the node stays in its pool, held back; no other joins it
            continue
        if key not in known and (unnamed := _named(offer, info, known)) is not None:
            known[key] = unnamed
        if key not in known and cluster.options.get("new_pools", "make") == "make":
            known[key] = _the_only(cluster, offer, next(iter(by_key.values()), None))
        if key in known:
            by_key[key] = known[key]
    if len({pool.group_id for pool in by_key.values()}) > 1:
        _into_one_group(list(by_key.values()))
    return by_key


def _named(offer: Offer, info: NodeInfo, known: dict[Key, Pool]) -> Pool | None:
    """The pool without a product that the node's cards are in, if there is one. Now that the product is known, the pool and its
    quotas become that product's; cards of any other product leave it."""
    for key, pool in known.items():
        if pool.product or pool.sharing != offer.sharing or pool.units_per_card != offer.units_per_card:
            continue
        if not Card.objects.filter(pool=pool, node__name=info.name).exists():
            continue
        if not Pool.objects.filter(pk=pool.pk, product="").update(product=offer.product):
            return None
        pool.product = offer.product
        del known[key]
        return pool
    return None


def _the_only(cluster: Cluster, offer: Offer, beside: Pool | None) -> Pool:
    """The pool for the offer, created if needed. Several processes may find the same nodes: only one of them creates it."""
    with durable():
        Cluster.objects.select_for_update(no_key=True, of=("self",)).get(pk=cluster.pk)
        pool = pools_of(cluster).get(key_of(offer))
        return pool or _make(cluster, offer, beside, _free_name(offer, cluster), _free_slug(slug_of(offer)))


def _make(cluster: Cluster, offer: Offer, beside: Pool | None, name: str, slug: str) -> Pool:
    group = beside.group if beside else PoolGroup.objects.create(name=slug, cluster=cluster)
    return Pool.objects.create(
        slug=slug, name=name[:100], group=group, product=offer.product,
        sharing=offer.sharing, unit=offer.unit, units_per_card=offer.units_per_card, nominal=0,
        mig=offer.mig or "", card_mib=memory_of(offer), card_cores=cores_of(offer.cards),
    )  # fmt: skip


def slug_of(offer: Offer) -> str:
    replicas = f"-{offer.units_per_card}" if offer.unit == "replica" else ""
    return slugify(f"{offer.product.removeprefix('NVIDIA-')}-{offer.sharing}{replicas}")[:50]


def memory_of(offer: Offer) -> int | None:
    return next((card.memory_mib for card in offer.cards if card.memory_mib), None)


def cores_of(cards: Iterable[CardInfo]) -> int | None:
    """Percent of compute that each of these cards offers, the least if they differ; None: compute is not limited."""
    return min((card.cores for card in cards if card.cores), default=None)


def _free_slug(slug: str) -> str:
    taken = set(Pool.objects.filter(slug__startswith=slug).values_list("slug", flat=True))
    return next(name for name in (slug, *(f"{slug}-{n}" for n in range(2, 1000))) if name not in taken)


def _free_name(offer: Offer, cluster: Cluster) -> str:
    """A name that no other pool has: people choose pools by name, and several clusters may have the same kind of cards."""
    replicas = f" × {offer.units_per_card}" if offer.unit == "replica" else ""
    name = f"{offer.product} ({offer.sharing}{replicas})"
    return f"{name}, {cluster.name}" if Pool.objects.filter(name=name).exists() else name


def _into_one_group(pools: list[Pool]) -> None:
    """Merge the groups of pools that turned out to share a node."""
    groups = sorted({pool.group_id for pool in pools})
    with durable():
        for group_id in groups:
            locked_group(group_id)
        Pool.objects.filter(group__in=groups[1:]).update(group=groups[0])
        wake("quotas.plan", group_id=groups[0])
    for pool in pools:
        pool.group_id = groups[0]


def note_shares(cluster: Cluster) -> None:
    """Record how much CPU and memory come with a card of each pool: an even share of the node that has the least, after
    permanent pods."""
    nodes = Node.objects.filter(cluster=cluster, present=True, held_back="", drained=False)
    least: dict[int, list[tuple[int | None, int | None]]] = {}
    for node in nodes.prefetch_related("cards"):
        cards = [card for card in node.cards.all() if card.pool_id is not None]
        standing = node.outside.get("standing", {})
        has = ((node.cpu_milli, "cpu_milli"), (node.memory_mib, "memory_mib"))
        share = tuple(
            max(0, whole - standing.get(resource, 0)) // len(cards) if whole else None
            for whole, resource in has
            if cards
        )
        for pool_id in {card.pool_id for card in cards}:
            least.setdefault(pool_id or 0, []).append((share[0], share[1]))
    for pool_id, shares in least.items():
        cpu, memory = (min((one for one in column if one), default=None) for column in zip(*shares, strict=True))
        known = Pool.objects.filter(pk=pool_id, cpu_per_card=cpu, memory_per_card=memory)
        if not known.exists():
            Pool.objects.filter(pk=pool_id).update(cpu_per_card=cpu, memory_per_card=memory)


def units_by_pool(node: Node) -> dict[int, int]:
    """Pool id → units of the node's cards in it. One query."""
    rows = Card.objects.filter(node=node, pool__isnull=False).order_by().values("pool").annotate(units=Sum("units"))
    return {row["pool"]: row["units"] for row in rows}


def carry_over(before: dict[int, int], after: dict[int, int]) -> None:
    """Move nominal capacity with the cards: a pool gains new cards and loses those that moved to another pool.
    Missing cards stay in the nominal capacity. Called under the locks of all pool groups.
    """
    for pool, units in after.items():
        if units > before.get(pool, 0):
            Pool.objects.filter(pk=pool).update(nominal=F("nominal") + units - before.get(pool, 0))
    for pool in before.keys() - after.keys() if after else ():
        Pool.objects.filter(pk=pool).update(nominal=Greatest(F("nominal") - before[pool], 0))


# Pools that an operator creates ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unpooled:
    """A kind of cards that no pool has yet."""

    cluster: Cluster
    offer: Offer
    nodes: tuple[str, ...]
    cards: int

    @property
    def key(self) -> str:
        return "/".join((self.cluster.name, *map(str, key_of(self.offer))))

    @property
    def slug(self) -> str:
        """The default slug of a pool for these cards."""
        return slug_of(self.offer)


def unpooled(nodes: Iterable[Node]) -> list[Unpooled]:
    """Kinds of cards that are unused because they belong to no pool. `nodes`: with their cards and cluster."""
    kinds: dict[tuple[Cluster, Key], tuple[Offer, dict[str, int]]] = {}
    for node in nodes:
        cards = [card for card in node.cards.all() if card.pool_id is None]
        system = SYSTEMS.get(node.sharing)
        if not cards or system is None or not node.present or not node.product:
            continue
        mig = None
        if system.ABOUT.unit == "slice":
            mig = labelled_table(node.product, node.labels, node.instances)
        per_card = slices(mig) if mig else max(card.units for card in cards)
        offer = Offer(node.sharing, node.product, system.ABOUT.unit, per_card, (), mig=mig)
        if system.ABOUT.unit != "slice" or mig:
            kinds.setdefault((node.cluster, key_of(offer)), (offer, {}))[1][node.name] = len(cards)
    return [
        Unpooled(cluster, offer, tuple(sorted(cards_by_node)), sum(cards_by_node.values()))
        for (cluster, _), (offer, cards_by_node) in kinds.items()
    ]


def make_pool(*, actor: Actor, kind: Unpooled, name: str, slug: str) -> Pool:
    """Create a pool for these cards; the next inventory puts them in. Raises NotVisible, Invalid (slug)."""
    actor.require_operator()
    if slugify(slug) != slug or not slug or len(slug) > 60:
        raise Invalid(N_("Use lowercase letters, digits and hyphens."), field="slug")
    if Pool.objects.filter(slug=slug).exists():
        raise Invalid(N_("Pool %(slug)s already exists."), field="slug", slug=slug)
    with durable():
        pool = _make(kind.cluster, kind.offer, None, name.strip() or _free_name(kind.offer, kind.cluster), slug)
        audit.record(actor, "pool.added", slug, after={"product": kind.offer.product, "sharing": kind.offer.sharing})
    return pool
