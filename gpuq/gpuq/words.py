"""How texts from elsewhere are put on a terminal or into JSON: no name may move the cursor or turn the line around."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

JOINERS = "\u200c\u200d"  # part of words and of emoji


def is_harmless(character: str) -> bool:
    return character.isprintable() or character in JOINERS or unicodedata.category(character) == "Zs"


def harmless(text: str) -> str:
    """The text with control characters, marks of reading direction and bytes that are no text as escapes: \\x1b, \\u202e."""
    return "".join(
        character if is_harmless(character) else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def as_json(found: Any) -> str:
    """JSON with what people can read as it is, and everything else as JSON's own escapes."""
    text = json.dumps(found, ensure_ascii=False)
    return re.sub(r"[^\x20-\x7e]", lambda one: one[0] if is_harmless(one[0]) else json.dumps(one[0])[1:-1], text)


def columns(text: str) -> int:
    """How many columns of a terminal it takes; letters of East Asia take two."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))
