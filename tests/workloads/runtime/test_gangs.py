"""The state of a gang, derived from the states of its ranks."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from workloads.runtime.base import Phase, Rank
from workloads.runtime.gangs import as_rows, first_failed, gathered, was_stopped

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
P, R, S, F, L = Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED, Phase.LOST


def rank(number: int, phase: Phase, code: int | None = None, after: int = 0, *, stop_requested: bool = False) -> Rank:
    ended = NOW + dt.timedelta(seconds=after) if phase in (S, F, L) else None
    began = None if phase is P else NOW
    return Rank(
        number,
        phase,
        stop_requested=stop_requested,
        exit_code=code,
        started_at=began,
        finished_at=ended,
        node=f"n{number}",
    )


CASES = [
    ("all are running", [(R,), (R,)], {}, (R, False, None)),
    ("one has not started", [(R,), (P,)], {}, (P, False, None)),
    ("all succeeded", [(S, 0), (S, 0)], {}, (S, False, 0)),
    ("one succeeded and the other is running", [(S, 0), (R,)], {}, (R, False, None)),
    ("one failed and the other is running", [(F, 3), (R,)], {}, (R, True, None)),
    ("one failed before the other started", [(F, 3), (P,)], {}, (P, True, None)),
    ("the first failure gives the exit code", [(F, 1, 9), (F, 3, 2)], {}, (F, False, 3)),
    ("a stopped rank does not hide the failed one", [(F, 143, 1, "stopped"), (F, 3, 5)], {}, (F, False, 3)),
    ("all were stopped", [(F, 143, 1, "stopped"), (S, 0, 1, "stopped")], {}, (F, False, 143)),
    ("all were stopped and succeeded", [(S, 0, 1, "stopped"), (S, 0, 1, "stopped")], {}, (S, False, 0)),
    ("one was lost", [(F, 1, 1), (L, None, 9)], {}, (L, False, None)),
    ("one was lost and the other is running", [(L,), (R,)], {}, (R, True, None)),
    ("the leader succeeded and the others are running", [(S, 0), (R,)], {"leader_decides": True}, (R, True, None)),
    ("the leader succeeded, the others were stopped", [(S, 0), (F, 143, 1, "stopped")], {"leader_decides": True}, (S, False, 0)),
    ("the leader failed", [(F, 2), (F, 143, 1, "stopped")], {"leader_decides": True}, (F, False, 2)),
    ("a worker failed before the leader succeeded", [(S, 0, 9), (F, 4, 1)], {"leader_decides": True}, (F, False, 4)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "options", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_state_of_a_gang_follows_from_its_ranks(ranks: list[tuple], options: dict[str, bool], expected: tuple) -> None:  # type: ignore[type-arg]
    states = [
        rank(number, facts[0], *facts[1:3], stop_requested="stopped" in facts) for number, facts in enumerate(ranks)
    ]
    gang = gathered(states, **options)
    assert (gang.phase, gang.over, gang.exit_code) == expected


def test_gang_starts_with_its_last_rank_and_names_the_failed_rank() -> None:
    late = Rank(1, R, started_at=NOW + dt.timedelta(seconds=5))
    assert gathered([rank(0, R), late]).started_at == late.started_at
    assert gathered([rank(0, R), rank(1, P)]).started_at is None
    failed = Rank(1, F, exit_code=137, reason="OOMKilled", message="killed", finished_at=NOW)
    found = gathered([rank(0, R), failed])
    assert (found.reason, found.message, found.node) == ("OOMKilled", "rank 1: killed", "n0")


def test_equal_ranks_are_stored_as_equal_json() -> None:
    rows = as_rows([rank(0, F, 3), rank(1, R)])
    assert json.loads(json.dumps(rows)) == rows == as_rows([rank(0, F, 3), rank(1, R)])


def row(rank: int, phase: str, stop_requested: bool, finished: str, code: int | None = 1) -> dict[str, object]:
    return {
        "rank": rank,
        "phase": phase,
        "stop_requested": stop_requested,
        "finished_at": finished,
        "exit_code": code,
        "reason": "Error",
    }


def test_first_failed_rank_is_the_earliest_that_was_not_stopped() -> None:
    rows = [row(0, "failed", True, "1"), row(1, "failed", False, "3"), row(2, "failed", False, "2"),
            row(3, "succeeded", False, "0", 0), row(4, "running", False, "")]  # fmt: skip
    assert first_failed(rows) == rows[2]
    assert [was_stopped(each) for each in rows] == [True, False, False, False, False]
    assert first_failed([row(0, "succeeded", False, "1")]) is None
    old = {key: value for key, value in row(0, "failed", True, "1").items() if key != "stop_requested"}
    assert not was_stopped(old)
    assert was_stopped(old | {"reason": "Stopped"})
