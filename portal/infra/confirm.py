"""What a change takes from somebody is confirmed by naming it: one rule for pages and programs.

A view that knows what its change breaks calls `require`. Who has not seen this very list is refused with it: a page shows
it and sends the same form once more with its mark (portal.web.middleware), the API answers 409 with the list and the mark
to send as `confirm`. What has changed meanwhile is asked anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from portal.errors import N_, Problem
from portal.infra import versions

SHOWN = 100  # of what breaks, one sentence each
FIELD = "confirmed"  # of a page's form
PARAMETER = "confirm"  # of an API address


@dataclass(frozen=True, slots=True)
class Break:
    """One thing that a change takes from somebody, in words. `kind` and `about` say the same in every language: the kind
    of loss, and the ids and numbers that it rests on."""

    kind: str
    sentence: str
    about: tuple[Any, ...] = ()


class Unconfirmed(Problem):
    """`asks`, `action`: the title and the button of the page that asks; `also`: what else it says."""

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
    """The first SHOWN of them, as the API tells them."""
    return [{"kind": each.kind, "detail": each.sentence} for each in breaks[:SHOWN]]


def mark_of(breaks: Sequence[Break], facts: Any = None) -> str:
    """What is sent by whoever has read this list. `facts`: what else must not have changed."""
    return versions.mark({"breaks": sorted({(each.kind, *map(str, each.about)) for each in breaks}), "facts": facts})


def require(
    breaks: Sequence[Break], given: str, *, facts: Any = None, asks: str = "", action: str = "", also: Sequence[str] = ()
) -> None:  # fmt: skip
    """Raises Unconfirmed unless nothing breaks, or `given` is the mark of just this. `also` is shown under the list."""
    mark = mark_of(breaks, facts)
    if breaks and given != mark:
        raise Unconfirmed(breaks, mark=mark, changed=bool(given), asks=asks, action=action, also=also)
