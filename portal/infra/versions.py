"""Two tabs, or two people, change the same thing: whoever saves second is told, and sees both versions.

A form carries `seen`, the mark of what was stored when its page was made. The action compares it with what is stored now,
under the row's lock. Whoever sends the form again after seeing both has decided.
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
    """`stored` is what stands there now."""

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
    """The same for the same values, and short."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check(stored: Mapping[str, Any], seen: str) -> None:
    """Raises Conflict. `seen` "": a program, which has seen nothing and means what it says."""
    if seen and seen != mark(stored):
        raise Conflict(stored)


class Stale(Problem):
    status = 412
    code = "stale"
    message = N_(
        "Somebody changed this in the meantime (version %(current)s, you had %(given)s). Review it, then decide."
    )


def check_fresh(current: int | None, given: int | None) -> None:
    """None: there is none, or there should be none. Raises Stale when the caller has seen another version."""
    if current != given:
        raise Stale(current=current or 0, given=given or 0)


def readable(value: Any) -> str:
    """A stored value as it stands beside what was sent."""
    if value is None or value in ("", [], {}):
        return "–"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)
