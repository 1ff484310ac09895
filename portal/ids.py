"""Opaque public ids that sort by time: 48 bits of milliseconds and 80 random bits, 26 letters (the ULID layout)."""

import secrets
import time

TIME = 10  # leading letters that encode the time
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no i, l, o, u; lower case suits Kubernetes names


def new_id(in_place_of: str = "") -> str:
    """A new id, which sorts after all older ones; with `in_place_of` it gets that id's time, and so its place."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    made = "".join(ALPHABET[number >> shift & 31] for shift in range(125, -5, -5))
    return in_place_of[:TIME] + made[len(in_place_of[:TIME]) :]
