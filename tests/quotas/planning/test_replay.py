"""Replaying a planning pass of the decision log."""

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
def preemptor(pool: Pool, nlp: Department) -> Claim:
    """A claim that preempted a borrower in the last pass."""
    vision = make.department("vision")
    make.quota(vision, pool, 4, policy={"within": "never"})
    make.claim(nlp, pool, 4)
    make.claim(nlp, pool, 4)
    run_pass(group_id=pool.group_id)
    preemptor = make.claim(vision, pool, 3)
    run_pass(group_id=pool.group_id)
    return preemptor


def the_pass(preemptor: Claim) -> PlanPass:
    return PlanPass.objects.get(decisions__claim=preemptor)


def plan_output(**options: object) -> str:
    out = io.StringIO()
    call_command("plan", stdout=out, **options)
    return out.getvalue()


def test_replay_of_every_pass_gives_the_identical_plan(preemptor: Claim) -> None:
    assert [replay(each).same for each in PlanPass.objects.all()] == [True, True]


def test_command_reports_the_identical_plan_and_the_size_of_the_snapshot(preemptor: Claim) -> None:
    row = the_pass(preemptor)
    text = plan_output(replay=row.public_id)
    assert "Replayed: the plan is identical." in text
    assert f"3 claims, {len(row.snapshot):,} bytes of compressed JSON" in text
    by = timezone.localtime(moment(Decision.objects.get(claim=preemptor).data["by"]))
    victim = Claim.objects.get(state="leaving")
    assert f"{preemptor.name} (Vision, 3 cards): Starts by {by:%H:%M:%S} at the latest" in text
    assert f"after {victim.name} (Nlp, 4 cards) have been released." in text
    assert preemptor.public_id not in text


def test_times_are_those_of_the_installations_zone(preemptor: Claim, settings: LazySettings) -> None:
    at = the_pass(preemptor).at
    for zone in ("Asia/Shanghai", "America/New_York"):
        settings.TIME_ZONE = zone
        here = at.astimezone(ZoneInfo(zone))
        assert f"over a100, {here:%Y-%m-%d %H:%M:%S %Z}," in plan_output(replay=the_pass(preemptor).public_id)


def test_replayed_decisions_equal_the_decision_log(preemptor: Claim) -> None:
    again = json.loads(plan_output(replay=the_pass(preemptor).public_id, json=True))
    assert (again["same"], again["differing"]) == (True, [])
    assert again["decisions"] == [Decision.objects.get(claim=preemptor).data]


def test_different_plan_is_reported_with_the_claims_that_differ(preemptor: Claim) -> None:
    row = the_pass(preemptor)
    kept = orjson.loads(zlib.decompress(row.plan))
    kept["decisions"][0]["own"] = 1
    PlanPass.objects.filter(pk=row.pk).update(plan=zlib.compress(orjson.dumps(kept)))
    with pytest.raises(CommandError, match=f"another plan than then: {preemptor.public_id}"):
        plan_output(replay=row.public_id)


def test_pass_without_a_stored_plan_can_still_be_replayed(preemptor: Claim) -> None:
    PlanPass.objects.update(plan=b"")
    assert "its plan was not kept" in plan_output(replay=the_pass(preemptor).public_id)
    assert json.loads(plan_output(replay=the_pass(preemptor).public_id, json=True))["same"] is None


def test_what_if_on_a_pass_shows_the_difference(preemptor: Claim) -> None:
    change = ["quota", "vision", "a100", "guaranteed=2", "borrow_limit=0"]
    text = plan_output(replay=the_pass(preemptor).public_id, what_if=[change])
    assert (
        f"{preemptor.name} (Vision, 3 cards): Cannot run as requested; the largest request that can run is 2 cards."
        in text
    )
    assert "would no longer have to release its capacity." in text
    again = json.loads(plan_output(replay=the_pass(preemptor).public_id, what_if=[change], json=True))
    assert len(again["what_if"]["spared"]) == 1


def test_what_if_on_a_live_group_changes_nothing(preemptor: Claim, pool: Pool) -> None:
    before = list(Claim.objects.order_by("pk").values())
    text = plan_output(live=pool.group.name, what_if=[["drain", "a100-n1"]])
    on_it = Claim.objects.get(placement__0__node="a100-n1")
    assert text.startswith(f"On a100-n1: {on_it.name} (Nlp, 4 cards) ")
    assert "Nothing new would start on a100-n1." in text
    assert f"{preemptor.name} (Vision, 3 cards): " in text
    assert list(Claim.objects.order_by("pk").values()) == before
    assert f"{preemptor.name} (Vision, 3 cards): Starts by" in plan_output(live=pool.group.name)


def test_what_if_drain_lists_work_on_the_node_even_if_no_decision_changes(vision: Department, pool: Pool) -> None:
    claim = make.claim(vision, pool, 2)
    run_pass(group_id=pool.group_id)
    claim.refresh_from_db()
    node = claim.placement[0]["node"]
    other = "a100-n2" if node == "a100-n1" else "a100-n1"
    assert plan_output(live=pool.group.name, what_if=[["drain", node, other]]).splitlines() == [
        f"On {node}: {claim.name} (Vision, 2 cards) stays until it ends, and has to leave if the node is emptied.",
        f"Nothing new would start on {node}.",
        f"Nothing new would start on {other}, where nobody is.",
    ]
    report = json.loads(plan_output(live=pool.group.name, what_if=[["drain", node]], json=True))
    assert report["what_if"]["standing"] == {node: [claim.public_id]}


def test_a_promise_beyond_the_pool_is_refused_with_both_numbers(preemptor: Claim, pool: Pool) -> None:
    with pytest.raises(CommandError, match="departments would be promised 1004 of a100, which has 8"):
        plan_output(live=pool.group.name, what_if=[["quota", "vision", "a100", "guaranteed=1000"]])


def test_unusable_input_is_a_command_error(preemptor: Claim, pool: Pool) -> None:
    with pytest.raises(CommandError, match="no pass nowhere"):
        plan_output(replay="nowhere")
    with pytest.raises(CommandError, match="no pool group nowhere: there are a100"):
        plan_output(live="nowhere")
    with pytest.raises(CommandError, match="--what-if: drain n9: unknown node"):
        plan_output(live=pool.group.name, what_if=[["drain", "n9"]])
    row = the_pass(preemptor)
    PlanPass.objects.update(snapshot=zlib.compress(b'{"id": "a", "now": 0, "colour": 1}'))
    with pytest.raises(CommandError, match="cannot be read: colour: unknown key"):
        plan_output(replay=row.public_id)
    PlanPass.objects.update(snapshot=b"torn")
    with pytest.raises(CommandError, match="cannot be read"):
        plan_output(replay=row.public_id)


def test_old_snapshots_are_removed_but_their_decisions_are_kept(preemptor: Claim, settings: LazySettings) -> None:
    settings.PLAN_DAYS = 30
    row, decisions = the_pass(preemptor), Decision.objects.count()
    PlanPass.objects.filter(pk=row.pk).update(at=row.at - dt.timedelta(days=31))
    clean_up()
    assert [bool(each.snapshot) for each in PlanPass.objects.order_by("at")] == [False, True]
    assert Decision.objects.count() == decisions
    with pytest.raises(CommandError, match="was kept for 30 days"):
        plan_output(replay=row.public_id)
    assert again(the_pass(preemptor)) == "Its snapshot is no longer kept."
    assert forget_old(now=timezone.now()) == 0
