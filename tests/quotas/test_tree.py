"""Trees of departments: moves and their preview, split guarantees, inherited pauses and caps, what a parent's page counts."""

from __future__ import annotations

import datetime as dt
import threading

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from portal.access import Actor
from portal.accounts.departments import HasWork, change_department
from portal.errors import Invalid
from portal.models import AuditEntry, Department, Role, User
from quotas.board.history import metered_hours, trend
from quotas.models import ClaimState, LedgerEntry, Pool, Quota, UserCap
from quotas.planning.run_pass import run_pass
from quotas.previews.department_move import preview_department
from quotas.rules import quotas
from quotas.spending.metering import sum_hours
from tests import builders as make
from tests.clients import person

pytestmark = pytest.mark.django_db(transaction=True)
API = "/api/v1/"


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=12, notice=600, grace=120)


@pytest.fixture
def lab(pool: Pool) -> Department:
    """lab (2 of its own, borrows at most 1) with vision (4) and below it detection (3); nlp (2) is outside lab."""
    lab = make.department("lab")
    vision = make.department("vision", parent=lab)
    make.quota(lab, pool, 2, borrow_limit=1)
    make.quota(vision, pool, 4)
    make.quota(make.department("detection", parent=vision), pool, 3)
    make.quota(make.department("nlp"), pool, 2)
    return lab


def named(slug: str) -> Department:
    return Department.objects.select_related("parent").get(slug=slug)


def test_move_preview_states_the_new_maximum_and_who_manages_the_department(root: User, lab: Department) -> None:
    preview = preview_department(actor=Actor(root), department=named("nlp"), parent=lab, weight=1)
    assert preview.sentence == "No workload is affected now."
    assert (
        preview.lines
        == (
            "The quota owners of Lab would also manage it.",
            "It could use at most 12 cards of A100; now it is 12 cards.",
        )[:1]
    )
    to_top_level = preview_department(actor=Actor(root), department=named("detection"), parent=None, weight=1)
    assert to_top_level.lines == (
        "The quota owners of Vision would no longer manage it.",
        "It could use at most 12 cards of A100; now it is 10 cards.",
    )


def test_move_preview_warns_of_use_above_the_new_limit_and_stops_no_workload(
    root: User, lab: Department, pool: Pool
) -> None:
    Quota.objects.filter(department=lab).update(borrow_limit=0)  # lab's tree can hold its own 9 and the 2 of nlp
    make.claim(named("nlp"), pool, 12, ClaimState.HOLDING,
               placement=[{"pod": 0, "node": "a100-n1", "cards": list(range(12))}])  # fmt: skip
    preview = preview_department(actor=Actor(root), department=named("nlp"), parent=lab, weight=1)
    assert preview.stopped == ()
    assert (
        "It uses 1 card more of A100 than its new position allows: no workload is stopped, but no "
        "new one starts." in preview.lines
    )


def test_move_into_own_subtree_or_below_a_department_with_work_is_refused(
    root: User, lab: Department, pool: Pool
) -> None:
    make.claim(named("nlp"), pool, 1, workload="w1")
    for department, parent, refusal in (
        (lab, named("detection"), Invalid),
        (lab, lab, Invalid),
        (lab, named("nlp"), HasWork),
    ):
        with pytest.raises(refusal):
            preview_department(actor=Actor(root), department=department, parent=parent, weight=1)
        with pytest.raises(refusal):
            change_department(
                actor=Actor(root), department=department, name="x", weight=1, parent=parent, expected_version=1
            )
    url = API + "departments/lab/preview/?parent=detection"
    response = person(root).get(url)
    assert (response.status_code, response.json()["errors"][0]["attr"]) == (422, "parent")
    assert (
        person(root)
        .get(API + "departments/detection/preview/?parent=")
        .json()["lines"][0]
        .startswith("The quota owners")
    )
    assert person(make.member(lab, Role.OWNER)).get(url).status_code == 403


@pytest.mark.concurrency
def test_concurrent_moves_cannot_create_a_cycle(root: User) -> None:
    one, two = make.department("one"), make.department("two")
    refused: list[Exception] = []
    start = threading.Barrier(2)

    def move(moved: Department, new_parent: Department) -> None:
        try:
            start.wait(20)
            change_department(
                actor=Actor(root), department=moved, name="x", weight=1, parent=new_parent, expected_version=1
            )
        except Invalid as problem:
            refused.append(problem)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=move, args=pair) for pair in ((one, two), (two, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert Department.objects.exclude(parent=None).count() == 1


def split(user: User, team: str, pool: Pool, guaranteed: int, version: int = 1) -> Quota:
    return quotas.set_quota(actor=Actor(user), department=named(team), pool=pool, guaranteed=guaranteed, borrow_limit=None,
                             lend_limit=None, expected_version=version)  # fmt: skip


def test_owner_of_a_parent_splits_only_the_parents_own_guarantee(lab: Department, pool: Pool) -> None:
    owner = make.member(lab, Role.OWNER)
    split(owner, "vision", pool, 6)
    assert Quota.objects.get(department=lab).guaranteed == 0
    with pytest.raises(quotas.NothingToSplit) as refused:
        split(owner, "vision", pool, 7, version=2)
    assert (refused.value.numbers["left"], refused.value.numbers["needed"]) == (0, 1)
    split(owner, "vision", pool, 1, version=2)
    assert Quota.objects.get(department=lab).guaranteed == 5
    rows = AuditEntry.objects.filter(action="quota.changed", department=lab)
    assert [(row.before["guaranteed"], row.after["guaranteed"]) for row in rows] == [(0, 5), (2, 0)]  # type: ignore[index]
    dry = person(owner).put(API + "departments/vision/quotas/a100/?dry_run=1",
                            {"guaranteed": 2, "borrow_limit": None, "lend_limit": None}, headers={"If-Match": '"3"'})  # fmt: skip
    assert "Lab would keep 4 cards for itself." in dry.json()["lines"]


def test_pause_of_a_parent_applies_to_its_teams_and_is_shown_on_their_boards(
    client: Client, lab: Department, pool: Pool
) -> None:
    Department.objects.filter(slug="lab").update(paused=True)
    claim = make.claim(named("detection"), pool, 1)
    run_pass(group_id=pool.group_id)
    claim.refresh_from_db()
    assert (claim.state, claim.reasons[0]["code"]) == (ClaimState.PENDING, "department_paused")
    client.force_login(make.member(named("detection")))
    assert "the parent department Lab is paused." in client.get("/d/detection/").content.decode()


def test_user_cap_of_a_parent_applies_in_its_teams(lab: Department, pool: Pool) -> None:
    UserCap.objects.create(department=lab, pool=pool, units=2)
    UserCap.objects.create(department=named("vision"), pool=pool, units=5)
    claim = make.claim(named("detection"), pool, 3, user=make.user())
    run_pass(group_id=pool.group_id)
    claim.refresh_from_db()
    assert (claim.reasons[0]["code"], claim.reasons[0]["limit"]) == ("user_cap", 2)


def test_a_parents_trend_counts_loans_between_its_teams_as_own_use(lab: Department, pool: Pool) -> None:
    now = timezone.now()
    begin = now - dt.timedelta(hours=3)
    inner, outer = named("vision"), named("nlp")
    claim = make.claim(named("detection"), pool, 5, ClaimState.HOLDING, started_at=begin)
    for lender, units in ((inner, 2), (outer, 3)):
        LedgerEntry.objects.create(claim=claim, pool=pool, department=named("detection"), own=False, lender=lender,
                                   units=units, started_at=begin)  # fmt: skip
    sum_hours(now=now)
    family = [lab.pk, inner.pk, named("detection").pk]
    [*_, point] = trend(metered_hours([pool], departments=family, days=7))[pool.pk][:-1]
    assert (round(point.own), round(point.borrowed), round(point.lent)) == (2, 3, 0)
    [*_, alone] = trend(metered_hours([pool], departments=[named("detection").pk], days=7))[pool.pk][:-1]
    assert (round(alone.own), round(alone.borrowed)) == (0, 5)


def test_tree_is_shown_on_the_board_in_the_operators_list_and_in_the_api(
    client: Client, root: User, lab: Department
) -> None:
    client.force_login(root)
    board = client.get("/d/lab/").content.decode().split('id="now"')[1].split("Usage over time")[0]
    assert board.index('href="/d/vision/"') < board.index('href="/d/detection/"')
    assert 'href="/d/nlp/"' not in board
    listed = client.get("/operator/departments/?below=vision").content.decode()
    assert f'<option value="{named("vision").pk}" selected>' in listed
    detail = person(root).get(API + "departments/detection/").json()
    assert (detail["path"], detail["is_leaf"], detail["parent"]) == (["lab", "vision", "detection"], True, "vision")
    rows = person(root).get(API + "departments/").json()["results"]
    assert {row["id"]: row["is_leaf"] for row in rows} == {
        "lab": False,
        "vision": False,
        "detection": True,
        "nlp": True,
    }


def test_move_form_shows_operators_a_preview(client: Client, root: User, lab: Department) -> None:
    client.force_login(root)
    url = "/operator/departments/detection/preview/"
    assert "no longer manage it" in client.get(url, {"parent": "", "weight": 1}).content.decode()
    assert (
        "Detection is part of Lab"
        in client.get(
            "/operator/departments/lab/preview/", {"parent": named("detection").pk, "weight": 1}
        ).content.decode()
    )
    assert client.get(url, {"weight": 0}).status_code == 200
    client.force_login(make.member(lab, Role.OWNER))
    assert client.get(url).status_code == 404
