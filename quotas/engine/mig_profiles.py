"""MIG: the profiles into which a card can be cut, and where on it they may start.

A card is a row of memory slices (8; A30 and RTX PRO 6000 4). An instance covers `size` slices from one of its listed starts,
and instances may not overlap; this alone also keeps compute slices within bounds. A card has at most one instance with all of
the media engines (`+me`). A profile is charged its size: 3g costs 4 of 8.

PRODUCTS has NVIDIA's tables. A profile that is in none of them is **derived** from its name: its compute slices (the 3 of
3g.40gb) and its part of the card's memory give the number of memory slices. Drivers name the same instances by different
numbers of GB (1g.23gb or 1g.24gb on a GB200), and cards without a table are cut by the same rule.

Sources: NVIDIA MIG User Guide, "Supported MIG Profiles"; `nvidia-smi mig -lgipp` on A100 and A30; NVIDIA/gpu-operator
assets/state-mig-manager/0400_configmap.yaml; names by NVIDIA/go-nvlib, mig_profile.go: the part of the card's memory in GB,
rounded. Placements of H200 and later are inferred from the identical structure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Profile:
    """A MIG profile: its `size` in memory slices, where it may start, and whether it has the media engines."""

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
"""How far the GB in a name may differ from the share of the card: they are rounded, sometimes from another total."""


class _Deriving(dict[str, V]):
    """A dict whose `[key]`, `get` and `in` also find keys that `__missing__` derives."""

    def get(self, key: str, default: V | None = None) -> V | None:  # type: ignore[override]
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None


class Table(_Deriving[Profile]):
    """The profiles of a card with this number of memory slices and GB: NVIDIA's, and derived ones."""

    def __init__(self, slices: int, gb: int, variants: Mapping[int, tuple[str, ...]]) -> None:
        """`variants`: {compute slices: the suffixes that the names of such profiles may have}."""
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
        """Whether NVIDIA's table has the name; otherwise it is derived."""
        return name in self.keys()


def share_gb(gb: int, size: int, slices: int) -> int:
    """The GB in the name of a profile with `size` of the card's memory slices: rounded, half up."""
    return (2 * gb * size + slices) // (2 * slices)


@cache
def derived(slices: int, gb: int, name: str) -> Profile | None:
    """The profile that this name denotes on such a card; None if there can be none."""
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
    """Tables by product. `derived-96GB-8` is a card of which only the memory is known."""

    def __missing__(self, key: str) -> Table:
        found = DERIVED.fullmatch(key)
        if found is None or not int(found[1]):
            raise KeyError(key)
        return derived_table(int(found[2]), int(found[1]))


@cache
def derived_table(slices: int, gb: int) -> Table:
    return Table(slices, gb, {})


def derived_key(slices: int, gb: int) -> str:
    """The key of the table of a card for which NVIDIA has none."""
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
"""The products for which NVIDIA has tables."""


def profiles_of(product: str | None) -> Mapping[str, Profile]:
    """All profiles of a product by name; {} for an unknown product."""
    return PRODUCTS.get(product or "") or {}


@cache
def profile_of(product: str | None, name: str | None) -> Profile | None:
    """The profile called `name` of `product`; None if there is none."""
    table = PRODUCTS.get(product or "")
    return table.get(name or "") if table is not None else None
