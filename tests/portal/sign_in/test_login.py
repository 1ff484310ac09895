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


def request_link(client: Client, email: str) -> Any:
    return client.post("/login/forgotten/", {"email": email})


def link() -> str:
    outbox.send_due()
    found = re.search(r"http\S+(/login/password/\S+)", mail.outbox[-1].body)
    assert found
    return found[1]


class TestLogin:
    def test_passwords_are_stored_with_argon2(self, alice: User) -> None:
        assert alice.password.startswith("argon2$argon2id$")

    def test_login_leads_to_the_requested_page_on_this_host_only(self) -> None:
        assert sign_in(Client(), next="/inbox/?a=1").headers["Location"] == "/inbox/?a=1"
        for elsewhere in ("https://evil.example/", "//evil.example", "http://127.0.0.1/", "javascript:alert(1)"):
            assert sign_in(Client(), next=elsewhere).headers["Location"] == "/"
            assert "evil" not in Client().get("/login/", {"next": elsewhere}).content.decode().split("<main")[1]
        make.user("root", is_operator=True)
        User.objects.filter(username="root").update(password=User.objects.get(username="Alice").password)
        assert sign_in(Client(), "root").headers["Location"] == "/operator/"

    def test_every_failed_login_gets_the_same_message(self, alice: User) -> None:
        make.user("robot", service_of=make.department("vision"))
        locked = make.user("locked", is_active=False)
        locked.password = alice.password
        locked.save()
        for name, password in (("Alice", "wrong"), ("nobody", "wrong"), ("robot", "x"), ("locked", PASSWORD)):
            page = sign_in(Client(), name, password)
            assert page.status_code == 422
            assert "Wrong login name or password." in page.content.decode()

    def test_invalid_input_shows_the_form_again(self) -> None:
        for name, password in (
            ("", ""),
            ("a" * 151, "x"),
            ("a\x00b", "x"),
            ("Alice", "x" * 1001),
            ("\u202ealice", "x"),
        ):
            assert sign_in(Client(), name, password).status_code == 422

    def test_existing_session_stays_valid_and_password_can_begin_with_a_space(self, alice: User) -> None:
        client = Client()
        client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
        assert client.get("/profile/").status_code == 200
        alice.set_password(" " + PASSWORD)
        alice.save()
        assert sign_in(Client(), password=" " + PASSWORD).status_code == 302


class TestForgottenPassword:
    def test_mailed_link_sets_a_new_password_once_and_ends_all_sessions(self, alice: User) -> None:
        here = Client()
        assert sign_in(here).status_code == 302
        stranger = Client()
        assert request_link(stranger, "alice@example.ORG").headers["Location"] == SENT
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
        assert here.get("/profile/").status_code == 302, "the earlier session has ended"
        assert sign_in(Client(), password=NEW).status_code == 302
        assert sign_in(Client()).status_code == 422
        assert AuditEntry.objects.filter(action="user.password_reset", actor=alice).count() == 1
        assert Client().get(address).status_code == 410, "the link works once"
        assert address not in str(InboxItem.objects.values_list("data", flat=True))

    def test_response_is_always_the_same_and_only_password_users_get_a_link(self, alice: User) -> None:
        make.user("sso", email="sso@example.org")
        locked = make.user("locked", email="locked@example.org", is_active=False)
        locked.password = alice.password
        locked.save()
        for email in ("nobody@example.org", "sso@example.org", "locked@example.org"):
            answer = request_link(Client(), email)
            assert (answer.status_code, answer.headers["Location"]) == (302, SENT)
        outbox.send_due()
        assert mail.outbox == []
        assert Session.objects.count() == 0

    def test_link_of_a_locked_account_and_forged_links_are_refused(self, alice: User) -> None:
        request_link(Client(), "alice@example.org")
        address = link()
        User.objects.filter(pk=alice.pk).update(is_active=False)
        for wrong in (address, "/login/password/1/x-y/", "/login/password/zzzzzzzzzzzzz/a-b/", "/login/password/!/a/"):
            page = Client().get(wrong)
            assert page.status_code == 410
            assert "Ask for a new one" in page.content.decode()

    def test_repeated_requests_for_a_link_are_limited(self) -> None:
        answers = [request_link(Client(), "alice@example.org").status_code for _ in range(4)]
        assert answers == [302, 302, 302, 429]

    def test_page_refers_to_an_operator_when_mail_is_not_set_up(self, settings: Any) -> None:
        settings.EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
        assert "Ask an operator" in Client().get("/login/forgotten/").content.decode()
        request_link(Client(), "alice@example.org")
        assert InboxItem.objects.count() == 0

    def test_invalid_address_shows_the_form_again(self) -> None:
        assert request_link(Client(), "no address").status_code == 422


class TestPasswordsOff:
    @pytest.fixture(autouse=True)
    def off(self, settings: Any) -> None:
        settings.PASSWORD_SIGN_IN = False
        settings.IDENTITY_PROVIDERS = (OpenIdConnect("sso", "Company login", "https://sso", "portal", "x"),)

    def test_only_operators_created_by_bootstrap_can_log_in_by_password(self, alice: User) -> None:
        page = sign_in(Client())
        assert page.status_code == 422
        assert "Passwords are not used here. Log in with Company login." in page.content.decode()
        User.objects.filter(pk=alice.pk).update(is_operator=True)
        assert sign_in(Client()).status_code == 422, "nor can an operator appointed in the portal"
        User.objects.filter(pk=alice.pk).update(is_superuser=True)
        assert sign_in(Client()).status_code == 302
        User.objects.filter(pk=alice.pk).update(is_operator=False)
        assert sign_in(Client()).status_code == 422, "nor can a former operator"

    def test_page_shows_the_providers_and_the_password_form_only_on_request(self, alice: User) -> None:
        page = Client().get("/login/").content.decode()
        assert "Log in with Company login" in page
        assert 'id="id_password"' not in page
        assert 'id="id_password"' in Client().get("/login/?password").content.decode()
        client = Client()
        client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
        profile = client.get("/profile/").content.decode()
        assert 'value="password"' not in profile
        assert client.post("/profile/", {"form": "password"}).status_code == 404
        request_link(Client(), "alice@example.org")
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
    def bootstrap(self, tmp_path: Path, *more: str) -> str:
        (tmp_path / "password").write_text(NEW)
        output = io.StringIO()
        call_command("bootstrap", "root", *more, "--password-file", str(tmp_path / "password"), stdout=output)
        return output.getvalue()

    def test_bootstrap_creates_the_first_operator_and_again_when_none_can_log_in(self, tmp_path: Path) -> None:
        self.bootstrap(tmp_path)
        root = User.objects.get(username="root")
        assert root.is_break_glass
        with pytest.raises(CommandError, match="--again"):
            self.bootstrap(tmp_path)
        User.objects.update(is_active=False)
        self.bootstrap(tmp_path, "--again")
        assert sign_in(Client(), "root", NEW).status_code == 302
        User.objects.filter(username="root").update(is_operator=False)
        with pytest.raises(CommandError, match="already"):
            self.bootstrap(tmp_path, "--again")


class TestProviders:
    @pytest.fixture(autouse=True)
    def provider(self, settings: Any) -> None:
        settings.IDENTITY_PROVIDERS = (OpenIdConnect("sso", "Company login", "http://127.0.0.1:9", "portal", "x"),)

    def test_unreachable_provider_gives_502_and_an_unknown_one_404(self) -> None:
        page = Client().post("/login/with/sso/")
        assert page.status_code == 502
        assert "Company login did not confirm who you are" in page.content.decode()
        assert Client().post("/login/with/other/").status_code == 404
        assert Client().get("/login/with/sso/").status_code == 405
        assert Client().post("/login/with/sso/", {"process": "redirect"}).status_code == 404
        assert Client().post("/login/with/sso/", {"process": "connect"}).headers["Location"].startswith("/login/")

    @pytest.mark.parametrize("query", ["", "code=x", "code=x&state=y", "error=access_denied", "state=" + "x" * 9000])
    def test_forged_callback_does_not_log_in(self, query: str) -> None:
        client = Client()
        page = client.get(f"/login/with/sso/callback/?{query}")
        assert page.status_code in {403, 502}
        assert client.get("/profile/").status_code == 302
        assert User.objects.count() == 1
