"""Guessed passwords: of many names, behind a proxy, and at the expense of somebody else."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import time_machine
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.utils import timezone

from portal.accounts.client_address import client_of
from portal.sign_in import guesses
from tests import builders as make
from tests.portal.sign_in.conftest import PASSWORD

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("alice")]
OF_A_NAME = OF_A_DEVICE = 8


def sign_in(client: Client, name: str = "alice", password: str = PASSWORD, **headers: str) -> int:
    return client.post("/login/", {"username": name, "password": password}, headers=headers).status_code


def of_an_address(settings: Any, most: int) -> None:
    settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"login_failed": f"{most}/15m/ip,8/15m/key"}


def test_guessing_at_many_names_from_one_address_comes_to_an_end(settings: Any) -> None:
    of_an_address(settings, 5)
    answers = [sign_in(Client(), f"somebody-{n}", "wrong") for n in range(7)]
    assert answers == [422] * 5 + [429] * 2
    assert sign_in(Client()) == 429
    assert sign_in(Client(REMOTE_ADDR="198.51.100.7")) == 302


def test_one_network_of_ipv6_is_one_address(settings: Any) -> None:
    of_an_address(settings, 3)
    answers = [sign_in(Client(REMOTE_ADDR=f"2001:db8::{n}"), f"somebody-{n}", "wrong") for n in range(1, 5)]
    assert answers == [422, 422, 422, 429]
    assert sign_in(Client(REMOTE_ADDR="2001:db8:0:1::1"), "somebody", "wrong") == 422


def test_nobody_locks_out_a_browser_that_has_signed_in_before(settings: Any) -> None:
    of_an_address(settings, 20)
    mine, colleague = Client(), Client()
    assert sign_in(mine) == 302
    mine.post("/logout/")
    assert [sign_in(colleague, "alice", "wrong") for _ in range(OF_A_NAME)][-1] == 422
    assert sign_in(Client()) == 429, "an unknown browser is locked out with this name"
    for n in range(20):
        sign_in(colleague, f"somebody-{n}", "wrong")
    assert sign_in(mine) == 302


def test_a_known_browser_cannot_guess_without_end() -> None:
    client = Client()
    assert sign_in(client) == 302
    client.post("/logout/")
    answers = [sign_in(client, "alice", "wrong") for _ in range(OF_A_DEVICE + OF_A_NAME + 1)]
    assert answers[-1] == 429
    assert sign_in(client) == 429
    make.user("bob")
    assert sign_in(client, "bob", "wrong") in {422, 429}, "for another name it is any browser"


def test_a_cookie_that_somebody_made_up_counts_for_nothing() -> None:
    client = Client()
    client.cookies[guesses.cookie_name()] = '["x",["alice"]]:made:up'
    answers = [sign_in(client, "alice", "wrong") for _ in range(OF_A_NAME + 1)]
    assert answers[-1] == 429


def test_many_addresses_cannot_guess_at_one_name_without_end(settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"login_failed_name": "5/60m/key"}
    mine = Client()
    assert sign_in(mine) == 302
    mine.post("/logout/")
    answers = [sign_in(Client(REMOTE_ADDR=f"198.51.100.{n}"), "alice", "wrong") for n in range(1, 7)]
    assert answers == [422] * 5 + [429]
    assert sign_in(mine) == 302


def test_the_page_says_how_long_to_wait_and_what_was_right_is_not_counted(settings: Any) -> None:
    client = Client()
    for _ in range(OF_A_NAME - 1):
        sign_in(client, "alice", "wrong")
    assert sign_in(Client()) == 302, "what succeeds takes its try back"
    page = [client.post("/login/", {"username": "Alice", "password": "wrong"}) for _ in range(2)][-1]
    assert page.status_code == 429
    assert "Too many failed attempts. Try again in 15 minutes." in page.content.decode()
    with time_machine.travel(timezone.now() + dt.timedelta(minutes=16), tick=False):
        assert sign_in(client) == 302


@pytest.mark.concurrency
@pytest.mark.django_db(transaction=True)
def test_of_many_tries_at_once_each_is_counted() -> None:
    def guess(_n: int) -> int:
        try:
            return sign_in(Client(), "nobody", "wrong")
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(guess, range(12)))
    assert answers.count(422) <= OF_A_NAME
    assert set(answers) == {422, 429}


def test_without_the_cache_people_get_in(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_args: Any, **_kwargs: Any) -> None:
        raise redis.ConnectionError("away")

    for name in ("get", "set", "add", "delete"):
        monkeypatch.setattr(cache, name, away)
    assert sign_in(Client(), "alice", "wrong") == 422
    assert sign_in(Client()) == 302


class TestBehindAProxy:
    def test_the_clients_address_is_counted_and_not_the_proxys(self, settings: Any) -> None:
        settings.PROXY_ADDRESSES = ["10.0.0.0/8"]
        proxy = Client(REMOTE_ADDR="10.0.0.1")
        tries = range(OF_A_NAME + 1)
        answers = [sign_in(proxy, "alice", "wrong", **{"X-Forwarded-For": "192.0.2.1"}) for _ in tries]
        assert answers[-1] == 429
        assert sign_in(proxy, **{"X-Forwarded-For": "192.0.2.2"}) == 302

    def test_what_others_than_the_proxy_say_is_not_believed(self, settings: Any) -> None:
        settings.PROXY_ADDRESSES = ["10.0.0.0/8"]
        settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
        answers = [
            sign_in(Client(REMOTE_ADDR="192.0.2.9"), "alice", "wrong", **{"X-Forwarded-For": f"192.0.2.{n}"})
            for n in range(OF_A_NAME + 1)
        ]
        assert answers[-1] == 429
        secure = [
            Client(REMOTE_ADDR=peer).get("/login/", headers={"X-Forwarded-Proto": "https"}).wsgi_request.is_secure()
            for peer in ("10.0.0.1", "192.0.2.9")
        ]
        assert secure == [True, False]

    @pytest.mark.parametrize(
        ("peer", "forwarded", "client"),
        [
            ("10.0.0.1", "192.0.2.1", "192.0.2.1"),
            ("10.0.0.1", "6.6.6.6, 192.0.2.1", "192.0.2.1"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "unknown", "10.0.0.1"),
            ("10.0.0.1", "6.6.6.6:1, 192.0.2.1:4711", "192.0.2.1"),
            ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
            ("10.0.0.1", "[2001:db8::1]", "2001:db8::1"),
            ("10.0.0.1", "2001:db8::1", "2001:db8::1"),
            ("10.0.0.1", "192.0.2.1:4711:1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "192.0.2.1", "192.0.2.1"),
            ("192.0.2.9", "192.0.2.1", "192.0.2.9"),
            ("", "192.0.2.1", ""),
        ],
    )
    def test_whose_address_it_is(self, settings: Any, peer: str, forwarded: str, client: str) -> None:
        settings.PROXY_ADDRESSES = ["10.0.0.0/8"]
        assert client_of(peer, forwarded) == client


def test_nobody_keeps_containers_from_saying_that_they_are_ready(client: Client, settings: Any) -> None:
    settings.API_RATE_PER_MINUTE = 3
    answers = [client.post("/api/v1/workloads/nothing/ready/").status_code for _ in range(6)]
    assert answers == [404] * 6
