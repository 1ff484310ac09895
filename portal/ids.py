"""Opaque public ids that sort by time: 48 bits of milliseconds and 80 random bits, 26 letters (the ULID layout)."""

import datetime as dt
import secrets
import time

TIME = 10  # leading letters that encode the time
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no i, l, o, u; lower case suits Kubernetes names


def new_id(in_place_of: str = "", at: dt.datetime | None = None) -> str:
    """A new id, which sorts after all older ones; `in_place_of` gives it the place of that id, `at` that of an id made then."""
    milliseconds = time.time_ns() // 1_000_000 if at is None else int(at.timestamp() * 1000)
    number = milliseconds << 80 | secrets.randbits(80)
    made = "".join(ALPHABET[number >> shift & 31] for shift in range(125, -5, -5))
    return in_place_of[:TIME] + made[len(in_place_of[:TIME]) :]
