"""Guessed passwords: for many names, behind a proxy, and without locking out other people."""

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
PER_NAME = PER_DEVICE = 8


def sign_in(client: Client, name: str = "alice", password: str = PASSWORD, **headers: str) -> int:
    return client.post("/login/", {"username": name, "password": password}, headers=headers).status_code


def limit_per_address(settings: Any, most: int) -> None:
    settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"login_failed": f"{most}/15m/ip,8/15m/key"}


def test_guesses_from_one_address_are_limited_across_names(settings: Any) -> None:
    limit_per_address(settings, 5)
    answers = [sign_in(Client(), f"somebody-{n}", "wrong") for n in range(7)]
    assert answers == [422] * 5 + [429] * 2
    assert sign_in(Client()) == 429
    assert sign_in(Client(REMOTE_ADDR="198.51.100.7")) == 302


def test_ipv6_network_counts_as_one_address(settings: Any) -> None:
    limit_per_address(settings, 3)
    answers = [sign_in(Client(REMOTE_ADDR=f"2001:db8::{n}"), f"somebody-{n}", "wrong") for n in range(1, 5)]
    assert answers == [422, 422, 422, 429]
    assert sign_in(Client(REMOTE_ADDR="2001:db8:0:1::1"), "somebody", "wrong") == 422


def test_known_browser_is_not_locked_out_by_guesses_of_others(settings: Any) -> None:
    limit_per_address(settings, 20)
    mine, colleague = Client(), Client()
    assert sign_in(mine) == 302
    mine.post("/logout/")
    assert [sign_in(colleague, "alice", "wrong") for _ in range(PER_NAME)][-1] == 422
    assert sign_in(Client()) == 429, "an unknown browser is locked out with this name"
    for n in range(20):
        sign_in(colleague, f"somebody-{n}", "wrong")
    assert sign_in(mine) == 302


def test_guesses_from_a_known_browser_are_limited() -> None:
    client = Client()
    assert sign_in(client) == 302
    client.post("/logout/")
    answers = [sign_in(client, "alice", "wrong") for _ in range(PER_DEVICE + PER_NAME + 1)]
    assert answers[-1] == 429
    assert sign_in(client) == 429
    make.user("bob")
    assert sign_in(client, "bob", "wrong") in {422, 429}, "for another name it is an unknown browser"


def test_forged_cookie_of_a_known_browser_is_ignored() -> None:
    client = Client()
    client.cookies[guesses.cookie_name()] = '["x",["alice"]]:made:up'
    answers = [sign_in(client, "alice", "wrong") for _ in range(PER_NAME + 1)]
    assert answers[-1] == 429


def test_guesses_at_one_name_are_limited_across_addresses(settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"login_failed_name": "5/60m/key"}
    mine = Client()
    assert sign_in(mine) == 302
    mine.post("/logout/")
    answers = [sign_in(Client(REMOTE_ADDR=f"198.51.100.{n}"), "alice", "wrong") for n in range(1, 7)]
    assert answers == [422] * 5 + [429]
    assert sign_in(mine) == 302


def test_page_says_how_long_to_wait_and_successful_logins_are_not_counted(settings: Any) -> None:
    client = Client()
    for _ in range(PER_NAME - 1):
        sign_in(client, "alice", "wrong")
    assert sign_in(Client()) == 302, "a successful login is not counted"
    page = [client.post("/login/", {"username": "Alice", "password": "wrong"}) for _ in range(2)][-1]
    assert page.status_code == 429
    assert "Too many failed attempts. Try again in 15 minutes." in page.content.decode()
    with time_machine.travel(timezone.now() + dt.timedelta(minutes=16), tick=False):
        assert sign_in(client) == 302


@pytest.mark.concurrency
@pytest.mark.django_db(transaction=True)
def test_concurrent_guesses_are_all_counted() -> None:
    def guess(_n: int) -> int:
        try:
            return sign_in(Client(), "nobody", "wrong")
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(guess, range(12)))
    assert answers.count(422) <= PER_NAME
    assert set(answers) == {422, 429}


def test_login_works_without_the_cache(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_args: Any, **_kwargs: Any) -> None:
        raise redis.ConnectionError("unreachable")

    for name in ("get", "set", "add", "delete"):
        monkeypatch.setattr(cache, name, unreachable)
    assert sign_in(Client(), "alice", "wrong") == 422
    assert sign_in(Client()) == 302


class TestBehindAProxy:
    def test_the_clients_address_is_counted_and_not_the_proxys(self, settings: Any) -> None:
        settings.PROXY_ADDRESSES = ["10.0.0.0/8"]
        proxy = Client(REMOTE_ADDR="10.0.0.1")
        tries = range(PER_NAME + 1)
        answers = [sign_in(proxy, "alice", "wrong", **{"X-Forwarded-For": "192.0.2.1"}) for _ in tries]
        assert answers[-1] == 429
        assert sign_in(proxy, **{"X-Forwarded-For": "192.0.2.2"}) == 302

    def test_forwarded_headers_are_trusted_only_from_the_proxy(self, settings: Any) -> None:
        settings.PROXY_ADDRESSES = ["10.0.0.0/8"]
        settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
        answers = [
            sign_in(Client(REMOTE_ADDR="192.0.2.9"), "alice", "wrong", **{"X-Forwarded-For": f"192.0.2.{n}"})
            for n in range(PER_NAME + 1)
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
    def test_client_address_is_the_one_the_proxy_reports_or_else_the_peers(
        self, settings: Any, peer: str, forwarded: str, client: str
    ) -> None:
        settings.PROXY_ADDRESSES = ["10.0.0.0/8"]
        assert client_of(peer, forwarded) == client


def test_readiness_reports_of_containers_are_not_rate_limited(client: Client, settings: Any) -> None:
    settings.API_RATE_PER_MINUTE = 3
    answers = [client.post("/api/v1/workloads/nothing/ready/").status_code for _ in range(6)]
    assert answers == [404] * 6
