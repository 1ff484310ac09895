"""All lists of the portal work the same way: search, dates, order, choice of columns and export as CSV."""

from __future__ import annotations

import csv
import datetime as dt
import io
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.accounts.bearer_tokens import may_be_used
from portal.models import ApiToken, Department, InboxItem, Membership, Role, User
from portal.notify import notices
from portal.views.tokens import with_status
from tests import builders as make
from tests.clients import token_of

pytestmark = pytest.mark.django_db(transaction=True)
GARBAGE = "sort=-nothing&columns=nothing,user&from=2026-02-31&to=soon&page=-7&q=%ED%A0%80%25_'\"&department='&format=xls&state=0"


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def lines(client: Client, path: str, **query: str) -> list[dict[str, str]]:
    """The rows of the list's CSV file."""
    answer: Any = client.get(path, {**query, "format": "csv"})
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode("utf-8-sig"))))


def columns_of(client: Client, path: str, **query: str) -> list[str]:
    """Labels of the columns on the page."""
    page = client.get(path, query)
    assert page.status_code == 200
    return [each.column.name for each in page.context["list"].headings if each.is_shown]


# Users ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def vision() -> Department:
    return make.department("vision", name="Vision")


@pytest.fixture
def operator(vision: Department) -> Client:
    """The operator root; the other users are ada, ben and cy."""
    now = timezone.now()
    for name, days, fields in (
        ("ada", 9, {"first_name": "Ada", "last_name": "Lovelace"}),
        ("ben", 2, {"email": "ben@bio.example"}),
        ("cy", 1, {"is_active": False}),
    ):
        user = make.member(vision, Role.MEMBER, name) if name != "ben" else make.user(name)
        joined = now - dt.timedelta(days=days)
        User.objects.filter(pk=user.pk).update(
            date_joined=joined, last_login=joined if name != "cy" else None, **fields
        )
    return logged_in(make.user("root", is_operator=True, date_joined=now - dt.timedelta(days=30), last_login=now))


def people(client: Client, **query: str) -> list[str]:
    page = client.get("/operator/users/", query)
    assert page.status_code == 200
    names = [each.username for each in page.context["page"]]
    assert [row["username"] for row in lines(client, "/operator/users/", **query)] == names  # as on the page
    return names


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("", "ada ben cy root"),
        ("-user", "root cy ben ada"),
        ("-login", "root ben ada cy"),  # users who never logged in are last in both orders
        ("login", "ada ben root cy"),
        ("created", "root ada ben cy"),
        ("departments", "ada ben cy root"),  # not a column to sort by
    ],
)
def test_users_are_sorted(operator: Client, sort: str, names: str) -> None:
    assert people(operator, sort=sort) == names.split()


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"q": "lovelace ada"}, "ada"),  # each word, in any column
        ({"q": "BIO.example"}, "ben"),
        ({"q": "%"}, ""),
        ({"department": "vision"}, "ada cy"),
        ({"standing": "locked"}, "cy"),
        ({"standing": "operator"}, "root"),
        ({"department": "vision", "standing": "user", "q": "a"}, "ada"),
    ],
)
def test_users_are_searched_and_filtered(operator: Client, query: dict[str, str], names: str) -> None:
    assert people(operator, **query) == names.split()


def test_dates_are_in_the_readers_time_zone(operator: Client) -> None:
    """Midnight in Auckland is noon of the day before in UTC."""
    moment = dt.datetime(2026, 7, 1, 12, 30, tzinfo=dt.UTC)
    User.objects.filter(username="ada").update(date_joined=moment)
    days = {"from": "2026-07-02", "to": "2026-07-02"}
    assert people(operator, **days) == []
    User.objects.filter(username="root").update(time_zone="Pacific/Auckland")
    assert people(operator, **days) == ["ada"]


def test_columns_of_the_list_of_users_can_be_chosen(operator: Client) -> None:
    assert columns_of(operator, "/operator/users/") == ["user", "email", "departments", "login"]
    assert columns_of(operator, "/operator/users/", columns="created") == ["user", "created"]
    assert "ben@bio.example" not in operator.get("/operator/users/?columns=created").content.decode()


def test_only_operators_can_list_users(operator: Client) -> None:
    stranger = logged_in(User.objects.get(username="ada"))
    for path in ("/operator/users/", "/operator/users/?format=csv", "/operator/users/?q=ben"):
        assert stranger.get(path).status_code == 404


def test_ten_thousand_users_are_listed_in_few_queries(operator: Client, django_assert_max_num_queries: Any) -> None:
    User.objects.bulk_create(
        [User(username=f"u{number:05}", password="!") for number in range(10_000)], batch_size=1000
    )
    for query in ({}, {"sort": "-login"}, {"q": "u0999"}, {"page": "150"}):
        with django_assert_max_num_queries(16):
            assert operator.get("/operator/users/", query).status_code == 200


# Inbox ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ada(vision: Department) -> User:
    """A user with four messages: invited 30 days ago, fish failed 9 days ago and succeeded 2 days ago, bird succeeded now."""
    ada, now = make.member(vision, Role.MEMBER, "ada"), timezone.now()
    for kind, days, data, department in (
        ("member.invited", 30, {"role": "member", "department": "Vision"}, None),
        ("workload.failed", 9, {"name": "fish", "reason": "exit code 1"}, vision),
        ("workload.succeeded", 2, {"name": "fish"}, vision),
        ("workload.succeeded", 0, {"name": "bird"}, vision),
    ):
        InboxItem.objects.create(
            user=ada, kind=kind, data=data, department=department, created_at=now - dt.timedelta(days=days)
        )
    return ada


def messages(client: Client, **query: str) -> list[str]:
    page = client.get("/inbox/", query)
    assert page.status_code == 200
    sentences = [line.sentence for line in page.context["lines"]]
    assert [row["message"] for row in lines(client, "/inbox/", **query)] == sentences
    return [f"{line.item.data.get('name', '')}{line.item.kind[8:]}" for line in page.context["lines"]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, "bird.succeeded fish.succeeded fish.failed nvited"),
        ({"sort": "time"}, "nvited fish.failed fish.succeeded bird.succeeded"),
        ({"q": "fish"}, "fish.succeeded fish.failed"),
        ({"q": "SUCCEEDED fish"}, "fish.succeeded"),  # a word of the sentence, and one of its facts
        ({"kind": "workload.failed"}, "fish.failed"),
        ({"from": str((timezone.now() - dt.timedelta(days=3)).date())}, "bird.succeeded fish.succeeded"),
        ({"show": "read"}, ""),
    ],
)
def test_messages_are_searched_and_sorted(ada: User, query: dict[str, str], names: str) -> None:
    assert messages(logged_in(ada), **query) == names.split()


def test_messages_are_searched_and_written_in_the_readers_language(ada: User) -> None:
    User.objects.update(language="zh-hans")
    client = logged_in(ada)
    assert messages(client, q="成功") == ["bird.succeeded", "fish.succeeded"]
    assert "fish" in lines(client, "/inbox/", q="失败")[0]["message"]


def test_all_matching_messages_except_newer_ones_are_marked_as_read(ada: User) -> None:
    client = logged_in(ada)
    page = client.get("/inbox/?q=fish&sort=time")
    assert b"Mark all that match as read" in page.content
    late = InboxItem.objects.create(user=ada, kind="workload.succeeded", data={"name": "fish"})
    answer = client.post("/inbox/read/?q=fish&sort=time", {"up_to": page.context["newest"]}, follow=True)
    assert answer.redirect_chain[0][0] == "/inbox/?q=fish&sort=time"
    assert "2 messages were marked as read." in answer.content.decode()
    left = InboxItem.objects.filter(read_at=None)
    assert [item.data.get("name") for item in left] == ["fish", "bird", None]
    assert left[0] == late
    assert messages(client, show="read") == ["fish.succeeded", "fish.failed"]


def test_selected_messages_are_marked_as_read_only_by_their_recipient(ada: User) -> None:
    first, second, *_rest = InboxItem.objects.all()
    stranger = make.user("stranger")
    for sent in ({"item": [first.pk]}, {"up_to": first.pk}, {"item": ["x", ""]}, {"up_to": "9" * 40}):
        assert logged_in(stranger).post("/inbox/read/", sent).status_code == 302
    assert not InboxItem.objects.exclude(read_at=None).exists()
    assert messages(logged_in(stranger)) == []
    assert "No activity yet" in logged_in(stranger).get("/inbox/").content.decode()
    logged_in(ada).post("/inbox/read/", {"item": [first.pk, second.pk]})
    assert set(InboxItem.objects.exclude(read_at=None)) == {first, second}


def test_ten_thousand_messages_are_listed_in_few_queries(ada: User, django_assert_max_num_queries: Any) -> None:
    row = InboxItem.objects.first()
    assert row is not None
    InboxItem.objects.bulk_create(
        [InboxItem(user=ada, kind=row.kind, data=row.data, department=row.department) for _number in range(10_000)]
    )
    client = logged_in(ada)
    for query in ({}, {"sort": "department"}, {"q": "bird"}, {"page": "150"}):
        with django_assert_max_num_queries(24):
            assert client.get("/inbox/", query).status_code == 200


# Members and tokens --------------------------------------------------------------------------------------------------


@pytest.fixture
def owner(vision: Department) -> Client:
    """Olga, owner of vision for 9 days; its other members are mia, for 2 days, and the new service account vision.ci."""
    now = timezone.now()
    olga = make.member(vision, Role.OWNER, "olga")
    make.member(vision, Role.MEMBER, "mia", first_name="Mia", last_name="Wallace", last_login=now)
    account = make.user("vision.ci", service_of=vision)
    Membership.objects.create(user=account, department=vision, role=Role.VIEWER)
    for name, days in (("olga", 9), ("mia", 2)):
        Membership.objects.filter(user__username=name).update(created_at=now - dt.timedelta(days=days))
    token_of(olga, vision)
    token_of(olga, vision, revoked_at=now)
    return logged_in(olga)


MEMBERS = "/d/vision/members/"


def members(client: Client, **query: str) -> str:
    page = client.get(MEMBERS, query)
    assert page.status_code == 200
    names = [row.user.username for row, _mark in page.context["rows"]]
    assert [row["username"] for row in lines(client, MEMBERS, **query)] == names
    return " ".join(names)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, "mia olga vision.ci"),  # people first
        ({"sort": "-user"}, "vision.ci olga mia"),
        ({"sort": "since"}, "olga mia vision.ci"),
        ({"sort": "-login"}, "olga mia vision.ci"),
        ({"sort": "-tokens"}, "olga mia vision.ci"),
        ({"q": "wallace"}, "mia"),
        ({"role": "owner"}, "olga"),
        ({"kind": "service"}, "vision.ci"),
        ({"to": str((timezone.now() - dt.timedelta(days=4)).date())}, "olga"),
    ],
)
def test_members_are_searched_and_sorted(owner: Client, query: dict[str, str], names: str) -> None:
    assert members(owner, **query) == names


def test_list_has_only_members_of_the_department_and_is_hidden_from_strangers(owner: Client) -> None:
    stranger = make.member(make.department("biology"), Role.OWNER, "sam")
    assert "sam" not in members(owner)
    for query in ({}, {"format": "csv"}):
        assert logged_in(stranger).get(MEMBERS, query).status_code == 404
        assert logged_in(stranger).get(f"{MEMBERS}olga/tokens/", query).status_code == 404
    counts = {row["username"]: row["active_tokens"] for row in lines(owner, MEMBERS)}
    assert counts == {"mia": "0", "olga": "1", "vision.ci": "0"}
    assert columns_of(owner, MEMBERS, columns="role") == ["user", "role"]


@pytest.fixture
def holder(owner: Client) -> Client:
    """Olga with tokens of every status, oldest first: live, revoked, expired, child of the revoked one, and no longer valid."""
    ApiToken.objects.all().delete()
    olga, vision, now = User.objects.get(username="olga"), Department.objects.get(), timezone.now()
    token_of(olga, vision, name="live", last_used_at=now, created_at=now - dt.timedelta(days=9))
    dead, _secret = token_of(olga, vision, name="dead", revoked_at=now)
    token_of(olga, vision, name="late", expires_at=now - dt.timedelta(days=1))
    token_of(olga, vision, name="child", parent=dead)
    token_of(olga, vision, name="whole", scopes=["read"])
    ApiToken.objects.filter(name="whole").update(department=None)  # she is not an operator
    return owner


def tokens(client: Client, path: str = "/tokens/", **query: str) -> str:
    page = client.get(path, query)
    assert page.status_code == 200
    assert page.headers["Cache-Control"] == "no-store"
    names = [token.name for token in page.context["page"]]
    assert [row["name"] for row in lines(client, path, **query)] == names
    return " ".join(names)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, "live late whole dead child"),  # by status, then the next to expire
        ({"sort": "name"}, "child dead late live whole"),
        ({"sort": "expires"}, "late live dead child whole"),
        ({"sort": "-used"}, "live late whole dead child"),
        ({"q": "li"}, "live"),
        ({"state": "revoked"}, "dead child"),
        ({"state": "active"}, "live"),
        ({"state": "invalid"}, "whole"),
        ({"department": "vision", "q": "late"}, "late"),
        ({"to": str((timezone.now() - dt.timedelta(days=4)).date())}, "live"),
    ],
)
def test_tokens_are_searched_and_sorted(holder: Client, query: dict[str, str], names: str) -> None:
    assert tokens(holder, **query) == names


def test_status_of_a_token_says_whether_it_can_be_used(holder: Client, vision: Department) -> None:
    account, mia = User.objects.get(username="vision.ci"), User.objects.get(username="mia")
    token_of(account, vision, name="by-olga", made_by=User.objects.get(username="olga"))
    token_of(account, vision, name="by-mia", made_by=mia)  # who cannot manage the account
    rows = list(with_status(ApiToken.objects.all()))
    assert len(rows) == 7
    assert [row.name for row in rows if (row.status == "active") != may_be_used(row)] == []
    assert tokens(holder, f"{MEMBERS}vision.ci/tokens/", sort="name") == "by-mia by-olga"
    assert tokens(holder, f"{MEMBERS}vision.ci/tokens/", state="active") == "by-olga"


def test_tokens_of_others_are_not_listed(holder: Client) -> None:
    assert tokens(logged_in(User.objects.get(username="mia"))) == ""
    assert logged_in(User.objects.get(username="mia")).get(f"{MEMBERS}olga/tokens/").status_code == 403


def test_many_members_and_tokens_are_listed_in_few_queries(
    holder: Client, vision: Department, django_assert_max_num_queries: Any
) -> None:
    people = User.objects.bulk_create([User(username=f"u{number:04}", password="!") for number in range(2_000)])
    Membership.objects.bulk_create([Membership(user=each, department=vision) for each in people])
    live = ApiToken.objects.get(name="live")
    fields = {"holder": live.holder, "department": vision, "scopes": ["read"], "expires_at": live.expires_at}
    ApiToken.objects.bulk_create(
        [ApiToken(name=f"t{number}", prefix=f"p{number}", digest="", **fields) for number in range(2_000)]
    )
    for path in (MEMBERS, "/tokens/"):
        for query in ({}, {"sort": "-used"}, {"q": "5"}):
            with django_assert_max_num_queries(24):
                assert holder.get(path, query).status_code == 200


@pytest.mark.parametrize("path", ["/operator/users/", "/inbox/", "/tokens/", MEMBERS])
def test_search_without_matches_says_so_and_malformed_parameters_are_ignored(operator: Client, path: str) -> None:
    token_of(User.objects.get(username="root"), Department.objects.get())
    notices.send("member.invited", to=[User.objects.get(username="root")], department=None)
    page = operator.get(path, {"q": "nobody-is-called-so"}).content.decode()
    assert "Nothing matches" in page
    assert f'href="{path}"' in page
    assert operator.get(f"{path}?{GARBAGE}").status_code == 200
