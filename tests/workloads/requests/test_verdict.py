"""The five headlines of a verdict with their numbers, before anything is submitted."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone

from portal.access import Actor, Forbidden
from portal.models import Department, Role, User
from quotas.engine.what_if import Headline
from quotas.models import Claim, ClaimState, Pool, Quota
from quotas.planning.run_pass import run_pass
from quotas.rules.recalls import create_recall
from tests import builders as make
from workloads.actions import submit
from workloads.models import Image, Workload
from workloads.requests.request import WorkloadRequest
from workloads.requests.validation import InvalidRequest
from workloads.requests.verdict import Impossible, Verdict, refuse_impossible, verdict_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=16, nodes=2, notice=600, grace=120)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision, nlp = make.department("vision"), make.department("nlp")
    make.quota(vision, pool, 8, borrow_limit=4)
    make.quota(nlp, pool, 8)
    return vision


def request_for(pool: Pool, cards: int, **fields: Any) -> WorkloadRequest:
    image, _ = Image.objects.get_or_create(name="python:3.11", defaults={"title": "Python"})
    values: dict[str, Any] = {"kind": "job", "name": "train", "command": ("python",), "units_per_pod": cards}
    return WorkloadRequest(pool=pool, image=image, **(values | fields))


def verdict_for(user: User, department: Department, request: WorkloadRequest) -> Verdict:
    return verdict_of(actor=Actor(user), department=department, request=request)


def test_verdict_starts_now_from_own_quota(alice: User, vision: Department, pool: Pool) -> None:
    make.claim(vision, pool, 5, ClaimState.HOLDING, placement=[{"pod": 0, "node": "a100-n1", "cards": [0, 1, 2, 3, 4]}])
    verdict = verdict_for(alice, vision, request_for(pool, 2))
    assert verdict.headline == Headline.STARTS_OWN
    assert verdict.sentences[:2] == (
        "Starts now, from your own quota.",
        "Vision has 8 cards guaranteed and uses 5 cards; with this workload it would use 7 cards.",
    )
    assert verdict.lines[1].startswith("Runs on a100-n")
    assert not Workload.objects.exists()


def test_verdict_says_how_much_it_takes_from_a_recall(alice: User, vision: Department, pool: Pool) -> None:
    owner = Actor(make.member(vision, Role.OWNER))
    recall = create_recall(actor=owner, department=vision, pool=pool, units=2, until=None)
    run_pass(group_id=pool.group_id)
    Claim.objects.filter(pk=recall.pk).update(started_at=timezone.now() - dt.timedelta(minutes=1))
    assert verdict_for(alice, vision, request_for(pool, 3)).lines[:2] == (
        "Vision has 8 cards guaranteed and uses 2 cards; with this workload it would use 3 cards.",
        "That includes 2 cards held by a recall, which this workload takes.",
    )


def test_borrowing_verdict_explains_that_the_workload_can_be_recalled(
    alice: User, vision: Department, pool: Pool
) -> None:
    make.claim(
        vision, pool, 6, ClaimState.HOLDING, placement=[{"pod": 0, "node": "a100-n1", "cards": [0, 1, 2, 3, 4, 5]}]
    )
    verdict = verdict_for(alice, vision, request_for(pool, 4))
    assert verdict.title == "Starts now, 2 of 4 cards borrowed from Nlp."
    assert verdict.contract == (
        "Recallable: Nlp can recall it with 10 min notice and 2 min grace; your workload is then "
        "queued again with the same ID."
    )


def test_borrowed_unassigned_capacity_can_be_recalled_by_any_department_within_guarantee(
    alice: User, vision: Department, pool: Pool
) -> None:
    Quota.objects.filter(department__slug="nlp").update(guaranteed=4)
    make.claim(vision, pool, 8, ClaimState.HOLDING, placement=[{"pod": 0, "node": "a100-n1", "cards": list(range(8))}])
    assert verdict_for(alice, vision, request_for(pool, 2)).contract.startswith(
        "Recallable: any department that claims its guaranteed quota can recall it with 10 min notice"
    )
    Quota.objects.filter(department__slug="nlp").update(guaranteed=7)
    assert verdict_for(alice, vision, request_for(pool, 2)).contract.startswith(
        "Recallable: Nlp, or any other department that claims its guaranteed quota, can recall it with 10 min notice"
    )


def test_own_quota_only_waits_instead_of_borrowing(alice: User, vision: Department, pool: Pool) -> None:
    make.claim(vision, pool, 8, ClaimState.HOLDING, placement=[{"pod": 0, "node": "a100-n1", "cards": list(range(8))}])
    verdict = verdict_for(alice, vision, request_for(pool, 1, own_only=True))
    assert verdict.headline == Headline.WAITS
    assert verdict.contract == "From your own quota only: no other department can recall it."


def test_verdict_says_by_when_borrowers_have_returned_the_owners_capacity(
    alice: User, vision: Department, pool: Pool
) -> None:
    nlp = Department.objects.get(slug="nlp")
    for node in ("a100-n1", "a100-n2"):
        make.claim(nlp, pool, 8, ClaimState.HOLDING, notice=600, grace=120,
                   placement=[{"pod": 0, "node": node, "cards": list(range(8))}])  # fmt: skip
    verdict = verdict_for(alice, vision, request_for(pool, 4))
    assert verdict.headline == Headline.STARTS_BY
    assert verdict.by is not None
    assert "when Nlp has returned 8 cards" in verdict.title
    assert verdict.advice == ("No action needed: it starts then.",)


@pytest.mark.parametrize(("cards", "borrow_limit"), [(13, 4), (14, 100), (100, 100)])
def test_request_that_cannot_run_is_not_said_to_start_by_itself(
    alice: User, vision: Department, pool: Pool, cards: int, borrow_limit: int
) -> None:
    Quota.objects.filter(department=vision).update(borrow_limit=borrow_limit)
    verdict = verdict_for(alice, vision, request_for(pool, cards))
    assert verdict.headline == Headline.CANNOT
    assert verdict.alternatives
    assert "No action needed: it starts then." not in verdict.sentences


def test_waiting_verdict_lists_claims_ahead_without_names_of_other_departments_workloads(
    alice: User, vision: Department, pool: Pool
) -> None:
    nlp = Department.objects.get(slug="nlp")
    for owner, node in ((vision, "a100-n1"), (nlp, "a100-n2")):
        make.claim(owner, pool, 8, ClaimState.HOLDING, preemptible=False,
                   placement=[{"pod": 0, "node": node, "cards": list(range(8))}])  # fmt: skip
    make.claim(nlp, pool, 2, name="nlp-secret-project")
    make.claim(vision, pool, 2, user=alice, name="sweep-7")
    verdict = verdict_for(alice, vision, request_for(pool, 2))
    assert verdict.headline == Headline.WAITS
    text = " ".join(verdict.sentences)
    assert "sweep-7 (yours, 2 cards)" in text
    assert "nlp-secret-project" not in text
    assert "Nlp (2 cards)" in text


def test_impossible_request_is_refused_with_the_largest_possible_one(
    alice: User, vision: Department, pool: Pool
) -> None:
    verdict = verdict_for(alice, vision, request_for(pool, 16))
    assert verdict.headline == Headline.CANNOT
    assert verdict.facts.largest == 8  # no node has more cards
    assert [a.units_per_pod for a in verdict.alternatives] == [8]
    assert verdict.advice[0] == "Or ask the quota owner for more quota."  # the alternative asks for less
    from django.utils import timezone

    request = request_for(pool, 16)
    with pytest.raises(Impossible) as error:
        refuse_impossible(request.workload(vision, alice, now=timezone.now()), request, now=timezone.now())
    assert error.value.numbers["largest"] == 8


def test_all_faults_of_a_request_are_reported_at_once(alice: User, vision: Department, pool: Pool) -> None:
    bad = request_for(pool, 0, name=" ", command=(), env={"NVIDIA_VISIBLE_DEVICES": "all"}, max_runtime=0, priority=5)
    with pytest.raises(InvalidRequest) as raised:
        verdict_for(alice, vision, bad)
    assert {error.field for error in raised.value.errors} == {
        "name", "command", "units_per_pod", "env", "max_runtime", "priority",
    }  # fmt: skip


def test_viewer_cannot_get_a_verdict(vision: Department, pool: Pool) -> None:
    with pytest.raises(Forbidden):
        verdict_for(make.member(vision, Role.VIEWER), vision, request_for(pool, 1))


@pytest.mark.parametrize(
    ("borrow", "cards", "sentence"),
    [
        (6, 15, "The quota allows 14 cards, the nodes 8 cards: no node has more."),
        (6, 9, None),  # within the quota: only the nodes are too small, and the reason says so
        (-2, 9, "This is the limit of the department's quota; the nodes have room for it."),
    ],
)
def test_verdict_distinguishes_the_limits_of_quota_and_nodes(
    alice: User, vision: Department, borrow: int, cards: int, sentence: str | None
) -> None:
    pool = make.pool("v100", cards=16, nodes=2)
    make.quota(vision, pool, 8 + min(borrow, 0), borrow_limit=max(borrow, 0))
    verdict = verdict_for(alice, vision, request_for(pool, cards))
    assert verdict.title == "Cannot run as requested."
    assert [line for line in verdict.lines if "the nodes" in line] == ([sentence] if sentence else [])
    assert f"The largest request that can run is {min(8, 8 + borrow)} cards." in verdict.lines
    with pytest.raises(Impossible) as error:
        submit(actor=Actor(alice), department=vision, request=request_for(pool, cards))
    both = (
        "it allows at most 14 cards. The largest request that can run is 8 cards, because the "
        "nodes have no room for more."
    )
    assert (both in error.value.detail) is (cards == 15)
