"""Backtests: requested on pages and by API, run by a worker that may be killed at any point, seen only by those concerned."""

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
    """NLP ran on all 8 cards for 10 hours, half of them lent by Vision, which submitted 2 hours later and waited."""

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


def test_backtest_replays_recent_days_under_current_rules_and_under_the_draft(world: World) -> None:
    row = world.played()
    assert (row.state, row.percent, row.tries) == ("done", 100, 1)
    assert row.result is not None
    now, then = (row.result[name] for name in ("now", "draft"))
    # now Vision reclaims its 4 cards within notice and grace, and NLP is preempted; in the draft Vision waits until NLP ends
    assert (now["all"]["stops"], then["all"]["stops"]) == (1, 0)
    assert 720 <= now["departments"]["vision"]["wait_inside_s"]["max"] <= 780
    assert then["departments"]["vision"]["wait_above_s"]["max"] == 8 * 3600
    assert Quota.objects.get(department__slug="nlp").guaranteed == 4
    again = world.played()
    assert again.result == row.result


def test_draft_can_change_windows_policies_caps_and_pool_rules(world: World) -> None:
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
    # the policy reclaims nothing, but capacity that Vision no longer lends is recalled for the window
    assert [name for name, _before, _after in row.changes if "windows" in name]
    assert row.result["draft"]["departments"]["vision"]["wait_inside_s"]["max"] > 720


def test_closing_lending_window_recalls_capacity_that_is_no_longer_lent(world: World) -> None:
    Workload.objects.filter(department__slug="vision").delete()
    vision = Quota.objects.get(department__slug="vision")
    at = (world.now - dt.timedelta(hours=29)).astimezone(dt.UTC).replace(second=0)
    start, end = at.hour * 60 + at.minute, (at.hour * 60 + at.minute + 12 * 60) % 1440
    vision.windows, vision.zone = [{"days": list(range(7)), "start": start, "end": end or 1440, "lend_limit": 0}], "UTC"
    vision.save()
    row = world.played()
    assert row.result is not None
    nlp = row.result["now"]["departments"]["nlp"]
    # recalled in time to have left when the window begins, an hour after its start; after the window it starts over, for 10 hours
    assert (nlp["stops"], nlp["finished"]) == (1, 1)
    assert nlp["gpu_hours_borrowed"] == pytest.approx(4 * (1 + 10), abs=0.5)
    assert row.result["now"]["departments"]["vision"]["gpu_hours_lent"] == nlp["gpu_hours_borrowed"]


def test_draft_that_cannot_be_applied_or_replayed_is_rejected_with_its_reason(world: World) -> None:
    Quota.objects.filter(department__slug="vision").update(guaranteed=4)
    api = "/api/v1/backtests/"
    client = client_of(world.operator)

    def request(text: str, **more: Any) -> Any:
        body = {"pool": "a100", "configuration": text, "days": 3, **more}
        return client.post(api, body, content_type="application/json")

    head = "apiVersion: gpu-quota-portal/v1\n"
    too_much = request(head + "departments: {nlp: {quotas: {a100: {guaranteed: 5}}}}")
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
        answer = request(text)
        assert (answer.status_code, answer.json()["code"]) == (422, code), text
        if code != "configuration_refused":  # which names each place in the file
            assert {fault["attr"] for fault in answer.json()["errors"]} == {"configuration"}, text
    fine = head + "departments: {nlp: {weight: 2}}"
    assert request(fine, days=93).status_code == 422
    assert request(fine, pool="nowhere").status_code == 404
    assert not Backtest.objects.exists()
    Workload.objects.all().delete()
    assert request(fine).json()["code"] == "nothing_ran"


def test_draft_with_thousands_of_errors_reports_only_the_first_hundred(world: World) -> None:
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


def test_time_zone_of_a_draft_is_checked_with_the_existing_windows(world: World) -> None:
    window = {"days": [0], "start": 60, "end": 120, "lend_limit": 0}
    Quota.objects.filter(department__slug="vision").update(windows=[window], zone="UTC")
    with pytest.raises(Invalid, match="Unknown time zone Mars/Olympus"):
        world.ask(text=draft.text_of({"departments": {"vision": {"quotas": {"a100": {"zone": "Mars/Olympus"}}}}}))


def test_values_of_a_draft_are_shown_in_words(world: World) -> None:
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

    def shown() -> dict[str, list[str]]:
        return {
            path.rpartition(".")[2]: values for path, _name, *values in client.get(row_address(row)).context["changes"]
        }

    english = shown()
    assert english.pop("policy")[1].startswith("Within its guaranteed quota, it reclaims nothing")
    assert english == {
        "balance_half_life": ["", "7 d"], "fair_sharing": ["", "yes"], "zone": ["", "UTC"],
        "windows": ["", "Mon–Wed 09:00–18:00: 1 card; Sat 00:00–24:00: all"],
        "borrow_limit": ["no limit", "2 cards"], "a100": ["", "4 cards"],
    }  # fmt: skip
    User.objects.filter(pk=world.operator.pk).update(language="zh-hans")
    chinese = shown()
    [(_row, _author, listed)] = client.get(reverse("workloads:backtests")).context["rows"]
    assert listed == client.get(row_address(row)).context["changes"][:3], "the list has the same words"
    assert chinese["windows"][1].startswith("星期一–星期三 09:00–18:00：1 ")
    assert "card" not in str(chinese)
    Backtest.objects.update(changes=[["departments.vision.quotas.gone.guaranteed", "1 card", "2 cards"]])
    assert shown() == {"guaranteed": ["1 card", "2 cards"]}


def test_backtests_are_limited_to_one_per_user_and_to_a_number_of_workloads(world: World, monkeypatch: Any) -> None:
    world.ask()
    with pytest.raises(runs.OneAtATime):
        world.ask()
    world.ask(world.owner)
    monkeypatch.setattr(runs, "MOST_WORKLOADS", 1)
    with pytest.raises(runs.TooManyWorkloads, match="2 workloads ran"):
        world.ask(make.user("other", is_operator=True))


def test_backtest_of_a_killed_worker_is_retried_and_fails_after_too_many_tries(world: World, monkeypatch: Any) -> None:
    row = world.ask()

    def killed(*_: Any, **__: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "play", killed)
        with pytest.raises(SystemExit):
            runs.run_next(now=timezone.now())
    row.refresh_from_db()
    assert (row.state, row.tries) == ("running", 1)
    runs.run_next(now=timezone.now())  # another worker may still be running it
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


def test_worker_stores_no_result_after_its_backtest_was_cancelled(world: World, monkeypatch: Any) -> None:
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


def test_time_limit_counts_processor_time_and_not_waiting(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(runs, "BEAT", 0.0)
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: next(hours), thread_time=lambda: 0.0))
    assert world.played().state == "done"
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: 0.0, thread_time=lambda: next(hours)))
    assert world.played().why["message"] == runs.TookTooLong.message


def test_backtest_that_times_out_or_fails_states_the_reason(world: World, monkeypatch: Any) -> None:
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


def test_owners_see_their_department_and_totals_operators_everything_and_others_nothing(world: World) -> None:
    row = world.played()
    address, api = reverse("workloads:backtest", args=[row.public_id]), f"/api/v1/backtests/{row.public_id}/"
    owner = client_of(world.owner)
    body = owner.get(api).json()
    assert set(body["now"]["departments"]) == {"vision"}
    assert body["draft"]["all"]["jobs"] == 2
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


def test_plots_over_time_show_only_departments_that_the_user_can_see(world: World) -> None:
    row = world.played()
    assert row.result is not None
    plots = {plot.title: plot for plot in client_of(world.operator).get(row_address(row)).context["plots"]}
    used, waiting = plots["Cards in use"], plots["Cards waited for"]
    assert used.line.top == 8
    assert len(used.columns) == len(row.result["now"]["all"]["course"]["used"]) == 72
    assert max(column.now for column in used.columns) == 8
    # in the draft Vision waits for 8 hours; now for NLP's notice and grace of 12 minutes, and NLP while Vision runs for 2 hours
    assert sum(column.draft for column in waiting.columns) == pytest.approx(4 * 8, abs=0.5)
    assert sum(column.now for column in waiting.columns) == pytest.approx(4 * 0.2 + 8 * 2, abs=0.5)
    owners_page = client_of(world.owner).get(row_address(row))
    assert [plot.title for plot in owners_page.context["department_plots"]] == [world.departments["vision"].name]
    assert owners_page.context["plots"]
    every = client_of(world.operator).get(row_address(row)).context
    names = sorted(row.name for row in world.departments.values())
    assert [name for name, _ in every["departments"]] == [plot.title for plot in every["department_plots"]] == names
    for figures in row.result["now"]["all"], row.result["now"]["departments"]["nlp"]:
        del figures["gpu_hours_lent"]  # as in results from before it was counted
    row.save()
    assert "Lent" in client_of(world.operator).get(row_address(row)).content.decode()
    del row.result["now"]["all"]["course"]  # as in results from before there were plots
    row.save()
    assert "Over time" not in client_of(world.operator).get(row_address(row)).content.decode()


def test_draft_without_effect_is_reported_as_making_no_difference(world: World) -> None:
    row, sentence = world.played(), "would have made no difference"
    assert sentence not in client_of(world.operator).get(row_address(row)).content.decode()
    assert row.result is not None
    row.result["draft"] = row.result["now"]
    row.save()
    assert sentence in client_of(world.operator).get(row_address(row)).content.decode()


def row_address(row: Backtest) -> str:
    return reverse("workloads:backtest", args=[row.public_id])


def test_owner_gets_links_to_forms_that_change_or_request_the_drafted_values(world: World) -> None:
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
    assert change["guaranteed"].value() == "4", "owners cannot change it"
    assert (ask["pool"].value(), ask["wanted"].value(), ask["units"].value()) == ("a100", "guaranteed", "6")
    assert client_of(world.operator).get(row_address(row)).context["steps"] == []
    editing = client_of(world.operator).get(steps[0].url)
    assert editing.context["form"]["guaranteed"].value() == "6"
    assert Quota.objects.get(department__slug="vision").guaranteed == 4
    less = {"departments": {"vision": {"quotas": {"a100": {"guaranteed": 2, "windows": []}}}}}
    Backtest.objects.update(draft=draft.text_of(less))
    (step,) = client.get(row_address(row)).context["steps"]
    assert (step.asks, step.windows) == ("", True), (
        "a lower guarantee is not requested; windows are entered on the page"
    )
    world.departments["nlp"].quotas.all().delete()
    policy = {"departments": {"vision": {"quotas": {"a100": {"policy": {"notice": 60}}}}}}
    Backtest.objects.update(draft=draft.text_of(policy))
    assert client.get(row_address(row)).context["steps"] == [], "only operators set policies"
    Backtest.objects.update(draft="apiVersion: gone")
    assert client.get(row_address(row)).context["steps"] == []


def test_only_the_requester_or_an_operator_can_cancel(world: World) -> None:
    row = world.ask()
    client = client_of(world.owner)
    assert client.delete(f"/api/v1/backtests/{row.public_id}/").status_code == 404
    assert "Cancel backtest" not in client.get(reverse("workloads:backtest", args=[row.public_id])).content.decode()
    assert client.post(reverse("workloads:backtest", args=[row.public_id])).status_code == 404
    assert client_of(world.operator).delete(f"/api/v1/backtests/{row.public_id}/").status_code == 204


def test_form_drafts_only_changed_values_and_is_shown_again_with_its_errors(world: World) -> None:
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


def test_fairness_balances_start_from_the_ledger_at_the_begin_of_the_backtest(world: World) -> None:
    """Vision has lent NLP 4 cards since two hours before the begin of the backtest."""
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


def test_replay_command_accepts_a_draft_file(world: World, tmp_path: Any) -> None:
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


def test_old_backtests_are_discarded(world: World) -> None:
    row = world.played()
    runs.discard_old(now=row.asked_at + runs.KEPT)
    assert Backtest.objects.exists()
    runs.discard_old(now=row.asked_at + runs.KEPT + dt.timedelta(seconds=1))
    assert not Backtest.objects.exists()
