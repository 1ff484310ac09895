"""Budgets: who can set them, what is refused, who is notified when, and how a planning pass applies them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone

from portal.access import Actor, Forbidden, NotVisible
from portal.errors import Invalid
from portal.infra.versions import Stale
from portal.models import AuditEntry, Department, InboxItem, Role, User, Webhook, WebhookDelivery
from portal.notify.notices import sentence
from quotas.budgets.actions import (
    BudgetExists,
    Limits,
    binding_budgets,
    change_budget,
    create_budget,
    keep,
    remove_budget,
    visible_budgets,
)
from quotas.budgets.states import Stage, states_of
from quotas.models import Budget, Claim, ClaimState, LedgerEntry, Pool
from quotas.planning.claims import release
from quotas.planning.run_pass import run_pass
from quotas.previews.budgets import preview_budget
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)
NOW = dt.datetime(2026, 3, 20, 12, tzinfo=dt.UTC)
APRIL = dt.datetime(2026, 4, 1, tzinfo=dt.UTC)


@pytest.fixture
def lab() -> Department:
    return make.department("lab")


@pytest.fixture
def vision(lab: Department, pool: Pool) -> Department:
    vision = make.department("vision", parent=lab)
    make.quota(vision, pool, 4)
    return vision


def budget_of(department: Department, hours: int = 100, **more: Any) -> Budget:
    return Budget.objects.create(department=department, hours=hours, **more)


def used(
    department: Department, pool: Pool, hours: float, *, units: int = 1, until: dt.datetime = NOW, **more: Any
) -> None:
    """Records that many GPU-hours, ending at `until`."""
    start = until - dt.timedelta(hours=hours / units)
    claim = make.claim(department, pool, units, ClaimState.RELEASED, released_at=until, **more)
    LedgerEntry.objects.create(
        claim=claim, pool=pool, department=department, own=True, units=units, started_at=start, ended_at=until
    )


# Permissions ----------------------------------------------------------------------------------------------------------


def test_budget_of_a_department_is_set_by_those_who_set_its_quota(
    lab: Department, vision: Department, root: User
) -> None:
    owner, above = make.member(vision, Role.OWNER), make.member(lab, Role.OWNER)
    with pytest.raises(Forbidden):
        create_budget(actor=Actor(owner), department=vision, limits=Limits(10))
    create_budget(actor=Actor(above), department=vision, limits=Limits(10))
    with pytest.raises(Forbidden):
        create_budget(actor=Actor(above), department=lab, limits=Limits(10))
    create_budget(actor=Actor(root), department=lab, limits=Limits(10))
    assert Budget.objects.count() == 2


def test_owners_but_not_members_can_set_budgets_of_users(lab: Department, vision: Department) -> None:
    owner, member = make.member(vision, Role.OWNER), make.member(vision, Role.MEMBER)
    row = create_budget(actor=Actor(owner), department=vision, person=member, limits=Limits(10))
    with pytest.raises(Forbidden):
        change_budget(actor=Actor(member), budget=row, limits=Limits(99), expected_version=1)
    with pytest.raises(NotVisible):
        remove_budget(actor=Actor(make.user("stranger")), budget=row, expected_version=1)
    assert Budget.objects.get().hours == 10


def test_visible_budgets_depend_on_the_role(lab: Department, vision: Department, root: User) -> None:
    owner, ann, ben = (make.member(vision, role) for role in (Role.OWNER, Role.MEMBER, Role.MEMBER))
    rows = {
        "vision": budget_of(vision), "lab": budget_of(lab), "ann": budget_of(vision, person=ann),
        "ben": budget_of(vision, person=ben),
    }  # fmt: skip
    names = {row.pk: name for name, row in rows.items()}

    def visible_to(user: User) -> set[str]:
        return {names[row.pk] for row in visible_budgets(Actor(user))}

    assert visible_to(owner) == {"vision", "ann", "ben"}
    assert visible_to(ann) == {"vision", "ann"}
    assert visible_to(make.user("stranger")) == set()
    assert visible_to(root) == set(rows)
    assert {names[row.pk] for row in binding_budgets(Actor(root), vision)} == {"vision", "lab", "ann", "ben"}


# Validation -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (Limits(0), "hours"),
        (Limits(-5), "hours"),
        (Limits(10**9 + 1), "hours"),
        (Limits(1, counts="half"), "counts"),
        (Limits(1, action="stop"), "action"),
        (Limits(1, starts_on=dt.date(2030, 1, 1)), "ends_on"),
        (Limits(1, ends_on=dt.date(2030, 1, 1)), "starts_on"),
        (Limits(1, starts_on=dt.date(2030, 1, 2), ends_on=dt.date(2030, 1, 1)), "ends_on"),
        (Limits(1, starts_on=dt.date(2020, 1, 2), ends_on=dt.date(2020, 2, 1)), "ends_on"),
        (Limits(1, starts_on=dt.date(2030, 1, 1), ends_on=dt.date(2040, 1, 1)), "ends_on"),
    ],
)
def test_invalid_limits_are_refused_with_their_field(
    limits: Limits, field: str, vision: Department, root: User
) -> None:
    with pytest.raises(Invalid) as refused:
        create_budget(actor=Actor(root), department=vision, limits=limits)
    assert refused.value.field == field
    assert not Budget.objects.exists()


def test_budget_for_a_non_member_is_refused(vision: Department, root: User) -> None:
    with pytest.raises(Invalid) as refused:
        create_budget(actor=Actor(root), department=vision, person=make.user("stranger"), limits=Limits(1))
    assert refused.value.field == "person"


def test_duplicate_budget_is_refused_but_a_term_beside_a_month_is_allowed(
    vision: Department, pool: Pool, root: User
) -> None:
    create_budget(actor=Actor(root), department=vision, limits=Limits(1))
    with pytest.raises(BudgetExists):
        create_budget(actor=Actor(root), department=vision, limits=Limits(2))
    create_budget(actor=Actor(root), department=vision, pool=pool, limits=Limits(2))
    day = timezone.localdate()
    term = create_budget(actor=Actor(root), department=vision, limits=Limits(2, starts_on=day, ends_on=day))
    with pytest.raises(BudgetExists):
        change_budget(actor=Actor(root), budget=term, limits=Limits(2), expected_version=1)


def test_change_or_removal_of_a_stale_version_is_refused(vision: Department, root: User) -> None:
    row = create_budget(actor=Actor(root), department=vision, limits=Limits(1))
    change_budget(actor=Actor(root), budget=row, limits=Limits(2), expected_version=1)
    for stale_call in (
        lambda: change_budget(actor=Actor(root), budget=row, limits=Limits(3), expected_version=1),
        lambda: remove_budget(actor=Actor(root), budget=row, expected_version=1),
    ):
        with pytest.raises(Stale):
            stale_call()
    assert Budget.objects.get().hours == 2
    remove_budget(actor=Actor(root), budget=row, expected_version=2)
    actions = AuditEntry.objects.order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["budget.set", "budget.set", "budget.removed"]


# Notifications --------------------------------------------------------------------------------------------------------


def notified(kind: str) -> list[str]:
    return sorted(InboxItem.objects.filter(kind=kind).values_list("user__username", flat=True))


def test_users_are_notified_once_per_period_at_80_and_at_100_percent(
    lab: Department, vision: Department, pool: Pool
) -> None:
    ann = make.member(vision, Role.MEMBER, "ann", email="ann@example.org")
    make.member(vision, Role.OWNER, "olivia", email="o@example.org")
    Webhook.objects.create(department=vision, name="chat", url="https://chat.example.org/")
    budget_of(vision, 100, person=ann, action="no_new_work")
    used(vision, pool, 79.9, user=ann)
    assert keep(now=NOW) == 0
    used(vision, pool, 0.1, user=ann)
    assert [keep(now=NOW), keep(now=NOW)] == [1, 0]
    assert (notified("budget.near"), notified("budget.reached")) == (["ann", "olivia"], [])
    used(vision, pool, 20, user=ann)
    assert [keep(now=NOW), keep(now=NOW)] == [1, 0]
    assert notified("budget.reached") == ["ann", "olivia"]
    assert [row.kind for row in WebhookDelivery.objects.order_by("pk")] == ["budget.near", "budget.reached"]
    item = InboxItem.objects.filter(kind="budget.reached").first()
    assert item is not None
    assert item.mail_due_at is not None
    assert sentence(item.kind, item.data).startswith(
        "The budget of ann (department: Vision, pool: all pools) is used up: 100.0 of 100 GPU-hours. Until 2026-04-01"
    )
    assert sentence(item.kind, item.data).endswith("nothing new starts. What runs is not stopped.")


def test_users_are_notified_again_in_the_next_period(vision: Department, pool: Pool) -> None:
    make.member(vision, Role.OWNER, "olivia")
    budget_of(vision, 10)
    used(vision, pool, 12)
    used(vision, pool, 9, until=APRIL + dt.timedelta(days=2))
    later = APRIL + dt.timedelta(days=3)
    assert [keep(now=NOW), keep(now=APRIL), keep(now=later), keep(now=later)] == [1, 0, 1, 0]
    assert (notified("budget.reached"), notified("budget.near")) == (["olivia"], ["olivia"])


def test_larger_budget_notifies_again_but_another_action_does_not(vision: Department, pool: Pool, root: User) -> None:
    make.member(vision, Role.OWNER, "olivia")
    now = timezone.now()
    row = budget_of(vision, 10)
    used(vision, pool, 9, units=100, until=now)
    if now.day == 1 and now.hour == 0:
        pytest.skip("the month has just begun")
    assert keep(now=now) == 1
    row = change_budget(actor=Actor(root), budget=row, limits=Limits(10, action="no_new_work"), expected_version=1)
    assert keep(now=now) == 0
    row = change_budget(actor=Actor(root), budget=row, limits=Limits(11), expected_version=2)
    assert keep(now=now) == 1
    change_budget(actor=Actor(root), budget=row, limits=Limits(100), expected_version=3)
    assert keep(now=now) == 0


def test_notified_mark_and_messages_are_written_in_one_transaction(
    vision: Department, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process is killed between the two, nothing was sent, and the next run sends it once."""
    make.member(vision, Role.OWNER, "olivia")
    budget_of(vision, 10)
    used(vision, pool, 9)

    class Killed(BaseException):
        pass

    def killed(*_rows: Any, **_more: Any) -> None:
        raise Killed

    monkeypatch.setattr("quotas.budgets.actions.notices.send", killed)
    with pytest.raises(Killed):
        keep(now=NOW)
    monkeypatch.undo()
    assert not InboxItem.objects.exists()
    assert [keep(now=NOW), keep(now=NOW)] == [1, 0]
    assert notified("budget.near") == ["olivia"]


# In a planning pass ---------------------------------------------------------------------------------------------------


def test_used_up_budget_blocks_starts_until_the_first_pass_of_the_next_period(
    lab: Department, vision: Department, pool: Pool
) -> None:
    budget_of(lab, 10, action="no_new_work")
    used(vision, pool, 11)
    claim = make.claim(vision, pool, 1, submitted_at=NOW, queued_at=NOW)
    run_pass(group_id=pool.group_id, now=NOW)
    claim.refresh_from_db()
    assert claim.state == ClaimState.PENDING
    assert claim.reasons == [
        {"code": "over_budget", "department": "lab", "limit": 10, "used": 11, "resets_at": int(APRIL.timestamp())}
    ]
    run_pass(group_id=pool.group_id, now=APRIL - dt.timedelta(seconds=1))
    assert Claim.objects.get(pk=claim.pk).state == ClaimState.PENDING
    run_pass(group_id=pool.group_id, now=APRIL)
    assert Claim.objects.get(pk=claim.pk).state == ClaimState.HOLDING


def test_running_work_continues_but_its_use_can_block_new_work(vision: Department, pool: Pool) -> None:
    budget_of(vision, 10, action="no_new_work")
    running = make.holding(vision, pool, own=2, started_at=NOW - dt.timedelta(hours=5))
    waiting = make.claim(vision, pool, 1, submitted_at=NOW)
    run_pass(group_id=pool.group_id, now=NOW - dt.timedelta(seconds=1))
    assert Claim.objects.get(pk=waiting.pk).state == ClaimState.HOLDING  # a second before it was used up
    later = make.claim(vision, pool, 1, submitted_at=NOW)
    run_pass(group_id=pool.group_id, now=NOW)
    assert Claim.objects.get(pk=later.pk).state == ClaimState.PENDING
    assert Claim.objects.get(pk=running.pk).state == ClaimState.HOLDING


def test_no_borrowing_budget_still_starts_claims_within_the_guarantee(vision: Department, pool: Pool) -> None:
    make.quota(make.department("nlp"), pool, 4)
    budget_of(vision, 10)
    used(vision, pool, 11)
    inside = make.claim(vision, pool, 4, submitted_at=NOW, queued_at=NOW)
    beyond = make.claim(vision, pool, 1, submitted_at=NOW + dt.timedelta(seconds=1))
    run_pass(group_id=pool.group_id, now=NOW)
    assert Claim.objects.get(pk=inside.pk).state == ClaimState.HOLDING
    beyond.refresh_from_db()
    assert (beyond.state, [reason["code"] for reason in beyond.reasons]) == (ClaimState.PENDING, ["over_budget"])
    release(inside, now=NOW)
    run_pass(group_id=pool.group_id, now=NOW)
    assert Claim.objects.get(pk=beyond.pk).state == ClaimState.HOLDING


def test_passes_that_change_nothing_write_nothing(vision: Department, pool: Pool) -> None:
    """The hours used grow every second, but the answer to the held claim stays the same."""
    budget_of(vision, 10, action="no_new_work")
    make.holding(vision, pool, own=1, started_at=NOW - dt.timedelta(hours=12))
    claim = make.claim(vision, pool, 1, submitted_at=NOW)
    run_pass(group_id=pool.group_id, now=NOW)
    answered = Claim.objects.get(pk=claim.pk).answered_at
    run_pass(group_id=pool.group_id, now=NOW + dt.timedelta(seconds=5))
    assert Claim.objects.get(pk=claim.pk).answered_at == answered


# Previews -------------------------------------------------------------------------------------------------------------


def test_preview_lists_the_workloads_that_would_be_held(vision: Department, pool: Pool, root: User) -> None:
    now = timezone.now()
    make.holding(vision, pool, own=1, started_at=now - dt.timedelta(hours=3))
    make.claim(vision, pool, 1, name="train")
    tight = Budget(department=vision, hours=1, action="no_new_work")
    found = preview_budget(actor=Actor(root), department=vision, budget=tight, instead_of=None)
    if now.day == 1 and now.hour < 2:
        pytest.skip("the month has just begun")
    assert {each.kind for each in found.breaks} == {"waits", "held"}
    assert "1 queued workload would be held by the budget." in found.lines
    assert any("train" in line for line in found.lines)
    roomy = preview_budget(
        actor=Actor(root), department=vision, budget=Budget(department=vision, hours=10**6), instead_of=None
    )
    assert (roomy.breaks, roomy.sentence) == ((), "No workload is affected now.")
    assert any("of 1,000,000 GPU-hours" in line for line in roomy.lines)


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ("nothing", "It is used up already. It only warns: nothing is blocked."),
        ("no_borrowing", "once it is saved, {who} cannot borrow until 1 Apr"),
        ("no_new_work", "once it is saved, {who} cannot start new work until 1 Apr"),
    ],
)
@pytest.mark.parametrize("who", ["Vision", "ann", "ann (in A100)"])
def test_preview_of_a_used_up_budget_states_what_it_blocks(
    action: str, says: str, who: str, vision: Department, pool: Pool, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    ann = make.member(vision, username="ann")
    make.holding(vision, pool, own=1, user=ann, started_at=NOW - dt.timedelta(hours=20))
    person, on = None if who == "Vision" else ann, pool if "(" in who else None
    budget = Budget(department=vision, person=person, pool=on, hours=10, action=action)
    found = preview_budget(actor=Actor(root), department=vision, budget=budget, instead_of=None)
    assert says.format(who=who) in found.sentence
    assert any(line.startswith("So far in this period: 20.0 of 10 GPU-hours") for line in found.lines)
    assert not any("affected" in line for line in (found.sentence, *found.lines))


def test_removal_preview_lists_workloads_that_held_claims_would_preempt(
    vision: Department, pool: Pool, root: User
) -> None:
    now = timezone.now()
    if now.day == 1 and now.hour < 4:
        pytest.skip("the month has just begun")
    used(vision, pool, 3, units=2, until=now)
    row = budget_of(vision, 1, action="no_new_work")
    make.holding(make.department("nlp"), pool, borrowed={vision: 4, None: 4}, placement=[
        {"pod": 0, "node": "a100-n1", "cards": list(range(8))}], notice=60, grace=30)  # fmt: skip
    make.claim(vision, pool, 4)
    found = preview_budget(actor=Actor(root), department=vision, budget=None, instead_of=row)
    assert {each.kind for each in found.breaks} == {"stopped"}


def test_state_projects_use_at_the_current_rate(vision: Department, pool: Pool, root: User) -> None:
    make.holding(vision, pool, own=2, started_at=NOW - dt.timedelta(hours=50))
    rows = [budget_of(vision, hours, pool=on) for hours, on in ((1000, None), (110, pool))]
    fine, near = states_of(Actor(root), rows, now=NOW)
    left = (APRIL - NOW).total_seconds() / 3600
    assert (fine.used, fine.stage, fine.expected, fine.used_up_at) == (100, Stage.FINE, 100 + 2 * left, None)
    assert (near.stage, near.used_up_at, near.holds) == (Stage.NEAR, NOW + dt.timedelta(hours=5), False)
    [up] = states_of(Actor(root), [near.budget], now=NOW + dt.timedelta(hours=5))
    assert (up.stage, up.holds, up.left, up.used_up_at) == (Stage.USED_UP, True, 0, None)


def test_terms_outside_their_dates_hold_no_claim(vision: Department, pool: Pool, root: User) -> None:
    day = NOW.date()
    soon = budget_of(vision, 1, starts_on=day + dt.timedelta(days=1), ends_on=day + dt.timedelta(days=9))
    past = budget_of(vision, 1, starts_on=day - dt.timedelta(days=9), ends_on=day - dt.timedelta(days=1))
    used(vision, pool, 99, until=NOW - dt.timedelta(days=3))
    assert [each.stage for each in states_of(Actor(root), [soon, past], now=NOW)] == [Stage.NOT_BEGUN, Stage.ENDED]
    claim = make.claim(vision, pool, 1, submitted_at=NOW)
    run_pass(group_id=pool.group_id, now=NOW)
    assert Claim.objects.get(pk=claim.pk).state == ClaimState.HOLDING
