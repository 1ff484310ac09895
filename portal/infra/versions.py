"""Concurrent edits: the second save is refused and shows both versions.

A form carries `seen`, the mark of what was stored when its page was made. The action compares it with what is stored
now, under the row's lock. If the form is sent again after that, it is saved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from portal.errors import N_, Problem

FIELD = "seen"


class Conflict(Problem):
    """`stored`: the current values."""

    code = "changed_meanwhile"
    message = N_(
        "Somebody else changed this after your page was loaded. Nothing was saved. Compare both "
        "versions, then save again."
    )

    def __init__(self, stored: Mapping[str, Any]) -> None:
        super().__init__()
        self.stored = dict(stored)

    @property
    def rows(self) -> list[tuple[str, str]]:
        return [(name, readable(value)) for name, value in self.stored.items()]


def mark(values: Mapping[str, Any]) -> str:
    """A short hash, the same for the same values."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check(stored: Mapping[str, Any], seen: str) -> None:
    """Raises Conflict if `seen` is not the mark of what is stored. "" comes from a program, which has seen no form."""
    if seen and seen != mark(stored):
        raise Conflict(stored)


class Stale(Problem):
    status = 412
    code = "stale"
    message = N_(
        "Somebody changed this in the meantime (version %(current)s, you had %(given)s). Review it, then decide."
    )


def check_fresh(current: int | None, given: int | None) -> None:
    """Raises Stale if the caller's version is not the current one. `current` None: the row does not exist; `given` None: the
    caller expects that it does not."""
    if current != given:
        raise Stale(current=current or 0, given=given or 0)


def readable(value: Any) -> str:
    """A stored value as text."""
    if value is None or value in ("", [], {}):
        return "–"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)
