"""The job that reads a real OpenLDAP again: who loses a group there loses here what it gave, and a directory that is away
takes nothing from anybody."""

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

LACKS = slapd.missing()
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(bool(LACKS) and not os.environ.get("CI"), reason=f"needs {LACKS}"),
]
TEAM = [f"p{number}" for number in range(6)]


@pytest.fixture
def corp(tmp_path: Any, settings: Any) -> Iterator[Slapd]:
    cache.clear()
    with slapd.running(tmp_path / "slapd") as server:
        settings.IDENTITY_PROVIDERS = directories.read(server.toml())
        yield server


def arrive(corp: Slapd, *names: str) -> list[User]:
    """People of the group gpu, who have logged in once; the group is a member of the department vision."""
    corp.group("gpu", *[corp.person(name) for name in names])
    vision = make.department("vision")
    make.member(vision, "owner", "olga")
    rule = group_rules.checked(provider="corp", pattern="gpu", department=vision, role="member")
    group_rules.add_rule(actor=Actor(make.user("root", is_operator=True)), rule=rule)
    for name in names:
        assert Client().post("/login/", {"username": name, "password": PASSWORD}).status_code == 302
    return [User.objects.get(username=name) for name in names]


def by_rules() -> set[str]:
    return set(Membership.objects.filter(from_rules=True).values_list("user__username", flat=True))


def leave(corp: Slapd, *names: str) -> None:
    for name in names:
        corp.leave("gpu", f"uid={name},{PEOPLE}")


def reading() -> DirectoryReading:
    return DirectoryReading.objects.get(provider="corp")


def test_who_loses_the_group_loses_membership_and_token_and_the_owner_reads_of_the_work_first(corp: Slapd) -> None:
    mia, _eve = arrive(corp, "mia", "eve")
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
    leave(corp, "mia")
    read_directories()
    assert client.get("/api/v1/departments/vision/").status_code == 401
    assert by_hand.get("/api/v1/departments/nlp/").status_code == 200, "given by hand"
    assert by_rules() == {"eve"}
    line = InboxItem.objects.get(kind="member.left_group")
    assert line.user.username == "olga"
    assert line.data["work"] == claim.name
    claim.refresh_from_db()
    assert claim.state == ClaimState.HOLDING, "work goes on"
    read_directories()
    assert InboxItem.objects.filter(kind="member.left_group").count() == 1
    corp.join("gpu", f"uid=mia,{PEOPLE}")
    read_directories()
    assert by_rules() == {"mia", "eve"}


def test_who_is_gone_from_the_directory_is_logged_out_and_their_tokens_end(corp: Slapd) -> None:
    mia, _eve = arrive(corp, "mia", "eve")
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


def test_who_has_a_password_here_logs_in_again_without_the_entry(corp: Slapd) -> None:
    mia, _eve = arrive(corp, "mia", "eve")
    nlp = make.department("nlp")
    Membership.objects.create(user=mia, department=nlp, role=Role.MEMBER)
    mia.set_password(PASSWORD)
    mia.save()
    browser, token = Client(), program(mia, nlp)
    browser.force_login(mia)
    corp.delete(f"uid=mia,{PEOPLE}")
    read_directories()
    assert by_rules() == {"eve"}
    assert browser.get("/session/").status_code == 401, "the membership by the group went, and with it the sessions"
    assert token.get("/api/v1/departments/nlp/").status_code == 200
    assert browser.post("/login/", {"username": "mia", "password": PASSWORD}).status_code == 302
    assert browser.get("/session/").status_code == 200


def test_when_nobody_is_found_an_operator_is_asked_first(corp: Slapd, settings: Any) -> None:
    arrive(corp, "mia", "eve")
    settings.IDENTITY_PROVIDERS = directories.read(corp.toml(id_attribute="mail"))
    read_directories()
    assert by_rules() == {"mia", "eve"}
    assert reading().losing == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"server_url": "ldap://127.0.0.1:9"}, {"bind_password": "no"}, {"user_base": f"ou=gone,{BASE}"},
        {"group_base": f"ou=gone,{BASE}"}, {"group_base": f"cn=gpu,{GROUPS}"},
        {"id_attribute": "userPassword"}, {"bind_dn": ""},
    ],
)  # fmt: skip
def test_a_directory_that_is_away_or_answers_in_part_changes_nothing(
    corp: Slapd, settings: Any, changed: dict[str, str]
) -> None:
    arrive(corp, "mia", "eve")
    read_directories()
    before = list(SeenGroups.objects.values_list("groups", "said_at"))
    text = corp.toml(**changed)
    if changed == {"bind_dn": ""}:
        text = "\n".join(line for line in text.splitlines() if not line.startswith("bind_"))
    settings.IDENTITY_PROVIDERS = directories.read(text)
    read_directories()
    assert by_rules() == {"mia", "eve"}
    assert list(SeenGroups.objects.values_list("groups", "said_at")) == before
    assert reading().problem
    page = person(User.objects.get(username="root")).get("/operator/groups/").content.decode()
    assert "The last read was incomplete, so nothing was changed" in page
    settings.IDENTITY_PROVIDERS = directories.read(corp.toml())
    read_directories()
    assert reading().problem == ""


def test_when_most_would_lose_everything_an_operator_is_asked_first(corp: Slapd) -> None:
    arrive(corp, *TEAM)
    leave(corp, *TEAM[:5])
    read_directories()
    assert by_rules() == set(TEAM)
    assert reading().losing == 5
    desk = person(User.objects.get(username="root"))
    assert "5 people would lose all their groups at once" in desk.get("/operator/groups/").content.decode()
    asked = desk.post("/operator/groups/read/corp/", {}, format="multipart")
    assert asked.status_code == 409
    assert "P3 Example no longer has any groups." in asked.content.decode()
    assert by_rules() == set(TEAM)
    mark = asked.content.decode().split('name="confirmed" value="')[1].split('"')[0]
    assert desk.post("/operator/groups/read/corp/", {"confirmed": mark}, format="multipart").status_code == 302
    assert by_rules() == {"p5"}
    assert reading().losing == 0
    assert desk.post("/operator/groups/read/other/", {}, format="multipart").status_code == 404


def test_few_among_many_need_nobodys_word(corp: Slapd) -> None:
    arrive(corp, *TEAM)
    leave(corp, *TEAM[:3])
    read_directories()
    assert by_rules() == set(TEAM[3:])


def test_a_directory_that_is_removed_from_the_settings_ends_what_it_gave(corp: Slapd, settings: Any) -> None:
    (mia,) = arrive(corp, "mia")
    token = program(mia, Membership.objects.get(user=mia).department)
    settings.IDENTITY_PROVIDERS = ()
    read_directories()
    assert by_rules() == {"mia"}, "not at once: one process may have other settings than the rest"
    MissingProvider.objects.update(since=timezone.now() - group_rules.GRACE)
    read_directories()
    assert by_rules() == set()
    assert token.get("/api/v1/departments/vision/").status_code == 401


def test_what_a_rule_gave_ends_when_the_account_was_deleted_otherwise(corp: Slapd) -> None:
    arrive(corp, "mia")
    SocialAccount.objects.all().delete()
    read_directories()
    assert by_rules() == set()


def test_a_login_meanwhile_says_more_than_the_job(corp: Slapd) -> None:
    """The job has read before the person joined the group; its older word does not take it back."""
    (mia,) = arrive(corp, "mia")
    account = SocialAccount.objects.get(user=mia)
    group_rules.signed_in(account, [], timezone.now() - dt.timedelta(hours=1))
    assert by_rules() == {"mia"}
    directory_job._mark_gone(account, timezone.now() - dt.timedelta(hours=1))
    assert "gone" not in SocialAccount.objects.get(user=mia).extra_data


def test_the_word_of_an_operator_is_asked_by_exceptions_too(corp: Slapd, settings: Any) -> None:
    arrive(corp, *TEAM)
    leave(corp, *TEAM)
    (directory,) = settings.IDENTITY_PROVIDERS
    with pytest.raises(TooManyLose):
        directory_job.read(directory)
    corp.stop()
    with pytest.raises(DirectoryAway):
        directory_job.read(directory, sure=True)
    assert by_rules() == set(TEAM)


def notices_to(user: User) -> list[str]:
    rows = InboxItem.objects.filter(user=user, kind__startswith="directory.").order_by("pk")
    return [row.kind.removeprefix("directory.") for row in rows]


def test_operators_are_told_once_of_a_directory_that_is_away_and_once_that_it_is_back(
    corp: Slapd, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive(corp, "mia")
    root, began = User.objects.get(username="root"), timezone.now()
    read_directories()
    corp.stop()
    for minutes, known in ((15, []), (29, []), (31, ["away"]), (45, ["away"]), (600, ["away"])):
        monkeypatch.setattr(timezone, "now", lambda minutes=minutes: began + dt.timedelta(minutes=minutes))
        read_directories()
        assert notices_to(root) == known, minutes
    item = InboxItem.objects.get(user=root, kind="directory.away")
    assert "has not been read since" in notices.sentence(item.kind, item.data)
    assert url_of(item) == "/operator/groups/"
    assert item.mail_due_at is None  # no address, no mail
    corp.start()
    read_directories()
    read_directories()
    assert notices_to(root) == ["away", "read_again"]
    assert not InboxItem.objects.filter(kind__startswith="directory.").exclude(user=root).exists()


def test_operators_are_told_at_once_of_one_after_which_most_would_lose_their_groups(corp: Slapd) -> None:
    arrive(corp, *TEAM)
    leave(corp, *TEAM)
    read_directories()
    read_directories()
    assert notices_to(User.objects.get(username="root")) == ["too_many_lose"]
    assert by_rules() == set(TEAM)
