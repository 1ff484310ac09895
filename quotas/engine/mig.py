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


PRODUCTS: dict[str, dict[str, Profile]] = {
    "A30": {
        "1g.6gb": Profile(1, (0, 1, 2, 3)),
        "1g.6gb+me": Profile(1, (0, 1, 2, 3), media=True),
        "2g.12gb": Profile(2, (0, 2)),
        "2g.12gb+me": Profile(2, (0, 2), media=True),
        "4g.24gb": Profile(4, (0,)),
    },
    "A100-40GB": {
        "1g.5gb": Profile(1, (0, 1, 2, 3, 4, 5, 6)),
        "1g.5gb+me": Profile(1, (0, 1, 2, 3, 4, 5, 6), media=True),
        "1g.10gb": Profile(2, (0, 2, 4, 6)),
        "2g.10gb": Profile(2, (0, 2, 4)),
        "3g.20gb": Profile(4, (0, 4)),
        "4g.20gb": Profile(4, (0,)),
        "7g.40gb": Profile(8, (0,)),
    },
    "A100-80GB": {
        "1g.10gb": Profile(1, (0, 1, 2, 3, 4, 5, 6)),
        "1g.10gb+me": Profile(1, (0, 1, 2, 3, 4, 5, 6), media=True),
        "1g.20gb": Profile(2, (0, 2, 4, 6)),
        "2g.20gb": Profile(2, (0, 2, 4)),
        "3g.40gb": Profile(4, (0, 4)),
        "4g.40gb": Profile(4, (0,)),
        "7g.80gb": Profile(8, (0,)),
    },
    "H100-80GB": {
        "1g.10gb": Profile(1, (0, 1, 2, 3, 4, 5, 6)),
        "1g.10gb+me": Profile(1, (0, 1, 2, 3, 4, 5, 6), media=True),
        "1g.20gb": Profile(2, (0, 2, 4, 6)),
        "2g.20gb": Profile(2, (0, 2, 4)),
        "3g.40gb": Profile(4, (0, 4)),
        "4g.40gb": Profile(4, (0,)),
        "7g.80gb": Profile(8, (0,)),
    },
    "H200-141GB": {
        "1g.18gb": Profile(1, (0, 1, 2, 3, 4, 5, 6)),
        "1g.18gb+me": Profile(1, (0, 1, 2, 3, 4, 5, 6), media=True),
        "1g.35gb": Profile(2, (0, 2, 4, 6)),
        "2g.35gb": Profile(2, (0, 2, 4)),
        "3g.71gb": Profile(4, (0, 4)),
        "4g.71gb": Profile(4, (0,)),
        "7g.141gb": Profile(8, (0,)),
    },
    "B200-180GB": {
        "1g.23gb": Profile(1, (0, 1, 2, 3, 4, 5, 6)),
        "1g.23gb+me": Profile(1, (0, 1, 2, 3, 4, 5, 6), media=True),
        "1g.45gb": Profile(2, (0, 2, 4, 6)),
        "2g.45gb": Profile(2, (0, 2, 4)),
        "3g.90gb": Profile(4, (0, 4)),
        "4g.90gb": Profile(4, (0,)),
        "7g.180gb": Profile(8, (0,)),
    },
}


def profile_of(product: str | None, name: str | None) -> Profile | None:
    """The profile called `name` on `product`, or None when there is no such thing."""
    return PRODUCTS.get(product or "", {}).get(name or "")
