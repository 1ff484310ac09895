"""The login page, a forgotten password, and what ends with a new one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.core import mail
from django.core.cache import cache
from django.test import Client

from portal.models import AuditEntry, InboxItem, User
from portal.notify import outbox
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD, NEW = "correct horse battery", "another horse battery"
SENT = "/login/forgotten/sent/"


@pytest.fixture(autouse=True)
def alice() -> User:
    cache.clear()
    alice = make.user("Alice", email="Alice@Example.org")
    alice.set_password(PASSWORD)
    alice.save()
    return alice


def sign_in(client: Client, name: str = "Alice", password: str = PASSWORD, **more: str) -> Any:
    return client.post("/login/", {"username": name, "password": password, **more})


def ask(client: Client, email: str) -> Any:
    return client.post("/login/forgotten/", {"email": email})


def link() -> str:
    outbox.send_due()
    found = re.search(r"http\S+(/login/password/\S+)", mail.outbox[-1].body)
    assert found
    return found[1]


class TestLogin:
    def test_leads_where_it_was_asked_for_and_only_on_this_host(self) -> None:
        assert sign_in(Client(), next="/inbox/?a=1").headers["Location"] == "/inbox/?a=1"
        for elsewhere in ("https://evil.example/", "//evil.example", "http://127.0.0.1/", "javascript:alert(1)"):
            assert sign_in(Client(), next=elsewhere).headers["Location"] == "/"
            assert "evil" not in Client().get("/login/", {"next": elsewhere}).content.decode().split("<main")[1]
        make.user("root", is_operator=True)
        User.objects.filter(username="root").update(password=User.objects.get(username="Alice").password)
        assert sign_in(Client(), "root").headers["Location"] == "/operator/"

    def test_what_is_wrong_is_said_the_same_whatever_it_is(self, alice: User) -> None:
        make.user("robot", service_of=make.department("vision"))
        locked = make.user("locked", is_active=False)
        locked.password = alice.password
        locked.save()
        for name, password in (("Alice", "wrong"), ("nobody", "wrong"), ("robot", "x"), ("locked", PASSWORD)):
            page = sign_in(Client(), name, password)
            assert page.status_code == 422
            assert "Wrong login name or password." in page.content.decode()

    def test_bad_input_is_the_form_again(self) -> None:
        for name, password in (
            ("", ""),
            ("a" * 151, "x"),
            ("a\x00b", "x"),
            ("Alice", "x" * 1001),
            ("\u202ealice", "x"),
        ):
            assert sign_in(Client(), name, password).status_code == 422

    def test_a_session_from_before_goes_on_and_a_password_that_begins_with_a_space_works(self, alice: User) -> None:
        client = Client()
        client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
        assert client.get("/profile/").status_code == 200
        alice.set_password(" " + PASSWORD)
        alice.save()
        assert sign_in(Client(), password=" " + PASSWORD).status_code == 302


class TestForgottenPassword:
    def test_a_link_by_mail_sets_a_new_one_once_and_ends_all_sessions(self, alice: User) -> None:
        here = Client()
        assert sign_in(here).status_code == 302
        stranger = Client()
        assert ask(stranger, "alice@example.ORG").headers["Location"] == SENT
        assert stranger.get(SENT).status_code == 200
        address = link()
        assert mail.outbox[-1].to == ["Alice@Example.org"]
        form = stranger.get(address, follow=True)
        assert "New password" in form.content.decode()
        action = form.request["PATH_INFO"]
        assert stranger.post(action, {"password1": "short", "password2": "short"}).status_code == 422
        differ = stranger.post(action, {"password1": NEW, "password2": NEW + "!"})
        assert "The two passwords differ." in differ.content.decode()
        done = stranger.post(action, {"password1": NEW, "password2": NEW}, follow=True)
        assert "The password was changed." in done.content.decode()
        assert here.get("/profile/").status_code == 302, "the session of before has ended"
        assert sign_in(Client(), password=NEW).status_code == 302
        assert sign_in(Client()).status_code == 422
        assert AuditEntry.objects.filter(action="user.password_reset", actor=alice).count() == 1
        assert Client().get(address).status_code == 410, "the link works once"
        assert address not in str(InboxItem.objects.values_list("data", flat=True))

    def test_the_answer_is_the_same_for_everybody_and_only_who_has_a_password_gets_a_link(self, alice: User) -> None:
        make.user("sso", email="sso@example.org")
        locked = make.user("locked", email="locked@example.org", is_active=False)
        locked.password = alice.password
        locked.save()
        for email in ("nobody@example.org", "sso@example.org", "locked@example.org"):
            answer = ask(Client(), email)
            assert (answer.status_code, answer.headers["Location"]) == (302, SENT)
        outbox.send_due()
        assert mail.outbox == []
        assert Session.objects.count() == 0

    def test_a_link_ends_when_the_account_is_locked_and_when_it_was_made_up(self, alice: User) -> None:
        ask(Client(), "alice@example.org")
        address = link()
        User.objects.filter(pk=alice.pk).update(is_active=False)
        for wrong in (address, "/login/password/1/x-y/", "/login/password/zzzzzzzzzzzzz/a-b/", "/login/password/!/a/"):
            page = Client().get(wrong)
            assert page.status_code == 410
            assert "Ask for a new one" in page.content.decode()

    def test_asking_again_and_again_comes_to_an_end(self) -> None:
        answers = [ask(Client(), "alice@example.org").status_code for _ in range(4)]
        assert answers == [302, 302, 302, 429]

    def test_without_mail_an_operator_is_named(self, settings: Any) -> None:
        settings.EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
        assert "Ask an operator" in Client().get("/login/forgotten/").content.decode()
        ask(Client(), "alice@example.org")
        assert InboxItem.objects.count() == 0

    def test_a_wrong_address_is_the_form_again(self) -> None:
        assert ask(Client(), "no address").status_code == 422
