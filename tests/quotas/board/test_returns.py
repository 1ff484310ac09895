"""Returning capacity when several claims wait for the same leaving claim."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from portal.models import Department
from quotas.board import usage_now
from quotas.board.returns import coming_back
from quotas.models import Claim, ClaimState, Pool, Quota
from quotas.planning.claims import release
from quotas.planning.run_pass import run_pass
from tests import builders as make

pytestmark = pytest.mark.django_db


def reloaded(claim: Claim) -> Claim:
    return Claim.objects.select_related("preempted_for").get(pk=claim.pk)


def test_claim_waiting_for_the_rest_of_another_claims_leaver_lists_it(
    pool: Pool, vision: Department, nlp: Department
) -> None:
    """Nothing has returned before the leaver has ended."""
    speech = make.department("speech")
    Quota.objects.all().delete()
    for department in (vision, nlp, speech):
        make.quota(department, pool, 2)
    held = make.holding(nlp, pool, own=2, borrowed={vision: 2, speech: 2, None: 2}, notice=600, name="secret")
    before = timezone.now() - dt.timedelta(minutes=1)  # otherwise their IDs decide the order
    first = make.claim(vision, pool, 2, name="first", submitted_at=before)
    second = make.claim(speech, pool, 2, name="second")
    run_pass(group_id=pool.group_id)
    first, second, held = reloaded(first), reloaded(second), reloaded(held)
    assert (held.state, held.preempted_for) == (ClaimState.LEAVING, first)
    assert first.waiting_on == second.waiting_on == [held.public_id]
    here = usage_now.read()
    (row,) = coming_back(here, {speech.pk}, {speech.pk})
    assert (row.claim.pk, row.back, row.units) == (second.pk, 0, 2)
    assert [(leaver.department, leaver.units, leaver.name) for leaver in row.leavers] == [(nlp, 8, "")]
    assert [usage_now.coming(here, each.pk, pool.pk) for each in (vision, speech, nlp)] == [2, 2, 0]
    assert usage_now.free(here, pool.pk) == pool.cards.count() - 8
    release(held, now=timezone.now())
    run_pass(group_id=pool.group_id)
    assert [(reloaded(c).state, reloaded(c).waiting_on) for c in (first, second)] == [(ClaimState.HOLDING, [])] * 2


def test_leaving_units_count_first_for_the_claim_they_are_held_for(
    pool: Pool, vision: Department, nlp: Department
) -> None:
    mine = make.claim(vision, pool, 3, reserved={"units": 3, "places": []})
    shared = make.holding(nlp, pool, own=4, state=ClaimState.LEAVING, preempted_for=mine)
    other = make.claim(nlp, pool, 3, reserved={"units": 3, "places": []}, waiting_on=[shared.public_id, "gone"])
    here = usage_now.read()
    assert [usage_now.coming(here, each.pk, pool.pk) for each in (vision, nlp)] == [3, 1]
    assert usage_now.free(here, pool.pk) == pool.cards.count() - 4 - 2
    alone = make.holding(vision, pool, own=2, state=ClaimState.LEAVING, preempted_for=mine)
    here = usage_now.read()
    assert [usage_now.coming(here, each.pk, pool.pk) for each in (vision, nlp)] == [3, 3]
    leavers = usage_now.leavers(here.all_claims())
    assert {pk: {each.pk for each in theirs} for pk, theirs in leavers.items()} == {
        mine.pk: {shared.pk, alone.pk}, other.pk: {shared.pk},
    }  # fmt: skip
