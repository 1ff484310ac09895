"""The job that reads a real OpenLDAP again: people who lose a group there lose the roles it gave, and an unreachable
directory takes nothing from anybody."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from portal.access import Actor
from portal.infra.providers import directories
from portal.infra.providers.ldap_client import DirectoryAway
from portal.models import ApiToken, DirectoryReading, InboxItem, Membership, MissingProvider, Role, SeenGroups, User
from portal.notify import notices
from portal.sign_in import directory_job, group_rules
from portal.sign_in.directory_job import TooManyLose
from portal.tasks import read_directories
from portal.views.inbox import url_of
from quotas.models import ClaimState
from tests import builders as make
from tests import slapd
from tests.clients import person, program
from tests.slapd import BASE, GROUPS, PASSWORD, PEOPLE, Slapd

MISSING = slapd.missing()
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(bool(MISSING) and not os.environ.get("CI"), reason=f"needs {MISSING}"),
]
TEAM = [f"p{number}" for number in range(6)]


@pytest.fixture
def corp(tmp_path: Any, settings: Any) -> Iterator[Slapd]:
    cache.clear()
    with slapd.running(tmp_path / "slapd") as server:
        settings.IDENTITY_PROVIDERS = directories.read(server.toml())
        yield server


def log_in_members(corp: Slapd, *names: str) -> list[User]:
    """Members of the group gpu who have logged in once; a rule makes them members of the department vision."""
    corp.group("gpu", *[corp.person(name) for name in names])
    vision = make.department("vision")
    make.member(vision, "owner", "olga")
    rule = group_rules.checked(provider="corp", pattern="gpu", department=vision, role="member")
    group_rules.add_rule(actor=Actor(make.user("root", is_operator=True)), rule=rule)
    for name in names:
        assert Client().post("/login/", {"username": name, "password": PASSWORD}).status_code == 302
    return [User.objects.get(username=name) for name in names]


def members_by_rules() -> set[str]:
    return set(Membership.objects.filter(from_rules=True).values_list("user__username", flat=True))


def leave_group(corp: Slapd, *names: str) -> None:
    for name in names:
        corp.leave("gpu", f"uid={name},{PEOPLE}")


def reading() -> DirectoryReading:
    return DirectoryReading.objects.get(provider="corp")


def test_losing_a_group_ends_membership_and_token_and_notifies_the_owner(corp: Slapd) -> None:
    mia, _eve = log_in_members(corp, "mia", "eve")
    vision = Membership.objects.filter(user=mia).get().department
    pool = make.pool("a100", cards=4)
    make.quota(vision, pool, 4)
    claim = make.claim(vision, pool, 1, ClaimState.HOLDING, user=mia, workload="wk1")
    nlp = make.department("nlp")
    Membership.objects.create(user=mia, department=nlp, role=Role.MEMBER)
    client, by_hand = program(mia, vision), program(mia, nlp, name="by-hand")
    read_directories()
    assert client.get("/api/v1/departments/vision/").status_code == 200
    assert (reading().people, reading().problem) == (2, "")
    leave_group(corp, "mia")
    read_directories()
    assert client.get("/api/v1/departments/vision/").status_code == 401
    assert by_hand.get("/api/v1/departments/nlp/").status_code == 200, "that membership was given by hand"
    assert members_by_rules() == {"eve"}
    item = InboxItem.objects.get(kind="member.left_group")
    assert item.user.username == "olga"
    assert item.data["work"] == claim.name
    claim.refresh_from_db()
    assert claim.state == ClaimState.HOLDING, "the workload keeps running"
    read_directories()
    assert InboxItem.objects.filter(kind="member.left_group").count() == 1
    corp.join("gpu", f"uid=mia,{PEOPLE}")
    read_directories()
    assert members_by_rules() == {"mia", "eve"}


def test_person_removed_from_the_directory_is_logged_out_and_their_tokens_end(corp: Slapd) -> None:
    mia, _eve = log_in_members(corp, "mia", "eve")
    nlp = make.department("nlp")
    Membership.objects.create(user=mia, department=nlp, role=Role.MEMBER)
    browser, token = Client(), program(mia, nlp)
    browser.post("/login/", {"username": "mia", "password": PASSWORD})
    corp.delete(f"uid=mia,{PEOPLE}")
    read_directories()
    assert browser.get("/session/").status_code == 401
    assert token.get("/api/v1/departments/nlp/").status_code == 401
    assert set(Membership.objects.filter(user=mia).values_list("department__slug", flat=True)) == {"nlp"}
    assert not ApiToken.objects.filter(holder=mia, revoked_at=None).exists()


def test_person_removed_from_the_directory_can_log_in_with_a_portal_password(corp: Slapd) -> None:
    mia, _eve = log_in_members(corp, "mia", "eve")
    nlp = make.department("nlp")
    Membership.objects.create(user=mia, department=nlp, role=Role.MEMBER)
    mia.set_password(PASSWORD)
    mia.save()
    browser, token = Client(), program(mia, nlp)
    browser.force_login(mia)
    corp.delete(f"uid=mia,{PEOPLE}")
    read_directories()
    assert members_by_rules() == {"eve"}
    assert browser.get("/session/").status_code == 401, "losing the membership that the group gave ends the sessions"
    assert token.get("/api/v1/departments/nlp/").status_code == 200
    assert browser.post("/login/", {"username": "mia", "password": PASSWORD}).status_code == 302
    assert browser.get("/session/").status_code == 200


def test_operator_must_confirm_when_nobody_is_found(corp: Slapd, settings: Any) -> None:
    log_in_members(corp, "mia", "eve")
    settings.IDENTITY_PROVIDERS = directories.read(corp.toml(id_attribute="mail"))
    read_directories()
    assert members_by_rules() == {"mia", "eve"}
    assert reading().losing == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"server_url": "ldap://127.0.0.1:9"}, {"bind_password": "no"}, {"user_base": f"ou=gone,{BASE}"},
        {"group_base": f"ou=gone,{BASE}"}, {"group_base": f"cn=gpu,{GROUPS}"},
        {"id_attribute": "userPassword"}, {"bind_dn": ""},
    ],
)  # fmt: skip
def test_unreachable_or_partly_readable_directory_changes_nothing(
    corp: Slapd, settings: Any, changed: dict[str, str]
) -> None:
    log_in_members(corp, "mia", "eve")
    read_directories()
    before = list(SeenGroups.objects.values_list("groups", "said_at"))
    text = corp.toml(**changed)
    if changed == {"bind_dn": ""}:
        text = "\n".join(line for line in text.splitlines() if not line.startswith("bind_"))
    settings.IDENTITY_PROVIDERS = directories.read(text)
    read_directories()
    assert members_by_rules() == {"mia", "eve"}
    assert list(SeenGroups.objects.values_list("groups", "said_at")) == before
    assert reading().problem
    page = person(User.objects.get(username="root")).get("/operator/groups/").content.decode()
    assert "The last read was incomplete, so nothing was changed" in page
    settings.IDENTITY_PROVIDERS = directories.read(corp.toml())
    read_directories()
    assert reading().problem == ""


def test_operator_must_confirm_when_most_people_would_lose_all_groups(corp: Slapd) -> None:
    log_in_members(corp, *TEAM)
    leave_group(corp, *TEAM[:5])
    read_directories()
    assert members_by_rules() == set(TEAM)
    assert reading().losing == 5
    operator = person(User.objects.get(username="root"))
    assert "5 people would lose all their groups at once" in operator.get("/operator/groups/").content.decode()
    confirmation = operator.post("/operator/groups/read/corp/", {}, format="multipart")
    assert confirmation.status_code == 409
    assert "P3 Example no longer has any groups." in confirmation.content.decode()
    assert members_by_rules() == set(TEAM)
    mark = confirmation.content.decode().split('name="confirmed" value="')[1].split('"')[0]
    assert operator.post("/operator/groups/read/corp/", {"confirmed": mark}, format="multipart").status_code == 302
    assert members_by_rules() == {"p5"}
    assert reading().losing == 0
    assert operator.post("/operator/groups/read/other/", {}, format="multipart").status_code == 404


def test_loss_of_groups_by_few_people_needs_no_confirmation(corp: Slapd) -> None:
    log_in_members(corp, *TEAM)
    leave_group(corp, *TEAM[:3])
    read_directories()
    assert members_by_rules() == set(TEAM[3:])


def test_memberships_end_some_time_after_their_directory_left_the_settings(corp: Slapd, settings: Any) -> None:
    (mia,) = log_in_members(corp, "mia")
    token = program(mia, Membership.objects.get(user=mia).department)
    settings.IDENTITY_PROVIDERS = ()
    read_directories()
    assert members_by_rules() == {"mia"}, "not at once: one process can have other settings than the rest"
    MissingProvider.objects.update(since=timezone.now() - group_rules.GRACE)
    read_directories()
    assert members_by_rules() == set()
    assert token.get("/api/v1/departments/vision/").status_code == 401


def test_memberships_by_rules_end_when_the_linked_account_was_deleted(corp: Slapd) -> None:
    log_in_members(corp, "mia")
    SocialAccount.objects.all().delete()
    read_directories()
    assert members_by_rules() == set()


def test_login_during_the_job_takes_precedence_over_its_older_result(corp: Slapd) -> None:
    """The job read the directory before the person joined the group; its older result does not end the membership."""
    (mia,) = log_in_members(corp, "mia")
    account = SocialAccount.objects.get(user=mia)
    group_rules.signed_in(account, [], timezone.now() - dt.timedelta(hours=1))
    assert members_by_rules() == {"mia"}
    directory_job._mark_gone(account, timezone.now() - dt.timedelta(hours=1))
    assert "gone" not in SocialAccount.objects.get(user=mia).extra_data


def test_reading_raises_when_confirmation_is_needed_or_the_directory_is_unreachable(corp: Slapd, settings: Any) -> None:
    log_in_members(corp, *TEAM)
    leave_group(corp, *TEAM)
    (directory,) = settings.IDENTITY_PROVIDERS
    with pytest.raises(TooManyLose):
        directory_job.read(directory)
    corp.stop()
    with pytest.raises(DirectoryAway):
        directory_job.read(directory, sure=True)
    assert members_by_rules() == set(TEAM)


def notices_to(user: User) -> list[str]:
    rows = InboxItem.objects.filter(user=user, kind__startswith="directory.").order_by("pk")
    return [row.kind.removeprefix("directory.") for row in rows]


def test_operators_are_notified_once_when_a_directory_is_unreachable_and_once_when_back(
    corp: Slapd, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in_members(corp, "mia")
    root, began = User.objects.get(username="root"), timezone.now()
    read_directories()
    corp.stop()
    for minutes, expected in ((15, []), (29, []), (31, ["away"]), (45, ["away"]), (600, ["away"])):
        monkeypatch.setattr(timezone, "now", lambda minutes=minutes: began + dt.timedelta(minutes=minutes))
        read_directories()
        assert notices_to(root) == expected, minutes
    item = InboxItem.objects.get(user=root, kind="directory.away")
    assert "has not been read since" in notices.sentence(item.kind, item.data)
    assert url_of(item) == "/operator/groups/"
    assert item.mail_due_at is None  # no address, no mail
    corp.start()
    read_directories()
    read_directories()
    assert notices_to(root) == ["away", "read_again"]
    assert not InboxItem.objects.filter(kind__startswith="directory.").exclude(user=root).exists()


def test_operators_are_notified_once_when_most_people_would_lose_their_groups(corp: Slapd) -> None:
    log_in_members(corp, *TEAM)
    leave_group(corp, *TEAM)
    read_directories()
    read_directories()
    assert notices_to(User.objects.get(username="root")) == ["too_many_lose"]
    assert members_by_rules() == set(TEAM)
