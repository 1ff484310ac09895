"""Accounts at identity providers and rules for their groups; what a provider says is simulated."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.db import connection
from django.utils import timezone

from portal.access import Actor
from portal.accounts import members, users
from portal.errors import Invalid, Problem
from portal.infra.providers.identity_providers import OpenIdConnect
from portal.models import (
    AuditEntry,
    Department,
    GroupRule,
    InboxItem,
    Membership,
    MissingProvider,
    Role,
    SeenGroups,
    User,
)
from portal.sign_in import directory_job, group_rules, identities
from portal.sign_in.claims import cleaned, groups_of, said_at
from tests import builders as make
from tests.clients import person, program

pytestmark = pytest.mark.django_db(transaction=True)
PROVIDERS = tuple(
    OpenIdConnect(key, key.capitalize(), f"https://{key}", "portal", "x") for key in ("keycloak", "other")
)
NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def providers(settings: Any) -> None:
    settings.IDENTITY_PROVIDERS = PROVIDERS


@pytest.fixture
def root() -> Actor:
    return Actor(make.user("root", is_operator=True, is_superuser=True))


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


def account(uid: str = "1", provider: str = "keycloak", **claims: Any) -> SocialAccount:
    return SocialAccount(provider=provider, uid=uid, extra_data=cleaned({"userinfo": {"sub": uid, **claims}}))


def rule(
    root: Actor, department: Department | None, pattern: str = "gpu", role: str = "member", **more: Any
) -> GroupRule:
    checked = group_rules.checked(**{"provider": "keycloak", **more}, pattern=pattern, department=department, role=role)
    return group_rules.add_rule(actor=root, rule=checked)


def log_in_with(account: SocialAccount, *groups: str, at: dt.datetime = NOW) -> User:
    """Logs in with the account, for which the provider reports these groups."""
    if account.pk is None:
        identities.create(account)
    group_rules.signed_in(account, list(groups), at)
    return User.objects.get(pk=account.user_id)


def roles(user: User) -> dict[str, str]:
    return dict(Membership.objects.filter(user=user).values_list("department__slug", "role"))


class TestAccounts:
    def test_taken_name_gets_the_providers_as_suffix_and_no_account_is_taken_over(self) -> None:
        alice = make.user("alice", email="alice@example.org")
        created = [
            identities.create(account(str(n), preferred_username=name, email="alice@example.org"))
            for n, name in enumerate(["alice", "Alice@corp.example", "alice", "álice", "аlice"])
        ]
        assert [user.username for user in created[:3]] == ["alice-keycloak", "Alice-keycloak-2", "alice-keycloak-3"]
        assert len({user.pk for user in [alice, *created]}) == 6
        assert not SocialAccount.objects.filter(user=alice).exists()
        assert all(not user.has_usable_password() for user in created)
        assert AuditEntry.objects.filter(action="user.created").count() == 5

    @pytest.mark.parametrize(
        "name", ["", "  ", "@", "a" * 300, "../../x", "名字", "a b", "\u202eroot", "root\x00", "a\ud800", "<b>"]
    )
    def test_any_name_from_a_provider_results_in_a_valid_login_name(self, name: str) -> None:
        user = identities.create(account(preferred_username=name, email="no address", given_name="\u202e", name=name))
        user.full_clean(exclude=["password"])
        assert user.email == ""

    def test_concurrent_first_logins_create_one_account(self) -> None:
        results: list[Any] = []

        def first() -> None:
            try:
                results.append(identities.create(account(preferred_username="mia")))
            except Exception as error:
                results.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=first) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert SocialAccount.objects.count() == 1
        assert results == [User.objects.get()] * 4

    def test_only_the_person_or_an_operator_can_link_an_unlinked_account(self, root: Actor) -> None:
        mia, eve = make.user("mia"), make.user("eve")
        identities.link(actor=Actor(mia), user=mia, account=account())
        identities.link(actor=Actor(mia), user=mia, account=account())
        with pytest.raises(identities.LinkedElsewhere):
            identities.link(actor=Actor(eve), user=eve, account=account())
        with pytest.raises(Problem):
            identities.link(actor=Actor(eve), user=mia, account=account("2"))
        identities.link(actor=root, user=eve, account=account("2"))
        assert AuditEntry.objects.filter(action="user.linked").count() == 2

    def test_last_login_method_cannot_be_unlinked_and_unlinking_ends_memberships_by_groups(
        self, root: Actor, vision: Department
    ) -> None:
        rule(root, vision)
        row = account()
        mia = log_in_with(row, "gpu")
        with pytest.raises(identities.LastWayIn):
            identities.unlink(actor=Actor(mia), user=mia, account=row.pk)
        assert roles(mia) == {"vision": "member"}
        stranger = make.user("stranger")
        with pytest.raises(Problem):
            identities.unlink(actor=Actor(stranger), user=mia, account=row.pk)
        identities.unlink(actor=root, user=mia, account=row.pk)
        identities.unlink(actor=root, user=mia, account=row.pk)
        assert roles(mia) == {}
        assert AuditEntry.objects.filter(action="user.unlinked").count() == 1

    def test_unlinking_ends_all_other_sessions_of_the_person(self, root: Actor, vision: Department) -> None:
        rule(root, vision)
        log_in_with(account(), "gpu")
        mia = log_in_with(account("2", preferred_username="mia"), "gpu")
        identities.link(actor=Actor(mia), user=mia, account=account("3", provider="other"))
        here, elsewhere = person(mia), person(mia)
        row = SocialAccount.objects.get(user=mia, provider="keycloak")
        assert here.post(f"/profile/accounts/{row.pk}/unlink/").status_code == 302
        assert roles(mia) == {}
        assert here.get("/profile/").status_code == 200
        assert elsewhere.get("/profile/").status_code == 302


class TestRules:
    def test_groups_give_the_highest_role_and_losing_them_ends_tokens_and_sessions(
        self, root: Actor, vision: Department
    ) -> None:
        olga = make.member(vision, Role.OWNER, "olga")
        rule(root, vision, "gpu-*")
        rule(root, vision, "gpu-lead", "owner")
        row = account(preferred_username="mia")
        mia = log_in_with(row, "gpu-users", "gpu-lead")
        assert roles(mia) == {"vision": "owner"}
        client, browser = program(mia, vision), person(mia)
        pool = make.pool("a100")
        make.claim(vision, pool, user=mia, workload="w1", name="train-1", state="holding")
        assert client.get("/api/v1/departments/vision/").status_code == 200
        log_in_with(row, "gpu-users", at=NOW + dt.timedelta(1))
        assert roles(mia) == {"vision": "member"}
        assert client.get("/api/v1/departments/vision/").status_code == 200
        assert browser.get("/profile/").status_code == 200, "a lower role ends no session"
        log_in_with(row, at=NOW + dt.timedelta(2))
        assert roles(mia) == {}
        assert client.get("/api/v1/departments/vision/").status_code == 401
        assert browser.get("/profile/").status_code == 302, "to the login"
        kinds = list(InboxItem.objects.order_by("pk").values_list("user__username", "kind"))
        assert kinds[-2:] == [("olga", "member.left_group"), ("mia", "member.removed")]
        assert InboxItem.objects.get(user=olga).data["work"] == "train-1"
        assert "train-1" in person(olga).get("/inbox/").content.decode()

    def test_role_given_by_hand_is_not_changed_by_groups(self, root: Actor, vision: Department) -> None:
        nlp = make.department("nlp")
        rule(root, vision, role="owner")
        rule(root, nlp)
        row = account()
        mia = identities.create(row)
        Membership.objects.create(user=mia, department=vision, role=Role.VIEWER)
        log_in_with(row, "gpu")
        assert roles(mia) == {"vision": "viewer", "nlp": "member"}
        changed = Membership.objects.get(user=mia, department=nlp)
        members.change_role(actor=root, membership=changed, role="owner")
        log_in_with(row, at=NOW + dt.timedelta(1))
        assert roles(mia) == {"vision": "viewer", "nlp": "owner"}, "groups do not change what an operator decided"

    def test_group_gives_and_takes_operator_rights_except_from_the_last_operator(self, root: Actor) -> None:
        rule(root, None, "admins", "operator")
        row = account()
        mia = log_in_with(row, "admins")
        assert mia.is_operator
        log_in_with(row, at=NOW + dt.timedelta(1))
        assert not User.objects.get(pk=mia.pk).is_operator
        mia = log_in_with(row, "admins", at=NOW + dt.timedelta(2))
        User.objects.filter(username="root").update(is_active=False)
        assert log_in_with(row, at=NOW + dt.timedelta(3)).is_operator
        User.objects.filter(username="root").update(is_active=True)
        users.set_operator(actor=root, user=mia, operator=True)
        log_in_with(row, at=NOW + dt.timedelta(4))
        assert roles(mia) == {}

    def test_added_or_removed_rule_is_applied_at_once_to_the_groups_last_seen(
        self, root: Actor, vision: Department
    ) -> None:
        mia = log_in_with(account(), "gpu")
        assert roles(mia) == {}
        first, second = rule(root, vision), rule(root, vision, "g*", "owner")
        assert roles(mia) == {"vision": "owner"}
        group_rules.remove_rule(actor=root, rule=second)
        assert roles(mia) == {"vision": "member"}
        assert [each.loses for each in group_rules.effects([])] == [[vision]]
        assert "no longer a member of Vision" in group_rules.breaks_of_removal(first)[0].sentence
        group_rules.remove_rule(actor=root, rule=first)
        group_rules.remove_rule(actor=root, rule=first)
        assert roles(mia) == {}
        actions = AuditEntry.objects.filter(action__startswith="group_rule").values_list("action", flat=True)
        assert sorted(actions) == ["group_rule.added"] * 2 + ["group_rule.removed"] * 2

    def test_groups_of_two_providers_of_one_person_are_combined(
        self, root: Actor, vision: Department, settings: Any
    ) -> None:
        rule(root, vision)
        rule(root, vision, provider="other")
        one = account()
        mia = log_in_with(one, "gpu")
        two = identities.link(actor=Actor(mia), user=mia, account=account(provider="other"))
        group_rules.signed_in(two, ["gpu"], NOW)
        log_in_with(one, at=NOW + dt.timedelta(1))
        assert roles(mia) == {"vision": "member"}, "the other provider still gives it"
        settings.IDENTITY_PROVIDERS = PROVIDERS[:1]
        directory_job.read_all()
        assert roles(mia) == {"vision": "member"}, "a process can have other settings than the rest"
        item = InboxItem.objects.get(kind="provider.missing")
        assert (item.user, item.data["provider"]) == (root.user, "other")
        MissingProvider.objects.update(since=timezone.now() - dt.timedelta(days=1))
        directory_job.read_all()
        assert roles(mia) == {}, "a provider that stays missing gives nothing"

    def test_memberships_stay_when_their_provider_returns_within_a_day(
        self, root: Actor, vision: Department, settings: Any
    ) -> None:
        rule(root, vision)
        mia = log_in_with(account(), "gpu")
        settings.IDENTITY_PROVIDERS = PROVIDERS[1:]
        directory_job.read_all()
        settings.IDENTITY_PROVIDERS = PROVIDERS
        directory_job.read_all()
        assert not MissingProvider.objects.exists()
        assert roles(mia) == {"vision": "member"}

    def test_older_groups_of_a_provider_never_replace_newer_ones(self, root: Actor, vision: Department) -> None:
        rule(root, vision)
        row = account()
        mia = log_in_with(row, at=NOW)
        log_in_with(row, "gpu", at=NOW - dt.timedelta(seconds=1))
        assert roles(mia) == {}
        assert SeenGroups.objects.get().groups == []

    @pytest.mark.concurrency
    @pytest.mark.parametrize("newer_first", [True, False])
    def test_concurrent_logins_keep_the_newer_groups(self, root: Actor, vision: Department, newer_first: bool) -> None:
        rule(root, vision)
        row = account()
        mia = identities.create(row)
        barrier, faults = threading.Barrier(2), list[BaseException]()

        def sign_in(groups: list[str], at: dt.datetime) -> Callable[[], None]:
            def work() -> None:
                try:
                    barrier.wait(10)
                    group_rules.signed_in(SocialAccount.objects.get(pk=row.pk), groups, at)
                except BaseException as fault:
                    faults.append(fault)
                finally:
                    connection.close()

            return work

        both = [sign_in([], NOW), sign_in(["gpu"], NOW - dt.timedelta(seconds=1))]
        threads = [threading.Thread(target=each) for each in (both if newer_first else both[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert faults == []
        assert roles(mia) == {}
        assert SeenGroups.objects.get().groups == []

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"provider": "nobody"}, "provider"), ({"pattern": " "}, "pattern"), ({"pattern": "**"}, "pattern"),
            ({"pattern": "a" * 256}, "pattern"), ({"pattern": "a\nb"}, "pattern"), ({"role": "king"}, "role"),
        ],
    )  # fmt: skip
    def test_invalid_rule_is_refused_with_the_field_at_fault(
        self, vision: Department, fields: dict[str, str], field: str
    ) -> None:
        with pytest.raises(Invalid) as error:
            group_rules.checked(
                **{"provider": "keycloak", "pattern": "x", "role": "member", "department": vision, **fields}
            )
        assert error.value.field == field

    def test_duplicate_rule_is_refused(self, root: Actor, vision: Department) -> None:
        for department, role in ((vision, "member"), (None, "operator")):
            rule(root, department, role=role)
            with pytest.raises(Invalid):
                rule(root, department, role=role)


class TestClaims:
    def test_groups_are_read_where_the_provider_puts_them(self) -> None:
        keycloak = PROVIDERS[0]
        nested = OpenIdConnect("a", "A", "https://a", "x", "x", groups_claim="realm_access.roles")
        assert groups_of(keycloak, {"userinfo": {"groups": ["b", "a", 7, "", "y" * 300, None]}}) == ["a", "b"]
        assert groups_of(keycloak, {"userinfo": {}, "id_token": {"groups": "one"}}) == ["one"]
        assert groups_of(nested, {"id_token": {"realm_access": {"roles": ["r"]}}}) == ["r"]
        assert groups_of(nested, {"userinfo": {"realm_access": ["no"]}}) == []
        assert groups_of(keycloak, {"userinfo": {}}) == [], "the claim is left out for people without groups"
        assert groups_of(keycloak, {"id_token": {"_claim_names": {"groups": "src1"}}}) is None, (
            "too many groups for the claim"
        )
        assert groups_of(keycloak, {"userinfo": "nonsense", "id_token": None}) == []

    def test_issue_time_of_claims_is_never_in_the_future(self) -> None:
        before = timezone.now()
        for wrong in (None, "x", -1, True, 10**12):
            assert said_at({"id_token": {"iat": wrong}}) >= before
        assert said_at({"id_token": {"iat": 1_700_000_000}}) == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
        assert said_at({}) >= before


class TestPages:
    def test_operators_manage_rules_with_a_preview_and_a_confirmation(self, root: Actor, vision: Department) -> None:
        mia = log_in_with(account(preferred_username="mia", name="Mia Example"), "gpu")
        operator = person(root.user)  # type: ignore[arg-type]
        form = {"provider": "keycloak", "pattern": "gpu", "role": "member", "department": str(vision.pk)}
        shown = operator.get("/operator/groups/preview/", form).content.decode()
        assert "Mia Example" in shown
        assert "Vision" in shown
        assert roles(mia) == {}
        assert operator.post("/operator/groups/", form | {"pattern": "*"}, format="multipart").status_code == 422
        assert operator.post("/operator/groups/", form | {"department": ""}, format="multipart").status_code == 422
        assert operator.post("/operator/groups/", form, format="multipart").status_code == 302
        assert roles(mia) == {"vision": "member"}
        assert "Mia Example" in operator.get("/operator/groups/").content.decode()
        address = f"/operator/groups/{GroupRule.objects.get().pk}/remove/"
        confirmation = operator.post(address, {}, format="multipart")
        assert "Mia Example is no longer a member of Vision" in confirmation.content.decode()
        assert GroupRule.objects.exists()
        mark = confirmation.content.decode().split('name="confirmed" value="')[1].split('"')[0]
        assert operator.post(address, {"confirmed": mark}, format="multipart").status_code == 302
        assert roles(mia) == {}

    def test_operators_link_and_unlink_accounts_on_the_page_of_the_user(self, root: Actor, vision: Department) -> None:
        mia, row = make.user("mia"), account("7")
        make.user("eve")
        operator = person(root.user)  # type: ignore[arg-type]
        address, form = "/operator/users/mia/accounts/", {"provider": "keycloak", "subject": "7"}
        for wrong in (form | {"provider": "x"}, form | {"subject": " "}, form | {"subject": "a" * 192}):
            assert operator.post(address, wrong, format="multipart").status_code == 422
        assert operator.post(address, form, format="multipart").status_code == 302
        assert operator.post("/operator/users/eve/accounts/", form, format="multipart").status_code == 409
        linked = SocialAccount.objects.get(uid=row.uid)
        assert linked.user == mia
        assert "Keycloak" in operator.get("/operator/users/mia/").content.decode()
        for unlink in (str(linked.pk), str(linked.pk), "x", "9" * 30):
            assert operator.post(address, {"unlink": unlink}, format="multipart").status_code == 302
        assert not SocialAccount.objects.exists()
        assert person(mia).post(address, form, format="multipart").status_code == 404

    def test_operators_manage_rules_in_the_api_with_a_dry_run_and_a_confirmation(
        self, root: Actor, vision: Department
    ) -> None:
        mia = log_in_with(account(preferred_username="mia"), "gpu")
        operator = person(root.user)  # type: ignore[arg-type]
        body = {"provider": "keycloak", "pattern": "gpu", "role": "member", "department": "vision"}
        dry = operator.post("/api/v1/group_rules/?dry_run=1", body)
        assert [each["username"] for each in dry.json()["effects"]] == ["mia"]
        assert not GroupRule.objects.exists()
        created = operator.post("/api/v1/group_rules/", body)
        assert (created.status_code, roles(mia)) == (201, {"vision": "member"})
        address = created.headers["Location"]
        assert operator.get(address).json() == {"id": created.json()["id"], **body}
        confirmation = operator.delete(address)
        assert (confirmation.status_code, confirmation.json()["code"]) == (409, "needs_confirmation")
        assert operator.delete(f"{address}?confirm={confirmation.json()['confirm']}").status_code == 204
        assert roles(mia) == {}
        for wrong in (body | {"role": "operator"}, body | {"department": None}, body | {"provider": "x"}):
            assert operator.post("/api/v1/group_rules/", wrong).status_code == 422
        assert person(User.objects.get(pk=mia.pk)).get("/api/v1/group_rules/").status_code == 404
