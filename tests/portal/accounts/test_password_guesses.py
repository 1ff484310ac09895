"""Guessed passwords: of many names, behind a proxy, and at the expense of somebody else."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as site
from django.core.cache import cache
from django.test import Client

from portal.accounts import password_guesses
from portal.accounts.client_address import client_of
from portal.models import User
from tests import builders as make

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def alice() -> User:
    cache.clear()
    alice = make.user("alice")
    alice.set_password(PASSWORD)
    alice.save()
    return alice


def sign_in(client: Client, name: str = "alice", password: str = PASSWORD, **headers: str) -> int:
    return client.post("/login/", {"username": name, "password": password}, headers=headers).status_code


def test_guessing_at_many_names_from_one_address_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_guesses, "MANY_NAMES", 5)
    answers = [sign_in(Client(), f"somebody-{n}", "wrong") for n in range(7)]
    assert answers == [422] * 5 + [429] * 2
    assert sign_in(Client()) == 429
    assert sign_in(Client(REMOTE_ADDR="198.51.100.7")) == 302


def test_one_network_of_ipv6_is_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_guesses, "MANY_NAMES", 3)
    answers = [sign_in(Client(REMOTE_ADDR=f"2001:db8::{n}"), f"somebody-{n}", "wrong") for n in range(1, 5)]
    assert answers == [422, 422, 422, 429]
    assert sign_in(Client(REMOTE_ADDR="2001:db8:0:1::1"), "somebody", "wrong") == 422


def test_nobody_locks_out_a_browser_that_has_signed_in_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_guesses, "MANY_NAMES", 20)
    mine, colleague = Client(), Client()
    assert sign_in(mine) == 302
    mine.post("/logout/")
    assert [sign_in(colleague, "alice", "wrong") for _ in range(site.AXES_FAILURE_LIMIT)][-1] == 429
    assert sign_in(Client()) == 429, "an unknown browser is locked out with this name"
    for n in range(20):
        sign_in(colleague, f"somebody-{n}", "wrong")
    assert sign_in(mine) == 302


def test_a_known_browser_cannot_guess_without_end() -> None:
    client = Client()
    assert sign_in(client) == 302
    client.post("/logout/")
    answers = [sign_in(client, "alice", "wrong") for _ in range(password_guesses.OF_A_DEVICE + site.AXES_FAILURE_LIMIT)]
    assert answers[-1] == 429
    assert sign_in(client) == 429
    make.user("bob")
    assert sign_in(client, "bob", "wrong") in {422, 429}, "for another name it is any browser"


def test_a_cookie_that_somebody_made_up_counts_for_nothing() -> None:
    client = Client()
    client.cookies[password_guesses.cookie_name()] = '["x",["alice"]]:made:up'
    answers = [sign_in(client, "alice", "wrong") for _ in range(site.AXES_FAILURE_LIMIT)]
    assert answers[-1] == 429


class TestBehindAProxy:
    def test_the_clients_address_is_counted_and_not_the_proxys(self, settings: Any) -> None:
        settings.PROXY_ADDRESSES = ["10.0.0.0/8"]
        proxy = Client(REMOTE_ADDR="10.0.0.1")
        tries = range(settings.AXES_FAILURE_LIMIT)
        answers = [sign_in(proxy, "alice", "wrong", **{"X-Forwarded-For": "192.0.2.1"}) for _ in tries]
        assert answers[-1] == 429
        assert sign_in(proxy, **{"X-Forwarded-For": "192.0.2.2"}) == 302

    def test_what_others_than_the_proxy_say_is_not_believed(self, settings: Any) -> None:
        settings.PROXY_ADDRESSES = ["10.0.0.0/8"]
        settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
        answers = [
            sign_in(Client(REMOTE_ADDR="192.0.2.9"), "alice", "wrong", **{"X-Forwarded-For": f"192.0.2.{n}"})
            for n in range(site.AXES_FAILURE_LIMIT)
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
