"""Which MIG layout each card of a node should get, so that the queue is served best.
The layouts are chosen so that, in this order, most slices of claims within their department's guaranteed quota are served; then
most slices of other claims; then the fewest cards are repartitioned; then most slices are usable. Only full layouts are
considered, and the present one. The choice is exact: a dynamic programme over the cards, whose state is how many instances of
each profile are served so far; of two ways to the same state the better one is kept. Beyond STATES states, more than any known
queue leads to, the least promising are dropped.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from quotas.engine.mig_profiles import PRODUCTS, Profile

STATES = 20_000
Layout = tuple[tuple[str, int], ...]
"""(profile, how many), sorted by profile."""
Place = tuple[str, int]
"""(profile, first memory slice)."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requested instances of one profile: by claims `inside` their department's guaranteed quota, and by others."""

    profile: str
    inside: int = 0
    other: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """One layout for each card, by index. `inside` and `other`: served slices of the demand; `changed`: indexes of the cards
    whose layout differs from the present one; `config`: name of the configuration if all cards get the same layout."""

    layouts: tuple[Layout, ...]
    inside: int
    other: int
    changed: tuple[int, ...]
    config: str = ""

    @property
    def instances(self) -> dict[str, int]:
        """The instances of all cards together."""
        return instances_of(self.layouts)


def instances_of(layouts: Iterable[Layout]) -> dict[str, int]:
    """The instances of cards with these layouts: {profile: how many}."""
    total: Counter[str] = Counter()
    for layout in layouts:
        total.update(dict(layout))
    return dict(sorted(total.items()))


def layout_of(counts: Mapping[str, int]) -> Layout:
    return tuple(sorted((profile, count) for profile, count in counts.items() if count > 0))


# Layouts of a card -----------------------------------------------------------------------------------------------------


def full_placements(product: str, profiles: Iterable[str]) -> tuple[frozenset[Place], ...]:
    """Every way to place instances of these profiles on one card so that no further one fits. Raises KeyError for an unknown
    product or profile."""
    return _full_placements(product, tuple(sorted(set(profiles))))


@cache
def _full_placements(product: str, profiles: tuple[str, ...]) -> tuple[frozenset[Place], ...]:
    """From the left, an instance starts at each slice, or none does; a placement is kept if no further instance fits."""
    table = {name: PRODUCTS[product][name] for name in profiles}
    places = [(name, start) for name, profile in table.items() for start in profile.starts]
    width = max((start + table[name].size for name, start in places), default=0)
    open_: list[tuple[int, tuple[Place, ...]]] = [(0, ())]
    placements: set[frozenset[Place]] = set()
    while open_:
        at, chosen = open_.pop()
        if at < width:
            open_.append((at + 1, chosen))
            next_ = (place for place in places if place[1] == at and _fits(table, place, chosen))
            open_ += [(at + table[place[0]].size, (*chosen, place)) for place in next_]
        elif chosen and not any(_fits(table, place, chosen) for place in places):
            placements.add(frozenset(chosen))
    return tuple(sorted(placements, key=sorted))


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
    """Every full layout of one card; profiles with a media engine are included only if `media`."""
    names = [name for name, profile in PRODUCTS[product].items() if media or not profile.media]
    placements = full_placements(product, names)
    return tuple(sorted({layout_of(Counter(name for name, _ in places)) for places in placements}))


def uniform_layout(product: str, profile: str) -> Layout:
    """The layout with as many instances of one profile as fit on a card."""
    table = PRODUCTS[product]
    return ((profile, 1 if table[profile].media else len(table[profile].starts)),)


def fits_one_card(product: str, layout: Layout) -> bool:
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


# Choosing among them ---------------------------------------------------------------------------------------------------


Served = tuple[int, ...]
"""How many instances of each demanded profile are served."""
Value = tuple[int, int]
"""(minus the number of repartitioned cards, usable slices): the larger is better among layouts that serve the same."""


def propose(product: str, cards: Sequence[Layout], demand: Sequence[Demand]) -> Proposal:
    """The best layout for each card, out of all full layouts. Raises KeyError for an unknown product or profile."""
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
    """The best of the configurations that give every card the same layout. Raises ValueError if there is none."""
    proposals = []
    for config, layout in sorted(named.items()):
        served = tuple(dict(layout).get(each.profile, 0) * len(cards) for each in demand)
        proposal = _proposal(cards, (layout,) * len(cards), _worth(product, served, demand), config)
        usable = sum(PRODUCTS[product][name].size * count for name, count in layout)
        proposals.append(((proposal.inside, proposal.other, -len(proposal.changed), usable), proposal))
    if not proposals:
        raise ValueError(f"no configuration is known of {product}")
    return max(proposals, key=lambda each: each[0])[1]


def _options(
    product: str, present: Layout, demand: Sequence[Demand], most: Served, *, media: bool
) -> list[tuple[Served, Value, Layout]]:
    """The possible layouts of one card, as (what it serves, value, layout); of layouts that serve the same, only the best."""
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
    """(served slices of claims within guaranteed quota, served slices of others)."""
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
