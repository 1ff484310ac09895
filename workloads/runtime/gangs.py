"""The state of a gang from the states of its ranks. Pure; the same for all drivers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.runtime.base import Phase, Rank

LIVE = frozenset({Phase.PENDING, Phase.RUNNING})


@dataclass(frozen=True, slots=True)
class Gathered:
    """The gang as one run; fields as in Observed."""

    phase: Phase
    over: bool = False
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    node: str = ""
    cards: tuple[str, ...] = ()
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None


def gathered(ranks: Sequence[Rank], *, leader_decides: bool = False) -> Gathered:
    """The state of a gang. `ranks`: in order, one or more.
    The gang runs once all ranks have started. It is over once one has failed by itself, or once the leader has finished if the
    leader decides; it has ended once no rank lives. Ranks that were stopped never hide the one that failed, and a lost rank makes
    the whole gang lost, whatever the state of the other ranks.
    """
    live = [rank for rank in ranks if rank.phase in LIVE]
    broken = broken_of(ranks)
    first = broken[0] if broken else None
    done = leader_decides and ranks[0].phase is Phase.SUCCEEDED
    over = first is not None or done
    telling = first or next((rank for rank in ranks if rank.phase is Phase.PENDING and rank.reason), None)
    begun = [rank.started_at for rank in ranks if rank.started_at]
    facts: dict[str, Any] = {
        "node": ", ".join(dict.fromkeys(rank.node for rank in ranks if rank.node)),
        "cards": tuple(card for rank in ranks for card in rank.cards),
        "started_at": max(begun) if len(begun) == len(ranks) else None,
        "message": f"rank {telling.rank}: {telling.message}".rstrip(": ") if telling else "",
        "reason": telling.reason if telling else "",
    }
    if live:
        begins = any(rank.phase is Phase.PENDING for rank in ranks)
        return Gathered(Phase.PENDING if begins else Phase.RUNNING, over=over, **facts)
    facts["finished_at"] = max((rank.finished_at for rank in ranks if rank.finished_at), default=None)
    if done and not broken:
        return Gathered(Phase.SUCCEEDED, exit_code=0, **facts | {"reason": "Completed"})
    if any(rank.phase is Phase.LOST for rank in broken):
        return Gathered(Phase.LOST, **facts)
    last = first or next((rank for rank in ranks if rank.exit_code), ranks[0])
    if first is None and all(rank.phase is Phase.SUCCEEDED for rank in ranks):
        return Gathered(Phase.SUCCEEDED, exit_code=0, **facts | {"reason": "Completed"})
    return Gathered(Phase.FAILED, exit_code=last.exit_code, **facts | {"reason": last.reason})


def broken_of(ranks: Sequence[Rank]) -> list[Rank]:
    """Ranks that failed or were lost without a stop request; in the order of their ends."""
    bad = [rank for rank in ranks if rank.phase in (Phase.FAILED, Phase.LOST) and not rank.stop_requested]
    never = dt.datetime.max.replace(tzinfo=dt.UTC)
    return sorted(bad, key=lambda rank: (rank.finished_at or never, rank.rank))


def as_rows(ranks: Sequence[Rank]) -> list[dict[str, Any]]:
    """Ranks as JSON for the database; equal for equal ranks."""
    return [
        {
            "rank": each.rank,
            "phase": each.phase.value,
            "stop_requested": each.stop_requested,
            "node": each.node,
            "cards": list(each.cards),
            "exit_code": each.exit_code,
            "reason": each.reason,
            "message": each.message[:300],
            "started_at": each.started_at.isoformat() if each.started_at else None,
            "finished_at": each.finished_at.isoformat() if each.finished_at else None,
            "ready": each.ready,
            "restarts": each.restarts,
        }
        for each in ranks
    ]


def was_stopped(row: Mapping[str, Any]) -> bool:
    """Whether the rank of a stored row was stopped. Rows of older versions do not record it."""
    return row["phase"] in (Phase.FAILED, Phase.LOST) and bool(row.get("stop_requested", row["reason"] == "Stopped"))


def first_failed(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The rank that failed by itself first; None if none did."""
    bad = [row for row in rows if row["phase"] in (Phase.FAILED, Phase.LOST) and not was_stopped(row)]
    return min(bad, key=lambda row: (row["finished_at"] or "~", row["rank"]), default=None)
