"""Parsing whole numbers in untrusted text: addresses, headers, forms."""

from __future__ import annotations

LARGEST = 2**53 - 1  # what every JSON reader and every database column of ours can hold


def natural(text: str, largest: int = LARGEST) -> int | None:
    """The number from 0 to `largest` that `text` spells in ASCII digits; None for anything else.

    The length is checked first: Python refuses to convert numbers with thousands of digits.
    """
    if not (text.isascii() and text.isdigit() and len(text.lstrip("0")) <= len(str(largest))):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= largest else None
