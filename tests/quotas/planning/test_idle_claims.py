"""Measured idleness is considered in the plan and mentioned on the decision's page."""

from __future__ import annotations

import datetime as dt

import pytest
from django.test import Client
from django.utils import timezone

from portal.models import Role
from quotas.models import Claim, Decision
from quotas.planning.run_pass import run_pass
from quotas.planning.snapshot import claim_of, load_snapshot
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


def test_idle_borrower_is_preempted_first_and_the_alternatives_say_so(client: Client) -> None:
    """The same recall as in test_alternatives.py, where young-llm is preempted because old-asr has run for 5 hours."""
    pool = make.pool("a100", cards=4, notice=60, grace=5)
    vision, nlp, speech = (make.department(name) for name in ("vision", "nlp", "speech"))
    make.quota(vision, pool, 4)
    sue, ned = make.member(speech, Role.MEMBER, "sue"), make.member(nlp, Role.MEMBER, "ned")
    young = make.claim(nlp, pool, 2, name="young-llm", user=ned)
    old = make.claim(speech, pool, 2, name="old-asr", user=sue)
    run_pass(group_id=pool.group_id)
    now = timezone.now()
    Claim.objects.filter(pk=young.pk).update(started_at=now - dt.timedelta(hours=1))
    Claim.objects.filter(pk=old.pk).update(
        started_at=now - dt.timedelta(hours=5), idle_since=now - dt.timedelta(hours=2)
    )
    preemptor = make.claim(vision, pool, 2, name="train-cats")
    run_pass(group_id=pool.group_id)
    decision = Decision.objects.get(claim=preemptor)
    assert [victim.name for victim in decision.victims.all()] == ["old-asr"]

    def alternatives_for(user: object) -> str:
        client.force_login(user)  # type: ignore[arg-type]
        return client.get(f"/decisions/{decision.public_id}/alternatives/").content.decode()

    assert "old-asr: idle for 2 h by measurement, so stopping it loses only its restart." in alternatives_for(sue)
    assert "by measurement" not in alternatives_for(make.member(vision)), "activity of others' work is not disclosed"
    assert "More computing time would be lost" in alternatives_for(sue)


def test_idleness_is_the_same_for_one_claim_and_in_a_snapshot() -> None:
    pool, now = make.pool("a100", cards=4), timezone.now()
    vision = make.department("vision")
    make.quota(vision, pool, 4)
    claim = make.holding(vision, pool, own=1, idle_since=now - dt.timedelta(minutes=90))
    [loaded] = load_snapshot(pool.group, now=now).claims
    assert loaded.idle_since == int(claim.idle_since.timestamp())  # type: ignore[union-attr]
    assert claim_of(claim).idle_since == loaded.idle_since
