"""Which signs of a fault begin and end a quarantine. Pure.

A *sign* indicates a fault of a node or of one of its cards: a node condition, an XID error, a card that its device plugin
reports as unhealthy. A source of signs answers for places (a card's index, or None for the node). Places without an answer
keep their state, because "not checked" does not mean "healthy".
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

AWAY = dt.timedelta(minutes=10)
"""How long a sign must be absent before its quarantine ends: an intermittent fault would otherwise stop one workload after
another. It is longer than a node takes to reset a GPU or restart its device plugin."""


@dataclass(frozen=True, slots=True, order=True)
class Sign:
    """`name`: source/fault, the same while the fault lasts. `card` None: the whole node."""

    name: str
    card: int | None = None


class Step(enum.Enum):
    BEGIN = "begin"  # a new sign: quarantine
    LEFT = "left"  # the sign is absent: wait in case it comes back
    BACK = "back"  # the sign came back while waiting
    OVER = "over"  # the sign has been absent for long enough


def steps(
    known: Mapping[Sign, dt.datetime | None],
    seen: Iterable[Sign],
    answered: Collection[int | None],
    *,
    now: dt.datetime,
    away: dt.timedelta = AWAY,
) -> dict[Sign, Step]:
    """The step of each sign that changes. `known`: signs that are not over, each with the time since which it is absent (None: it
    is present). `answered`: the places that the source has answered for. `away`: how long a sign must be absent."""
    there = {sign for sign in seen if sign.card in answered}
    changes = dict.fromkeys(there - known.keys(), Step.BEGIN)
    for sign, away_since in known.items():
        if sign.card not in answered:
            continue
        if sign in there:
            if away_since is not None:
                changes[sign] = Step.BACK
        elif now - (away_since or now) >= away:
            changes[sign] = Step.OVER
        elif away_since is None:
            changes[sign] = Step.LEFT
    return changes
