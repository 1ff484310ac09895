"""Accounts at providers and the rules of their groups, with the provider's word played."""

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
    made = group_rules.checked(**{"provider": "keycloak", **more}, pattern=pattern, department=department, role=role)
    return group_rules.add_rule(actor=root, rule=made)


def come(account: SocialAccount, *groups: str, at: dt.datetime = NOW) -> User:
    """Signs in with these groups."""
    if account.pk is None:
        identities.create(account)
    group_rules.signed_in(account, list(groups), at)
    return User.objects.get(pk=account.user_id)


def roles(user: User) -> dict[str, str]:
    return dict(Membership.objects.filter(user=user).values_list("department__slug", "role"))


class TestAccounts:
    def test_a_taken_name_gets_the_providers_and_nobody_is_taken_over(self) -> None:
        alice = make.user("alice", email="alice@example.org")
        made = [
            identities.create(account(str(n), preferred_username=name, email="alice@example.org"))
            for n, name in enumerate(["alice", "Alice@corp.example", "alice", "álice", "аlice"])
        ]
        assert [user.username for user in made[:3]] == ["alice-keycloak", "Alice-keycloak-2", "alice-keycloak-3"]
        assert len({user.pk for user in [alice, *made]}) == 6
        assert not SocialAccount.objects.filter(user=alice).exists()
        assert all(not user.has_usable_password() for user in made)
        assert AuditEntry.objects.filter(action="user.created").count() == 5

    @pytest.mark.parametrize(
        "name", ["", "  ", "@", "a" * 300, "../../x", "名字", "a b", "\u202eroot", "root\x00", "a\ud800", "<b>"]
    )
    def test_whatever_a_provider_calls_somebody_they_get_a_name(self, name: str) -> None:
        user = identities.create(account(preferred_username=name, email="no address", given_name="\u202e", name=name))
        user.full_clean(exclude=["password"])
        assert user.email == ""

    def test_two_first_logins_at_once_make_one_account(self) -> None:
        made: list[Any] = []

        def first() -> None:
            try:
                made.append(identities.create(account(preferred_username="mia")))
            except Exception as error:
                made.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=first) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert SocialAccount.objects.count() == 1
        assert made == [User.objects.get()] * 4

    def test_linking_is_the_persons_own_or_an_operators_and_never_takes_an_account(self, root: Actor) -> None:
        mia, eve = make.user("mia"), make.user("eve")
        identities.link(actor=Actor(mia), user=mia, account=account())
        identities.link(actor=Actor(mia), user=mia, account=account())
        with pytest.raises(identities.LinkedElsewhere):
            identities.link(actor=Actor(eve), user=eve, account=account())
        with pytest.raises(Problem):
            identities.link(actor=Actor(eve), user=mia, account=account("2"))
        identities.link(actor=root, user=eve, account=account("2"))
        assert AuditEntry.objects.filter(action="user.linked").count() == 2

    def test_nobody_locks_themselves_out_and_what_groups_gave_ends_with_the_link(
        self, root: Actor, vision: Department
    ) -> None:
        rule(root, vision)
        row = account()
        mia = come(row, "gpu")
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

    def test_unlinking_ends_the_sessions_of_what_was_lost_but_the_one_it_was_done_in(
        self, root: Actor, vision: Department
    ) -> None:
        rule(root, vision)
        come(account(), "gpu")
        mia = come(account("2", preferred_username="mia"), "gpu")
        identities.link(actor=Actor(mia), user=mia, account=account("3", provider="other"))
        here, elsewhere = person(mia), person(mia)
        row = SocialAccount.objects.get(user=mia, provider="keycloak")
        assert here.post(f"/profile/accounts/{row.pk}/unlink/").status_code == 302
        assert roles(mia) == {}
        assert here.get("/profile/").status_code == 200
        assert elsewhere.get("/profile/").status_code == 302


class TestRules:
    def test_groups_give_the_highest_role_and_losing_them_ends_tokens_and_sessions_and_tells_the_owner(
        self, root: Actor, vision: Department
    ) -> None:
        olga = make.member(vision, Role.OWNER, "olga")
        rule(root, vision, "gpu-*")
        rule(root, vision, "gpu-lead", "owner")
        row = account(preferred_username="mia")
        mia = come(row, "gpu-users", "gpu-lead")
        assert roles(mia) == {"vision": "owner"}
        client, browser = program(mia, vision), person(mia)
        pool = make.pool("a100")
        make.claim(vision, pool, user=mia, workload="w1", name="train-1", state="holding")
        assert client.get("/api/v1/departments/vision/").status_code == 200
        come(row, "gpu-users", at=NOW + dt.timedelta(1))
        assert roles(mia) == {"vision": "member"}
        assert client.get("/api/v1/departments/vision/").status_code == 200
        assert browser.get("/profile/").status_code == 200, "a lower role ends no session"
        come(row, at=NOW + dt.timedelta(2))
        assert roles(mia) == {}
        assert client.get("/api/v1/departments/vision/").status_code == 401
        assert browser.get("/profile/").status_code == 302, "to the login"
        kinds = list(InboxItem.objects.order_by("pk").values_list("user__username", "kind"))
        assert kinds[-2:] == [("olga", "member.left_group"), ("mia", "member.removed")]
        assert InboxItem.objects.get(user=olga).data["work"] == "train-1"
        assert "train-1" in person(olga).get("/inbox/").content.decode()

    def test_what_was_given_by_hand_stays(self, root: Actor, vision: Department) -> None:
        nlp = make.department("nlp")
        rule(root, vision, role="owner")
        rule(root, nlp)
        row = account()
        mia = identities.create(row)
        Membership.objects.create(user=mia, department=vision, role=Role.VIEWER)
        come(row, "gpu")
        assert roles(mia) == {"vision": "viewer", "nlp": "member"}
        changed = Membership.objects.get(user=mia, department=nlp)
        members.change_role(actor=root, membership=changed, role="owner")
        come(row, at=NOW + dt.timedelta(1))
        assert roles(mia) == {"vision": "viewer", "nlp": "owner"}, "somebody decided, and groups do not change it back"

    def test_operators_by_a_group_and_the_last_one_stays(self, root: Actor) -> None:
        rule(root, None, "admins", "operator")
        row = account()
        mia = come(row, "admins")
        assert mia.is_operator
        come(row, at=NOW + dt.timedelta(1))
        assert not User.objects.get(pk=mia.pk).is_operator
        mia = come(row, "admins", at=NOW + dt.timedelta(2))
        User.objects.filter(username="root").update(is_active=False)
        assert come(row, at=NOW + dt.timedelta(3)).is_operator
        User.objects.filter(username="root").update(is_active=True)
        users.set_operator(actor=root, user=mia, operator=True)
        come(row, at=NOW + dt.timedelta(4))
        assert roles(mia) == {}

    def test_a_rule_that_comes_or_goes_is_applied_at_once_to_the_groups_seen_last(
        self, root: Actor, vision: Department
    ) -> None:
        mia = come(account(), "gpu")
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

    def test_two_providers_of_one_person_count_together(self, root: Actor, vision: Department, settings: Any) -> None:
        rule(root, vision)
        rule(root, vision, provider="other")
        one = account()
        mia = come(one, "gpu")
        two = identities.link(actor=Actor(mia), user=mia, account=account(provider="other"))
        group_rules.signed_in(two, ["gpu"], NOW)
        come(one, at=NOW + dt.timedelta(1))
        assert roles(mia) == {"vision": "member"}, "the other provider still gives it"
        settings.IDENTITY_PROVIDERS = PROVIDERS[:1]
        directory_job.read_all()
        assert roles(mia) == {"vision": "member"}, "a process may have other settings than the rest"
        told = InboxItem.objects.get(kind="provider.missing")
        assert (told.user, told.data["provider"]) == (root.user, "other")
        MissingProvider.objects.update(since=timezone.now() - dt.timedelta(days=1))
        directory_job.read_all()
        assert roles(mia) == {}, "a provider that stays missing gives nothing"

    def test_a_provider_that_comes_back_within_a_day_keeps_what_it_gave(
        self, root: Actor, vision: Department, settings: Any
    ) -> None:
        rule(root, vision)
        mia = come(account(), "gpu")
        settings.IDENTITY_PROVIDERS = PROVIDERS[1:]
        directory_job.read_all()
        settings.IDENTITY_PROVIDERS = PROVIDERS
        directory_job.read_all()
        assert not MissingProvider.objects.exists()
        assert roles(mia) == {"vision": "member"}

    def test_an_older_word_of_the_provider_never_replaces_a_newer_one(self, root: Actor, vision: Department) -> None:
        rule(root, vision)
        row = account()
        mia = come(row, at=NOW)
        come(row, "gpu", at=NOW - dt.timedelta(seconds=1))
        assert roles(mia) == {}
        assert SeenGroups.objects.get().groups == []

    @pytest.mark.concurrency
    @pytest.mark.parametrize("newer_first", [True, False])
    def test_of_two_sign_ins_at_once_the_newer_word_counts(
        self, root: Actor, vision: Department, newer_first: bool
    ) -> None:
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
    def test_a_wrong_rule_is_refused_at_its_field(self, vision: Department, fields: dict[str, str], field: str) -> None:
        with pytest.raises(Invalid) as error:
            group_rules.checked(
                **{"provider": "keycloak", "pattern": "x", "role": "member", "department": vision, **fields}
            )
        assert error.value.field == field

    def test_the_same_rule_twice_is_refused(self, root: Actor, vision: Department) -> None:
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
        assert groups_of(keycloak, {"userinfo": {}}) == [], "left out for those who have none"
        assert groups_of(keycloak, {"id_token": {"_claim_names": {"groups": "src1"}}}) is None, "too many to be told"
        assert groups_of(keycloak, {"userinfo": "nonsense", "id_token": None}) == []

    def test_when_it_was_said_is_never_in_the_future(self) -> None:
        before = timezone.now()
        for wrong in (None, "x", -1, True, 10**12):
            assert said_at({"id_token": {"iat": wrong}}) >= before
        assert said_at({"id_token": {"iat": 1_700_000_000}}) == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
        assert said_at({}) >= before


class TestPages:
    def test_operators_keep_rules_with_a_preview_and_a_confirmation(self, root: Actor, vision: Department) -> None:
        mia = come(account(preferred_username="mia", name="Mia Example"), "gpu")
        desk = person(root.user)  # type: ignore[arg-type]
        form = {"provider": "keycloak", "pattern": "gpu", "role": "member", "department": str(vision.pk)}
        shown = desk.get("/operator/groups/preview/", form).content.decode()
        assert "Mia Example" in shown
        assert "Vision" in shown
        assert roles(mia) == {}
        assert desk.post("/operator/groups/", form | {"pattern": "*"}, format="multipart").status_code == 422
        assert desk.post("/operator/groups/", form | {"department": ""}, format="multipart").status_code == 422
        assert desk.post("/operator/groups/", form, format="multipart").status_code == 302
        assert roles(mia) == {"vision": "member"}
        assert "Mia Example" in desk.get("/operator/groups/").content.decode()
        address = f"/operator/groups/{GroupRule.objects.get().pk}/remove/"
        asked = desk.post(address, {}, format="multipart")
        assert "Mia Example is no longer a member of Vision" in asked.content.decode()
        assert GroupRule.objects.exists()
        mark = asked.content.decode().split('name="confirmed" value="')[1].split('"')[0]
        assert desk.post(address, {"confirmed": mark}, format="multipart").status_code == 302
        assert roles(mia) == {}

    def test_operators_link_and_unlink_on_the_page_of_the_account(self, root: Actor, vision: Department) -> None:
        mia, row = make.user("mia"), account("7")
        make.user("eve")
        desk = person(root.user)  # type: ignore[arg-type]
        address, form = "/operator/users/mia/accounts/", {"provider": "keycloak", "subject": "7"}
        for wrong in (form | {"provider": "x"}, form | {"subject": " "}, form | {"subject": "a" * 192}):
            assert desk.post(address, wrong, format="multipart").status_code == 422
        assert desk.post(address, form, format="multipart").status_code == 302
        assert desk.post("/operator/users/eve/accounts/", form, format="multipart").status_code == 409
        linked = SocialAccount.objects.get(uid=row.uid)
        assert linked.user == mia
        assert "Keycloak" in desk.get("/operator/users/mia/").content.decode()
        for unlink in (str(linked.pk), str(linked.pk), "x", "9" * 30):
            assert desk.post(address, {"unlink": unlink}, format="multipart").status_code == 302
        assert not SocialAccount.objects.exists()
        assert person(mia).post(address, form, format="multipart").status_code == 404

    def test_the_api_does_the_same(self, root: Actor, vision: Department) -> None:
        mia = come(account(preferred_username="mia"), "gpu")
        desk = person(root.user)  # type: ignore[arg-type]
        body = {"provider": "keycloak", "pattern": "gpu", "role": "member", "department": "vision"}
        dry = desk.post("/api/v1/group_rules/?dry_run=1", body)
        assert [each["username"] for each in dry.json()["effects"]] == ["mia"]
        assert not GroupRule.objects.exists()
        made = desk.post("/api/v1/group_rules/", body)
        assert (made.status_code, roles(mia)) == (201, {"vision": "member"})
        address = made.headers["Location"]
        assert desk.get(address).json() == {"id": made.json()["id"], **body}
        asked = desk.delete(address)
        assert (asked.status_code, asked.json()["code"]) == (409, "needs_confirmation")
        assert desk.delete(f"{address}?confirm={asked.json()['confirm']}").status_code == 204
        assert roles(mia) == {}
        for wrong in (body | {"role": "operator"}, body | {"department": None}, body | {"provider": "x"}):
            assert desk.post("/api/v1/group_rules/", wrong).status_code == 422
        assert person(User.objects.get(pk=mia.pk)).get("/api/v1/group_rules/").status_code == 404
