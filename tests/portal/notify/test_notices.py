"""Who is notified of what, where and in which language."""

from __future__ import annotations

import ast
import datetime as dt
import smtplib
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core import mail as mailbox
from django.db import transaction
from django.utils import timezone, translation

from portal import cleaning
from portal.access import Actor
from portal.accounts.tokens import create_token
from portal.models import (
    ApiToken,
    Department,
    Event,
    IdempotencyKey,
    InboxItem,
    JobRun,
    Membership,
    NoticePreference,
    Role,
    User,
    Webhook,
    WebhookDelivery,
)
from portal.notify import notices, outbox

pytestmark = pytest.mark.django_db
BASE = Path(settings.BASE_DIR)
NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def vision() -> Department:
    return Department.objects.create(slug="vision", name="Vision")


@pytest.fixture
def alice(vision: Department) -> User:
    user = User.objects.create_user("alice", "alice@example.org")
    Membership.objects.create(user=user, department=vision, role=Role.MEMBER)
    return user


def test_notice_creates_one_unread_inbox_item_for_each_person(vision: Department, alice: User) -> None:
    notices.send("workload.succeeded", to=[alice, alice], department=vision, workload="w1", name="train")
    item = InboxItem.objects.get()
    assert (item.user, item.kind, item.read_at, item.mail_due_at) == (alice, "workload.succeeded", None, None)
    assert notices.sentence(item.kind, item.data) == "train succeeded."


def test_unknown_kind_raises_an_error(alice: User) -> None:
    with pytest.raises(ValueError, match=r"workload\.exploded"):
        notices.send("workload.exploded", to=[alice])


def test_inactive_users_and_service_accounts_are_not_notified(vision: Department, alice: User) -> None:
    robot = User.objects.create_user("ci", "ci@example.org", service_of=vision)
    alice.is_active = False
    notices.send("workload.failed", to=[alice, robot], department=vision, name="x", reason="Error")
    assert not InboxItem.objects.exists()


@pytest.mark.parametrize(
    ("inbox", "mail", "unread", "mailed"), [(True, False, 1, 0), (False, True, 0, 1), (False, False, 0, 0)]
)
def test_preferences_choose_inbox_and_mail_for_each_kind(
    vision: Department, alice: User, inbox: bool, mail: bool, unread: int, mailed: int
) -> None:
    NoticePreference.objects.create(user=alice, kind="workload.failed", inbox=inbox, mail=mail)
    notices.send("workload.failed", to=[alice], department=vision, name="train", reason="Error")
    assert InboxItem.objects.filter(read_at=None).count() == unread
    outbox.send_due()
    assert len(mailbox.outbox) == mailed


def test_sentence_has_times_in_the_readers_zone_and_reasons_in_words(vision: Department) -> None:
    facts = {"name": "train", "reclaim_at": "2066-11-23T14:00:00+00:00", "reason": "max_wait"}
    with timezone.override("Asia/Shanghai"):
        assert "it receives SIGTERM at 2066-11-23 22:00 CST" in notices.sentence("workload.recalled", facts)
    assert notices.sentence("workload.rejected", facts).endswith("it waited longer than its maximum waiting time.")


def test_old_notice_that_lacks_a_newer_fact_is_still_readable(vision: Department) -> None:
    assert notices.sentence("workload.recalled", {"name": "train"}).startswith("train is being recalled")
    assert notices.sentence("something.of.old", {}) == "something.of.old"


def test_mail_is_sent_once_in_the_readers_language(vision: Department, alice: User) -> None:
    notices.send("workload.failed", to=[alice], department=vision, workload="w1", name="train", reason="OOMKilled")
    assert outbox.send_due() == 1
    assert outbox.send_due() == 0
    [letter] = mailbox.outbox
    assert letter.to == ["alice@example.org"]
    assert letter.subject == "train failed: it ran out of memory."
    assert InboxItem.objects.get().mailed_at is not None


def test_mail_to_an_unreachable_server_is_retried_and_finally_given_up(
    vision: Department, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise smtplib.SMTPServerDisconnected("gone")

    monkeypatch.setattr("django.core.mail.message.EmailMessage.send", refuse)
    notices.send("workload.failed", to=[alice], department=vision, name="train", reason="Error")
    now = timezone.now()
    for tries, pause in enumerate(outbox.PAUSES, start=1):
        assert outbox.send_due(now=now) == 0
        item = InboxItem.objects.get()
        assert (item.mail_tries, item.mail_due_at) == (tries, now + dt.timedelta(seconds=pause))
        now += dt.timedelta(seconds=pause)
    assert outbox.send_due(now=now) == 0
    assert InboxItem.objects.get().mail_due_at is None  # given up; the item stays in the inbox


def test_owners_of_a_team_include_those_of_its_parents(vision: Department, alice: User) -> None:
    team = Department.objects.create(slug="team", name="Team", parent=vision)
    boss = User.objects.create_user("boss")
    Membership.objects.create(user=boss, department=vision, role=Role.OWNER)
    assert notices.owners_of(team) == [boss]


def test_active_webhooks_get_only_the_kinds_they_subscribe_to(vision: Department, alice: User) -> None:
    everything = Webhook.objects.create(department=vision, name="all", url="https://a.example.org/")
    Webhook.objects.create(department=vision, name="one", url="https://b.example.org/", kinds=["recall.done"])
    Webhook.objects.create(department=vision, name="off", url="https://c.example.org/", active=False)
    notices.send("workload.failed", to=[], department=vision, workload="w1", name="train", reason="Error")
    row = WebhookDelivery.objects.get()
    assert (row.webhook, row.data["workload"], row.sent_at) == (everything, "w1", None)


@pytest.mark.django_db(transaction=True)
def test_rolled_back_notice_is_not_sent(vision: Department, alice: User) -> None:
    with transaction.atomic():
        notices.send("workload.failed", to=[alice], department=vision, name="train", reason="Error")
        transaction.set_rollback(True)
    assert not InboxItem.objects.exists()


WITH_MORE = [kind for kind, known in notices.KINDS.items() if known.more]


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("kind", WITH_MORE)
def test_missing_facts_leave_no_label_without_a_text(kind: str, language: str) -> None:
    known = notices.KINDS[kind]
    first = dict.fromkeys(notices.PLACE.findall(known.sentence), "x")
    more = notices.PLACE.findall(known.more)
    with translation.override(language):
        short = notices.sentence(kind, first)
        for empty in ("", None, "–"):  # "–": stored by older portals
            assert notices.sentence(kind, first | dict.fromkeys(more, empty)) == short
        assert notices.sentence(kind, first | dict.fromkeys(more, "words")).removeprefix(short).count("words") == len(
            more
        )


def test_connection_error_is_explained_in_plain_words() -> None:
    facts = {"name": "ci", "department": "Vision", "failures": 5}
    raw = "gaierror: [Errno -2] Name or service not known"
    assert "(its host name cannot be resolved)" in notices.sentence("webhook.failing", facts | {"error": raw})
    assert "(HTTP 500)" in notices.sentence("webhook.failing", facts | {"error": "HTTP 500"})


def test_no_notice_is_sent_with_a_dash_for_a_missing_fact() -> None:
    sent = 0
    for path in [*BASE.glob("portal/**/*.py"), *BASE.glob("quotas/**/*.py"), *BASE.glob("workloads/**/*.py")]:
        for call in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(call.func).split(".")[-1] if isinstance(call, ast.Call) else ""
            if name == "send" or name.startswith("_notify"):
                sent += 1
                assert "'–'" not in ast.unparse(call), f"{path}:{call.lineno}"
    assert sent > 20


def test_notices_for_operators_cannot_be_sent_to_others(vision: Department, alice: User) -> None:
    for kind, known in notices.KINDS.items():
        if known.audience is notices.Audience.OPERATORS:
            with pytest.raises(ValueError, match="operators"):
                notices.send(kind, to=[alice])
    assert not InboxItem.objects.exists()


def test_every_kind_has_a_sentence_in_every_language(vision: Department) -> None:
    for language in ("en", "zh-hans"):
        with translation.override(language):
            for kind in notices.KINDS:
                assert "%" not in notices.sentence(kind, {"name": "train"})


def test_cleaning_deletes_events_job_runs_and_keys_that_are_too_old(vision: Department) -> None:
    for age in (0, 30):
        at = NOW - dt.timedelta(days=age)
        Event.objects.create(kind="x", at=at)
        JobRun.objects.create(job="x", slot=age, started_at=at)
        IdempotencyKey.objects.create(holder="u", method="POST", path="/", key=str(age), body_digest="", created_at=at)
    deleted = cleaning.clean_up(now=NOW)
    assert (deleted["events"], deleted["job runs"], deleted["idempotency keys"]) == (1, 1, 1)
    assert (Event.objects.count(), JobRun.objects.count(), IdempotencyKey.objects.count()) == (1, 1, 1)
    assert sum(cleaning.clean_up(now=NOW).values()) == 0


@pytest.mark.django_db(transaction=True)
def test_holder_is_notified_once_that_a_token_is_about_to_expire(vision: Department, alice: User) -> None:
    now = timezone.now()
    create_token(
        actor=Actor(alice), department=vision, name="ci", scopes=["read"], expires_at=now + dt.timedelta(days=30)
    )
    assert cleaning.clean_up(now=now)["tokens about to end"] == 0
    later = now + dt.timedelta(days=25)
    assert cleaning.clean_up(now=later)["tokens about to end"] == 1
    assert cleaning.clean_up(now=later)["tokens about to end"] == 0
    assert InboxItem.objects.get().data["token"] == ApiToken.objects.get().prefix
