"""The card map as SVG and HTML, built here rather than in a template because there may be thousands of cards.

A tile is a card with its parts side by side. Each part has CSS classes for both views, its department and its activity, and
the stylesheet shows the chosen view. Classes: the kind of the part (own, borrowed, …); d0 to d9 the department's colour; h0 to
h4 the activity, hn not measured, hx hidden from the reader; x filtered out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.models import Department
from portal.text.words import amount, percent
from quotas.board.map_reading import CardMap, Kind, MapNode, Part, Tile

LARGE, MEDIUM = 80, 800
"""The most cards that are drawn large (with a text for each card), and medium (with the name of each node)."""
COLOURS = 8
OTHERS = 9  # the colour of departments that the reader may see and that have no colour of their own
UNSEEN = 0  # the colour of departments that the reader may not see
STEPS = (0.005, 0.25, 0.5, 0.75)
"""Lower limits of activity for h1 to h4. Below the first a card did nothing."""
OVERLAYS = {Kind.BORROWED: "hatch", Kind.OUTSIDE: "dots"}

Matches = Callable[[Part], bool]


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a tile and the `gap` to the next one, in SVG units."""

    width: int
    height: int
    gap: int


WIDE, SQUARE, STRETCHED = Shape(22, 14, 3), Shape(10, 10, 2), Shape(22, 8, 0)


def density(cards: int) -> str:
    return "large" if cards <= LARGE else "medium" if cards <= MEDIUM else "small"


def step(activity: float) -> int:
    return sum(activity >= limit for limit in STEPS)


def colours_of(made: CardMap, guaranteed: Mapping[int, float], chosen: int | None = None) -> dict[int, int]:
    """Department id → its colour, 1 to COLOURS. `chosen` always has one; the others go to the departments that the reader may see
    with the largest guarantees (in cards), so that colours stay while work comes and goes."""
    using = {part.department for part in made.parts()}
    seen = [pk for pk in made.departments if pk in made.seen and (pk in using or guaranteed.get(pk))]
    ranked = sorted(seen, key=lambda pk: (-guaranteed.get(pk, 0), pk))[:COLOURS]
    if chosen is not None and chosen not in ranked:
        ranked = [*ranked[: COLOURS - 1], chosen]
    return {pk: number for number, pk in enumerate(ranked, 1)}


def colour_of(part: Part, colours: Mapping[int, int]) -> int:
    """The colour of the department whose claim holds the part."""
    return colours.get(part.department or 0, OTHERS) if part.is_seen else UNSEEN


@dataclass(frozen=True, slots=True)
class Drawing:
    nodes: SafeString
    density: str
    drawn: int  # number of nodes
    left_out: int  # number of nodes on which no part matches the filters


@dataclass(slots=True)
class Pen:
    """Draws one map for one reader. `address`: the map's URL; details of nodes are below it. `matches`: whether a part
    passes the filters (None: all do)."""

    made: CardMap
    colours: Mapping[int, int]
    address: str
    matches: Matches | None = None

    def draw(self) -> Drawing:
        chosen = [node for node in self.made.nodes if self._is_asked_for(node)]
        size = density(sum(len(node.tiles) for node in chosen))
        by_pool: dict[int, list[MapNode]] = defaultdict(list)
        for node in chosen:
            by_pool[node.pool].append(node)
        html = "".join(self._pool(pool, nodes, size) for pool, nodes in by_pool.items())
        return Drawing(mark_safe(html), size, len(chosen), len(self.made.nodes) - len(chosen))  # noqa: S308 built of escaped texts

    def _is_asked_for(self, node: MapNode) -> bool:
        return self.matches is None or any(self.matches(part) for tile in node.tiles for part in tile.parts)

    def _pool(self, pool: int, nodes: list[MapNode], size: str) -> str:
        row = self.made.pools[pool]
        count = ngettext("%(n)s node", "%(n)s nodes", len(nodes)) % {"n": f"{len(nodes):,}"}
        words = escape(free_words(self.made, pool))
        head = f'<h2 class="map-pool">{escape(row.name)} <span>{count} · {words}</span></h2>'
        draw = self._large if size == "large" else self._strip
        return f'{head}<ul class="map-nodes">{"".join(draw(node, size) for node in nodes)}</ul>'

    def _strip(self, node: MapNode, size: str) -> str:
        """All cards of a node in one drawing."""
        name = f"<b>{escape(node.name)}</b>" if size == "medium" else ""
        return self._link(node, name + self._row(node.tiles, 0, SQUARE if size == "small" else WIDE))

    def _large(self, node: MapNode, _size: str) -> str:
        """A node with a text for each card; instances of a fixed MIG geometry are in one line for each profile."""
        html, by_profile = "", groupby(enumerate(node.tiles), key=lambda each: each[1].profile)
        for profile, of_profile in by_profile:
            numbered = list(of_profile)
            if profile:
                free = sum(part.kind is Kind.FREE for _at, tile in numbered for part in tile.parts)
                words = _("%(free)s of %(total)s free") % {"free": free, "total": len(numbered)}
                row = self._row([tile for _at, tile in numbered], numbered[0][0], WIDE)
                html += f'<span class="map-profile"><b>{escape(profile)}</b>{row}<small>{escape(words)}</small></span>'
            else:
                html += f'<span class="map-cards">{"".join(self._card(at, tile) for at, tile in numbered)}</span>'
        return self._link(node, f"<b>{escape(node.name)}</b><span>{html}</span>")

    def _link(self, node: MapNode, html: str) -> str:
        href = f"{self.address}nodes/{node.pk}/"
        return f'<li><a href="{href}" aria-label="{escape(self._sentence(node))}">{html}</a></li>'

    def _row(self, tiles: Sequence[Tile], first: int, shape: Shape) -> str:
        """Tiles side by side; `first`: the position of the first one on its node."""
        step = shape.width + shape.gap
        drawn = "".join(self._tile(tile, at * step, shape) for at, tile in enumerate(tiles))
        begins = f' data-first="{first}"' if first else ""
        box = f"0 0 {len(tiles) * step - shape.gap} {shape.height}"
        return f'<svg viewBox="{box}" data-n="{len(tiles)}"{begins}>{drawn}</svg>'

    def _card(self, at: int, tile: Tile) -> str:
        whose, busy = escape(self._whose(tile)), escape(self._busy(tile))
        box = f"0 0 {STRETCHED.width} {STRETCHED.height}"
        drawing = f'<svg viewBox="{box}" preserveAspectRatio="none">{self._tile(tile, 0, STRETCHED)}</svg>'
        words = f'<small class="map-whose" title="{whose}">{whose}</small><small class="map-busy">{busy}</small>'
        return f'<span class="map-card" data-card="{at}">{drawing}{words}</span>'

    # Tiles ------------------------------------------------------------------------------------------------------------

    def _tile(self, tile: Tile, x: float, shape: Shape) -> str:
        wide, high, marks = shape.width, shape.height, ""
        if tile.is_quarantined:
            marks = f'<path class="cross" d="M{x} 0l{wide} {high}m0-{high}l-{wide} {high}"/>'
        elif tile.is_shut:
            marks = f'<path class="slash" d="M{x} {high}l{wide}-{high}"/>'
        if tile.slices:
            lines = "".join(f"M{_short(x + n * wide / tile.slices)} 0v{high}" for n in range(1, tile.slices))
            marks += f'<path class="tick" d="{lines}"/>'
        return "".join(self._part(part, x, shape) for part in tile.parts) + marks

    def _part(self, part: Part, x: float, shape: Shape) -> str:
        high, width = shape.height, part.size * shape.width
        left, wide = _short(x + part.start * shape.width), _short(max(width, 0.6))
        outline = f'd="M{left} 0h{wide}v{high}h-{wide}z"'
        out = " x" if self.matches is not None and not self.matches(part) else ""
        drawn = f'<path class="{part.kind.value}{self._classes(part)}{out}" {outline}/>'
        if overlay := OVERLAYS.get(part.kind):
            drawn += f'<path class="{overlay}{out}" {outline}/>'
        if part.is_idle:
            middle, radius = _short(x + part.start * shape.width + width / 2), _short(min(high / 4, width / 3))
            drawn += f'<circle class="idle{out}" cx="{middle}" cy="{high / 2:g}" r="{radius}"/>'
        return drawn

    def _classes(self, part: Part) -> str:
        if not part.kind.is_use:
            return ""
        colour = colour_of(part, self.colours)
        heat = "x" if not part.is_seen else "n" if part.activity is None else str(step(part.activity))
        return f" d{colour} h{heat}"

    # Words ------------------------------------------------------------------------------------------------------------

    def _whose(self, tile: Tile) -> str:
        words = dict.fromkeys(self.name_of(part) for part in tile.parts if part.kind is not Kind.FREE)
        return _(", ").join(words) or _("free")

    def _busy(self, tile: Tile) -> str:
        used = [part for part in tile.parts if part.kind.is_use]
        if not used:
            return "–"
        if not all(part.is_seen for part in used):
            return _("not shown")
        if any(part.activity is None for part in used):
            return _("not measured")
        return percent(sum((part.activity or 0) * part.size for part in used) / sum(part.size for part in used))

    def name_of(self, part: Part) -> str:
        if part.kind.is_use:
            return name_of_department(part, self.made.departments)
        return kind_name(part.kind)

    def _sentence(self, node: MapNode) -> str:
        counts: dict[Kind, float] = defaultdict(float)
        for tile in node.tiles:
            for part in tile.parts:
                counts[part.kind] += part.size * tile.cards
        parts = [f"{kind_name(kind)} {amount(count, 'card')}" for kind in Kind if (count := round(counts[kind], 1))]
        return f"{node.name}{_(': ')}{_(', ').join(parts)}"


def name_of_department(part: Part, departments: Mapping[int, Department]) -> str:
    if not part.is_seen:
        return _("another department")
    return departments[part.department or 0].name


def free_words(made: CardMap, pool: int) -> str:
    """How much of the pool is free, and how much of what is drawn as free is held for departments."""
    row, held = made.pools[pool], made.held[pool]
    text = _("%(free)s free, %(held)s held for departments") if held else _("%(free)s free")
    return text % {"free": amount(made.free[pool], row), "held": amount(held, row)}


def kind_name(kind: Kind) -> str:
    return {
        Kind.OWN: _("own"), Kind.BORROWED: _("borrowed"), Kind.LEAVING: _("being recalled"), Kind.FREE: _("free"),
        Kind.OUTSIDE: _("outside the quota"), Kind.WITHHELD: _("withheld"), Kind.QUARANTINED: _("quarantined"),
    }[kind]  # fmt: skip


def _short(number: float) -> str:
    """The number with at most two decimals, without trailing zeros."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the legend: a colour, its name and cards, and the department's slug to filter by ("": several departments)."""

    colour: int
    name: str
    cards: str
    slug: str


def legend(made: CardMap, colours: Mapping[int, int]) -> Iterator[Entry]:
    cards: dict[int, float] = defaultdict(float)
    for tile in (tile for node in made.nodes for tile in node.tiles):
        for part in tile.parts:
            if part.kind.is_use:
                cards[colour_of(part, colours)] += part.size * tile.cards
    for pk, colour in colours.items():
        if cards[colour]:
            row = made.departments[pk]
            yield Entry(colour, row.name, amount(cards[colour], "card"), row.slug)
    if cards[OTHERS]:
        yield Entry(OTHERS, _("more departments"), amount(cards[OTHERS], "card"), "")
    if cards[UNSEEN]:
        yield Entry(UNSEEN, _("another department"), amount(cards[UNSEEN], "card"), "")
