"""MIG: the profiles a card can be cut into, where on it they may start, and which layouts serve a queue best.

A card is a row of memory slices (8; A30 and RTX PRO 6000 4). An instance covers `size` slices from one of its listed starts,
and instances may not overlap; that alone also keeps compute slices within bounds. At most one instance with all of the media
engines (`+me`) stands on a card. The charge of a profile is its size: 3g costs 4 of 8.

PRODUCTS has NVIDIA's tables. A profile that is in none of them is **derived** from its name: the compute slices (the 3 of
3g.40gb) and its part of the card's memory say how many memory slices it covers. Drivers name the same instances by other
numbers of GB (of a GB200 1g.23gb or 1g.24gb), and a card that nobody has a table of is cut by the same rule.

Sources: NVIDIA MIG User Guide, "Supported MIG Profiles"; `nvidia-smi mig -lgipp` on A100 and A30; NVIDIA/gpu-operator
assets/state-mig-manager/0400_configmap.yaml; names by NVIDIA/go-nvlib, mig_profile.go: the part of the card's memory in GB,
rounded. Placements of H200 and later are inferred from the identical structure.

**Layouts**: for each card of a node one layout is chosen so that, in this order, most slices of claims inside their
department's guarantee are served, then most slices of the others; then the fewest cards are cut anew; then the most slices are
usable at all. Only full layouts are considered, and the one a card has. The choice is exact: a dynamic programme over the
cards, whose state is how many of each profile are served so far; of two states that serve alike the better one goes on. Beyond
STATES of them, more than any queue seen makes, the least promising are dropped.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Profile:
    """A MIG profile: `size` in memory slices, where it may start, and whether it has the media engine."""

    size: int
    starts: tuple[int, ...]
    media: bool = False


# Memory slices of a card → compute slices of a profile → the sizes it comes in, each with its starts.
SHAPES: dict[int, dict[int, dict[int, tuple[int, ...]]]] = {
    8: {
        1: {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4, 6)},
        2: {2: (0, 2, 4)},
        3: {4: (0, 4)},
        4: {4: (0,)},
        7: {8: (0,)},
    },
    4: {1: {1: (0, 1, 2, 3)}, 2: {2: (0, 2)}, 4: {4: (0,)}},
    2: {1: {1: (0, 1)}, 2: {2: (0,)}},
}
NAME = re.compile(r"([1-9])g\.([0-9]{1,4})gb(|\+me|\+me\.all|\+gfx|-me)")
WITH_MEDIA = ("+me", "+me.all")
TOLERANCE = 0.1
"""A name's GB may be so much off the card's share, being rounded, or rounded by another driver from another total."""


class _Deriving(dict[str, V]):
    """A dict whose `[key]`, `get` and `in` also know keys that are derived when they are asked for (`__missing__`)."""

    def get(self, key: str, default: V | None = None) -> V | None:  # type: ignore[override]
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None


class Table(_Deriving[Profile]):
    """The profiles of a card of so many memory slices and GB: NVIDIA's, and those derived."""

    def __init__(self, slices: int, gb: int, variants: Mapping[int, tuple[str, ...]]) -> None:
        """`variants`: {compute slices: the suffixes that such a profile's name may have}."""
        super().__init__()
        self.slices, self.gb = slices, gb
        for compute, sizes in SHAPES[slices].items():
            for size, starts in sorted(sizes.items()):
                name = f"{compute}g.{share_gb(gb, size, slices)}gb"
                self[name] = Profile(size, starts)
                for suffix in variants.get(compute, ()) if size == compute else ():
                    self[name + suffix] = Profile(size, starts, media=suffix in WITH_MEDIA)

    def __missing__(self, name: str) -> Profile:
        found = derived(self.slices, self.gb, name)
        if found is None:
            raise KeyError(name)
        return found

    def is_said(self, name: object) -> bool:
        """Whether NVIDIA's table has the name; else it is derived."""
        return name in self.keys()


def share_gb(gb: int, size: int, slices: int) -> int:
    """The GB in the name of a profile of so many of the card's memory slices: rounded, a half up."""
    return (2 * gb * size + slices) // (2 * slices)


@cache
def derived(slices: int, gb: int, name: str) -> Profile | None:
    """What a profile of this name is on such a card, None where it cannot be one."""
    found = NAME.fullmatch(name)
    if found is None:
        return None
    for size, starts in SHAPES[slices].get(int(found[1]), {}).items():
        share = gb * size / slices
        if abs(int(found[2]) - share) <= TOLERANCE * share:
            return Profile(size, starts, media=found[3] in WITH_MEDIA)
    return None


DERIVED = re.compile(r"derived-([0-9]{1,4})GB-([248])")


class Tables(_Deriving[Table]):
    """By the name of a product. `derived-96GB-8` is a card of which only its memory is known."""

    def __missing__(self, key: str) -> Table:
        found = DERIVED.fullmatch(key)
        if found is None or not int(found[1]):
            raise KeyError(key)
        return derived_table(int(found[2]), int(found[1]))


@cache
def derived_table(slices: int, gb: int) -> Table:
    return Table(slices, gb, {})


def derived_key(slices: int, gb: int) -> str:
    """The key of the table of a card that NVIDIA has none of."""
    return f"derived-{gb}GB-{slices}"


ONE = {1: ("+me",)}
RTX = {1: ("+me", "+gfx", "+me.all", "-me"), 2: ("+gfx", "+me.all", "-me"), 4: ("+gfx",)}
PRODUCTS = Tables(
    {
        "A30": Table(4, 24, {1: ("+me",), 2: ("+me",)}),
        "A100-40GB": Table(8, 40, ONE),
        "A100-80GB": Table(8, 80, ONE),
        "H100-80GB": Table(8, 80, ONE),
        "H100-94GB": Table(8, 94, ONE),
        "H100-96GB": Table(8, 96, ONE),
        "H200-141GB": Table(8, 141, ONE),
        "GH200-144GB": Table(8, 144, ONE),
        "B200-180GB": Table(8, 180, ONE),
        "GB200-186GB": Table(8, 186, ONE),
        "B300-269GB": Table(8, 269, ONE),
        "RTX-PRO-6000-96GB": Table(4, 96, RTX),
    }
)
KNOWN = frozenset(PRODUCTS.keys())
"""The products that NVIDIA has tables of."""


def profiles_of(product: str | None) -> Mapping[str, Profile]:
    """All profiles of a product by their names; {} of what is no such product."""
    return PRODUCTS.get(product or "") or {}


@cache
def profile_of(product: str | None, name: str | None) -> Profile | None:
    """The profile called `name` on `product`, or None when there is no such thing."""
    table = PRODUCTS.get(product or "")
    return table.get(name or "") if table is not None else None


STATES = 20_000
Layout = tuple[tuple[str, int], ...]
"""(profile, how many), sorted by profile."""
Place = tuple[str, int]
"""(profile, first memory slice)."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Instances of one profile that are asked for: by claims `inside` their department's guarantee, and by others."""

    profile: str
    inside: int = 0
    other: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """One layout for each card, by index. `inside` and `other` are slices of the demand served; `changed` are the cards
    whose layout is another than before; `config` names the configuration where all cards get the same."""

    layouts: tuple[Layout, ...]
    inside: int
    other: int
    changed: tuple[int, ...]
    config: str = ""

    @property
    def instances(self) -> dict[str, int]:
        """All cards together."""
        return instances_of(self.layouts)


def instances_of(layouts: Iterable[Layout]) -> dict[str, int]:
    """What cards of these layouts have in all: {profile: how many}."""
    total: Counter[str] = Counter()
    for layout in layouts:
        total.update(dict(layout))
    return dict(sorted(total.items()))


def layout_of(counts: Mapping[str, int]) -> Layout:
    return tuple(sorted((profile, count) for profile, count in counts.items() if count > 0))


# What a card can look like ---------------------------------------------------------------------------------------------


def full_placements(product: str, profiles: Iterable[str]) -> tuple[frozenset[Place], ...]:
    """Every way to place instances of these profiles on one card so that no more of them fits. Raises KeyError for a product
    or profile that is not known."""
    return _full_placements(product, tuple(sorted(set(profiles))))


@cache
def _full_placements(product: str, profiles: tuple[str, ...]) -> tuple[frozenset[Place], ...]:
    """From the left: at each slice an instance starts, or none does; kept if in the end none fits."""
    table = {name: PRODUCTS[product][name] for name in profiles}
    places = [(name, start) for name, profile in table.items() for start in profile.starts]
    width = max((start + table[name].size for name, start in places), default=0)
    open_: list[tuple[int, tuple[Place, ...]]] = [(0, ())]
    found: set[frozenset[Place]] = set()
    while open_:
        at, chosen = open_.pop()
        if at < width:
            open_.append((at + 1, chosen))
            next_ = (place for place in places if place[1] == at and _fits(table, place, chosen))
            open_ += [(at + table[place[0]].size, (*chosen, place)) for place in next_]
        elif chosen and not any(_fits(table, place, chosen) for place in places):
            found.add(frozenset(chosen))
    return tuple(sorted(found, key=sorted))


def _fits(table: Mapping[str, Profile], place: Place, chosen: Iterable[Place]) -> bool:
    profile, start = table[place[0]], place[1]
    for name, other in chosen:
        if other < start + profile.size and start < other + table[name].size:
            return False
        if profile.media and table[name].media:
            return False
    return True


@cache
def full_layouts(product: str, *, media: bool = False) -> tuple[Layout, ...]:
    """Every full layout of one card; those with a media engine only when `media` is asked for."""
    names = [name for name, profile in PRODUCTS[product].items() if media or not profile.media]
    placements = full_placements(product, names)
    return tuple(sorted({layout_of(Counter(name for name, _ in places)) for places in placements}))


def uniform_layout(product: str, profile: str) -> Layout:
    """As many instances of one profile as a card takes."""
    table = PRODUCTS[product]
    return ((profile, 1 if table[profile].media else len(table[profile].starts)),)


def may_stand(product: str, layout: Layout) -> bool:
    """Whether some placement on one card has these instances."""
    table = PRODUCTS[product]
    if any(name not in table for name, _ in layout):
        return False
    wanted = sorted((name for name, count in layout for _ in range(count)), key=lambda name: -table[name].size)
    placements: set[frozenset[Place]] = {frozenset()}
    for name in wanted:
        places = [(name, start) for start in table[name].starts]
        placements = {chosen | {place} for chosen in placements for place in places if _fits(table, place, chosen)}
        if not placements:
            return False
    return True


# Which of them ---------------------------------------------------------------------------------------------------------


Served = tuple[int, ...]
"""How many instances of each demanded profile."""
Value = tuple[int, int]
"""(minus the cards cut anew, slices usable): more is better among layouts that serve alike."""


def propose(product: str, cards: Sequence[Layout], demand: Sequence[Demand]) -> Proposal:
    """The best layout of each card, every full layout allowed. Raises KeyError for an unknown product or profile."""
    media = any(PRODUCTS[product][each.profile].media for each in demand)
    most = tuple(each.inside + each.other for each in demand)
    states: dict[Served, tuple[Value, tuple[Layout, ...]]] = {(0,) * len(demand): ((0, 0), ())}

    def rank(item: tuple[Served, tuple[Value, tuple[Layout, ...]]]) -> tuple[tuple[int, int], Value]:
        return _worth(product, item[0], demand), item[1][0]

    for present in cards:
        options = _options(product, present, demand, most, media=media)
        reached: dict[Served, tuple[Value, tuple[Layout, ...]]] = {}
        for served, (value, chosen) in states.items():
            for gives, gain, layout in options:
                after = tuple(map(min, most, map(sum, zip(served, gives, strict=True))))
                better = (value[0] + gain[0], value[1] + gain[1]), (*chosen, layout)
                if after not in reached or better[0] > reached[after][0]:
                    reached[after] = better
        states = reached
        if len(reached) > STATES:
            states = dict(sorted(reached.items(), key=rank, reverse=True)[:STATES])
    served, (_, layouts) = max(states.items(), key=rank)
    return _proposal(cards, layouts, _worth(product, served, demand))


def propose_named(
    product: str, cards: Sequence[Layout], demand: Sequence[Demand], named: Mapping[str, Layout]
) -> Proposal:
    """The best of the configurations that give every card the same layout. Raises ValueError when there is none."""
    proposals = []
    for config, layout in sorted(named.items()):
        served = tuple(dict(layout).get(each.profile, 0) * len(cards) for each in demand)
        found = _proposal(cards, (layout,) * len(cards), _worth(product, served, demand), config)
        usable = sum(PRODUCTS[product][name].size * count for name, count in layout)
        proposals.append(((found.inside, found.other, -len(found.changed), usable), found))
    if not proposals:
        raise ValueError(f"no configuration is known of {product}")
    return max(proposals, key=lambda each: each[0])[1]


def _options(
    product: str, present: Layout, demand: Sequence[Demand], most: Served, *, media: bool
) -> list[tuple[Served, Value, Layout]]:
    """What one card may become: what it then serves, how good that is, and the layout; the best of those that serve alike."""
    best: dict[Served, tuple[Value, Layout]] = {}
    for layout in filter(None, (present, *full_layouts(product, media=media))):
        counts = dict(layout)
        gives = tuple(min(limit, counts.get(each.profile, 0)) for each, limit in zip(demand, most, strict=True))
        used = sum(PRODUCTS[product][name].size * count for name, count in layout)
        gain = (0 if layout == present else -1, used)
        if gives not in best or gain > best[gives][0]:
            best[gives] = gain, layout
    return [(gives, gain, layout) for gives, (gain, layout) in sorted(best.items())]


def _worth(product: str, served: Served, demand: Sequence[Demand]) -> tuple[int, int]:
    """Slices served of claims inside their guarantee, and of others."""
    inside = other = 0
    for count, each in zip(served, demand, strict=True):
        size, first = PRODUCTS[product][each.profile].size, min(count, each.inside)
        inside += size * first
        other += size * min(count - first, each.other)
    return inside, other


def _proposal(
    cards: Sequence[Layout], layouts: tuple[Layout, ...], worth: tuple[int, int], config: str = ""
) -> Proposal:
    changed = tuple(i for i, (old, new) in enumerate(zip(cards, layouts, strict=True)) if old != new)
    return Proposal(layouts, *worth, changed, config)
