"""The login page, a forgotten password, and what ends with a new one."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.core import mail
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client

from portal.access import Actor
from portal.accounts import members
from portal.infra.providers.identity_providers import OpenIdConnect
from portal.models import AuditEntry, InboxItem, Membership, Role, User
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
    def test_passwords_are_kept_by_argon2(self, alice: User) -> None:
        assert alice.password.startswith("argon2$argon2id$")

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


class TestPasswordsOff:
    @pytest.fixture(autouse=True)
    def off(self, settings: Any) -> None:
        settings.PASSWORD_SIGN_IN = False
        settings.IDENTITY_PROVIDERS = (OpenIdConnect("sso", "Company login", "https://sso", "portal", "x"),)

    def test_only_operators_of_bootstrap_log_in_by_password(self, alice: User) -> None:
        page = sign_in(Client())
        assert page.status_code == 422
        assert "Passwords are not used here. Log in with Company login." in page.content.decode()
        User.objects.filter(pk=alice.pk).update(is_operator=True)
        assert sign_in(Client()).status_code == 422, "operators of the pages neither"
        User.objects.filter(pk=alice.pk).update(is_superuser=True)
        assert sign_in(Client()).status_code == 302
        User.objects.filter(pk=alice.pk).update(is_operator=False)
        assert sign_in(Client()).status_code == 422, "who is no operator any more neither"

    def test_the_page_shows_the_providers_and_passwords_only_on_request(self, alice: User) -> None:
        page = Client().get("/login/").content.decode()
        assert "Log in with Company login" in page
        assert 'id="id_password"' not in page
        assert 'id="id_password"' in Client().get("/login/?password").content.decode()
        client = Client()
        client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
        profile = client.get("/profile/").content.decode()
        assert 'value="password"' not in profile
        assert client.post("/profile/", {"form": "password"}).status_code == 404
        ask(Client(), "alice@example.org")
        assert InboxItem.objects.count() == 0

    def test_an_invitation_leads_to_the_login(self) -> None:
        owner, vision = make.user("owner"), make.department("vision")
        Membership.objects.create(user=owner, department=vision, role=Role.OWNER)
        _row, secret = members.invite(actor=Actor(owner), department=vision, role="member")
        page = Client().get(f"/invite/{secret}/").content.decode()
        assert "Create account and join" not in page
        form = {"username": "new", "password": NEW}
        assert Client().post(f"/invite/{secret}/", form).headers["Location"].startswith("/login/?next=/invite/")
        assert not User.objects.filter(username="new").exists()


class TestBootstrap:
    def made(self, tmp_path: Path, *more: str) -> str:
        (tmp_path / "password").write_text(NEW)
        said = io.StringIO()
        call_command("bootstrap", "root", *more, "--password-file", str(tmp_path / "password"), stdout=said)
        return said.getvalue()

    def test_makes_the_first_operator_and_again_when_nobody_can_log_in(self, tmp_path: Path) -> None:
        self.made(tmp_path)
        root = User.objects.get(username="root")
        assert root.is_break_glass
        with pytest.raises(CommandError, match="--again"):
            self.made(tmp_path)
        User.objects.update(is_active=False)
        self.made(tmp_path, "--again")
        assert sign_in(Client(), "root", NEW).status_code == 302
        User.objects.filter(username="root").update(is_operator=False)
        with pytest.raises(CommandError, match="already"):
            self.made(tmp_path, "--again")


class TestProviders:
    @pytest.fixture(autouse=True)
    def provider(self, settings: Any) -> None:
        settings.IDENTITY_PROVIDERS = (OpenIdConnect("sso", "Company login", "http://127.0.0.1:9", "portal", "x"),)

    def test_one_that_is_down_is_told_and_an_unknown_one_is_not_there(self) -> None:
        page = Client().post("/login/with/sso/")
        assert page.status_code == 502
        assert "Company login did not confirm who you are" in page.content.decode()
        assert Client().post("/login/with/other/").status_code == 404
        assert Client().get("/login/with/sso/").status_code == 405
        assert Client().post("/login/with/sso/", {"process": "redirect"}).status_code == 404
        assert Client().post("/login/with/sso/", {"process": "connect"}).headers["Location"].startswith("/login/")

    @pytest.mark.parametrize("query", ["", "code=x", "code=x&state=y", "error=access_denied", "state=" + "x" * 9000])
    def test_a_made_up_way_back_opens_nothing(self, query: str) -> None:
        client = Client()
        page = client.get(f"/login/with/sso/callback/?{query}")
        assert page.status_code in {403, 502}
        assert client.get("/profile/").status_code == 302
        assert User.objects.count() == 1
