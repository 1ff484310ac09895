"""What the card map shows: the nodes and cards of some pools, which claim holds which part of a card, and how busy it is.

Read as plain values in a constant number of queries, because there may be thousands of cards. Unused space is a part too
(free, withheld or quarantined), so the parts of a card add up to the card.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from portal.models import Department
from quotas.board.usage_now import free, held_unoccupied, read
from quotas.engine.mig_profiles import profile_of
from quotas.models import OCCUPYING, Card, Claim, ClaimState, LedgerEntry, Node, Pool
from quotas.tree import upwards

Activity = Callable[[Collection[int], dt.datetime], Mapping[tuple[int, int], float]]
"""(pool ids, now) → {(claim, pod): activity}: the share of the last minutes in which the pod's cards computed, if measured."""


class Kind(enum.StrEnum):
    OWN = "own"
    BORROWED = "borrowed"
    LEAVING = "leaving"
    FREE = "free"
    OUTSIDE = "outside"
    WITHHELD = "withheld"
    QUARANTINED = "quarantined"

    @property
    def is_use(self) -> bool:
        """Whether a claim holds parts of this kind."""
        return self in (Kind.OWN, Kind.BORROWED, Kind.LEAVING)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a card: `start` and `size` are 0 to 1. `activity` and `is_idle` are not set if the reader may not see the claim's
    department."""

    kind: Kind
    start: float
    size: float
    department: int | None = None
    claim: int | None = None
    units: int = 0
    charge: int = 0  # of a claim: more than `units` if it is charged for a larger share of the card's compute
    is_seen: bool = True
    is_idle: bool = False
    activity: float | None = None  # None: not measured, or hidden
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """A card, or a MIG instance on a node with fixed geometry, whose card is unknown (then it has a `profile`).
    `cards`: how many cards it is. `is_shut`: it takes no new work, though some may run. `slices`: of a card that MIG cuts on
    demand; else 0."""

    label: str
    units: int
    parts: tuple[Part, ...]
    is_shut: bool = False
    is_quarantined: bool = False
    slices: int = 0
    profile: str = ""
    cards: float = 1.0


@dataclass(frozen=True, slots=True)
class MapNode:
    pk: int
    name: str
    pool: int
    tiles: tuple[Tile, ...]


@dataclass(slots=True)
class CardMap:
    pools: dict[int, Pool]
    departments: dict[int, Department]
    seen: Collection[int]
    nodes: list[MapNode] = field(default_factory=list)  # pool by pool, node by node
    free: dict[int, int] = field(default_factory=dict)  # pool → units, as the board counts them
    held: dict[int, int] = field(default_factory=dict)  # pool → units on free cards that are held for departments
    is_measured: bool = False  # whether any part that the reader may see has an activity

    def parts(self) -> Iterator[Part]:
        return (part for node in self.nodes for tile in node.tiles for part in tile.parts)


class Row(NamedTuple):
    """A claim that occupies something."""

    pk: int
    department: int
    pool: int
    state: str
    placement: list[dict[str, Any]] | None
    units_per_pod: int
    asked_per_pod: int | None
    profile: str
    idle_since: dt.datetime | None


COLUMNS = (
    "pk",
    "department_id",
    "pool_id",
    "state",
    "placement",
    "units_per_pod",
    "asked_per_pod",
    "profile",
    "idle_since",
)
NODE_COLUMNS = ("pk", "name", "instances", "outside", "present", "drained", "quarantined", "held_back")
CARD_COLUMNS = ("node_id", "pool_id", "index", "units", "outside", "healthy", "quarantined")
Placed = dict[tuple[int, str, int], list[Part]]  # (pool, node name, card) → the parts that claims hold
Cut = dict[tuple[int, str, str], list[Part]]  # (pool, node name, profile) → one part for each instance held


def read_map(pools: Iterable[Pool], *, seen: Collection[int], node: Node | None = None) -> CardMap:
    """Read the map. `seen`: ids of the departments whose workloads the reader may see. `node`: only this node."""
    live = read(pools)
    made = CardMap(live.pools, live.departments, seen)
    made.free = {pool: free(live, pool) for pool in made.pools}
    made.held = {pool: held_unoccupied(live, pool) for pool in made.pools}
    claims = Claim.objects.filter(pool__in=made.pools, state__in=OCCUPYING, pods__gt=0)
    cards = Card.objects.filter(pool__in=made.pools).order_by("pool__name", "pool", "node__name", "node", "index")
    rows = [Row(*values) for values in claims.order_by("pk").values_list(*COLUMNS)]
    if node is not None:
        cards = cards.filter(node=node)
        rows = [row for row in rows if any(place["node"] == node.name for place in row.placement or ())]
    activity = _activity(made.pools) if rows else {}
    placed, cut = _places(made, rows, activity)
    made.is_measured = any(part.activity is not None for parts in (*placed.values(), *cut.values()) for part in parts)
    nodes = {values[0]: values for values in Node.objects.filter(cards__pool__in=made.pools).values_list(*NODE_COLUMNS)}
    by_node: dict[tuple[int, int], list[tuple[Any, ...]]] = defaultdict(list)
    for values in cards.values_list(*CARD_COLUMNS):
        by_node[values[1], values[0]].append(values)
    for (pool, pk), of_node in by_node.items():
        made.nodes.append(_node(made.pools[pool], nodes[pk], of_node, placed, cut))
    return made


def _activity(pools: Collection[int]) -> Mapping[tuple[int, int], float]:
    if not settings.CARD_ACTIVITY:
        return {}
    ask: Activity = import_string(settings.CARD_ACTIVITY)
    return ask(pools, timezone.now())


def _own_units(made: CardMap) -> dict[int, int]:
    """Claim id → its units that are guaranteed to its department or to one above it."""
    own: dict[int, int] = defaultdict(int)
    entries = LedgerEntry.objects.filter(pool__in=made.pools, ended_at=None)
    for claim, department, is_own, lender, units in entries.values_list(
        "claim_id", "department_id", "own", "lender_id", "units"
    ):
        if is_own or any(above.pk == lender for above in upwards(made.departments, department)):
            own[claim] += units
    return own


def _places(
    made: CardMap, rows: Iterable[Row], activity: Mapping[tuple[int, int], float]
) -> tuple[Placed, Cut]:  # fmt: skip
    """The parts of every claim. If a claim is partly borrowed, its first pods and cards count as own."""
    placed, cut, own_units = defaultdict(list), defaultdict(list), _own_units(made)
    for row in rows:
        own, is_seen, pool = own_units.get(row.pk, 0), row.department in made.seen, made.pools[row.pool]
        taken_by_pod = row.units_per_pod if row.asked_per_pod is None else row.asked_per_pod
        for place in row.placement or ():
            cards = place.get("cards") or ()
            of_each = max(1, len(cards))
            for card in cards or (None,):
                is_leaving = row.state == ClaimState.LEAVING
                kind = Kind.LEAVING if is_leaving else Kind.OWN if own > 0 else Kind.BORROWED
                charge, taken = row.units_per_pod // of_each, taken_by_pod // of_each
                own -= charge
                start = place.get("start")
                part = Part(
                    kind, -1.0 if start is None else start / pool.units_per_card, taken / pool.units_per_card,
                    row.department, row.pk, taken, charge, is_seen, is_seen and row.idle_since is not None,
                    activity.get((row.pk, place.get("pod", 0))) if is_seen else None, row.profile,
                )  # fmt: skip
                if card is not None:
                    placed[row.pool, place["node"], card].append(part)
                elif row.profile:
                    cut[row.pool, place["node"], row.profile].append(part)
    return placed, cut


def _node(pool: Pool, node: tuple[Any, ...], cards: list[tuple[Any, ...]], placed: Placed, cut: Cut) -> MapNode:
    pk, name, instances, outside, present, drained, quarantined, held_back = node
    is_open = present and not drained and not quarantined and not held_back
    unused = Kind.FREE if is_open else Kind.QUARANTINED if quarantined else Kind.WITHHELD
    if instances and pool.mig:
        tiles = [*_instances(pool, name, instances, outside.get("instances", {}), unused, cut)]
    else:
        tiles = [_card(pool, values, placed.get((pool.pk, name, values[2]), ()), unused) for values in cards]
    return MapNode(pk, name, pool.pk, tuple(tiles))


def _card(pool: Pool, values: tuple[Any, ...], parts: Collection[Part], unused: Kind) -> Tile:
    _node_id, _pool, index, units, outside, healthy, quarantined = values
    unused = Kind.QUARANTINED if quarantined else unused if healthy or unused is Kind.QUARANTINED else Kind.WITHHELD
    laid, at = [], 0.0
    for part in sorted(parts, key=lambda part: part.start):
        start = at if part.start < 0 else part.start
        laid.append(_moved(part, start, max(0.0, min(part.size, 1 - start))))
        at = start + part.size
    if outside:
        laid.append(Part(Kind.OUTSIDE, min(at, 1.0), min(outside / units, max(0.0, 1 - at)), units=outside))
    laid += [Part(unused, start, size, units=round(size * units)) for start, size in _gaps(laid)]
    slices = units if pool.mig else 0
    return Tile(str(index), units, tuple(laid), unused is not Kind.FREE, unused is Kind.QUARANTINED, slices)


def _moved(part: Part, start: float, size: float) -> Part:
    return replace(part, start=start, size=size)


def _gaps(parts: Iterable[Part]) -> Iterator[tuple[float, float]]:
    """(start, size) of each gap between the parts."""
    at = 0.0
    for part in sorted(parts, key=lambda part: part.start):
        if part.start - at > 0.005:
            yield at, part.start - at
        at = max(at, part.start + part.size)
    if 1 - at > 0.005:
        yield at, 1 - at


def _instances(
    pool: Pool, name: str, instances: Mapping[str, int], outside: Mapping[str, int], unused: Kind, cut: Cut
) -> Iterator[Tile]:
    for profile, count in instances.items():
        known = profile_of(pool.mig, profile)
        units = known.size if known else 1
        parts = [_moved(part, 0.0, 1.0) for part in cut.get((pool.pk, name, profile), ())]
        parts += [Part(Kind.OUTSIDE, 0.0, 1.0, units=units)] * outside.get(profile, 0)
        parts += [Part(unused, 0.0, 1.0, units=units)] * max(0, count - len(parts))
        for part in parts:
            shut, quarantined = unused is not Kind.FREE, unused is Kind.QUARANTINED
            yield Tile(profile, units, (part,), shut, quarantined, 0, profile, units / pool.units_per_card)
