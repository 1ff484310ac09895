"""People from a real OpenLDAP at the portal's login page, its API and its second factor."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value
from allauth.socialaccount.models import SocialAccount
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from portal.access import Actor
from portal.accounts.tokens import create_token
from portal.infra.providers import directories, ldap_client
from portal.infra.providers.ldap_client import DirectoryAway
from portal.models import Department, InboxItem, Membership, User
from portal.sign_in import directory_login, group_rules
from tests import builders as make
from tests import slapd
from tests.clients import program
from tests.slapd import GROUPS, PASSWORD, PEOPLE, Slapd

MISSING = slapd.missing()
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(bool(MISSING) and not os.environ.get("CI"), reason=f"needs {MISSING}"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    with slapd.running(tmp_path_factory.mktemp("slapd") / "server") as server:
        mia = server.person("mia")
        server.person("eve (ops)*")
        server.person("alice")
        server.group("gpu-vision", mia)
        server.group("research", f"cn=gpu-vision,{GROUPS}")
        server.posix_group("unix", "mia")
        yield server


@pytest.fixture(autouse=True)
def corp(server: Slapd, settings: Any) -> Slapd:
    cache.clear()
    settings.IDENTITY_PROVIDERS = directories.read(server.toml())
    return server


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


def sign_in(name: str, password: str = PASSWORD, client: Client | None = None, **more: str) -> Any:
    return (client or Client()).post("/login/", {"username": name, "password": password, **more})


def rule(vision: Department, pattern: str = "gpu-vision") -> None:
    root = Actor(User.objects.filter(username="root").first() or make.user("root", is_operator=True))
    checked = group_rules.checked(provider="corp", pattern=pattern, department=vision, role="member")
    group_rules.add_rule(actor=root, rule=checked)


def roles(user: User) -> list[str]:
    return [each.department.slug for each in Membership.objects.filter(user=user).select_related("department")]


def token_of(user: User, department: Department) -> str:
    end = timezone.now() + dt.timedelta(days=1)
    return create_token(actor=Actor(user), department=department, name="ci", scopes=["read"], expires_at=end)[1]


class TestLogin:
    def test_leaving_a_group_ends_the_membership_it_gave_and_its_tokens(self, corp: Slapd, vision: Department) -> None:
        rule(vision)
        olga = make.member(vision, "owner", "olga")
        assert sign_in("mia").status_code == 302
        mia = User.objects.get(username="mia")
        assert (mia.email, mia.get_full_name(), mia.has_own_password) == ("mia@example.org", "Mia Example", False)
        assert roles(mia) == ["vision"]
        client = program(mia, vision, scopes=["read"])
        assert client.get("/api/v1/departments/vision/").status_code == 200
        corp.leave("gpu-vision", f"uid=mia,{PEOPLE}")
        try:
            assert sign_in("mia").status_code == 302
            assert client.get("/api/v1/departments/vision/").status_code == 401
            assert roles(mia) == []
            notified = InboxItem.objects.filter(kind="member.left_group").values_list("user", flat=True)
            assert list(notified) == [olga.pk]
        finally:
            corp.join("gpu-vision", f"uid=mia,{PEOPLE}")

    def test_entry_with_the_name_and_address_of_a_user_gets_its_own_account(self) -> None:
        alice = make.user("alice", email="alice@example.org")
        alice.set_password("the portal's own one")
        alice.save()
        first, second = Client(), Client()
        assert sign_in("alice", PASSWORD, first).status_code == 302
        assert first.get("/session/").json()["user"] == "alice-corp"
        assert sign_in("alice", "the portal's own one", second).status_code == 302
        assert second.get("/session/").json()["user"] == "alice"
        assert not SocialAccount.objects.filter(user=alice).exists()

    def test_person_is_identified_by_their_entry_and_not_by_its_name(self, corp: Slapd) -> None:
        dn = corp.person("maria")
        assert sign_in("maria").status_code == 302
        corp.rename(dn, "marie")
        client = Client()
        assert sign_in("marie", client=client).status_code == 302
        assert client.get("/session/").json()["user"] == "maria"
        corp.person("maria", password="somebody else entirely")
        assert sign_in("maria", "somebody else entirely", client=(other := Client())).status_code == 302
        assert other.get("/session/").json()["user"] == "maria-corp"

    @pytest.mark.parametrize(
        ("name", "password"),
        [
            ("mia", "wrong"), ("nobody", PASSWORD), ("*", PASSWORD), ("m*", PASSWORD), ("mia)(uid=*", PASSWORD),
            ("mia", "*"), ("mia\\2a", PASSWORD), ("(", PASSWORD), ("{0}", PASSWORD), ("名字", PASSWORD),
        ],
    )  # fmt: skip
    def test_only_the_exact_name_and_password_log_in(self, name: str, password: str) -> None:
        answer = sign_in(name, password)
        assert answer.status_code == 422
        assert "Wrong login name or password." in answer.content.decode()
        assert not SocialAccount.objects.exists()

    @pytest.mark.parametrize("password", ["", "\x00", "a\x00"])
    def test_empty_password_is_refused(self, corp: Slapd, password: str) -> None:
        """Many servers accept a bind with a name and an empty password, as an anonymous one."""
        (directory,) = directories.read(corp.toml())
        assert not ldap_client.password_is_right(directory, f"uid=mia,{PEOPLE}", password)

    def test_name_with_characters_of_the_filter_syntax_is_found(self) -> None:
        assert sign_in("eve (ops)*").status_code == 302
        assert User.objects.filter(username="eve--ops").exists()

    def test_guesses_are_limited_before_the_directory_is_asked(self) -> None:
        for _ in range(8):
            assert sign_in("mia", "wrong").status_code == 422
        assert sign_in("mia", PASSWORD).status_code == 429

    def test_known_browser_has_its_own_limit_of_guesses(self) -> None:
        make.user("mia")
        known = Client()
        assert sign_in("mia", client=known).status_code == 302, "as mia-corp"
        for _ in range(8):
            sign_in("mia", "wrong")
        known.post("/logout/")
        assert sign_in("mia", client=known).status_code == 302

    def test_person_whose_account_is_locked_in_the_portal_cannot_log_in(self) -> None:
        sign_in("mia")
        User.objects.filter(username="mia").update(is_active=False)
        assert sign_in("mia").status_code == 403

    def test_second_factor_is_required_at_login(self) -> None:
        client = Client()
        sign_in("mia", client=client)
        assert client.get("/profile/second-factor/app/").headers["Location"].startswith("/profile/confirm/")
        for password, status in (("wrong", 422), (PASSWORD, 302)):
            where = "/profile/confirm/?next=/profile/second-factor/app/"
            assert client.post(where, {"password": password}).status_code == status
        assert client.get("/profile/second-factor/app/").status_code == 200
        TOTP.activate(User.objects.get(username="mia"), "JBSWY3DPEHPK3PXP")
        assert Authenticator.objects.exists()
        fresh = Client()
        answer = sign_in("mia", client=fresh)
        assert answer.headers["Location"] == "/login/second-factor/"
        assert fresh.get("/session/").status_code == 401
        code = format_hotp_value(hotp_value("JBSWY3DPEHPK3PXP", int(timezone.now().timestamp()) // 30))
        assert fresh.post("/login/second-factor/", {"code": code}).status_code == 302
        assert fresh.get("/session/").status_code == 200

    def test_operators_from_the_directory_need_a_second_factor_where_required(self, settings: Any) -> None:
        settings.SECOND_FACTOR_FOR_OPERATORS = True
        client = Client()
        sign_in("mia", client=client)
        User.objects.filter(username="mia").update(is_operator=True)
        assert client.get("/operator/").headers["Location"] == "/profile/second-factor/"

    def test_directory_login_works_when_portal_passwords_are_switched_off(self, settings: Any) -> None:
        settings.PASSWORD_SIGN_IN = False
        alice = make.user("alice")
        alice.set_password(PASSWORD)  # the same in both places
        alice.save()
        page = Client().get("/login/").content.decode()
        assert "You can log in with your name and password of Company directory." in page
        assert "Forgotten" not in page
        client = Client()
        assert sign_in("alice", client=client).status_code == 302
        assert client.get("/session/").json()["user"] == "alice-corp"
        alice.set_password("only here")
        alice.save()
        assert "Passwords are not used here" in sign_in("alice", "only here").content.decode()

    def test_linked_entry_logs_in_to_the_existing_account(self, vision: Department) -> None:
        rule(vision)
        old = make.user("mia-old")
        client = Client()
        client.force_login(old)
        assert "Link Company directory" in client.get("/profile/").content.decode()
        where = "/profile/accounts/link/corp/"
        assert client.get(where).status_code == 200
        assert client.post(where, {"login": "mia", "password": "wrong"}).status_code == 422
        assert client.post(where, {"login": "mia", "password": PASSWORD}).status_code == 302
        assert roles(old) == ["vision"]
        other = Client()
        sign_in("mia", client=other)
        assert other.get("/session/").json()["user"] == "mia-old"
        eve = make.user("eve")
        client.force_login(eve)
        assert client.post(where, {"login": "mia", "password": PASSWORD}).status_code == 409
        for _ in range(8):
            client.post(where, {"login": "alice", "password": "wrong"})
        assert client.post(where, {"login": "alice", "password": PASSWORD}).status_code == 429
        assert client.get("/profile/accounts/link/other/").status_code == 404

    def test_passkey_login_is_checked_against_the_directory(self, corp: Slapd, vision: Department) -> None:
        rule(vision)
        dn = corp.person("pam")
        sign_in("pam")
        pam = User.objects.get(username="pam")
        corp.join("gpu-vision", dn)
        assert directory_login.admits(pam)
        assert roles(pam) == ["vision"], "groups are applied as at a login"
        corp.leave("gpu-vision", dn)
        assert directory_login.admits(pam)
        assert roles(pam) == []
        current = User.objects.get(pk=pam.pk).get_session_auth_hash()
        assert pam.get_session_auth_hash() == current, "the current session stays valid"
        corp.delete(dn)
        assert not directory_login.admits(pam)


class TestUnavailable:
    def test_unreachable_directory_gives_503_and_portal_passwords_still_work(self, settings: Any) -> None:
        toml = f'[corp]\nserver_url = "ldap://127.0.0.1:9"\nuser_base = "{PEOPLE}"\n'
        settings.IDENTITY_PROVIDERS = directories.read(toml)
        olga = make.user("olga")
        olga.set_password(PASSWORD)
        olga.save()
        assert sign_in("olga").status_code == 302
        answer = sign_in("mia")
        assert answer.status_code == 503
        assert "does not respond" in answer.content.decode()

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"bind_password": "no"}, "Invalid credentials"), ({"user_base": f"ou=gone,{PEOPLE}"}, "No such object"),
            ({"group_base": "ou=gone,dc=example,dc=org"}, "No such object"),
            ({"id_attribute": "ipaUniqueID"}, "set id_attribute"),
            ({"start_tls": True}, "ca_file"), ({"server_url": "ldaps://127.0.0.1:9"}, "Can't contact"),
            ({"user_filter": "(uid=={login})"}, ""),
        ],
    )  # fmt: skip
    def test_misconfiguration_of_the_directory_is_named(
        self, corp: Slapd, changed: dict[str, Any], message: str
    ) -> None:
        (directory,) = directories.read(corp.toml(**changed))
        if message:
            with pytest.raises(DirectoryAway) as error:
                ldap_client.verified(directory, "mia", PASSWORD)
            assert message in str(error.value)
        else:
            assert ldap_client.verified(directory, "mia", PASSWORD) is None


class TestGroups:
    @pytest.mark.parametrize(
        ("changed", "groups"),
        [
            ({}, ["gpu-vision"]),
            ({"nested_groups": True}, ["gpu-vision", "research"]),
            ({"group_name": "dn"}, [f"cn=gpu-vision,{GROUPS}"]),
            ({"group_filter": "(memberUid={login})"}, ["unix"]),
            ({"group_filter": "(|(memberUid={login})(member={dn}))"}, ["gpu-vision", "unix"]),
            ({"group_base": "", "groups_attribute": "memberOf"}, ["gpu-vision"]),
            ({"group_base": "", "groups_attribute": "MEMBEROF", "group_name": "dn"}, [f"cn=gpu-vision,{GROUPS}"]),
            ({"group_base": ""}, []),
        ],
    )
    def test_groups_are_read_according_to_the_settings(
        self, corp: Slapd, changed: dict[str, Any], groups: list[str]
    ) -> None:
        (directory,) = directories.read(corp.toml(**changed))
        found = ldap_client.verified(directory, "mia", PASSWORD)
        assert found is not None
        assert found.claims["groups"] == groups

    def test_login_over_starttls_with_an_own_certificate_authority(self, corp: Slapd) -> None:
        (directory,) = directories.read(corp.toml(start_tls=True, ca_file=str(corp.ca_file)))
        assert ldap_client.verified(directory, "mia", PASSWORD) is not None

    def test_groups_that_contain_each_other_are_read_without_an_endless_loop(self, corp: Slapd) -> None:
        corp.group("ring-a", f"uid=mia,{PEOPLE}", f"cn=ring-b,{GROUPS}")
        corp.group("ring-b", f"cn=ring-a,{GROUPS}")
        try:
            (directory,) = directories.read(corp.toml(nested_groups=True))
            found = ldap_client.verified(directory, "mia", PASSWORD)
            assert found is not None
            assert {"ring-a", "ring-b"} <= set(found.claims["groups"])
        finally:
            corp.delete(f"cn=ring-a,{GROUPS}")
            corp.delete(f"cn=ring-b,{GROUPS}")
