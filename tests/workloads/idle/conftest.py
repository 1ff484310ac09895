"""The test bed for rounds, pages and programs."""

from __future__ import annotations

import pytest

from tests import builders as make
from tests.workloads.idle.bed import IdleBed
from workloads.reconciler import idle_rounds


@pytest.fixture
def idle(db: None, monkeypatch: pytest.MonkeyPatch) -> IdleBed:
    vision, pool = make.department("vision"), make.pool("a100", cards=8)
    make.quota(vision, pool, 4)
    bed = IdleBed(pool, vision, make.member(vision, username="alice", email="alice@example.org"))
    monkeypatch.setattr(
        idle_rounds, "activity_of", lambda asked: {row.pk: bed.activity[row.pk] for row in asked if row.pk in bed.activity}
    )  # fmt: skip
    return bed
