"""Opaque public ids that sort by time: 48 bits of milliseconds and 80 random bits, 26 letters (the ULID layout)."""

import secrets
import time

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no i, l, o, u; lower case suits Kubernetes names


def new_id() -> str:
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return "".join(ALPHABET[number >> shift & 31] for shift in range(125, -5, -5))
