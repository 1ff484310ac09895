"""A workload's checkpoint interval is learned from its saved checkpoints and kept for its next attempt."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from quotas.models import Claim
from quotas.planning.snapshot import claim_of
from tests.workloads.replay.test_command import Past
from workloads.models import Attempt
from workloads.reconciler.transitions import record_checkpoint, requeue

pytestmark = pytest.mark.django_db


def test_checkpoint_interval_ignores_further_files_of_the_same_checkpoint() -> None:
    past = Past()
    workload = past.workload("nlp", 4, hours_ago=5)
    past.attempt(workload, 1, 4, None)
    first = past.now - dt.timedelta(hours=2)
    learned = []
    for after in (0, 20, 1820, 1850, 3500):
        attempt = Attempt.objects.select_related("claim").get()
        assert record_checkpoint(attempt, first + dt.timedelta(seconds=after))
        learned.append(Claim.objects.get().checkpoint_every)
    assert learned == [None, None, 1800, 1800, 1650]
    assert claim_of(Claim.objects.get()).checkpoint_every == 1650


def test_next_attempt_inherits_the_checkpoint_interval() -> None:
    past = Past()
    workload = past.workload("nlp", 4, hours_ago=5)
    past.attempt(workload, 1, 4, 1, outcome="recalled")
    Claim.objects.update(checkpoint_every=900)
    last = Attempt.objects.select_related("claim").get()
    requeued = requeue(workload, last, recalled=True, now=timezone.now())
    assert Claim.objects.get(pk=requeued.claim_id).checkpoint_every == 900
