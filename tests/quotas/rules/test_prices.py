"""Prices of pools: set by operators, versioned, and effective from the time they are set."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.access import Actor, NotVisible
from portal.infra.versions import Stale
from portal.models import AuditEntry, User
from quotas.models import Pool, PoolPrice
from quotas.reports.asked import Asked
from quotas.reports.queries import report
from quotas.rules.prices import price_of, set_price
from tests import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100")


@pytest.fixture
def root() -> User:
    return make.user("root", is_operator=True)


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.django_db(transaction=True)
def test_price_change_adds_an_audited_row_and_a_stale_change_is_refused(pool: Pool, root: User) -> None:
    actor = Actor(root)
    set_price(actor=actor, pool=pool, own=Decimal("1.5"), borrowed=None, expected_version=0)
    set_price(actor=actor, pool=pool, own=Decimal("1.5"), borrowed=None, expected_version=1)  # unchanged: no new row
    with pytest.raises(Stale):
        set_price(actor=actor, pool=pool, own=Decimal(2), borrowed=None, expected_version=0)
    set_price(actor=actor, pool=pool, own=None, borrowed=None, expected_version=1)
    assert [price.own for price in PoolPrice.objects.order_by("number")] == [Decimal("1.5"), None]
    changes = AuditEntry.objects.filter(action="pool.price_changed").order_by("pk").values_list("before", "after")
    none, first = {"own_price": None, "borrowed_price": None}, {"own_price": "1.5", "borrowed_price": None}
    assert list(changes) == [(none, first), (first, none)]
    with pytest.raises(NotVisible):
        set_price(actor=Actor(make.user()), pool=pool, own=None, borrowed=None, expected_version=2)


@pytest.mark.django_db(transaction=True)
def test_page_saves_a_price_and_refuses_stale_and_invalid_ones(pool: Pool, root: User) -> None:
    client, path = client_of(root), "/operator/pools/a100/"
    form = {"form": "price", "own": "2.50", "borrowed": "0.000001", "version": "0"}
    assert client.post(path, form).status_code == 302
    page = client.get(path).content.decode()
    assert 'value="2.5"' in page
    assert "0.000001" in page
    stale = client.post(path, form | {"own": "3"})
    assert (stale.status_code, "data-conflict" in stale.content.decode()) == (409, True)
    for wrong in ("-1", "1e9", "nan", "0.0000001", "abc"):
        answer = client.post(path, form | {"own": wrong, "version": "1"})
        assert answer.status_code == 422, wrong
    assert price_of(pool).number == 1


@pytest.mark.django_db(transaction=True)
def test_api_sets_a_price_with_if_match(pool: Pool, root: User) -> None:
    client, path = client_of(root), "/api/v1/pools/a100/price/"
    body = {"own": "2.5", "borrowed": None}

    def put(match: str, **values: Any) -> Any:
        headers = {"If-Match": match} if match else {}
        return client.put(path, body | values, content_type="application/json", headers=headers)

    assert client.get(path).headers["ETag"] == '"0"'
    assert put("").status_code == 428
    answer = put('"0"')
    assert (answer.status_code, answer.headers["ETag"], answer.json()["own"]) == (200, '"1"', "2.500000")
    assert put('"0"').status_code == 412
    assert [each["attr"] for each in put('"1"', own="-1").json()["errors"]] == ["own"]
    assert client_of(make.user()).put(path, body, content_type="application/json").status_code == 404


def test_new_price_does_not_apply_to_earlier_use(pool: Pool) -> None:
    now = timezone.now().replace(microsecond=0)
    for number, (hours, own) in enumerate([(3, "1.00"), (1, "4.00")], 1):
        PoolPrice.objects.create(pool=pool, number=number, own=Decimal(own), borrowed=Decimal("0.10"), set_by="root",
                                 since=now - dt.timedelta(hours=hours))  # fmt: skip
    lender, borrower = make.department(), make.department()
    make.holding(
        borrower, pool, own=2, borrowed={lender: 1}, user=make.user("ann"), started_at=now - dt.timedelta(hours=4)
    )
    [row] = report(Actor(None), Asked(now - dt.timedelta(hours=5), now, ("person",)), now=now).rows
    assert row.cost == 2 * (2 * Decimal("1.00") + Decimal("4.00")) + 3 * Decimal("0.10")  # the first hour had no price


def test_memory_is_priced_per_gib(root: User) -> None:
    now = timezone.now().replace(microsecond=0)
    memory = make.pool("t4", unit="MiB", units_per_card=15_360, cards=2)
    PoolPrice.objects.create(pool=memory, number=1, own=None, borrowed=Decimal("0.2"), set_by="root",
                             since=now - dt.timedelta(days=1))  # fmt: skip
    make.holding(make.department(), memory, borrowed={None: 5_120}, user=make.user("ann"))
    asked = Asked(now - dt.timedelta(minutes=30), now, ("pool",))
    [row] = report(Actor(None), asked, now=now).rows
    assert row.cost == Decimal("0.50")
    page = client_of(root).get(
        "/usage/", {"from": (now - dt.timedelta(minutes=30)).isoformat(), "until": now.isoformat()}
    )
    assert "0.50 CNY" in page.content.decode()
