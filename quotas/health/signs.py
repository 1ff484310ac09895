"""Which signs of a fault begin and end a quarantine. Pure.

A *sign* says that a node, or one card of it, has a fault: a condition of the node, an XID error, a card that its device
plugin calls unhealthy. A source of signs answers for places (a card's index, or None for the node); what it did not
answer for keeps its state, because "not asked" is not "healthy".
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

AWAY = dt.timedelta(minutes=10)
"""How long a sign must be away until its quarantine ends: a fault that comes and goes would otherwise stop one workload
after the other. Longer than a node takes to reset a GPU or restart its device plugin."""


@dataclass(frozen=True, slots=True, order=True)
class Sign:
    """`name` is the same while the fault lasts: source/what. `card` None: the whole node."""

    name: str
    card: int | None = None


class Step(enum.Enum):
    BEGIN = "begin"  # a new sign: quarantine
    LEFT = "left"  # it is not there any more: wait whether it comes back
    BACK = "back"  # it came back in time
    OVER = "over"  # it has been away for long enough


def steps(
    known: Mapping[Sign, dt.datetime | None],
    seen: Iterable[Sign],
    answered: Collection[int | None],
    *,
    now: dt.datetime,
    away: dt.timedelta = AWAY,
) -> dict[Sign, Step]:
    """What changes. `known`: signs that have not been away for long enough yet, each with the time since which it is away.
    `answered`: places the source has answered for. `away`: for how long a sign must be away."""
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
