"""A pass of the decision log, planned again."""

from __future__ import annotations

import datetime as dt
import io
import json
import zlib
from zoneinfo import ZoneInfo

import orjson
import pytest
from django.conf import LazySettings
from django.core.management import CommandError, call_command
from django.utils import timezone

from portal.models import Department
from quotas.models import Claim, Decision, PlanPass, Pool
from quotas.planning.replay import forget_old, replay
from quotas.planning.run_pass import run_pass
from quotas.planning.snapshot import moment
from quotas.tasks import clean_up
from quotas.views.decisions import again
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8, nodes=2, notice=60, grace=5)


@pytest.fixture
def nlp(pool: Pool) -> Department:
    nlp = make.department("nlp", weight=3)
    make.quota(nlp, pool, 4)
    return nlp


@pytest.fixture
def owner(pool: Pool, nlp: Department) -> Claim:
    """A claim that called a borrower back; the last pass is its."""
    vision = make.department("vision")
    make.quota(vision, pool, 4, policy={"within": "never"})
    make.claim(nlp, pool, 4)
    make.claim(nlp, pool, 4)
    run_pass(group_id=pool.group_id)
    owner = make.claim(vision, pool, 3)
    run_pass(group_id=pool.group_id)
    return owner


def the_pass(owner: Claim) -> PlanPass:
    return PlanPass.objects.get(decisions__claim=owner)


def said(**options: object) -> str:
    out = io.StringIO()
    call_command("plan", stdout=out, **options)
    return out.getvalue()


def test_every_pass_is_planned_again_bit_for_bit(owner: Claim) -> None:
    assert [replay(each).same for each in PlanPass.objects.all()] == [True, True]


def test_the_command_says_so_with_the_size(owner: Claim) -> None:
    row = the_pass(owner)
    text = said(replay=row.public_id)
    assert "Replayed: the plan is identical." in text
    assert f"3 claims, {len(row.snapshot):,} bytes of compressed JSON" in text
    by = timezone.localtime(moment(Decision.objects.get(claim=owner).data["by"]))
    victim = Claim.objects.get(state="leaving")
    assert f"{owner.name} (Vision, 3 cards): Starts by {by:%H:%M:%S} at the latest" in text
    assert f"after {victim.name} (Nlp, 4 cards) have been released." in text
    assert owner.public_id not in text


def test_times_are_those_of_the_installations_zone(owner: Claim, settings: LazySettings) -> None:
    at = the_pass(owner).at
    for zone in ("Asia/Shanghai", "America/New_York"):
        settings.TIME_ZONE = zone
        here = at.astimezone(ZoneInfo(zone))
        assert f"over a100, {here:%Y-%m-%d %H:%M:%S %Z}," in said(replay=the_pass(owner).public_id)


def test_the_decision_log_says_what_the_plan_says(owner: Claim) -> None:
    again = json.loads(said(replay=the_pass(owner).public_id, json=True))
    assert (again["same"], again["differing"]) == (True, [])
    assert again["decisions"] == [Decision.objects.get(claim=owner).data]


def test_another_plan_is_named_by_the_claims_that_differ(owner: Claim) -> None:
    row = the_pass(owner)
    kept = orjson.loads(zlib.decompress(row.plan))
    kept["decisions"][0]["own"] = 1
    PlanPass.objects.filter(pk=row.pk).update(plan=zlib.compress(orjson.dumps(kept)))
    with pytest.raises(CommandError, match=f"another plan than then: {owner.public_id}"):
        said(replay=row.public_id)


def test_a_pass_whose_plan_was_not_kept_is_still_planned_again(owner: Claim) -> None:
    PlanPass.objects.update(plan=b"")
    assert "its plan was not kept" in said(replay=the_pass(owner).public_id)
    assert json.loads(said(replay=the_pass(owner).public_id, json=True))["same"] is None


def test_what_if_on_a_pass_shows_the_difference(owner: Claim) -> None:
    change = ["quota", "vision", "a100", "guaranteed=2", "borrow_limit=0"]
    text = said(replay=the_pass(owner).public_id, what_if=[change])
    assert (
        f"{owner.name} (Vision, 3 cards): Cannot run as requested; the largest request that can run is 2 cards." in text
    )
    assert "would no longer have to release its capacity." in text
    again = json.loads(said(replay=the_pass(owner).public_id, what_if=[change], json=True))
    assert len(again["what_if"]["spared"]) == 1


def test_what_if_on_a_group_as_it_stands_changes_nothing(owner: Claim, pool: Pool) -> None:
    before = list(Claim.objects.order_by("pk").values())
    text = said(live=pool.group.name, what_if=[["drain", "a100-n1"]])
    on_it = Claim.objects.get(placement__0__node="a100-n1")
    assert text.startswith(f"On a100-n1: {on_it.name} (Nlp, 4 cards) ")
    assert "Nothing new would start on a100-n1." in text
    assert f"{owner.name} (Vision, 3 cards): " in text
    assert list(Claim.objects.order_by("pk").values()) == before
    assert f"{owner.name} (Vision, 3 cards): Starts by" in said(live=pool.group.name)


def test_a_drain_that_changes_no_answer_still_says_who_would_have_to_leave(vision: Department, pool: Pool) -> None:
    claim = make.claim(vision, pool, 2)
    run_pass(group_id=pool.group_id)
    claim.refresh_from_db()
    node = claim.placement[0]["node"]
    other = "a100-n2" if node == "a100-n1" else "a100-n1"
    assert said(live=pool.group.name, what_if=[["drain", node, other]]).splitlines() == [
        f"On {node}: {claim.name} (Vision, 2 cards) stays until it ends, and has to leave if the node is emptied.",
        f"Nothing new would start on {node}.",
        f"Nothing new would start on {other}, where nobody is.",
    ]
    there = json.loads(said(live=pool.group.name, what_if=[["drain", node]], json=True))
    assert there["what_if"]["standing"] == {node: [claim.public_id]}


def test_a_promise_beyond_the_pool_is_refused_with_both_numbers(owner: Claim, pool: Pool) -> None:
    with pytest.raises(CommandError, match="departments would be promised 1004 of a100, which has 8"):
        said(live=pool.group.name, what_if=[["quota", "vision", "a100", "guaranteed=1000"]])


def test_what_cannot_be_planned_is_an_error(owner: Claim, pool: Pool) -> None:
    with pytest.raises(CommandError, match="no pass nowhere"):
        said(replay="nowhere")
    with pytest.raises(CommandError, match="no pool group nowhere: there are a100"):
        said(live="nowhere")
    with pytest.raises(CommandError, match="--what-if: drain n9: unknown node"):
        said(live=pool.group.name, what_if=[["drain", "n9"]])
    row = the_pass(owner)
    PlanPass.objects.update(snapshot=zlib.compress(b'{"id": "a", "now": 0, "colour": 1}'))
    with pytest.raises(CommandError, match="cannot be read: colour: unknown key"):
        said(replay=row.public_id)
    PlanPass.objects.update(snapshot=b"torn")
    with pytest.raises(CommandError, match="cannot be read"):
        said(replay=row.public_id)


def test_a_snapshot_goes_after_its_days_and_the_decisions_stay(owner: Claim, settings: LazySettings) -> None:
    settings.PLAN_DAYS = 30
    row, decisions = the_pass(owner), Decision.objects.count()
    PlanPass.objects.filter(pk=row.pk).update(at=row.at - dt.timedelta(days=31))
    clean_up()
    assert [bool(each.snapshot) for each in PlanPass.objects.order_by("at")] == [False, True]
    assert Decision.objects.count() == decisions
    with pytest.raises(CommandError, match="was kept for 30 days"):
        said(replay=row.public_id)
    assert again(the_pass(owner)) == "Its snapshot is no longer kept."
    assert forget_old(now=timezone.now()) == 0
