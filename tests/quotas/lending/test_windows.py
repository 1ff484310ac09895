"""Closing lending windows: nothing is lent that could not be back in time, and what is lent is recalled early enough."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone, translation

from portal.access import Actor, Forbidden
from portal.errors import Invalid
from portal.models import AuditEntry, Department, Role
from quotas.lending import windows
from quotas.lending.schedule import Window
from quotas.models import WINDOW, Claim, ClaimState, Pool, Quota
from quotas.planning.run_pass import run_pass
from quotas.rules import quotas, recalls
from quotas.rules.quotas import Lending
from quotas.rules.recalls import end_overdue
from tests import builders as make
from tests.clients import confirmed, person

pytestmark = pytest.mark.django_db(transaction=True)
SHANGHAI = ZoneInfo("Asia/Shanghai")
OFFICE = Window((0, 1, 2, 3, 4), 9 * 60, 18 * 60, 2)
NOTICE, GRACE = 600, 120


def at(text: str) -> dt.datetime:
    """A time on Monday, 23 November 2026, in Shanghai."""
    return dt.datetime.fromisoformat(f"2026-11-23 {text}").replace(tzinfo=SHANGHAI)


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8, notice=NOTICE, grace=GRACE)


@pytest.fixture
def vision(pool: Pool) -> Department:
    """Guaranteed 8 of 8; lends all of it at night, 2 during office hours."""
    vision = make.department("vision")
    make.quota(vision, pool, 8, windows=[windows.to_json(OFFICE)], zone="Asia/Shanghai")
    return vision


@pytest.fixture
def nlp() -> Department:
    return make.department("nlp")


def make_borrower(department: Department, pool: Pool, units: int, cards: list[int], **fields: Any) -> Claim:
    started = fields.pop("started_at", at("02:00"))
    place = [{"pod": 0, "node": "a100-n1", "cards": cards}]
    return make.holding(department, pool, borrowed={None: units}, placement=place, notice=NOTICE, grace=GRACE,
                        started_at=started, submitted_at=started, queued_at=started, **fields)  # fmt: skip


def submit(department: Department, pool: Pool, units: int, when: dt.datetime) -> Claim:
    return make.claim(department, pool, units, submitted_at=when, queued_at=when)


def plan(pool: Pool, when: dt.datetime, *claims: Claim) -> None:
    end_overdue(now=when)
    run_pass(group_id=pool.group_id, now=when)
    for claim in claims:
        claim.refresh_from_db()


def window_recalls() -> list[Claim]:
    return list(Claim.objects.filter(name=WINDOW).exclude(state=ClaimState.RELEASED))


def test_shortly_before_a_window_begins_only_its_lend_limit_is_lent(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    early = submit(nlp, pool, 6, at("08:40"))
    plan(pool, at("08:40"), early)
    assert early.state == ClaimState.HOLDING  # can still be back by 09:00
    early.delete()
    late = submit(nlp, pool, 6, at("08:50"))
    plan(pool, at("08:50"), late)
    assert (late.state, late.reasons[0]["code"]) == (ClaimState.PENDING, "not_lent")
    small = submit(nlp, pool, 2, at("08:51"))
    plan(pool, at("08:51"), small)
    assert small.state == ClaimState.HOLDING


def test_borrower_is_recalled_early_enough_for_units_to_be_back_in_time(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    staying = make_borrower(nlp, pool, 2, [0, 1])
    leaving = make_borrower(nlp, pool, 5, [2, 3, 4, 5, 6])
    plan(pool, at("08:47"), staying, leaving)
    assert {staying.state, leaving.state} == {ClaimState.HOLDING}
    plan(pool, at("08:47:50"), staying, leaving)
    assert (staying.state, leaving.state) == (ClaimState.HOLDING, ClaimState.LEAVING)
    assert leaving.leave_by is not None
    assert leaving.leave_by + dt.timedelta(seconds=GRACE) <= at("09:00")
    [recall] = window_recalls()
    assert (recall.department, recall.units, recall.until) == (vision, 6, at("18:00"))
    assert leaving.preempted_for == recall


def test_owner_uses_recalled_units_and_lends_again_after_the_window(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    make_borrower(nlp, pool, 2, [6, 7])
    plan(pool, at("08:58"))
    [recall] = window_recalls()
    assert (recall.state, recall.units) == (ClaimState.HOLDING, 6)  # idle: held at once
    plan(pool, at("09:30"))
    assert len(window_recalls()) == 1  # nothing more is due
    mine = submit(vision, pool, 6, at("10:00"))
    plan(pool, at("10:00"), mine)
    assert (mine.state, mine.own) == (ClaimState.HOLDING, 6)
    mine.state, mine.released_at = ClaimState.RELEASED, at("17:00")
    mine.save()
    stranger = submit(nlp, pool, 3, at("17:30"))
    plan(pool, at("17:30"), stranger)
    assert stranger.state == ClaimState.PENDING
    plan(pool, at("18:00"), stranger)
    assert stranger.state == ClaimState.HOLDING
    assert window_recalls() == []


def test_borrower_whose_minimum_runtime_reaches_into_the_window_is_not_started(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    Pool.objects.update(min_runtime=3600)
    pool.refresh_from_db()
    late = submit(nlp, pool, 6, at("07:50"))
    plan(pool, at("07:50"), late)
    assert late.state == ClaimState.PENDING
    assert window_recalls() == []  # nothing is recalled an hour early


def test_borrower_with_a_longer_notice_is_recalled_that_much_earlier(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    old = make_borrower(nlp, pool, 7, list(range(7)))
    Claim.objects.filter(pk=old.pk).update(notice=3600)
    plan(pool, at("07:57"), old)
    assert old.state == ClaimState.HOLDING
    plan(pool, at("07:58"), old)
    assert old.state == ClaimState.LEAVING


def test_window_of_a_parent_recalls_what_its_teams_lend(nlp: Department, pool: Pool) -> None:
    lab = make.department("lab")
    make.quota(lab, pool, 0, windows=[windows.to_json(OFFICE)], zone="Asia/Shanghai")
    one, two = make.department("one", parent=lab), make.department("two", parent=lab)
    make.quota(one, pool, 5)
    make.quota(two, pool, 3)
    leaving = make_borrower(nlp, pool, 8, list(range(8)))
    plan(pool, at("08:50"), leaving)
    assert leaving.state == ClaimState.LEAVING
    assert sorted((r.department.slug, r.units) for r in window_recalls()) == [("one", 5), ("two", 1)]


def owner_of(department: Department) -> Actor:
    return Actor(make.member(department, Role.OWNER))


def change(actor: Actor, department: Department, pool: Pool, lending: Lending | None, **more: Any) -> Quota:
    numbers = {"guaranteed": 8, "borrow_limit": None, "lend_limit": None, "expected_version": 1} | more
    return quotas.set_quota(actor=actor, department=department, pool=pool, lending=lending, **numbers)  # type: ignore[arg-type]


def test_windows_are_kept_by_a_change_that_does_not_mention_them(vision: Department, pool: Pool) -> None:
    owner = owner_of(vision)
    night = Window((0,), 20 * 60, 6 * 60, None)
    changed = change(owner, vision, pool, Lending((night,), "Europe/Berlin"), lend_limit=1)
    assert (windows.schedule_of(changed).windows, changed.zone) == ((night,), "Europe/Berlin")
    kept = change(owner, vision, pool, None, lend_limit=2, expected_version=2)
    assert (kept.windows, kept.zone, kept.lend_limit) == (changed.windows, "Europe/Berlin", 2)
    none = change(owner, vision, pool, Lending(), lend_limit=2, expected_version=3)
    assert (none.windows, none.zone) == ([], "")
    rows = AuditEntry.objects.filter(action="quota.changed")
    assert rows[0].before["windows"] == changed.windows  # type: ignore[index]
    with pytest.raises(Forbidden):
        change(Actor(make.member(vision)), vision, pool, Lending(), lend_limit=2, expected_version=4)


@pytest.mark.parametrize(
    ("lending", "field"),
    [
        (Lending((OFFICE, Window((4,), 17 * 60, 20 * 60, 0)), "UTC"), "windows"),
        (Lending((Window((), 60, 120, 0),), "UTC"), "windows"),
        (Lending((Window((7,), 60, 120, 0),), "UTC"), "windows"),
        (Lending((Window((1,), 60, 60, 0),), "UTC"), "windows"),
        (Lending((OFFICE,), "Mars/Olympus"), "zone"),
        (Lending((OFFICE,), ""), "zone"),
        (Lending(tuple(Window((0,), n, n + 1, 0) for n in range(21)), "UTC"), "windows"),
    ],
)
def test_invalid_windows_are_refused_and_change_nothing(
    vision: Department, pool: Pool, lending: Lending, field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        change(owner_of(vision), vision, pool, lending)
    assert refused.value.field == field
    assert Quota.objects.get().version == 1


def test_refusal_names_the_overlapping_windows(vision: Department, pool: Pool) -> None:
    with pytest.raises(windows.OverlappingWindows) as refused, translation.override("en"):
        change(owner_of(vision), vision, pool, Lending((OFFICE, Window((4, 6), 17 * 60, 2 * 60, 0)), "UTC"))
    assert refused.value.numbers == {"one": "Mon–Fri 09:00–18:00", "other": "Fri, Sun 17:00–02:00"}


def test_changing_the_windows_ends_the_recalls_of_the_old_ones(vision: Department, nlp: Department, pool: Pool) -> None:
    leaving = make_borrower(nlp, pool, 7, list(range(7)))
    plan(pool, at("08:50"), leaving)
    assert leaving.state == ClaimState.LEAVING
    change(owner_of(vision), vision, pool, Lending())
    plan(pool, at("08:51"), leaving)
    assert (leaving.state, window_recalls()) == (ClaimState.HOLDING, [])


def test_window_recalls_nothing_when_nobody_borrows(vision: Department, pool: Pool) -> None:
    plan(pool, at("09:30"))
    assert window_recalls() == []


def test_recall_of_a_window_cannot_be_withdrawn_by_hand(vision: Department, nlp: Department, pool: Pool) -> None:
    make_borrower(nlp, pool, 2, [6, 7])
    plan(pool, at("08:50"))
    [recall] = window_recalls()
    with pytest.raises(recalls.OfWindow):
        recalls.withdraw_recall(actor=owner_of(vision), claim=recall)


def test_next_return_states_when_a_window_next_affects_a_borrower(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    make_borrower(nlp, pool, 3, [0, 1, 2])
    run_pass(group_id=pool.group_id, now=at("02:00"))
    found = windows.next_return(nlp, pool, {"vision": 0}, now=at("02:00"))
    assert found == windows.Return(at("09:00"), vision, 2)
    assert windows.next_return(nlp, pool, {}, now=at("02:00")) is None
    assert windows.next_return(vision, pool, {"vision": 0}, now=at("02:00")) is None


def test_the_number_of_queries_does_not_grow_with_the_windows(
    vision: Department, pool: Pool, django_assert_num_queries: Any
) -> None:
    quotas = Quota.objects.select_related("pool")
    with django_assert_num_queries(1):
        assert [windows.planned_limit(quota, timezone.now()) for quota in quotas]


# Pages and API --------------------------------------------------------------------------------------------------------

URL = "/api/v1/departments/vision/quotas/a100/"
OFFICE_JSON = {"days": ["mon", "tue", "wed", "thu", "fri"], "start": "09:00", "end": "18:00", "lend_limit": 2}
NUMBERS = {"guaranteed": 8, "borrow_limit": None, "lend_limit": None}


def put(user: Any, body: dict[str, Any], version: int = 1, query: str = "") -> Any:
    return person(user).put(URL + query, body, headers={"If-Match": f'"{version}"'})


def test_api_returns_the_windows_the_current_limit_and_the_next(vision: Department, pool: Pool) -> None:
    data = person(make.member(vision)).get(URL).json()
    assert (data["windows"], data["zone"]) == ([OFFICE_JSON], "Asia/Shanghai")
    schedule = windows.schedule_of(Quota.objects.get())
    assert data["lend_limit_now"] == schedule.at(timezone.now())
    change = schedule.next_change(timezone.now())
    assert change is not None
    assert dt.datetime.fromisoformat(data["lend_limit_next"]["at"]) == change[0]


def test_api_sets_windows_and_keeps_them_when_they_are_not_sent(vision: Department, pool: Pool) -> None:
    owner = make.member(vision, Role.OWNER)
    night = {"days": ["sun"], "start": "20:00", "end": "24:00", "lend_limit": None}
    data = put(owner, NUMBERS | {"windows": [night], "zone": "UTC"}).json()
    assert (data["windows"], data["zone"]) == ([night], "UTC")
    assert put(owner, NUMBERS | {"lend_limit": 3}, 2).json()["windows"] == [night]
    assert put(owner, NUMBERS | {"windows": []}, 3).json()["zone"] == ""


@pytest.mark.parametrize(
    ("more", "attr"),
    [
        ({"windows": [OFFICE_JSON]}, "zone"),
        ({"zone": "UTC"}, "windows"),
        ({"windows": [OFFICE_JSON, OFFICE_JSON], "zone": "UTC"}, "windows"),
        ({"windows": [OFFICE_JSON | {"start": "9am"}], "zone": "UTC"}, "windows.0.start"),
        ({"windows": [OFFICE_JSON | {"days": ["mo"]}], "zone": "UTC"}, "windows.0.days.0"),
        ({"windows": [OFFICE_JSON | {"until": 3}], "zone": "UTC"}, "windows.0.until"),
        ({"windows": [OFFICE_JSON], "zone": "Moon"}, "zone"),
    ],
)
def test_api_names_the_invalid_field(vision: Department, pool: Pool, more: Any, attr: str) -> None:
    response = put(make.member(vision, Role.OWNER), NUMBERS | more)
    assert (response.status_code, response["Content-Type"]) == (422, "application/problem+json")
    assert [error["attr"] for error in response.json()["errors"]] == [attr]
    assert Quota.objects.get().version == 1


def form(**more: Any) -> dict[str, Any]:
    rows = {"windows-TOTAL_FORMS": 2, "windows-INITIAL_FORMS": 1, "zone": "Asia/Shanghai", "version": 1, "why": ""}
    row = {"days": [0, 1], "start": "09:00", "end": "18:00", "lend_limit": "2"}
    return {"guaranteed": 8, "borrow_limit": "", "lend_limit": "", **rows,
            **{f"windows-0-{name}": value for name, value in row.items()}, **more}  # fmt: skip


def test_owner_can_edit_windows_on_the_page_after_a_preview(
    client: Any, vision: Department, nlp: Department, pool: Pool
) -> None:
    make_borrower(nlp, pool, 7, list(range(7)), name="secret-llm", started_at=timezone.now() - dt.timedelta(hours=1))
    client.force_login(make.member(vision, Role.OWNER))
    whole = {"windows-0-days": list(range(7)), "windows-0-start": "00:00", "windows-0-end": "00:00"}
    text = client.get("/d/vision/quotas/a100/preview/", form(**whole)).content.decode()
    assert "1 workload would have to release 7 cards in total." in text
    assert "lends at most 2 cards at any time" in text
    assert "secret-llm" not in text
    assert confirmed(client, "/d/vision/quotas/a100/", form(**whole)).status_code == 302
    [window] = windows.schedule_of(Quota.objects.get()).windows
    assert window == Window(tuple(range(7)), 0, 24 * 60, 2)
    run_pass(group_id=pool.group_id)
    assert [recall.units for recall in window_recalls()] == [6]
    board = client.get("/d/vision/").content.decode()
    assert "Recalled by a lending window" in board
    assert "lends at most 2 cards at any time" in board
    assert "/withdraw/" not in board
    removed = form(**whole, **{"windows-0-DELETE": "on", "version": 2})
    assert client.post("/d/vision/quotas/a100/", removed).status_code == 302
    assert Quota.objects.get().windows == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"windows-0-days": []}, "Choose the weekdays"),
        ({"windows-0-start": "25:00"}, "25:00"),
        ({"windows-0-end": "09:00"}, "different times"),
        ({"windows-1-days": [1], "windows-1-start": "17:00", "windows-1-end": "19:00"}, "windows overlap"),
        ({"zone": "Moon"}, "Moon"),
    ],
)
def test_refused_window_form_keeps_its_input(
    client: Any, vision: Department, pool: Pool, fault: dict[str, Any], said: str
) -> None:
    client.force_login(make.member(vision, Role.OWNER))
    response = client.post("/d/vision/quotas/a100/", form(lend_limit="5", **fault))
    text = response.content.decode()
    assert (response.status_code, said in text, 'value="5"' in text) == (422, True, True)
    assert client.get("/d/vision/quotas/a100/preview/", form(**fault)).status_code == 200
    assert Quota.objects.get().version == 1


def test_the_rules_page_shows_windows_and_their_history_in_words(client: Any, vision: Department, pool: Pool) -> None:
    owner = make.member(vision, Role.OWNER)
    change(Actor(owner), vision, pool, Lending((OFFICE,), "Europe/Berlin"))
    client.force_login(owner)
    text = client.get("/d/vision/quotas/").content.decode()
    assert "Mon–Fri 09:00–18:00: 2 cards" in text
    assert "Europe/Berlin" in text


def test_history_of_a_memory_pool_is_in_gibibytes(client: Any, vision: Department) -> None:
    t4 = make.pool("t4", cards=2, unit="MiB", units_per_card=15360)
    operator = make.user("root", is_operator=True)
    quotas.set_quota(actor=Actor(operator), department=vision, pool=t4, guaranteed=15360, borrow_limit=None,
                      lend_limit=0, expected_version=None)  # fmt: skip
    client.force_login(operator)
    assert "<strong>15 GiB</strong>" in client.get("/d/vision/quotas/").content.decode()


def test_claim_that_fits_only_outside_the_window_waits_instead_of_being_impossible(
    vision: Department, nlp: Department, pool: Pool
) -> None:
    fits_at_night, too_much = submit(nlp, pool, 6, at("10:00")), submit(nlp, pool, 9, at("10:00"))
    plan(pool, at("10:00"), fits_at_night, too_much)
    assert (fits_at_night.decision, too_much.decision) == ("wait", "impossible")
    plan(pool, at("18:00"), fits_at_night)
    assert fits_at_night.state == ClaimState.HOLDING
