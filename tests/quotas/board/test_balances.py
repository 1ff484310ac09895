"""Fairness over time as users see it: on the pool's page, in the API, in the verdict and on a waiting workload's page."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.test import Client
from django.utils import timezone, translation

from portal.access import Actor
from portal.models import Department, Role, User
from quotas.board.balances import Balances, balances_of
from quotas.models import Claim, ClaimState, Decision, LedgerEntry, Pool
from quotas.planning.run_pass import run_pass
from tests import builders as make
from tests.clients import person
from workloads.models import Image
from workloads.requests.request import WorkloadRequest
from workloads.requests.verdict import verdict_of

pytestmark = pytest.mark.django_db(transaction=True)
WEEK = 604_800


@pytest.fixture
def robotics() -> Department:
    return make.department("robotics")


@pytest.fixture
def nlp() -> Department:
    return make.department("nlp")


@pytest.fixture
def lent(vision: Department, robotics: Department, nlp: Department, pool: Pool) -> Pool:
    """NLP has borrowed 4 cards from Robotics for the last ten hours; of the 8, only Vision has a guarantee (4)."""
    now = timezone.now()
    Pool.objects.filter(pk=pool.pk).update(balance_half_life=WEEK)
    claim = make.claim(nlp, pool, 4, ClaimState.RELEASED, released_at=now)
    LedgerEntry.objects.create(
        claim=claim, pool=pool, department=nlp, own=False, lender=robotics, units=4, ended_at=now,
        started_at=now - dt.timedelta(hours=10),
    )  # fmt: skip
    return Pool.objects.select_related("group__cluster").get(pk=pool.pk)


def test_rows_are_in_borrowing_order_with_their_hours(lent: Pool, vision: Department) -> None:
    balances = balances_of(lent, now=timezone.now())
    assert balances is not None
    rows = {row.department.slug: row for row in balances.rows}
    assert [row.department.slug for row in balances.rows] == ["robotics", "vision", "nlp"]
    assert [row.place for row in balances.rows] == [1, 2, 3]
    assert rows["robotics"].lent == pytest.approx(40, abs=1.5) == rows["nlp"].borrowed == rows["robotics"].more_lent
    assert rows["vision"].more_lent == 0


def test_balance_of_a_department_includes_its_teams(lent: Pool, nlp: Department, robotics: Department) -> None:
    top = make.department("top")
    Department.objects.filter(pk__in=[nlp.pk, robotics.pk]).update(parent=top)
    balances = balances_of(lent, now=timezone.now())
    assert balances is not None
    rows = {row.department.slug: row for row in balances.rows}
    assert rows["top"].more_lent == pytest.approx(0, abs=0.01)
    assert (rows["robotics"].place, rows["nlp"].place) == (1, 2)
    tree = [(row.department.slug, row.depth) for row in balances.rows]
    assert tree[tree.index(("top", 0)) :][:3] == [("top", 0), ("robotics", 1), ("nlp", 1)]


def test_pool_without_half_life_shows_no_balances(pool: Pool, root: User, client: Client) -> None:
    assert balances_of(pool, now=timezone.now()) is None
    assert person(root).get("/api/v1/pools/a100/").json()["balances"] == []
    client.force_login(root)
    assert "Who borrows first" not in client.get("/pools/a100/").content.decode()


def test_pool_page_and_api_show_balances(lent: Pool, root: User, client: Client) -> None:
    client.force_login(root)
    page = client.get("/pools/a100/").content.decode()
    assert "Who borrows first" in page
    assert "half-life 7 d" in page
    first = person(root).get("/api/v1/pools/a100/").json()["balances"][0]
    assert (first["department"], first["place"]) == ("robotics", 1)
    assert first["balance"] == first["lent"] == pytest.approx(40, abs=1.5)


def waiting(department: Department, pool: Pool) -> Claim:
    return make.claim(department, pool, 4)


def test_waiting_claim_explains_which_department_borrows_first(
    lent: Pool, nlp: Department, robotics: Department, vision: Department
) -> None:
    """A claim of Vision fills the pool; NLP submitted first, but Robotics has lent more."""
    place = [{"pod": 0, "node": "a100-n1", "cards": [*range(8)]}]
    make.claim(vision, lent, 8, ClaimState.HOLDING, placement=place, notice=600, grace=120, started_at=timezone.now())
    claim = waiting(nlp, lent)
    waiting(robotics, lent)
    run_pass(group_id=lent.group_id)
    claim = Claim.objects.select_related("pool", "department").get(pk=claim.pk)
    assert (claim.position, claim.decision) == (2, "wait")
    own, first = Balances(claim.pool, now=timezone.now()).sentences(claim.department, claim.ahead, 2)
    assert re.fullmatch(r"NLP has borrowed (39|40) GPU-hours more than it lent lately \(half-life 7 d\)\.", own, re.I)
    lent_more = r"Robotics has lent (39|40) GPU-hours more than it borrowed lately: when it borrows, it goes first\."
    assert re.fullmatch(lent_more, first)
    behind = Claim.objects.get(department=robotics, state=ClaimState.PENDING)
    [leads] = Balances(claim.pool, now=timezone.now()).sentences(robotics, behind.ahead, behind.position)
    sentence = r"Robotics has lent (39|40) GPU-hours more than it borrowed lately \(half-life 7 d\): ahead of NLP\."
    assert re.fullmatch(sentence, leads, re.I)
    with translation.override("zh-hans"):
        assert (
            Balances(claim.pool, now=timezone.now())
            .sentences(robotics, behind.ahead, behind.position)[0]
            .endswith(f"优先于{nlp.name}。")
        )
        assert re.search(
            r"近期 Robotics 的借出比借用多 (39|40) GPU 小时：借用时它优先。",
            Balances(claim.pool, now=timezone.now()).sentences(claim.department, claim.ahead, 2)[1],
        )


def test_team_is_compared_with_siblings_and_its_department_with_other_departments(
    lent: Pool, nlp: Department, robotics: Department
) -> None:
    """What Robotics has lent its sibling NLP does not put it before Speech: their department has lent nothing."""
    top, speech = make.department("top"), make.department("speech")
    Department.objects.filter(pk__in=[nlp.pk, robotics.pk]).update(parent=top)
    for position, department in enumerate((robotics, nlp, speech), 1):
        Claim.objects.filter(pk=waiting(department, lent).pk).update(position=position)
    [sentence] = Balances(lent, now=timezone.now()).sentences(robotics, [], 1)
    assert sentence.endswith(f"ahead of {nlp.name}.")
    now = timezone.now()
    entry = {"pool": lent, "own": False, "started_at": now - dt.timedelta(hours=5), "ended_at": now}
    claim = Claim.objects.filter(department=nlp).earliest("pk")
    LedgerEntry.objects.create(claim=claim, department=speech, lender=top, units=1, **entry)
    own, of_top = Balances(lent, now=now).sentences(robotics, [], 1)
    assert own == sentence
    assert of_top.startswith(top.name)
    assert of_top.endswith(f"ahead of {speech.name}.")
    own, first = Balances(lent, now=now).sentences(speech, [Claim.objects.get(department=robotics).public_id], None)
    assert first.startswith(f"{top.name} has lent 5 GPU-hours")


def test_verdict_mentions_the_balance_before_submission(
    lent: Pool, nlp: Department, robotics: Department, vision: Department
) -> None:
    place = [{"pod": 0, "node": "a100-n1", "cards": [*range(8)]}]
    make.claim(vision, lent, 8, ClaimState.HOLDING, placement=place, notice=600, grace=120, started_at=timezone.now())
    waiting(robotics, lent)
    run_pass(group_id=lent.group_id)
    image = Image.objects.create(name="python:3", title="Python")
    request = WorkloadRequest(kind="job", name="x", pool=lent, image=image, command=("python",), units_per_pod=4)
    verdict = verdict_of(actor=Actor(make.member(nlp, Role.MEMBER)), department=nlp, request=request)
    assert any(line.startswith("Robotics has lent") and line.endswith("it goes first.") for line in verdict.lines)


def test_decision_page_shows_the_balance_at_its_time_and_the_board_the_current_one(
    lent: Pool, nlp: Department, vision: Department, client: Client, root: User
) -> None:
    make.quota(nlp, lent, 0)
    place = [{"pod": 0, "node": "a100-n1", "cards": [*range(8)]}]
    make.claim(vision, lent, 8, ClaimState.HOLDING, placement=place, notice=600, grace=120, started_at=timezone.now())
    claim = waiting(nlp, lent)
    run_pass(group_id=lent.group_id)
    page = f"/decisions/{Decision.objects.get(claim=claim, kind='wait').public_id}/"
    client.force_login(root)
    sentence = r"NLP has borrowed (39|40) GPU-hours more than it lent lately \(half-life 7 d\)"
    assert re.search(f"<dd data-balance>{sentence}", client.get(page).content.decode(), re.I)
    assert re.search(rf"data-balances><li><a[^>]*>[^<]*</a>: {sentence}", client.get("/d/nlp/").content.decode(), re.I)
    Pool.objects.update(balance_half_life=None)
    assert "data-balance" not in client.get(page).content.decode() + client.get("/d/nlp/").content.decode()
