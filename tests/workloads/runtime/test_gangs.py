"""What a gang does, from what its ranks do."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from workloads.runtime.base import Phase, Rank
from workloads.runtime.gangs import as_rows, first_failed, gathered, was_stopped

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
P, R, S, F, L = Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED, Phase.LOST


def rank(number: int, phase: Phase, code: int | None = None, after: int = 0, *, told: bool = False) -> Rank:
    ended = NOW + dt.timedelta(seconds=after) if phase in (S, F, L) else None
    began = None if phase is P else NOW
    return Rank(
        number, phase, stop_requested=told, exit_code=code, started_at=began, finished_at=ended, node=f"n{number}"
    )


CASES = [
    ("all run", [(R,), (R,)], {}, (R, False, None)),
    ("one has not begun", [(R,), (P,)], {}, (P, False, None)),
    ("all exited well", [(S, 0), (S, 0)], {}, (S, False, 0)),
    ("one is done and the other goes on", [(S, 0), (R,)], {}, (R, False, None)),
    ("one failed and the other still runs", [(F, 3), (R,)], {}, (R, True, None)),
    ("one failed before the other began", [(F, 3), (P,)], {}, (P, True, None)),
    ("who failed first gives the code", [(F, 1, 9), (F, 3, 2)], {}, (F, False, 3)),
    ("who was told to go does not hide who failed", [(F, 143, 1, "told"), (F, 3, 5)], {}, (F, False, 3)),
    ("all were told to go", [(F, 143, 1, "told"), (S, 0, 1, "told")], {}, (F, False, 143)),
    ("all were told to go and ended well", [(S, 0, 1, "told"), (S, 0, 1, "told")], {}, (S, False, 0)),
    ("one was taken away", [(F, 1, 1), (L, None, 9)], {}, (L, False, None)),
    ("one was taken away and the other runs", [(L,), (R,)], {}, (R, True, None)),
    ("the leader is done and the others serve on", [(S, 0), (R,)], {"leader_decides": True}, (R, True, None)),
    ("the leader is done and the others were told", [(S, 0), (F, 143, 1, "told")], {"leader_decides": True}, (S, False, 0)),
    ("the leader failed", [(F, 2), (F, 143, 1, "told")], {"leader_decides": True}, (F, False, 2)),
    ("a worker failed before the leader was done", [(S, 0, 9), (F, 4, 1)], {"leader_decides": True}, (F, False, 4)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "options", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_gang_is(ranks: list[tuple], options: dict[str, bool], expected: tuple) -> None:  # type: ignore[type-arg]
    made = [rank(number, facts[0], *facts[1:3], told="told" in facts) for number, facts in enumerate(ranks)]
    found = gathered(made, **options)
    assert (found.phase, found.over, found.exit_code) == expected


def test_it_has_begun_when_the_last_rank_has_and_says_which_rank_is_at_fault() -> None:
    late = Rank(1, R, started_at=NOW + dt.timedelta(seconds=5))
    assert gathered([rank(0, R), late]).started_at == late.started_at
    assert gathered([rank(0, R), rank(1, P)]).started_at is None
    failed = Rank(1, F, exit_code=137, reason="OOMKilled", message="killed", finished_at=NOW)
    found = gathered([rank(0, R), failed])
    assert (found.reason, found.message, found.node) == ("OOMKilled", "rank 1: killed", "n0")


def test_ranks_are_kept_as_json_that_is_equal_for_equal_ranks() -> None:
    rows = as_rows([rank(0, F, 3), rank(1, R)])
    assert json.loads(json.dumps(rows)) == rows == as_rows([rank(0, F, 3), rank(1, R)])


def row(rank: int, phase: str, told: bool, finished: str, code: int | None = 1) -> dict[str, object]:
    return {
        "rank": rank,
        "phase": phase,
        "stop_requested": told,
        "finished_at": finished,
        "exit_code": code,
        "reason": "Error",
    }


def test_the_first_that_failed_by_itself_is_the_one() -> None:
    rows = [row(0, "failed", True, "1"), row(1, "failed", False, "3"), row(2, "failed", False, "2"),
            row(3, "succeeded", False, "0", 0), row(4, "running", False, "")]  # fmt: skip
    assert first_failed(rows) == rows[2]
    assert [was_stopped(each) for each in rows] == [True, False, False, False, False]
    assert first_failed([row(0, "succeeded", False, "1")]) is None
    old = {key: value for key, value in row(0, "failed", True, "1").items() if key != "stop_requested"}
    assert not was_stopped(old)
    assert was_stopped(old | {"reason": "Stopped"})
