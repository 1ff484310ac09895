"""Makes texts from other people safe for a terminal and for JSON: no name may move the cursor or reverse the line."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

JOINERS = "\u200c\u200d"  # part of words and of emoji


def is_harmless(character: str) -> bool:
    return character.isprintable() or character in JOINERS or unicodedata.category(character) == "Zs"


def harmless(text: str) -> str:
    """The text with control characters, direction marks and undecodable bytes escaped: \\x1b, \\u202e."""
    return "".join(
        character if is_harmless(character) else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def as_json(found: Any) -> str:
    """JSON with readable characters as they are, and all others as JSON escapes."""
    text = json.dumps(found, ensure_ascii=False)
    return re.sub(r"[^\x20-\x7e]", lambda one: one[0] if is_harmless(one[0]) else json.dumps(one[0])[1:-1], text)


def columns(text: str) -> int:
    """The width of the text in columns of a terminal; East Asian characters take two."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))
