"""MIG: which profiles a card can be cut into, and where on the card they may start.

A card is a row of memory slices (8; A30 4). An instance covers `size` slices from one of its listed starts, and
instances may not overlap; that alone also keeps compute slices within bounds. At most one instance with media
extensions (`+me`) stands on a card. The charge of a profile is its size: 3g costs 4 of 8.
Source: NVIDIA MIG User Guide, "Supported MIG Profiles", and `nvidia-smi mig -lgipp` on A100 and A30; H200 and B200
placements are inferred from the identical structure.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """A MIG profile: `size` in memory slices, where it may start, and whether it has the media engine."""

    size: int
    starts: tuple[int, ...]
    media: bool = False


def _eight_slices(one: str, double: str, two: str, three: str, four: str, seven: str) -> dict[str, Profile]:
    """All cards of eight memory and seven compute slices are cut alike; only the profiles' names differ."""
    return {
        one: Profile(1, (0, 1, 2, 3, 4, 5, 6)),
        f"{one}+me": Profile(1, (0, 1, 2, 3, 4, 5, 6), media=True),
        double: Profile(2, (0, 2, 4, 6)),
        two: Profile(2, (0, 2, 4)),
        three: Profile(4, (0, 4)),
        four: Profile(4, (0,)),
        seven: Profile(8, (0,)),
    }


PRODUCTS: dict[str, dict[str, Profile]] = {
    "A30": {
        "1g.6gb": Profile(1, (0, 1, 2, 3)),
        "1g.6gb+me": Profile(1, (0, 1, 2, 3), media=True),
        "2g.12gb": Profile(2, (0, 2)),
        "2g.12gb+me": Profile(2, (0, 2), media=True),
        "4g.24gb": Profile(4, (0,)),
    },
    "A100-40GB": _eight_slices("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "A100-80GB": _eight_slices("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H100-80GB": _eight_slices("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H200-141GB": _eight_slices("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    "B200-180GB": _eight_slices("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
}


def profile_of(product: str | None, name: str | None) -> Profile | None:
    """The profile called `name` on `product`, or None when there is no such thing."""
    return PRODUCTS.get(product or "", {}).get(name or "")
