"""What whoever decides a request is told of the department's last days."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from quotas.models import ClaimState
from quotas.requests.record import record_of
from tests import builders as make

pytestmark = pytest.mark.django_db


def test_who_was_recalled_and_started_again_waited_only_since_then() -> None:
    vision, pool, now = make.department("vision"), make.pool("a100"), timezone.now()
    for minutes in (2, 4):
        make.claim(vision, pool, 1, ClaimState.HOLDING, submitted_at=now - dt.timedelta(days=3),
                   queued_at=now - dt.timedelta(minutes=minutes), started_at=now)  # fmt: skip
    record = record_of(vision, pool)
    assert (record.starts, record.median_wait) == (2, 180)
