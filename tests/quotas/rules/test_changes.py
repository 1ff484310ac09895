"""What owners and operators can change about quotas, and what is refused with which numbers."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from portal.access import Actor, Forbidden, NotVisible
from portal.errors import Invalid
from portal.infra import versions
from portal.models import AuditEntry, Department, Role, User
from portal.notify import notices
from quotas.models import Claim, ClaimState, Pool, Quota
from quotas.planning.run_pass import run_pass
from quotas.previews.drain import preview_drain
from quotas.previews.quota import preview_quota
from quotas.previews.recall import preview_recall
from quotas.rules import capacity, quotas, recalls
from quotas.rules.recalls import end_overdue
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 4, borrow_limit=2)
    return vision


@pytest.fixture
def operator() -> User:
    return make.user("operator", is_operator=True)


def change(user: User, department: Department, pool: Pool, version: int | None = 1, **numbers: int | None) -> Quota:
    values = {"guaranteed": 4, "borrow_limit": 2, "lend_limit": None} | numbers
    return quotas.set_quota(actor=Actor(user), department=department, pool=pool, expected_version=version, **values)


def test_the_operator_changes_a_quota_and_the_audit_has_both_values(
    operator: User, vision: Department, pool: Pool
) -> None:
    quota = change(operator, vision, pool, guaranteed=3)
    assert (quota.guaranteed, quota.version) == (3, 2)
    row = AuditEntry.objects.get(action="quota.changed")
    assert (row.before["guaranteed"], row.after["guaranteed"]) == (4, 3)


def test_a_stale_change_is_refused(operator: User, vision: Department, pool: Pool) -> None:
    change(operator, vision, pool, guaranteed=3)
    with pytest.raises(versions.Stale) as refused:
        change(operator, vision, pool, guaranteed=2)
    assert refused.value.numbers == {"current": 2, "given": 1}
    assert Quota.objects.get(department=vision).guaranteed == 3


def test_promising_more_than_the_pool_has_is_refused_with_both_numbers(
    operator: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    with pytest.raises(capacity.OverPromised) as refused:
        change(operator, vision, pool, guaranteed=5)
    assert (refused.value.numbers["promised"], refused.value.numbers["nominal"]) == (9, 8)
    assert refused.value.detail == (
        "The guarantees of all departments would add up to 9 cards, but A100 has only 8 cards. "
        "Free to guarantee: 0 cards. Choose less, or lower another guaranteed quota first."
    )
    assert not AuditEntry.objects.exists()


def test_guarantee_cannot_go_below_non_preemptible_work(operator: User, vision: Department, pool: Pool) -> None:
    make.claim(vision, pool, 3, ClaimState.HOLDING, preemptible=False)
    with pytest.raises(quotas.BelowNonPreemptible):
        change(operator, vision, pool, guaranteed=2)


def test_owner_can_set_the_lend_limit_and_nothing_else(vision: Department, pool: Pool) -> None:
    owner = make.member(vision, Role.OWNER)
    assert change(owner, vision, pool, lend_limit=1).lend_limit == 1
    with pytest.raises(Forbidden):
        change(owner, vision, pool, version=2, lend_limit=1, guaranteed=5)
    with pytest.raises(Forbidden):
        change(make.member(vision), vision, pool, version=2, lend_limit=0)
    with pytest.raises(NotVisible):
        change(make.user(), vision, pool, version=2, lend_limit=0)


def test_the_owner_of_a_parent_splits_among_its_teams(operator: User, vision: Department, pool: Pool) -> None:
    team = make.department("detection", parent=vision)
    owner = make.member(vision, Role.OWNER)
    created = change(owner, team, pool, version=None, guaranteed=2, borrow_limit=None)
    assert created.guaranteed == 2


def test_recall_by_an_owner_preempts_the_borrower_until_it_is_withdrawn(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    borrower = make.claim(nlp, pool, 8, ClaimState.HOLDING, notice=60, grace=5,
                          placement=[{"pod": 0, "node": "a100-n1", "cards": list(range(8))}])  # fmt: skip
    owner = Actor(make.member(vision, Role.OWNER))
    preview = preview_recall(actor=owner, department=vision, pool=pool, units=3)
    assert preview.sentence == "1 workload would have to release its capacity; then Vision has its 3 cards."
    assert [(s.department, s.units, s.name) for s in preview.stopped] == [(nlp, 8, "")]
    assert preview.promised_at is not None
    recall = recalls.create_recall(actor=owner, department=vision, pool=pool, units=3, until=None)
    run_pass(group_id=pool.group_id)
    borrower.refresh_from_db()
    recall.refresh_from_db()
    assert (borrower.state, borrower.preempted_for) == (ClaimState.LEAVING, recall)
    assert recall.reserved == {"units": 3, "places": []}
    recalls.withdraw_recall(actor=owner, claim=recall)
    run_pass(group_id=pool.group_id)
    borrower.refresh_from_db()
    assert borrower.state == ClaimState.HOLDING


def test_no_more_can_be_recalled_than_is_guaranteed(vision: Department, pool: Pool) -> None:
    owner = Actor(make.member(vision, Role.OWNER))
    recalls.create_recall(actor=owner, department=vision, pool=pool, units=3, until=None)
    with pytest.raises(Invalid) as refused:
        recalls.create_recall(actor=owner, department=vision, pool=pool, units=2, until=None)
    assert refused.value.numbers["most"] == 1


def test_a_recall_ends_at_its_time(vision: Department, pool: Pool) -> None:
    now = timezone.now()
    until = now + dt.timedelta(hours=1)
    recalls.create_recall(
        actor=Actor(make.member(vision, Role.OWNER)), department=vision, pool=pool, units=1, until=until
    )
    assert end_overdue(now=now) == 0
    assert end_overdue(now=until) == 1
    assert end_overdue(now=until) == 0
    assert Claim.objects.get().state == ClaimState.RELEASED


def test_preview_states_the_effects_and_changes_nothing(
    operator: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    make.claim(nlp, pool, 4, ClaimState.HOLDING, placement=[{"pod": 0, "node": "a100-n1", "cards": [0, 1, 2, 3]}])
    preview = preview_quota(
        actor=Actor(operator), department=nlp, pool=pool, guaranteed=1, borrow_limit=None, lend_limit=None
    )
    assert (
        preview.sentence
        == "No workload has to be preempted now; 3 cards more in use would count as borrowed and could "
        "be recalled."
    )
    assert Quota.objects.get(department=nlp).guaranteed == 4


def test_a_preview_of_a_lower_lend_limit_says_that_what_is_lent_stays(
    operator: User, vision: Department, nlp: Department, pool: Pool
) -> None:
    make.holding(nlp, pool, borrowed={vision: 3})

    def lines_at(limit: int) -> tuple[str, ...]:
        return preview_quota(
            actor=Actor(operator), department=vision, pool=pool, guaranteed=4, borrow_limit=None, lend_limit=limit
        ).lines

    assert lines_at(3) == ()
    assert lines_at(2) == (
        "3 cards are lent now and stay lent until they are returned or you recall them: the limit is for new loans.",
    )


def test_owner_can_set_and_remove_a_user_cap(vision: Department, pool: Pool) -> None:
    owner = Actor(make.member(vision, Role.OWNER))
    quotas.set_user_cap(actor=owner, department=vision, pool=pool, units=2)
    assert vision.user_caps.get().units == 2
    quotas.set_user_cap(actor=owner, department=vision, pool=pool, units=None)
    assert not vision.user_caps.exists()


def test_drained_node_takes_no_new_claim(operator: User, vision: Department, pool: Pool) -> None:
    node = pool.cards.first().node
    capacity.set_drained(actor=Actor(operator), node=node, drained=True)
    make.claim(vision, pool, 1)
    run_pass(group_id=pool.group_id)
    claim = Claim.objects.get()
    assert (claim.state, claim.decision) == (ClaimState.PENDING, "wait")
    assert "pool_short" in {reason["code"] for reason in claim.reasons}


def test_drain_preview_lists_what_stays_and_what_would_wait(operator: User, vision: Department, pool: Pool) -> None:
    node = pool.cards.first().node
    here = make.claim(vision, pool, 1, "holding", placement=[{"pod": 0, "node": node.name, "cards": [0]}])
    make.claim(vision, pool, 1)
    preview = preview_drain(actor=Actor(operator), node=node)
    assert [side.name for side in preview.stopped] == [here.name]
    assert (
        preview.sentence == f"1 workload runs here and continues until it ends; no new workload starts on {node.name}."
    )
    assert preview.lines == ("1 workload that is about to start would wait.",)
    with pytest.raises(NotVisible):
        preview_drain(actor=Actor(make.member(vision)), node=node)


def test_owners_are_notified_of_quota_changes_by_others_and_of_completed_recalls(
    pool: Pool, vision: Department
) -> None:
    owner, operator = make.member(vision, Role.OWNER), make.user("root", is_operator=True)
    change = {"department": vision, "pool": pool, "guaranteed": 3, "borrow_limit": 2, "lend_limit": None}
    quotas.set_quota(actor=Actor(operator), expected_version=1, **change)
    [line] = owner.inbox.all()
    assert notices.sentence(line.kind, line.data) == (
        f"The quota of {vision.name} in {pool.name} was changed. Guaranteed: 3 cards, borrow limit: 2 cards, lend limit: all."
    )
    quotas.set_quota(actor=Actor(owner), expected_version=2, **{**change, "lend_limit": 1})
    assert owner.inbox.count() == 1  # nobody is notified of their own change
    recalls.create_recall(actor=Actor(owner), department=vision, pool=pool, units=2, until=None)
    run_pass(group_id=pool.group_id)
    line = owner.inbox.latest("id")
    assert notices.sentence(line.kind, line.data) == f"2 cards of {pool.name} are available again to {vision.name}."
