"""The card map: pools as rows of nodes and cells of cards, with who occupies what.

Everybody may see a pool's map. Cells name workloads and users only of departments that the reader may see.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from django.core.cache import cache

from portal.models import Department, User
from quotas.board.usage_now import Live, LiveClaim, LiveEntry, coming, free, held, held_unoccupied
from quotas.engine.mig_profiles import profile_of
from quotas.models import OCCUPYING, Card, Claim, ClaimState, Node, OutsidePod, Pool, Quarantine
from quotas.tree import upwards

OUTSIDE = "outside"  # the kind of a box for use outside quota


@dataclass(frozen=True, slots=True)
class Share:
    """What one claim occupies of one card: own, borrowed, or being recalled."""

    department: Department
    units: int
    charge: int  # more than `units` if it is charged for a larger share of the card's compute
    kind: str  # own | borrowed | leaving
    since: dt.datetime | None
    until: dt.datetime | None
    workload: str = ""  # public id; empty if the reader may not see the department
    name: str = ""
    user: User | None = None
    cores: int = 0  # percent of the card's compute, if the sharing system limits it
    profile: str = ""  # of the MIG instance, if it is one
    start: int | None = None  # the instance's first memory slice, if it is known


@dataclass(frozen=True, slots=True)
class Box:
    """The rectangle of a share in the drawing of its card, which is 96 wide and begins at x = 2."""

    kind: str
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class Cell:
    card: Card
    shares: tuple[Share, ...]
    takes_pods: bool

    @property
    def used(self) -> int:
        return sum(share.units for share in self.shares)

    @property
    def free(self) -> int:
        return max(0, self.card.units - self.used - self.card.outside) if self.takes_pods else 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing occupies the card, neither a claim nor use outside quota."""
        return not self.shares and not self.card.outside

    @property
    def boxes(self) -> list[Box]:
        """Rectangles of memory, or of MIG slices at their positions; use outside quota last."""
        parts = [(share.kind, share.units, share.start) for share in self.shares]
        if self.card.outside:
            parts.append((OUTSIDE, self.card.outside, None))
        return _boxes(parts, max(self.card.units, self.used + self.card.outside, 1))

    @property
    def core_boxes(self) -> list[Box]:
        """Rectangles of compute, if the card's sharing system limits it."""
        parts: list[tuple[str, int, int | None]] = [(share.kind, share.cores, None) for share in self.shares]
        if self.card.outside_cores:
            parts.append((OUTSIDE, self.card.outside_cores, None))
        return _boxes(parts, self.card.cores or 100)

    @property
    def slices(self) -> list[str]:
        """Positions of the lines between a card's memory slices."""
        cut = any(share.start is not None for share in self.shares)
        return [f"{2 + i * 96 / self.card.units:.2f}" for i in range(1, self.card.units)] if cut else []


def _boxes(parts: Iterable[tuple[str, int, int | None]], total: int) -> list[Box]:
    """Rectangles side by side, except for shares with a fixed start."""
    at, boxes = 0, []
    for kind, size, start in parts:
        at = at if start is None else start
        boxes.append(Box(kind, f"{2 + at * 96 / total:.2f}", f"{size * 96 / total:.2f}"))
        at += size
    return boxes


@dataclass(frozen=True, slots=True)
class Instances:
    """MIG instances of one profile on a node with fixed MIG geometry; the card of each instance is unknown."""

    profile: str
    size: int  # memory slices
    total: int
    shares: tuple[Share, ...]
    outside: int = 0

    @property
    def free(self) -> int:
        return max(0, self.total - len(self.shares) - self.outside)


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: Node
    cells: tuple[Cell, ...]
    instances: tuple[Instances, ...] = ()
    quarantines: tuple[Quarantine, ...] = ()  # in force on the node or its cards

    @property
    def driver(self) -> str:
        return _label(self.node, "nvidia.com/cuda.driver-version.full", "nvidia.com/cuda.driver.major")

    @property
    def cuda(self) -> str:
        return _label(self.node, "nvidia.com/cuda.runtime-version.full", "nvidia.com/cuda.runtime.major")

    @property
    def free(self) -> int:
        return sum(cell.free for cell in self.cells)

    @property
    def largest(self) -> int:
        """The most units of whole cards that one pod could get on this node."""
        return sum(cell.card.units for cell in self.cells if cell.takes_pods and cell.is_empty)


@dataclass(frozen=True, slots=True)
class DepartmentShare:
    department: Department
    own: int
    borrowed: int
    held: int
    guaranteed: int | None  # None: the reader may not see it


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A pool's present and guaranteed units, to compare with its nominal capacity."""

    pool: Pool
    present: int
    promised: int

    @property
    def short_by(self) -> int:
        """How many guaranteed units exceed the present capacity."""
        return max(0, self.promised - self.present)

    @property
    def missing(self) -> int:
        return max(0, self.pool.nominal - self.present)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOverview(Capacity):
    """One pool as everybody may see it."""

    rows: tuple[NodeRow, ...]
    shares: tuple[DepartmentShare, ...]
    unplaced: int  # units of claims whose cards are not known
    free: int
    held: int
    queue_units: int
    queue_len: int
    largest: int  # units of the largest pod that fits now
    outside: int  # units used by pods that the portal did not start
    outside_pods: tuple[OutsidePod, ...]  # shown to operators only

    @property
    def own(self) -> int:
        return sum(share.own for share in self.shares)

    @property
    def borrowed(self) -> int:
        return sum(share.borrowed for share in self.shares)

    @property
    def cards_free(self) -> int:
        rows = (row for row in self.rows if not row.instances)
        return sum(cell.is_empty and cell.takes_pods for row in rows for cell in row.cells)


def _label(node: Node, *names: str) -> str:
    return next((str(node.labels[name]) for name in names if name in node.labels), "")


def pool_overview(live: Live, *, seen: Collection[int] = ()) -> list[PoolOverview]:
    """Every pool of `live` with its nodes and cards. `seen`: ids of the departments whose workloads may be named."""
    cards, left = cards_of(live), _left_beside(live)
    strangers: dict[int, list[OutsidePod]] = defaultdict(list)
    for stranger in OutsidePod.objects.filter(pool__in=live.pools).select_related("node"):
        strangers[stranger.pool_id].append(stranger)
    views = [_overview(live, pool, cards[pool], seen, left, strangers[pool]) for pool in live.pools]
    return [replace(view, rows=_with_quarantines(view.rows)) for view in views]


def capacities(live: Live) -> list[Capacity]:
    """The capacity of every pool of `live`, which may have been read without claims."""
    return [
        Capacity(pool=row, present=live.present(pool), promised=_promised(live, pool))
        for pool, row in live.pools.items()
    ]


def _promised(live: Live, pool: int) -> int:
    return sum(quota.guaranteed for (_, pk), quota in live.quotas.items() if pk == pool)


def _with_quarantines(rows: tuple[NodeRow, ...]) -> tuple[NodeRow, ...]:
    """Rows with the quarantines of their nodes and cards. No query if nothing is quarantined."""
    concerned = {row.node.pk for row in rows if row.node.quarantined or any(c.card.quarantined for c in row.cells)}
    if not concerned:
        return rows
    by_node: dict[int, list[Quarantine]] = defaultdict(list)
    for each in Quarantine.objects.filter(node__in=concerned, ended_at=None).order_by("card", "public_id"):
        by_node[each.node_id].append(each)
    return tuple(replace(row, quarantines=tuple(by_node[row.node.pk])) for row in rows)


LARGEST_KEPT = 5  # s


def largest_now(live: Live) -> dict[int, int]:
    """Pool id → units of the largest pod that fits now, cached for LARGEST_KEPT: many readers keep these pages open.
    `live` must have all pools."""
    largest: dict[int, int] | None = cache.get("largest-now")
    if largest is None:
        largest = {view.pool.pk: view.largest for view in pool_overview(live)}
        cache.set("largest-now", largest, LARGEST_KEPT)
    return largest


BESIDE = ("cpu_milli", "memory_mib", "pods")


def _left_beside(live: Live) -> dict[tuple[int, str], dict[str, int]]:
    """(cluster, node name) → CPU, memory and pods left, of the resources whose amount the node reports. Two queries."""
    clusters = {pool.group.cluster_id for pool in live.pools.values()}
    left: dict[tuple[int, str], dict[str, int]] = {}
    for node in Node.objects.filter(cluster__in=clusters).only("cluster_id", "name", "outside", *BESIDE):
        has = {resource: getattr(node, resource) for resource in BESIDE}
        left[node.cluster_id, node.name] = {
            resource: amount - node.outside.get(resource, 0) for resource, amount in has.items() if amount is not None
        }
    standing = Claim.objects.filter(pool__group__cluster__in=clusters, state__in=OCCUPYING, pods__gt=0)
    for cluster, places, cpu, memory in standing.values_list(
        "pool__group__cluster", "placement", "cpu_milli", "memory_mib"
    ):
        for place in places or ():
            node_left = left.get((cluster, place["node"]), {})
            for resource, amount in zip(BESIDE, (cpu or 0, memory or 0, 1), strict=True):
                if resource in node_left:
                    node_left[resource] -= amount
    return left


def _most_beside(pool: Pool, left: Mapping[str, int]) -> int:
    """The most units for which a node with this much left has the CPU and memory that come with them, and a pod."""
    if left.get("pods", 1) < 1:
        return 0
    shares = dict(zip(BESIDE, pool.with_a_card, strict=False))
    bounds = [
        max(0, left[resource]) * pool.units_per_card // share
        for resource, share in shares.items()
        if share and resource in left
    ]
    return min(bounds, default=2**31)


def cards_of(live: Live) -> dict[int, list[Card]]:
    """Pool id → its cards with their nodes. Two queries."""
    by_pool: dict[int, list[Card]] = defaultdict(list)
    rows = list(Card.objects.filter(pool__in=live.pools))
    nodes = Node.objects.in_bulk({card.node_id for card in rows})
    for card in rows:
        card.node = nodes[card.node_id]
        by_pool[card.pool_id or 0].append(card)
    return by_pool


def _overview(
    live: Live,
    pool: int,
    cards: list[Card],
    seen: Collection[int],
    left: Mapping[tuple[int, str], Mapping[str, int]],
    strangers: Collection[OutsidePod],
) -> PoolOverview:
    claims = [claim for claim in live.claims_of(pool) if not claim.is_recall]
    occupying = [claim for claim in claims if claim.state in OCCUPYING]
    waiting = [claim for claim in claims if claim.state == ClaimState.PENDING]
    places, cut, unplaced = _by_card(live, pool, occupying, seen)
    nodes: dict[int, list[Card]] = defaultdict(list)
    for card in cards:
        nodes[card.node_id].append(card)
    rows = [_row(node, places, cut, live.pools[pool].mig) for node in nodes.values()]
    rows.sort(key=lambda row: row.node.name)
    unheld = free(live, pool)
    best = max((_largest(live.pools[pool], row, left) for row in rows), default=0)
    return PoolOverview(
        pool=live.pools[pool],
        rows=tuple(rows),
        shares=_shares(live, pool, seen),
        present=live.present(pool),
        promised=_promised(live, pool),
        unplaced=unplaced,
        free=unheld,
        held=held_unoccupied(live, pool),
        queue_units=sum(claim.units for claim in waiting),
        queue_len=len(waiting),
        largest=min(best, unheld),
        outside=sum(stranger.units for stranger in strangers),
        outside_pods=tuple(strangers),
    )


def _row(
    cards: list[Card],
    places: dict[tuple[str, int], list[Share]],
    cut: dict[tuple[str, str], list[Share]],
    table: str,
) -> NodeRow:
    node = cards[0].node
    cells = [
        Cell(card, tuple(places.get((node.name, card.index), ())), card.is_usable and node.takes_pods)
        for card in sorted(cards, key=lambda card: card.index)
    ]
    instances = [
        Instances(
            profile,
            slice_profile.size,
            count if node.takes_pods else 0,
            tuple(cut.get((node.name, profile), ())),
            node.outside.get("instances", {}).get(profile, 0),
        )
        for profile, count in sorted(node.instances.items() if table else ())
        if (slice_profile := profile_of(table, profile)) is not None
    ]
    return NodeRow(node, tuple(cells), tuple(instances))


def _largest(pool: Pool, row: NodeRow, left: Mapping[tuple[int, str], Mapping[str, int]]) -> int:
    """The most units that one pod could get on a node, with the CPU and memory that come with them."""
    most = row.largest if pool.unit == "card" else _largest_share(row)
    return min(most, _most_beside(pool, left.get((row.node.cluster_id, row.node.name), {})))


def _largest_share(row: NodeRow) -> int:
    """The most units that one pod could get in a pool of shares: of one card, or one instance of a fixed MIG geometry."""
    if row.instances:
        return max((each.size for each in row.instances if each.free), default=0)
    return max((cell.free for cell in row.cells), default=0)


def _by_card(
    live: Live, pool: int, claims: list[LiveClaim], seen: Collection[int]
) -> tuple[dict[tuple[str, int], list[Share]], dict[tuple[str, str], list[Share]], int]:
    """(node name, card index) → shares of the card; (node name, profile) → shares that are such instances; and the units
    whose card is unknown."""
    places: dict[tuple[str, int], list[Share]] = defaultdict(list)
    cut: dict[tuple[str, str], list[Share]] = defaultdict(list)
    guaranteed, unplaced = _own_units(live, pool), 0
    for claim in claims:
        own = guaranteed[claim.pk]
        if not claim.placement:
            unplaced += claim.units
        for placed in claim.placement or ():
            cards = placed.get("cards") or ()
            units, taken = (n // max(1, len(cards)) for n in (claim.units_per_pod, claim.on_card))
            for card in cards or [None]:
                kind = "leaving" if claim.state == ClaimState.LEAVING else "own" if own > 0 else "borrowed"
                own -= units
                share = _share(live, claim, taken, units, kind, seen, placed.get("start"))
                if card is not None:
                    places[placed["node"], card].append(share)
                elif claim.profile:
                    cut[placed["node"], claim.profile].append(share)
                else:
                    unplaced += units
    return places, cut, unplaced


def _own_units(live: Live, pool: int) -> Counter[int]:
    """Claim id → its units that are guaranteed to its department or to one above it."""
    own = Counter[int]()
    for pk in live.departments:
        for entry in live.entries.get((pk, pool), ()):
            own[entry.claim_id] += entry.units if _is_own(live, entry) else 0
    return own


def _share(
    live: Live, claim: LiveClaim, units: int, charge: int, kind: str, seen: Collection[int], start: int | None = None
) -> Share:
    until = claim.leave_by
    if until is None and claim.max_runtime and claim.started_at:
        until = claim.started_at + dt.timedelta(seconds=claim.max_runtime)
    known = claim.department_id in seen
    return Share(
        department=live.departments[claim.department_id],
        units=units,
        charge=charge,
        kind=kind,
        since=claim.started_at,
        until=until,
        workload=claim.workload if known else "",
        name=claim.name if known else "",
        user=claim.user if known else None,
        cores=claim.cores_per_pod or 0,
        profile=claim.profile,
        start=start,
    )


def _is_own(live: Live, entry: LiveEntry) -> bool:
    """Whether the units are guaranteed to the claim's department or to one above it."""
    return entry.own or any(above.pk == entry.lender_id for above in upwards(live.departments, entry.department_id))


def _shares(live: Live, pool: int, seen: Collection[int]) -> tuple[DepartmentShare, ...]:
    rows = []
    for pk, department in live.departments.items():
        entries: list[LiveEntry] = live.entries.get((pk, pool), [])
        own = sum(entry.units for entry in entries if _is_own(live, entry))
        borrowed = sum(entry.units for entry in entries) - own
        quota = live.quotas.get((pk, pool))
        if quota or entries:
            guaranteed = (quota.guaranteed if quota else 0) if pk in seen else None
            rows.append(
                DepartmentShare(department, own, borrowed, held(live, pk, pool) - coming(live, pk, pool), guaranteed)
            )
    return tuple(sorted(rows, key=lambda row: (-row.own - row.borrowed, row.department.slug)))
