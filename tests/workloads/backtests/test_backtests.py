"""Backtests: asked for on pages and by API, played by a worker that may be killed anywhere, seen by whom they concern."""

from __future__ import annotations

import datetime as dt
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.access import Actor
from portal.errors import Invalid
from portal.models import Role, User
from quotas.models import Pool, Quota
from quotas.spending.balances import remember
from quotas.spending.decay import Decaying
from quotas.spending.metering import sum_hours
from tests import builders as make
from tests.workloads.replay.test_command import Past, replayed
from workloads.backtests import draft, runs
from workloads.configuration.plan import Refused
from workloads.models import Backtest, Workload
from workloads.replay.history import Terms
from workloads.replay.simulation import Simulation

pytestmark = pytest.mark.django_db(transaction=True)
WINDOW = "{days: [mon], start: '09:00', end: '10:00', lend_limit: 0 cards}"
DAYS = "[mon, tue, wed, thu, fri, sat, sun]"
MORE_FOR_NLP = """
apiVersion: gpu-quota-portal/v1
departments:
  vision: {quotas: {a100: {guaranteed: 0}}}
  nlp: {quotas: {a100: {guaranteed: 8}}}
"""


class World(Past):
    """NLP ran on all 8 cards for 10 hours, half of them lent by Vision, which came 2 hours later and waited for them."""

    def __init__(self) -> None:
        super().__init__()
        self.attempt(self.workload("nlp", 8, hours_ago=30), 1, 30, 20, outcome="succeeded")
        self.attempt(self.workload("vision", 4, hours_ago=28), 1, 20, 18, outcome="succeeded")
        self.operator = make.user("olga", is_operator=True)
        self.owner = make.member(self.departments["vision"], Role.OWNER, "vera")

    def ask(self, user: User | None = None, text: str = MORE_FOR_NLP, days: int = 3) -> Backtest:
        return runs.ask(actor=Actor(user or self.operator), group=self.pool.group, text=text, days=days)

    def played(self, **asked: Any) -> Backtest:
        row = self.ask(**asked)
        runs.run_next(now=timezone.now())
        row.refresh_from_db()
        return row


@pytest.fixture
def world() -> World:
    return World()


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_the_last_days_are_played_under_todays_rules_and_under_the_draft(world: World) -> None:
    row = world.played()
    assert (row.state, row.percent, row.tries) == ("done", 100, 1)
    assert row.result is not None
    now, then = (row.result[name] for name in ("now", "draft"))
    # today Vision calls its 4 cards back within notice and grace, and NLP is stopped; in the draft Vision waits until NLP ends
    assert (now["all"]["stops"], then["all"]["stops"]) == (1, 0)
    assert 720 <= now["departments"]["vision"]["wait_inside_s"]["max"] <= 780
    assert then["departments"]["vision"]["wait_above_s"]["max"] == 8 * 3600
    assert Quota.objects.get(department__slug="nlp").guaranteed == 4
    again = world.played()
    assert again.result == row.result


def test_a_draft_may_have_windows_policies_caps_and_rules_of_pools(world: World) -> None:
    day = (world.now - dt.timedelta(hours=25)).astimezone(dt.UTC)
    closing = f"{day:%H:%M}"
    text = f"""
apiVersion: gpu-quota-portal/v1
departments:
  vision:
    quotas:
      a100:
        zone: UTC
        windows: [{{days: {DAYS}, start: "{closing}", end: "{(day + dt.timedelta(hours=4)):%H:%M}", lend_limit: 0}}]
  nlp: {{weight: 2, user_caps: {{a100: 8}}}}
pools:
  a100: {{notice: 300 s, grace: 60 s, fair_sharing: true, policy: {{within: never, reclaim: never, borrow_preempt: null}}}}
"""
    row = world.played(text=text)
    assert row.state == "done", row.why
    assert row.result is not None
    # nothing is reclaimed by policy; but what Vision no longer lends is recalled for the window
    assert [name for name, _before, _after in row.changes if "windows" in name]
    assert row.result["draft"]["departments"]["vision"]["wait_inside_s"]["max"] > 720


def test_a_closing_window_calls_back_what_it_no_longer_lends(world: World) -> None:
    Workload.objects.filter(department__slug="vision").delete()
    vision = Quota.objects.get(department__slug="vision")
    at = (world.now - dt.timedelta(hours=29)).astimezone(dt.UTC).replace(second=0)
    start, end = at.hour * 60 + at.minute, (at.hour * 60 + at.minute + 12 * 60) % 1440
    vision.windows, vision.zone = [{"days": list(range(7)), "start": start, "end": end or 1440, "lend_limit": 0}], "UTC"
    vision.save()
    row = world.played()
    assert row.result is not None
    nlp = row.result["now"]["departments"]["nlp"]
    # told early enough to be gone when the window begins, an hour after it started; when that ends it starts over, for 10 hours
    assert (nlp["stops"], nlp["finished"]) == (1, 1)
    assert nlp["gpu_hours_borrowed"] == pytest.approx(4 * (1 + 10), abs=0.5)
    assert row.result["now"]["departments"]["vision"]["gpu_hours_lent"] == nlp["gpu_hours_borrowed"]


def test_what_cannot_be_promised_or_played_is_refused_with_its_reason(world: World) -> None:
    Quota.objects.filter(department__slug="vision").update(guaranteed=4)
    api = "/api/v1/backtests/"
    client = client_of(world.operator)

    def asked(text: str, **more: Any) -> Any:
        body = {"pool": "a100", "configuration": text, "days": 3, **more}
        return client.post(api, body, content_type="application/json")

    head = "apiVersion: gpu-quota-portal/v1\n"
    too_much = asked(head + "departments: {nlp: {quotas: {a100: {guaranteed: 5}}}}")
    assert (too_much.status_code, too_much.json()["code"]) == (422, "promised_too_much")
    assert "9 cards" in too_much.json()["detail"]
    for text, code in [
        (head + "images: {python: {active: false}}", "configuration_refused"),
        (head + "departments: {nlp: {paused: true}}", "configuration_refused"),
        (head + "departments: {nobody: {weight: 2}}", "configuration_refused"),
        (head + "departments: {nlp: {weight: 1}}", "nothing_changes"),
        (head + "departments: [", "not_yaml"),
        (head + "departments: {nlp: {weight: 1}, nlp: {weight: 2}}", "twice"),
        (head + "departments: " + "[" * 20 + "]" * 20, "too_deep"),
        (
            head + f"departments: {{vision: {{quotas: {{a100: {{windows: [{WINDOW}, {WINDOW}]}}}}}}}}",
            "overlapping_windows",
        ),
        ("", "invalid"),
    ]:
        answer = asked(text)
        assert (answer.status_code, answer.json()["code"]) == (422, code), text
        if code != "configuration_refused":  # which names each place in the file
            assert {fault["attr"] for fault in answer.json()["errors"]} == {"configuration"}, text
    fine = head + "departments: {nlp: {weight: 2}}"
    assert asked(fine, days=93).status_code == 422
    assert asked(fine, pool="nowhere").status_code == 404
    assert not Backtest.objects.exists()
    Workload.objects.all().delete()
    assert asked(fine).json()["code"] == "nothing_ran"


def test_a_draft_with_thousands_of_errors_is_read_to_the_first_hundred(world: World) -> None:
    unknown = "".join(f"  d{number}: {{weight: 2}}\n" for number in range(4_000))
    answer = client_of(world.operator).post(
        "/api/v1/backtests/",
        {"pool": "a100", "configuration": f"apiVersion: gpu-quota-portal/v1\ndepartments:\n{unknown}"},
        content_type="application/json",
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "configuration_refused")
    first, *errors = answer.json()["errors"]
    assert (first["code"], len(errors)) == ("too_many_errors", 100)
    assert {error["code"] for error in errors} == {"does_not_exist"}
    with pytest.raises(Refused) as refused:
        world.ask(
            text="apiVersion: gpu-quota-portal/v1\ndepartments: {"
            + ", ".join(f"d{n}: {{weigh: 2}}" for n in range(200))
            + "}"
        )
    assert len(refused.value.errors) == 101


def test_a_zone_is_checked_with_the_windows_of_today(world: World) -> None:
    window = {"days": [0], "start": 60, "end": 120, "lend_limit": 0}
    Quota.objects.filter(department__slug="vision").update(windows=[window], zone="UTC")
    with pytest.raises(Invalid, match="Unknown time zone Mars/Olympus"):
        world.ask(text=draft.text_of({"departments": {"vision": {"quotas": {"a100": {"zone": "Mars/Olympus"}}}}}))


def test_values_of_a_draft_are_told_in_words(world: World) -> None:
    days = ["mon", "tue", "wed"]
    windows = [
        {"days": days, "start": "09:00", "end": "18:00", "lend_limit": "1 card"},
        {"days": ["sat"], "start": "00:00", "end": "00:00", "lend_limit": "all"},
    ]
    vision = {
        "quotas": {"a100": {"windows": windows, "zone": "UTC", "borrow_limit": "2 cards"}},
        "user_caps": {"a100": "4"},
    }
    policy = {"within": "never", "reclaim": "never", "borrow_preempt": None}
    pool = {"balance_half_life": "7 d", "fair_sharing": True, "policy": policy}
    row = world.ask(text=draft.text_of({"departments": {"vision": vision}, "pools": {"a100": pool}}))
    client = client_of(world.operator)

    def told() -> dict[str, list[str]]:
        return {
            path.rpartition(".")[2]: values for path, _name, *values in client.get(row_address(row)).context["changes"]
        }

    english = told()
    assert english.pop("policy")[1].startswith("Within its guaranteed quota, it reclaims nothing")
    assert english == {
        "balance_half_life": ["", "7 d"], "fair_sharing": ["", "yes"], "zone": ["", "UTC"],
        "windows": ["", "Mon–Wed 09:00–18:00: 1 card; Sat 00:00–24:00: all"],
        "borrow_limit": ["no limit", "2 cards"], "a100": ["", "4 cards"],
    }  # fmt: skip
    User.objects.filter(pk=world.operator.pk).update(language="zh-hans")
    chinese = told()
    [(_row, _author, listed)] = client.get(reverse("workloads:backtests")).context["rows"]
    assert listed == client.get(row_address(row)).context["changes"][:3], "the list has the same words"
    assert chinese["windows"][1].startswith("星期一–星期三 09:00–18:00：1 ")
    assert "card" not in str(chinese)
    Backtest.objects.update(changes=[["departments.vision.quotas.gone.guaranteed", "1 card", "2 cards"]])
    assert told() == {"guaranteed": ["1 card", "2 cards"]}


def test_one_at_a_time_for_each_person_and_only_so_many_workloads(world: World, monkeypatch: Any) -> None:
    world.ask()
    with pytest.raises(runs.OneAtATime):
        world.ask()
    world.ask(world.owner)
    monkeypatch.setattr(runs, "MOST_WORKLOADS", 1)
    with pytest.raises(runs.TooManyWorkloads, match="2 workloads ran"):
        world.ask(make.user("other", is_operator=True))


def test_who_was_killed_is_followed_by_the_next_beat_and_after_some_tries_it_failed(
    world: World, monkeypatch: Any
) -> None:
    row = world.ask()

    def killed(*_: Any, **__: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "play", killed)
        with pytest.raises(SystemExit):
            runs.run_next(now=timezone.now())
    row.refresh_from_db()
    assert (row.state, row.tries) == ("running", 1)
    runs.run_next(now=timezone.now())  # somebody may be playing it still
    row.refresh_from_db()
    assert (row.state, row.tries) == ("running", 1)
    later = timezone.now() + runs.SILENT + dt.timedelta(seconds=1)
    runs.run_next(now=later)
    row.refresh_from_db()
    assert (row.state, row.tries) == ("done", 2)
    Backtest.objects.update(
        state="running", tries=runs.MOST_TRIES, beat_at=world.now - dt.timedelta(hours=1), ended_at=None
    )
    runs.run_next(now=timezone.now())
    row.refresh_from_db()
    assert (row.state, row.why["params"]) == ("failed", {"tries": runs.MOST_TRIES})


def test_who_lost_a_run_to_another_worker_or_to_a_cancel_writes_nothing(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(runs, "BEAT", 0.0)
    row = world.ask()
    play = Simulation.play

    def cancelled_meanwhile(self: Simulation, *args: Any) -> Any:
        if Backtest.objects.get().is_live:
            assert client_of(world.operator).post(row_address(row)).status_code == 302
        return play(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "play", cancelled_meanwhile)
        runs.run_next(now=timezone.now())
    row.refresh_from_db()
    assert (row.state, row.result) == ("cancelled", None)
    with pytest.raises(runs.IsOver):
        runs.cancel(actor=Actor(world.operator), row=row)


def test_the_limit_is_of_computing_and_not_of_waiting_for_a_processor(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(runs, "BEAT", 0.0)
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: next(hours), thread_time=lambda: 0.0))
    assert world.played().state == "done"
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: 0.0, thread_time=lambda: next(hours)))
    assert world.played().why["message"] == runs.TookTooLong.message


def test_what_takes_too_long_or_fails_says_so(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(runs, "BEAT", 0.0)
    monkeypatch.setattr(runs, "AT_MOST", 0.0)
    row = world.played()
    assert (row.state, row.why["message"]) == ("failed", runs.TookTooLong.message)
    monkeypatch.setattr(runs, "AT_MOST", 1800.0)
    row = world.ask()
    world.departments["nlp"].quotas.all().delete()
    Workload.objects.filter(department__slug="nlp").delete()
    monkeypatch.setattr(draft, "PARTS", {})
    runs.run_next(now=timezone.now())
    row.refresh_from_db()
    assert (row.state, "draft no longer applies" in row.why["message"]) == ("failed", True)


def test_an_owner_sees_the_own_department_and_the_sums_an_operator_all_and_others_nothing(world: World) -> None:
    row = world.played()
    address, api = reverse("workloads:backtest", args=[row.public_id]), f"/api/v1/backtests/{row.public_id}/"
    owner = client_of(world.owner)
    told = owner.get(api).json()
    assert set(told["now"]["departments"]) == {"vision"}
    assert told["draft"]["all"]["jobs"] == 2
    page = owner.get(address)
    assert [name for name, _ in page.context["departments"]] == [world.departments["vision"].name]
    sheet = b"".join(owner.get(reverse("workloads:backtest_csv", args=[row.public_id])).streaming_content).decode()
    assert "vision,stops" in sheet
    assert "nlp," not in sheet
    assert set(client_of(world.operator).get(api).json()["now"]["departments"]) == {"vision", "nlp"}
    stranger = make.member(make.department("biology"), Role.OWNER, "bea")
    member = make.member(world.departments["vision"], Role.MEMBER, "max")
    for user in (stranger, member):
        client = client_of(user)
        form = reverse("workloads:backtest_new", args=["a100"])
        for path in (address, api, form, reverse("workloads:backtest_csv", args=[row.public_id])):
            assert client.get(path).status_code == 404, path
        assert client.get(reverse("workloads:backtests")).status_code == 404
        assert client.delete(api).status_code == 404
        assert client.get("/api/v1/backtests/").json()["results"] == []


def test_the_course_is_drawn_for_whoever_may_see_it(world: World) -> None:
    row = world.played()
    assert row.result is not None
    plots = {plot.title: plot for plot in client_of(world.operator).get(row_address(row)).context["plots"]}
    used, waiting = plots["Cards in use"], plots["Cards waited for"]
    assert used.line.top == 8
    assert len(used.columns) == len(row.result["now"]["all"]["course"]["used"]) == 72
    assert max(column.now for column in used.columns) == 8
    # in the draft Vision waits for 8 hours; today for NLP's notice and grace of 12 minutes, and NLP while Vision runs for 2 hours
    assert sum(column.draft for column in waiting.columns) == pytest.approx(4 * 8, abs=0.5)
    assert sum(column.now for column in waiting.columns) == pytest.approx(4 * 0.2 + 8 * 2, abs=0.5)
    seen = client_of(world.owner).get(row_address(row))
    assert [plot.title for plot in seen.context["department_plots"]] == [world.departments["vision"].name]
    assert seen.context["plots"]
    every = client_of(world.operator).get(row_address(row)).context
    names = sorted(row.name for row in world.departments.values())
    assert [name for name, _ in every["departments"]] == [plot.title for plot in every["department_plots"]] == names
    for figures in row.result["now"]["all"], row.result["now"]["departments"]["nlp"]:
        del figures["gpu_hours_lent"]  # played before it was counted
    row.save()
    assert "Lent" in client_of(world.operator).get(row_address(row)).content.decode()
    del row.result["now"]["all"]["course"]  # played before there were any
    row.save()
    assert "Over time" not in client_of(world.operator).get(row_address(row)).content.decode()


def test_a_draft_that_makes_no_difference_is_called_so(world: World) -> None:
    row, said = world.played(), "would have made no difference"
    assert said not in client_of(world.operator).get(row_address(row)).content.decode()
    assert row.result is not None
    row.result["draft"] = row.result["now"]
    row.save()
    assert said in client_of(world.operator).get(row_address(row)).content.decode()


def row_address(row: Backtest) -> str:
    return reverse("workloads:backtest", args=[row.public_id])


def test_an_owner_goes_on_to_the_pages_that_change_or_ask_for_it(world: World) -> None:
    text = """
apiVersion: gpu-quota-portal/v1
departments:
  vision: {quotas: {a100: {guaranteed: 6, lend_limit: 1}}, user_caps: {a100: 3}}
  nlp: {quotas: {a100: {guaranteed: 2}}}
"""
    row = world.played(text=text)
    client = client_of(world.owner)
    steps = client.get(row_address(row)).context["steps"]
    assert [(step.department.slug, step.asks, step.cap) for step in steps] == [
        ("vision", "", False), ("vision", "guaranteed", False), ("vision", "", True),
    ]  # fmt: skip
    *steps, cap = steps
    assert 'name="a100-units" id="id_a100-units" value="3"' in client.get(cap.url).content.decode()
    change, ask = (client.get(step.url).context["form"] for step in steps)
    assert change["lend_limit"].value() == "1"
    assert change["guaranteed"].value() == "4", "not the owner's to change"
    assert (ask["pool"].value(), ask["wanted"].value(), ask["units"].value()) == ("a100", "guaranteed", "6")
    assert client_of(world.operator).get(row_address(row)).context["steps"] == []
    editing = client_of(world.operator).get(steps[0].url)
    assert editing.context["form"]["guaranteed"].value() == "6"
    assert Quota.objects.get(department__slug="vision").guaranteed == 4
    less = {"departments": {"vision": {"quotas": {"a100": {"guaranteed": 2, "windows": []}}}}}
    Backtest.objects.update(draft=draft.text_of(less))
    (step,) = client.get(row_address(row)).context["steps"]
    assert (step.asks, step.windows) == ("", True), "nobody asks for less; windows are entered on the page"
    world.departments["nlp"].quotas.all().delete()
    policy = {"departments": {"vision": {"quotas": {"a100": {"policy": {"notice": 60}}}}}}
    Backtest.objects.update(draft=draft.text_of(policy))
    assert client.get(row_address(row)).context["steps"] == [], "a policy is an operator's"
    Backtest.objects.update(draft="apiVersion: gone")
    assert client.get(row_address(row)).context["steps"] == []


def test_only_who_asked_or_an_operator_cancels(world: World) -> None:
    row = world.ask()
    client = client_of(world.owner)
    assert client.delete(f"/api/v1/backtests/{row.public_id}/").status_code == 404
    assert "Cancel backtest" not in client.get(reverse("workloads:backtest", args=[row.public_id])).content.decode()
    assert client.post(reverse("workloads:backtest", args=[row.public_id])).status_code == 404
    assert client_of(world.operator).delete(f"/api/v1/backtests/{row.public_id}/").status_code == 204


def test_the_form_asks_what_differs_and_comes_back_where_something_is_wrong(world: World) -> None:
    client, address = client_of(world.owner), reverse("workloads:backtest_new", args=["a100"])
    page = client.get(address)
    bound = page.context["form"]
    sent = {name: bound[name].value() for name in bound.fields} | {
        f"rules-{name}": bound.rules[name].value() for name in bound.rules.fields
    }
    sent = {name: "" if value is None else value for name, value in sent.items()}
    same = client.post(address, sent)
    assert (same.status_code, "change at least one value" in same.content.decode()) == (422, True)
    wrong = client.post(address, sent | {"vision.guaranteed": "many", "configuration": "a: [", "rules-notice": "-1"})
    assert wrong.status_code == 422
    assert "Nothing was saved: 3 fields need correction." in wrong.content.decode()
    alone = client.post(address, sent | {"vision.guaranteed": "2", "rules-notice": "-1"})
    assert (alone.status_code, "Nothing was saved: one field" in alone.content.decode()) == (422, True)
    too_much = client.post(address, sent | {"vision.guaranteed": "6"})
    assert "Lower another guarantee" in too_much.context["form"].non_field_errors()[0]
    more = "departments: {nlp: {weight: 3}}"
    changed = sent | {"vision.guaranteed": "2", "vision.lend_limit": "1", "rules-notice": "60s", "configuration": more}
    for half_life, why in {
        "86400": "with its unit",
        "30 min": "At least 1h",
        "91d": "At most 90d",
        "long": "Examples",
    }.items():
        refused = client.post(address, changed | {"rules-balance_half_life": half_life})
        assert (refused.status_code, why in str(refused.context["form"].rules.errors)) == (422, True)
    changed |= {"rules-balance_half_life": "1d"}
    assert client.post(address, changed).status_code == 302
    row = Backtest.objects.get()
    assert {name: after for name, _before, after in row.changes} == {
        "departments.nlp.weight": "3",
        "departments.vision.quotas.a100.guaranteed": "2 cards",
        "departments.vision.quotas.a100.lend_limit": "1 card",
        "pools.a100.balance_half_life": "1d",
        "pools.a100.notice": "1min",
    }
    assert draft.terms_of(row.group, draft.read(row.draft, row.group)).half_lives == {"a100": 86_400}
    waiting = client.get(reverse("workloads:backtest", args=[row.public_id]))
    assert "Waiting for a worker" in waiting.content.decode()
    vision, pool = world.departments["vision"].name, row.group.pools.get(slug="a100").name
    assert {name for _path, name, *_values in waiting.context["changes"]} == {
        f"{world.departments['nlp'].name} · Weight", f"{vision} · {pool} · Guaranteed", f"{vision} · {pool} · Lend limit",
        f"{pool} · Fairness over time: half-life", f"{pool} · Notice",
    }  # fmt: skip
    runs.run_next(now=timezone.now())
    assert "Who gains, who loses" in client.get(reverse("workloads:backtest", args=[row.public_id])).content.decode()
    assert row.public_id in client.get(reverse("workloads:backtests")).content.decode()


def test_balances_begin_as_the_ledger_has_them_at_its_first_moment(world: World) -> None:
    """Vision has lent NLP 4 cards, ever since two hours before the backtest begins."""
    begin = world.now.replace(minute=30, second=0, microsecond=0) - dt.timedelta(days=2)
    vision, nlp = (world.departments[name] for name in ("vision", "nlp"))
    claim = make.holding(nlp, world.pool, borrowed={vision: 4}, started_at=begin - dt.timedelta(hours=2))
    Pool.objects.update(balance_half_life=86_400)
    sum_hours(now=world.now)
    remember(now=world.now)
    expected = Decaying[str](86_400, int(claim.started_at.timestamp()) // 3600)
    for hour, seconds in Decaying.by_hours(int(claim.started_at.timestamp()), int(begin.timestamp())):
        expected.pass_to(hour)
        expected.count("nlp", borrowed=4 * seconds)
        expected.count("vision", lent=4 * seconds)
    assert Terms.of(world.pool.group).assumed(begin).lately == {"a100": expected.sums}


def test_the_command_plays_a_draft_of_a_file(world: World, tmp_path: Any) -> None:
    file = tmp_path / "draft.yaml"
    file.write_text(MORE_FOR_NLP)
    text = replayed("--history", world.pool.group.name, "--days", "3", "--ways", "planner", "--draft", str(file))
    assert "draft" in text.splitlines()[1]
    for text, why in {
        "apiVersion: x": "must say apiVersion",
        "": "must say apiVersion",
        "apiVersion: gpu-quota-portal/v1\ndepartments: {nlp: {weight: 1}}": "Nothing would be different",
    }.items():
        file.write_text(text)
        with pytest.raises(CommandError, match=f"(?s)--draft.*{why}"):
            replayed("--history", world.pool.group.name, "--draft", str(file))


def test_old_ones_are_discarded(world: World) -> None:
    row = world.played()
    runs.discard_old(now=row.asked_at + runs.KEPT)
    assert Backtest.objects.exists()
    runs.discard_old(now=row.asked_at + runs.KEPT + dt.timedelta(seconds=1))
    assert not Backtest.objects.exists()
