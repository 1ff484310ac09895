"""Requests for more quota: who can request and decide, what a grant changes, and what is reverted when its term ends."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone
from django.utils.translation import override

from portal.access import Actor, Forbidden, NotVisible
from portal.errors import Invalid, Problem
from portal.infra.versions import Stale
from portal.models import AuditEntry, Department, InboxItem, Role, User
from portal.notify.notices import sentence
from quotas.models import ClaimState, Pool, Quota, QuotaRequest, RequestState
from quotas.requests import actions as requests
from quotas.rules.capacity import OverPromised
from quotas.rules.quotas import NothingToSplit
from tests import builders as make
from tests.clients import ALL, token_of

pytestmark = pytest.mark.django_db(transaction=True)

DAY = dt.timedelta(days=1)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 4, borrow_limit=2)
    return vision


@pytest.fixture
def mia(vision: Department) -> User:
    return make.member(vision, Role.MEMBER, "mia")


def make_request(department: Department, by: User, pool: Pool, units: int | None = 6, **more: Any) -> QuotaRequest:
    values = {"wanted": "guaranteed", "why": "A paper is due.", **more}
    return requests.ask_for_quota(actor=Actor(by), department=department, pool=pool, units=units, **values)


def approve(request: QuotaRequest, by: User, units: int | None = None, **more: Any) -> QuotaRequest:
    values = {"units": request.units if units is None else units, "ends_at": request.ends_at, **more}
    return requests.approve(actor=Actor(by), request=request, expected_version=request.version, **values)


def guaranteed(department: Department, pool: Pool) -> int:
    return Quota.objects.get(department=department, pool=pool).guaranteed


def kinds_of(user: User) -> list[str]:
    return list(InboxItem.objects.filter(user=user).order_by("pk").values_list("kind", flat=True))


class TestAsking:
    def test_member_can_request_and_the_decider_is_notified(
        self, vision: Department, pool: Pool, mia: User, root: User
    ) -> None:
        owner = make.member(vision, Role.OWNER, "otto")
        row = make_request(vision, mia, pool)
        assert (row.state, row.before, row.units) == (RequestState.OPEN, 4, 6)
        assert (kinds_of(root), kinds_of(owner), kinds_of(mia)) == (["quota.requested"], ["quota.requested"], [])
        assert AuditEntry.objects.get(action="quota.requested").actor == mia
        assert guaranteed(vision, pool) == 4

    def test_notification_has_the_full_name_of_the_requester(self, vision: Department, pool: Pool, root: User) -> None:
        make_request(vision, make.member(vision, Role.MEMBER, "kim", first_name="Kim", last_name="Sato"), pool)
        assert InboxItem.objects.get(user=root).data["person"] == "Kim Sato"

    def test_request_of_a_team_goes_to_the_owners_of_its_parent(
        self, vision: Department, pool: Pool, root: User
    ) -> None:
        team = make.department("segmentation", parent=vision)
        above = make.member(vision, Role.OWNER, "otto")
        make_request(team, make.member(team, Role.MEMBER, "tim"), pool, units=2)
        assert (kinds_of(above), kinds_of(root)) == (["quota.requested"], [])

    @pytest.mark.parametrize(
        ("values", "field", "says"),
        [
            ({"units": 4}, "units", "4 cards are already guaranteed"),
            ({"units": 9}, "units", "at most 8 cards in total"),
            ({"units": None}, "units", "Enter a new total"),
            ({"units": 2, "wanted": "borrow_limit"}, "units", "The borrow limit is 2 cards."),
            ({"why": "  "}, "why", "what it is for"),
            ({"ends_at": -1}, "ends_at", "in the future"),
            ({"starts_at": 3, "ends_at": 2}, "ends_at", "after the beginning"),
        ],
    )
    def test_invalid_request_is_refused_with_its_field(
        self, vision: Department, pool: Pool, mia: User, values: dict[str, Any], field: str, says: str
    ) -> None:
        now = timezone.now()
        values = {name: now + value * DAY if name.endswith("_at") else value for name, value in values.items()}
        with pytest.raises(Invalid) as refused:
            make_request(vision, mia, pool, **values)
        assert refused.value.field == field
        assert says in str(refused.value.detail)
        assert not QuotaRequest.objects.exists()

    def test_missing_borrow_limit_cannot_be_raised(self, pool: Pool) -> None:
        free = make.department("free")
        with pytest.raises(Invalid, match="no borrow limit to raise"):
            make_request(free, make.member(free), pool, wanted="borrow_limit", units=None)

    def test_viewers_cannot_request_and_strangers_see_nothing(self, vision: Department, pool: Pool) -> None:
        with pytest.raises(Forbidden):
            make_request(vision, make.member(vision, Role.VIEWER), pool)
        with pytest.raises(NotVisible):
            make_request(vision, make.member(make.department("other"), Role.OWNER), pool)

    def test_number_of_open_requests_of_a_department_is_limited(
        self, vision: Department, pool: Pool, mia: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(requests, "MOST_OPEN", 2)
        make_request(vision, mia, pool, 5)
        first = make_request(vision, mia, pool, 6)
        with pytest.raises(requests.TooManyRequests):
            make_request(vision, mia, pool, 7)
        requests.withdraw(actor=Actor(mia), request=first)
        make_request(vision, mia, pool, 7)

    def test_request_identical_to_an_open_one_is_refused(self, vision: Department, pool: Pool, mia: User) -> None:
        ends = timezone.now() + dt.timedelta(days=9)
        first = make_request(vision, mia, pool)
        make_request(vision, mia, pool, 7)
        make_request(vision, mia, pool, ends_at=ends)
        for values in ({}, {"ends_at": ends}, {"why": "Once more."}):
            with pytest.raises(requests.AlreadyRequested):
                make_request(vision, mia, pool, **values)
        requests.withdraw(actor=Actor(mia), request=first)
        make_request(vision, mia, pool)
        assert QuotaRequest.objects.count() == 4


class TestDeciding:
    def test_approval_changes_the_quota_and_notifies_the_requester(
        self, vision: Department, pool: Pool, mia: User, root: User
    ) -> None:
        row = approve(make_request(vision, mia, pool), root, units=5, note="5 are left.")
        assert (row.state, row.granted, row.raised_by, guaranteed(vision, pool)) == (RequestState.GRANTED, 5, 1, 5)
        assert kinds_of(mia) == ["quota.request_approved"]
        entry = AuditEntry.objects.get(action="quota.changed")
        assert (entry.actor, entry.after["why"]) == (root, f"request {row.public_id}")  # type: ignore[index]
        quota = Quota.objects.get(department=vision, pool=pool)
        assert (quota.borrow_limit, quota.version) == (2, 2)

    def test_removal_of_the_borrow_limit_can_be_requested_and_approved(
        self, vision: Department, pool: Pool, mia: User, root: User
    ) -> None:
        approve(make_request(vision, mia, pool, wanted="borrow_limit", units=None), root, units=None)
        assert Quota.objects.get(department=vision, pool=pool).borrow_limit is None

    def test_approval_cannot_promise_more_than_the_pool_has(
        self, vision: Department, nlp: Department, pool: Pool, mia: User, root: User
    ) -> None:
        row = make_request(vision, mia, pool, units=5)  # nlp has the other four
        with pytest.raises(OverPromised):
            approve(row, root)
        row.refresh_from_db()
        assert (row.is_open, guaranteed(vision, pool)) == (True, 4)

    def test_owner_of_the_parent_grants_from_the_parents_guarantee(
        self, vision: Department, pool: Pool, root: User
    ) -> None:
        team, above = make.department("team", parent=vision), make.member(vision, Role.OWNER, "otto")
        tim = make.member(team, Role.MEMBER, "tim")
        row = approve(make_request(team, tim, pool, units=3), above)
        assert (guaranteed(team, pool), guaranteed(vision, pool), row.giver) == (3, 1, vision)
        with pytest.raises(NothingToSplit):
            approve(make_request(team, tim, pool, units=5), above)

    @pytest.mark.parametrize("role", [Role.MEMBER, Role.OWNER])
    def test_nobody_can_decide_for_their_own_department(
        self, vision: Department, pool: Pool, mia: User, role: Role
    ) -> None:
        with pytest.raises(Forbidden):
            approve(make_request(vision, mia, pool), make.member(vision, role))

    def test_request_can_be_decided_only_once(self, vision: Department, pool: Pool, mia: User, root: User) -> None:
        row = make_request(vision, mia, pool)
        requests.deny(actor=Actor(root), request=row, note="Not this month.", expected_version=row.version)
        assert kinds_of(mia) == ["quota.request_denied"]
        for decide in (approve, lambda row, by: requests.withdraw(actor=Actor(mia), request=row)):
            with pytest.raises(requests.AlreadyDecided):
                decide(row, root)
        assert guaranteed(vision, pool) == 4

    def test_denial_needs_a_note(self, vision: Department, pool: Pool, mia: User, root: User) -> None:
        row = make_request(vision, mia, pool)
        with pytest.raises(Invalid) as refused:
            requests.deny(actor=Actor(root), request=row, note=" ", expected_version=row.version)
        assert refused.value.field == "note"

    def test_decision_on_a_stale_version_is_refused(
        self, vision: Department, pool: Pool, mia: User, root: User
    ) -> None:
        row = make_request(vision, mia, pool)
        with pytest.raises(Stale):
            requests.approve(actor=Actor(root), request=row, units=6, ends_at=None, expected_version=row.version + 1)

    def test_deciders_are_shown_only_requests_that_they_can_decide(
        self, vision: Department, pool: Pool, mia: User, root: User
    ) -> None:
        team = make.department("team", parent=vision)
        of_team = make_request(team, make.member(team), pool, units=2)
        of_vision = make_request(vision, mia, pool)
        above = make.member(vision, Role.OWNER)
        assert set(requests.to_decide(Actor(root))) == {of_team, of_vision}
        assert set(requests.to_decide(Actor(above))) == {of_team}
        assert set(requests.to_decide(Actor(mia))) == set()


class TestComments:
    def test_comment_notifies_the_other_side(self, vision: Department, pool: Pool, mia: User, root: User) -> None:
        row = make_request(vision, mia, pool)
        requests.comment(actor=Actor(root), request=row, text="Until when?")
        requests.comment(actor=Actor(mia), request=row, text="Friday.")
        assert kinds_of(mia) == ["quota.request_comment"]
        assert kinds_of(root) == ["quota.requested", "quota.request_comment"]
        with pytest.raises(Invalid):
            requests.comment(actor=Actor(mia), request=row, text="")


class TestTerms:
    @pytest.fixture
    def now(self) -> dt.datetime:
        return timezone.now()

    def test_grant_for_a_term_is_reverted_when_the_term_ends(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        row = approve(make_request(vision, mia, pool, ends_at=now + 2 * DAY), root)
        Quota.objects.filter(department=vision).update(guaranteed=7)  # somebody has raised it since
        assert requests.run_terms(now=now + 2 * DAY + dt.timedelta(seconds=1)) == 1
        row.refresh_from_db()
        assert (row.state, guaranteed(vision, pool)) == (RequestState.ENDED, 5)
        assert kinds_of(mia)[-1] == "quota.term_ended"
        assert requests.run_terms(now=now + 3 * DAY) == 0

    def test_cards_in_use_when_the_term_ends_are_kept_as_borrowed(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        approve(make_request(vision, mia, pool, ends_at=now + DAY), root)
        running = make.holding(vision, pool, own=6)
        requests.run_terms(now=now + DAY)
        running.refresh_from_db()
        assert (guaranteed(vision, pool), running.state) == (4, ClaimState.HOLDING)

    def test_non_preemptible_work_keeps_its_units_until_it_ends(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        row = approve(make_request(vision, mia, pool, ends_at=now + DAY), root)
        fixed = make.holding(vision, pool, own=5, preemptible=False)
        assert requests.run_terms(now=now + DAY) == 1
        row.refresh_from_db()
        assert (row.state, guaranteed(vision, pool), row.raised_by) == (RequestState.GRANTED, 5, 1)
        assert requests.run_terms(now=now + DAY) == 0
        type(fixed).objects.filter(pk=fixed.pk).update(state=ClaimState.RELEASED, released_at=now)
        requests.run_terms(now=now + DAY)
        row.refresh_from_db()
        assert (row.state, guaranteed(vision, pool)) == (RequestState.ENDED, 4)

    def test_a_parent_gets_back_what_it_gave(self, vision: Department, pool: Pool, now: dt.datetime) -> None:
        team, above = make.department("team", parent=vision), make.member(vision, Role.OWNER)
        approve(make_request(team, make.member(team), pool, units=3, ends_at=now + DAY), above)
        requests.run_terms(now=now + DAY)
        assert (guaranteed(team, pool), guaranteed(vision, pool)) == (0, 4)

    def test_borrow_limit_is_reverted_unless_somebody_changed_it_meanwhile(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        for between, after in ((None, 2), (5, 5)):
            approve(make_request(vision, mia, pool, wanted="borrow_limit", units=4, ends_at=now + DAY), root)
            if between:
                Quota.objects.filter(department=vision).update(borrow_limit=between)
            requests.run_terms(now=now + DAY)
            assert Quota.objects.get(department=vision).borrow_limit == after
            Quota.objects.filter(department=vision).update(borrow_limit=2)

    def test_scheduled_grant_waits_for_its_start_and_for_capacity(
        self, vision: Department, nlp: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        row = approve(make_request(vision, mia, pool, starts_at=now + DAY, ends_at=now + 3 * DAY), root)
        assert (row.state, guaranteed(vision, pool)) == (RequestState.SCHEDULED, 4)
        assert [requests.run_terms(now=now + DAY) for _ in range(2)] == [1, 0]  # notified once
        assert (kinds_of(mia)[-1], guaranteed(vision, pool)) == ("quota.term_delayed", 4)
        Quota.objects.filter(department=nlp).update(guaranteed=1)
        requests.run_terms(now=now + DAY)
        row.refresh_from_db()
        assert (row.state, row.delayed, guaranteed(vision, pool)) == (RequestState.GRANTED, "", 6)
        requests.run_terms(now=now + 3 * DAY)
        assert guaranteed(vision, pool) == 4

    def test_reminder_is_sent_once_at_each_mark_within_the_term(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        approve(make_request(vision, mia, pool, ends_at=now + 10 * DAY), root)
        for hours in range(0, 10 * 24, 6):
            requests.run_terms(now=now + dt.timedelta(hours=hours))
        assert (
            kinds_of(mia).count("quota.term_ending") == 2
        )  # 7 days and 1 day before; 14 would have been before it began

    def test_renewal_extends_the_term(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        row = approve(make_request(vision, mia, pool, ends_at=now + 10 * DAY), root)
        renewal = requests.renew(actor=Actor(mia), request=row)
        with pytest.raises(Invalid, match="already waiting"):
            requests.renew(actor=Actor(mia), request=row)
        assert abs(renewal.ends_at - (now + 20 * DAY)) < dt.timedelta(minutes=1)  # type: ignore[operator]
        renewal = approve(renewal, root)
        row.refresh_from_db()
        assert (row.state, renewal.state, guaranteed(vision, pool)) == (RequestState.RENEWED, RequestState.GRANTED, 6)
        requests.run_terms(now=now + 11 * DAY)
        assert guaranteed(vision, pool) == 6
        requests.run_terms(now=now + 21 * DAY)
        assert guaranteed(vision, pool) == 4

    @pytest.mark.parametrize("units", [5, 8])
    def test_renewal_can_be_for_less_or_more(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime, units: int
    ) -> None:
        row = approve(make_request(vision, mia, pool, ends_at=now + DAY), root)
        approve(requests.renew(actor=Actor(mia), request=row), root, units=units)
        assert guaranteed(vision, pool) == units
        requests.run_terms(now=now + 3 * DAY)
        assert guaranteed(vision, pool) == 4

    def test_a_renewal_approved_after_the_end_is_a_new_grant(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        row = approve(make_request(vision, mia, pool, ends_at=now + DAY), root)
        renewal = requests.renew(actor=Actor(mia), request=row)
        requests.run_terms(now=now + DAY)
        assert guaranteed(vision, pool) == 4
        renewal.refresh_from_db()
        renewal = approve(renewal, root)
        assert (guaranteed(vision, pool), renewal.raised_by) == (6, 2)

    def test_term_that_fails_to_end_does_not_keep_others_from_ending(
        self, vision: Department, nlp: Department, pool: Pool, mia: User, root: User, monkeypatch: pytest.MonkeyPatch,
        now: dt.datetime,
    ) -> None:  # fmt: skip
        Quota.objects.update(guaranteed=2)
        first = approve(make_request(vision, mia, pool, units=3, ends_at=now + DAY), root)
        approve(make_request(nlp, make.member(nlp), pool, units=3, ends_at=now + DAY), root)
        end = requests._end_term

        def fails_for_the_first(row: QuotaRequest, *, now: dt.datetime) -> bool:
            if row.pk == first.pk:
                raise Problem
            return end(row, now=now)

        monkeypatch.setattr(requests, "_end_term", fails_for_the_first)
        requests.run_terms(now=now + DAY)
        assert (guaranteed(vision, pool), guaranteed(nlp, pool)) == (3, 2)

    def test_each_renewal_is_as_long_as_the_first_term(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        row = approve(make_request(vision, mia, pool, ends_at=now + 10 * DAY), root)
        for times in (2, 3, 4):
            row = approve(requests.renew(actor=Actor(mia), request=row), root)
            assert abs(row.ends_at - (now + times * 10 * DAY)) < dt.timedelta(minutes=1)  # type: ignore[operator]

    def test_renewal_does_not_lower_a_guarantee_raised_meanwhile(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        row = approve(make_request(vision, mia, pool, ends_at=now + 10 * DAY), root)
        renewal = requests.renew(actor=Actor(mia), request=row)
        approve(make_request(vision, mia, pool, units=8), root)
        approve(renewal, root)
        assert guaranteed(vision, pool) == 8

    @pytest.mark.parametrize("first_to_end", [0, 1])
    def test_overlapping_terms_are_both_reverted(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime, first_to_end: int
    ) -> None:
        ends = [now + DAY, now + 2 * DAY] if first_to_end == 0 else [now + 2 * DAY, now + DAY]
        for units, end in zip((5, 7), ends, strict=True):
            approve(make_request(vision, mia, pool, units=units, ends_at=end), root)
        requests.run_terms(now=now + DAY)
        assert guaranteed(vision, pool) == (7 if first_to_end == 0 else 5)
        requests.run_terms(now=now + 2 * DAY)
        assert guaranteed(vision, pool) == 4

    def test_permanent_grant_made_during_a_term_stays(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        approve(make_request(vision, mia, pool, units=5, ends_at=now + DAY), root)
        approve(make_request(vision, mia, pool, units=6), root)
        requests.run_terms(now=now + DAY)
        assert guaranteed(vision, pool) == 6

    def test_units_already_taken_back_are_not_taken_twice(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        approve(make_request(vision, mia, pool, ends_at=now + DAY), root)
        Quota.objects.filter(department=vision).update(guaranteed=4)
        requests.run_terms(now=now + DAY)
        assert guaranteed(vision, pool) == 4

    def test_overlapping_terms_of_borrow_limits_are_both_reverted(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        for units, days in ((4, 1), (5, 2)):
            approve(make_request(vision, mia, pool, wanted="borrow_limit", units=units, ends_at=now + days * DAY), root)
        for days, limit in ((1, 5), (2, 2)):
            requests.run_terms(now=now + days * DAY)
            assert Quota.objects.get(department=vision).borrow_limit == limit

    def test_grant_that_never_fits_is_reported_as_having_missed_its_term(
        self, vision: Department, nlp: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        row = approve(make_request(vision, mia, pool, starts_at=now + DAY, ends_at=now + 2 * DAY), root)
        requests.run_terms(now=now + DAY)
        with override("zh-hans"):
            item = InboxItem.objects.filter(user=mia, kind="quota.term_delayed").get()
            assert "资源池的容量已保障给其他部门" in sentence(item.kind, item.data)
        requests.run_terms(now=now + 2 * DAY)
        row.refresh_from_db()
        assert (row.state, row.delayed, row.applied_at) == (RequestState.ENDED, "", None)
        assert kinds_of(mia)[-1] == "quota.term_missed"

    def test_start_of_a_scheduled_grant_lowers_nothing(
        self, vision: Department, pool: Pool, mia: User, root: User, now: dt.datetime
    ) -> None:
        approve(make_request(vision, mia, pool, units=5, starts_at=now + DAY, ends_at=now + 3 * DAY), root)
        approve(make_request(vision, mia, pool, units=7, ends_at=now + 2 * DAY), root)
        for days, left in ((1, 7), (2, 5), (3, 4)):
            requests.run_terms(now=now + days * DAY)
            assert guaranteed(vision, pool) == left

    def test_only_a_running_term_can_be_renewed(self, vision: Department, pool: Pool, mia: User, root: User) -> None:
        row = make_request(vision, mia, pool)
        for each in (row, approve(row, root)):
            with pytest.raises(requests.NoTerm):
                requests.renew(actor=Actor(mia), request=each)


def test_texts_can_have_line_breaks_and_emoji_but_no_hidden_characters(
    vision: Department, pool: Pool, mia: User
) -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert make_request(vision, mia, pool, why=f"one\r\ntwo\t{family}").why == f"one\r\ntwo\t{family}"
    for hidden in ("a\u202eb", "\u200b", "red\x1b[31m", "a\u2066b"):
        with pytest.raises(Invalid) as refused:
            make_request(vision, mia, pool, why=hidden)
        assert refused.value.field == "why"


def test_list_of_requests_to_decide_respects_the_department_of_a_token(
    vision: Department, nlp: Department, pool: Pool, mia: User, root: User
) -> None:
    row = make_request(vision, mia, pool)
    for department, listed in ((vision, [row]), (nlp, [])):
        token, _secret = token_of(root, department, ALL)
        assert list(requests.to_decide(Actor(root, token))) == listed
