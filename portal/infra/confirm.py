"""Destructive changes must be confirmed with the list of what they break: one rule for pages and the API.

A view lists what its change breaks and calls `require`. Without the mark of exactly this list the change is refused: a page
shows the list and sends the same form again with the mark (portal.web.middleware); the API answers 409 with the
list and the mark to send as `confirm`. If the list has changed in between, it has to be confirmed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from portal.errors import N_, Problem
from portal.infra import versions

SHOWN = 100  # breaks in a response, at most
FIELD = "confirmed"  # form field of a page
PARAMETER = "confirm"  # query parameter of the API


@dataclass(frozen=True, slots=True)
class Break:
    """One loss that a change causes, as a sentence. `kind` and `about` are independent of language: the kind of loss,
    and the ids and numbers that identify it."""

    kind: str
    sentence: str
    about: tuple[Any, ...] = ()


class Unconfirmed(Problem):
    """The change has to be confirmed. `asks`, `action`: title and button of the confirmation page; `also`: further sentences on
    it."""

    code = "needs_confirmation"
    message = N_(
        "This change affects workloads or departments: see `breaks`. To apply it anyway, send it "
        "again with confirm=%(confirm)s."
    )

    def __init__(
        self, breaks: Sequence[Break], *, mark: str, changed: bool, asks: str = "", action: str = "", also: Sequence[str] = ()
    ) -> None:  # fmt: skip
        super().__init__(breaks=as_json(breaks), more=max(0, len(breaks) - SHOWN), confirm=mark, changed=changed)
        self.asks, self.action, self.also = asks, action, list(also)


def as_json(breaks: Sequence[Break]) -> list[dict[str, str]]:
    """The first SHOWN breaks, for the API."""
    return [{"kind": each.kind, "detail": each.sentence} for each in breaks[:SHOWN]]


def mark_of(breaks: Sequence[Break], facts: Any = None) -> str:
    """The mark that confirms exactly this list. `facts`: further values that must not have changed in between."""
    return versions.mark({"breaks": sorted({(each.kind, *map(str, each.about)) for each in breaks}), "facts": facts})


def require(
    breaks: Sequence[Break], given: str, *, facts: Any = None, asks: str = "", action: str = "", also: Sequence[str] = ()
) -> None:  # fmt: skip
    """Raises Unconfirmed if something breaks and `given` is not the mark of this list. `also` is shown under the
    list."""
    mark = mark_of(breaks, facts)
    if breaks and given != mark:
        raise Unconfirmed(breaks, mark=mark, changed=bool(given), asks=asks, action=action, also=also)
