"""Rounds: idle work is warned, kept once, then stopped; other work is not."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from portal.access import SYSTEM, Actor, Forbidden
from portal.models import AuditEntry, Event, InboxItem, Webhook, WebhookDelivery
from tests import builders as make
from tests.workloads.idle.bed import HOUR, MINUTE, IdleBed, state_of
from workloads.idle import exemptions, spells
from workloads.idle.rule import Action, Activity, Rule
from workloads.idle.spells import CannotKeep
from workloads.models import Attempt, IdleSpell, MeasuredBucket, Workload
from workloads.reconciler import idle_rounds, transitions

pytestmark = pytest.mark.django_db(transaction=True)


def spell_of(attempt: Attempt) -> IdleSpell:
    return IdleSpell.objects.filter(attempt=attempt).latest("pk")


def test_idle_workload_is_warned_once_then_stopped_and_a_busy_one_never(idle: IdleBed) -> None:
    Webhook.objects.create(department=idle.vision, name="ci", url="https://example.org/")
    idle.set(job=HOUR)
    lazy, busy = idle.running(), idle.running()
    idle.quiet(lazy)
    idle.measured(busy, *[60] * 24)
    idle.round()
    idle.round()
    assert idle.notices() == ["workload.idle_warned"]
    assert InboxItem.objects.get().mail_due_at is not None
    assert WebhookDelivery.objects.get().data["stops_at"] == (idle.now + 15 * MINUTE).isoformat()
    assert spell_of(lazy).stops_at == idle.now + 15 * MINUTE
    for _ in range(2):
        idle.pass_by(5, lazy)
        assert state_of(lazy) == "running"
    idle.pass_by(5, lazy)
    assert state_of(lazy) == "stopping"
    lazy.refresh_from_db()
    assert (lazy.stop_cause, spell_of(lazy).end) == ("idle", "stopped")
    assert state_of(busy) == "running"
    assert not IdleSpell.objects.filter(attempt=busy).exists()
    assert idle.notices() == ["workload.idle_warned"]


def test_stop_for_idleness_ends_the_workload_and_does_not_count_as_a_recall(idle: IdleBed) -> None:
    idle.set(job=HOUR)
    lazy = idle.running()
    idle.quiet(lazy)
    idle.pass_by(20, lazy)
    lazy = Attempt.objects.select_related("workload__pool", "workload__author", "claim").get(pk=lazy.pk)
    assert transitions.record_event(lazy, transitions.Event.GONE_IDLE, now=idle.now)
    workload = Workload.objects.get(pk=lazy.workload_id)
    assert (workload.state, workload.reason, workload.reclaims, workload.attempts_made) == ("cancelled", "idle", 0, 1)
    assert idle.notices() == ["workload.idle_warned", "workload.idle_stopped"]
    lazy.claim.refresh_from_db()
    assert (lazy.claim.state, lazy.claim.preempted_for) == ("released", None)


def test_keep_it_postpones_the_stop_once_and_is_followed_by_a_reminder(idle: IdleBed) -> None:
    idle.set(job=HOUR)
    lazy = idle.running()
    idle.quiet(lazy)
    idle.round()
    with pytest.raises(Forbidden):
        spells.keep(actor=Actor(make.member(idle.vision)), workload=lazy.workload, now=idle.now)
    kept = spells.keep(actor=Actor(idle.alice), workload=lazy.workload, now=idle.now + MINUTE)
    assert kept == idle.now + MINUTE + 120 * MINUTE
    assert AuditEntry.objects.filter(action="workload.idle_kept", actor=idle.alice).count() == 1
    with pytest.raises(CannotKeep, match="already kept once"):
        spells.keep(actor=Actor(idle.alice), workload=lazy.workload, now=idle.now + MINUTE)
    idle.pass_by(105, lazy)
    assert (state_of(lazy), idle.notices()) == ("running", ["workload.idle_warned"])
    idle.pass_by(10, lazy)
    assert idle.notices() == ["workload.idle_warned"] * 2, "reminded before it is stopped, once"
    idle.pass_by(10, lazy)
    assert state_of(lazy) == "stopping"
    with pytest.raises(CannotKeep):
        spells.keep(actor=Actor(idle.alice), workload=lazy.workload, now=idle.now)


def test_activity_withdraws_the_warning_and_a_new_spell_begins_after_it(idle: IdleBed) -> None:
    idle.set(job=HOUR)
    lazy = idle.running()
    idle.quiet(lazy)
    idle.round()
    spells.keep(actor=Actor(idle.alice), workload=lazy.workload, now=idle.now)
    idle.now += MINUTE
    # One minute of its bucket.
    MeasuredBucket.objects.create(attempt=lazy, rank=0, at=idle.now - MINUTE, gpu=400, cards=1)
    idle.round()
    assert (spell_of(lazy).end, idle.notices()) == ("busy", ["workload.idle_warned", "workload.idle_withdrawn"])
    # The complete bucket is below the threshold.
    MeasuredBucket.objects.filter(attempt=lazy, at=idle.now - MINUTE).update(gpu=40)
    idle.now += 4 * MINUTE
    idle.round()
    idle.pass_by(50, lazy)
    assert IdleSpell.objects.count() == 1, "work that was active is idle only after another hour"
    idle.pass_by(15, lazy)
    again = spell_of(lazy)
    assert (again.end, again.kept_at) == ("", None)
    assert spells.may_keep(again), "a new spell may be kept again"


def test_borrowed_only_policy_stops_only_work_that_borrows(idle: IdleBed) -> None:
    idle.set(job=Rule(5, 60, Action.BORROWED, 15, 120))
    own, borrowed = idle.running(), idle.running(borrowed=1)
    for attempt in (own, borrowed):
        idle.quiet(attempt)
    idle.pass_by(20, own, borrowed)
    assert (state_of(own), state_of(borrowed)) == ("running", "stopping")
    assert not IdleSpell.objects.filter(attempt=own).exists()


def test_warn_only_policy_stops_nothing_and_cannot_be_answered_with_keep_it(idle: IdleBed) -> None:
    idle.set(job=Rule(5, 60, Action.WARN))
    lazy = idle.running()
    idle.quiet(lazy)
    idle.pass_by(300, lazy)
    assert (state_of(lazy), idle.notices()) == ("running", ["workload.idle_noticed"])
    with pytest.raises(CannotKeep):
        spells.keep(actor=SYSTEM, workload=lazy.workload, now=idle.now)


def test_without_a_policy_idle_work_is_recorded_but_nobody_is_warned(idle: IdleBed) -> None:
    lazy, short = idle.running(), idle.running()
    idle.quiet(lazy, 4)
    idle.quiet(short, 2)
    idle.round()
    assert IdleSpell.objects.count() == 0
    for attempt in (lazy, short):
        attempt.claim.refresh_from_db()
    assert lazy.claim.idle_since == idle.now - dt.timedelta(hours=4)
    assert short.claim.idle_since is None, "three hours, where no policy says otherwise"
    idle.pass_by(5, lazy, percent=80)
    lazy.claim.refresh_from_db()
    assert lazy.claim.idle_since is None


def test_stricter_policy_of_a_department_warns_sooner(idle: IdleBed) -> None:
    idle.set(job=HOUR)
    idle.set(idle.vision, job=Rule(20, 30, Action.STOP, 15, 60))
    lazy = idle.running()
    idle.measured(lazy, *[80] * 6, *[15] * 6)
    idle.round()
    assert spell_of(lazy).rule["minutes"] == 30


def test_notebook_is_idle_only_if_its_server_reports_no_activity(idle: IdleBed) -> None:
    idle.set(notebook=HOUR)
    asleep, computing, typed, silent = (idle.running("notebook") for _ in range(4))
    for attempt in (asleep, computing, typed, silent):
        idle.quiet(attempt, 24)
    idle.activity = {
        asleep.pk: Activity(False, idle.now - dt.timedelta(hours=5)), computing.pk: Activity(True),
        typed.pk: Activity(False, idle.now - 10 * MINUTE),
    }  # fmt: skip
    idle.round()
    assert list(IdleSpell.objects.values_list("attempt", flat=True)) == [asleep.pk]
    idle.activity[asleep.pk] = Activity(False, idle.now + 4 * MINUTE)  # somebody typed in its terminal
    idle.pass_by(5, asleep)
    assert spell_of(asleep).end == "busy"


def test_a_gang_is_idle_only_if_all_of_its_ranks_are(idle: IdleBed) -> None:
    idle.set(distributed=HOUR)
    lazy, half, blind = (idle.running("distributed", pods=2) for _ in range(3))
    for attempt in (lazy, half, blind):
        idle.quiet(attempt)
    idle.measured(lazy, *[0] * 24, rank=1)
    idle.measured(half, *[90] * 24, rank=1)
    idle.round()
    assert list(IdleSpell.objects.values_list("attempt", flat=True)) == [lazy.pk]


def test_countdown_is_paused_while_nothing_is_measured(idle: IdleBed) -> None:
    idle.set(job=HOUR)
    lazy = idle.running()
    idle.quiet(lazy)
    idle.round()
    idle.pass_by(40)  # its Prometheus is unreachable
    assert state_of(lazy) == "running"
    left = spell_of(lazy).stops_at
    assert left is not None
    assert left > idle.now
    idle.pass_by(5, lazy)
    assert state_of(lazy) == "running", "the countdown starts again once it is measured"
    idle.pass_by(15, lazy)
    assert state_of(lazy) == "stopping"


def test_an_hour_without_measurement_withdraws_the_warning(idle: IdleBed) -> None:
    idle.set(job=HOUR)
    lazy = idle.running()
    idle.quiet(lazy)
    idle.round()
    idle.pass_by(65)
    assert (spell_of(lazy).end, state_of(lazy)) == ("unknown", "running")
    lazy.claim.refresh_from_db()
    assert lazy.claim.idle_since is None


def test_warnings_end_when_work_is_exempted_or_its_rule_is_removed(idle: IdleBed) -> None:
    idle.set(job=HOUR)
    exempt, loosened = idle.running(), idle.running("service")
    idle.set(job=HOUR, service=HOUR)
    for attempt in (exempt, loosened):
        idle.quiet(attempt)
    idle.round()
    assert IdleSpell.objects.count() == 2
    soon = idle.now + dt.timedelta(days=1)
    exemptions.exempt(actor=SYSTEM, department=idle.vision, workload=exempt.workload, why="Demo", until=soon)
    assert (spell_of(exempt).end, spell_of(loosened).end) == ("exempt", ""), "only its own countdown ends at once"
    assert idle.notices()[-1] == "workload.idle_withdrawn"
    idle.set(job=HOUR)
    idle.round()
    assert (spell_of(exempt).end, spell_of(loosened).end) == ("exempt", "policy")
    idle.pass_by(60, exempt, loosened)
    assert IdleSpell.objects.count() == 2


def test_no_further_messages_are_sent_once_work_is_recalled_or_has_ended(idle: IdleBed) -> None:
    idle.set(job=HOUR)
    recalled, over = idle.running(), idle.running()
    for attempt in (recalled, over):
        idle.quiet(attempt)
    idle.round()
    Workload.objects.filter(pk=recalled.workload_id).update(state="recalled")
    Attempt.objects.filter(pk=over.pk).update(finished_at=idle.now)
    Workload.objects.filter(pk=over.workload_id).update(state="succeeded")
    idle.pass_by(20, recalled)
    assert set(IdleSpell.objects.values_list("end", flat=True)) == {"gone"}
    assert idle.notices() == ["workload.idle_warned"] * 2
    assert state_of(recalled) == "recalled"


@pytest.mark.parametrize("killed", ["before", "after"])
def test_a_round_killed_at_the_stop_is_finished_by_the_next(
    idle: IdleBed, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    idle.set(job=HOUR)
    lazy = idle.running()
    idle.quiet(lazy)
    idle.pass_by(10, lazy)

    def dies(*arguments: Any, **named: Any) -> bool:
        if killed == "after":
            transitions.record_event(*arguments, **named)
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(idle_rounds, "record_event", dies)
        with pytest.raises(SystemExit):
            idle.pass_by(10, lazy)
    with pytest.raises(CannotKeep):
        spells.keep(actor=Actor(idle.alice), workload=lazy.workload, now=idle.now)
    idle.round()
    assert (state_of(lazy), spell_of(lazy).end) == ("stopping", "stopped")
    assert Event.objects.filter(kind="workload.stopping").count() == 1
