"""The monthly report: sent to owners once, for the month in the installation's time zone, even if the sender is killed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from portal.models import InboxItem, NoticePreference, Role, User
from portal.notify import notices, outbox
from quotas.models import LedgerEntry, MonthlyReport, PoolPrice
from quotas.reports.monthly import send_monthly
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)
# 00:30 on 1 November in Shanghai is still October in UTC.
BEGUN = dt.datetime(2026, 10, 31, 16, 30, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def shanghai(settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Shanghai"


@pytest.fixture
def owner() -> User:
    lab = make.department("lab")
    vision = make.department("vision", parent=lab)
    owner = make.member(lab, Role.OWNER, "olivia", email="olivia@example.org")
    make.member(vision, Role.MEMBER, "ann", email="ann@example.org")
    pool = make.pool("a100")
    claim = make.claim(vision, pool, 2, user=User.objects.get(username="ann"), kind="job")
    # From 09:00 on 30 October to 06:00 on 1 November in Shanghai: 39 hours of it are in October.
    LedgerEntry.objects.create(claim=claim, pool=pool, department=vision, own=True, units=2,
                               started_at=BEGUN - dt.timedelta(hours=39, minutes=30),
                               ended_at=BEGUN + dt.timedelta(hours=5, minutes=30))  # fmt: skip
    PoolPrice.objects.create(pool=pool, number=1, own=Decimal("0.5"), borrowed=None, set_by="root",
                             since=BEGUN - dt.timedelta(days=90))  # fmt: skip
    return owner


def test_owners_get_a_report_of_the_previous_month_including_their_teams(owner: User) -> None:
    assert send_monthly(now=BEGUN) == 1
    item = InboxItem.objects.get()
    assert (item.user, item.kind, item.data["month"]) == (owner, "usage.month", "2026-10")
    assert notices.sentence(item.kind, item.data) == (
        "Usage of Lab in 2026-10: Card-hours: 78.00 own use, 0.00 borrowed, 0.00 lent out, 0.00 idle. Cost: 39.00 CNY."
    )
    outbox.mail(item, now=timezone.now())
    assert "78.00 own use" in mail.outbox[0].body
    assert f"/inbox/{item.pk}/" in mail.outbox[0].body, "the mail links to the report"
    client = Client()
    client.force_login(owner)
    response = client.get(f"/inbox/{item.pk}/")
    assert response.headers["Location"] == "/usage/?department=lab&from=2026-10-01&until=2026-10-31"
    assert client.get(response.headers["Location"]).status_code == 200


def test_report_is_not_sent_before_the_month_ends_in_the_installations_zone(owner: User) -> None:
    before = BEGUN - dt.timedelta(minutes=31)  # 23:59 on 31 October: the last month is September
    send_monthly(now=before)
    assert not InboxItem.objects.filter(data__month="2026-10").exists()


def test_report_is_sent_once_and_late_if_necessary_but_not_long_after(owner: User) -> None:
    for hours in (0, 1, 30):
        send_monthly(now=BEGUN + dt.timedelta(hours=hours))
    assert InboxItem.objects.count() == 1
    MonthlyReport.objects.all().delete()
    assert send_monthly(now=BEGUN + dt.timedelta(days=9)) == 1
    MonthlyReport.objects.all().delete()
    assert send_monthly(now=BEGUN + dt.timedelta(days=11)) == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_report_is_sent_exactly_once_after_the_sender_was_killed(
    owner: User, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = notices.send

    def killed(*values: Any, **more: Any) -> None:
        if when == "after":
            send(*values, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(notices, "send", killed)
    with pytest.raises(KeyboardInterrupt):
        send_monthly(now=BEGUN)
    monkeypatch.undo()
    assert InboxItem.objects.count() == 0
    send_monthly(now=BEGUN)
    send_monthly(now=BEGUN)
    assert InboxItem.objects.count() == 1


def test_users_can_opt_out_of_the_report(owner: User) -> None:
    NoticePreference.objects.create(user=owner, kind="usage.month", inbox=False, mail=False)
    send_monthly(now=BEGUN)
    assert InboxItem.objects.count() == 0
    assert "usage.month" in notices.SETTABLE


def test_department_without_use_or_quota_gets_no_report(owner: User) -> None:
    idle = make.department("idle")
    make.member(idle, Role.OWNER, "ida")
    send_monthly(now=BEGUN)
    assert set(InboxItem.objects.values_list("user__username", flat=True)) == {"olivia"}
