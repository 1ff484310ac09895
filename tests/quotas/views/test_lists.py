"""The lists of quota requests and of decisions: search, dates, sorting, chosen columns, and the CSV export."""

from __future__ import annotations

import csv
import datetime as dt
import io
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from portal.models import Department, Role, User
from quotas.models import Decision, PlanPass, Pool, QuotaRequest, RequestState
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)
DAY = dt.timedelta(days=1)
GARBAGE = (
    "sort=--at&columns=,,x&from=0&to=2026-13-01&page=x&q=%ED%A0%80%25'\"&department='&pool=%F0%9F%A6%8A&state=0&kind=0"
)


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def lines(client: Client, path: str, query: dict[str, str]) -> list[dict[str, str]]:
    """The rows of the list's CSV export."""
    response: Any = client.get(path, {**query, "format": "csv"})
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(b"".join(response.streaming_content).decode("utf-8-sig"))))


@pytest.fixture
def mia(vision: Department) -> User:
    return make.member(vision, Role.MEMBER, "mia", first_name="Mia", last_name="Wallace")


# Requests -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def quota_requests(vision: Department, nlp: Department, pool: Pool, mia: User) -> list[QuotaRequest]:
    """a and b of vision, c of nlp, from the oldest to the newest."""
    now, noam = timezone.now(), make.member(nlp, Role.MEMBER, "noam")
    facts = (
        ("a", vision, mia, 6, RequestState.OPEN, 9, None),
        ("b", vision, mia, None, RequestState.DENIED, 2, now + 30 * DAY),
        ("c", nlp, noam, 5, RequestState.OPEN, 0, now + 9 * DAY),
    )
    return [
        QuotaRequest.objects.create(
            department=where, pool=pool, author=user, units=units, before=4, why=f"For the x{name} paper.", state=state,
            created_at=now - days * DAY, ends_at=ends_at,
        )
        for name, where, user, units, state, days, ends_at in facts
    ]  # fmt: skip


def requests(client: Client, **query: str) -> str:
    """The letters of the requests in the CSV; the page must have the same rows, each once, and its list in the same order."""
    page = client.get("/requests/", query)
    assert page.status_code == 200
    above = [row.public_id for row in page.context["waiting"]]
    rows = lines(client, "/requests/", query)
    assert [row.public_id for row in page.context["page"]] == [row["id"] for row in rows if row["id"] not in above]
    assert set(above) <= {row["id"] for row in rows}
    return "".join(row["why"][9] for row in rows)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, "cba"),
        ({"sort": "time"}, "abc"),
        ({"sort": "department"}, "cba"),
        ({"sort": "-requested"}, "acb"),  # "no limit" is not a number and comes last
        ({"sort": "until"}, "cba"),
        ({"sort": "-until"}, "bca"),
        ({"q": "wallace mia"}, "ba"),
        ({"q": "paper xc"}, "c"),
        ({"state": "denied"}, "b"),
        ({"department": "nlp"}, "c"),
        ({"from": str((timezone.now() - 3 * DAY).date())}, "cb"),
        ({"q": "no such"}, ""),
    ],
)
def test_requests_are_searched_and_sorted(
    quota_requests: list[QuotaRequest], root: User, query: dict[str, str], names: str
) -> None:
    assert requests(client_of(root), **query) == names


def test_requests_that_the_reader_may_decide_are_listed_once(
    quota_requests: list[QuotaRequest], root: User, mia: User
) -> None:
    client = client_of(root)
    page = client.get("/requests/")
    assert [[row.why[9] for row in page.context[part]] for part in ("waiting", "page")] == [["a", "c"], ["b"]]
    assert "Other requests" in page.content.decode()
    assert [choice.count for choice in page.context["facets"][0].choices] == [2, 1], "filters count all requests"
    found = client.get("/requests/?state=open")
    assert [[row.why[9] for row in found.context[part]] for part in ("waiting", "page")] == [[], ["c", "a"]]
    QuotaRequest.objects.exclude(state=RequestState.OPEN).delete()
    page = client.get("/requests/")
    assert "Other requests" not in page.content.decode()
    assert "Nothing matches" not in page.content.decode()
    page = client_of(mia).get("/requests/")
    assert page.context["waiting"] == []
    assert "Other requests" not in page.content.decode()


def test_members_see_neither_requests_nor_names_of_other_departments(
    quota_requests: list[QuotaRequest], vision: Department, mia: User
) -> None:
    Department.objects.filter(slug="nlp").update(name="Language Research")
    client = client_of(mia)
    assert requests(client) == "ba"
    for query in ({"q": "paper xc"}, {"department": "nlp"}, {"q": "noam"}):
        assert requests(client, **query) == ""
        assert "Language Research" not in client.get("/requests/", query).content.decode()


def test_columns_of_requests_are_hidden_in_both_tables(quota_requests: list[QuotaRequest], root: User) -> None:
    page = client_of(root).get("/requests/?columns=state,requested")
    text = page.content.decode()
    assert "Waiting for your approval" in text
    assert text.count("<td") == 3 * 3
    assert text.count('class="sorts"') == 3, "the upper table is not sorted"


def test_empty_list_and_empty_search_result_have_different_messages(mia: User, root: User) -> None:
    empty = client_of(mia).get("/requests/").content.decode()
    assert "No requests" in empty
    assert 'href="/d/vision/requests/new/"' in empty
    assert "Nothing matches" not in empty
    QuotaRequest.objects.create(department=mia.memberships.get().department, pool=Pool.objects.get(), units=1, why="?")
    assert "Nothing matches" in client_of(mia).get("/requests/?q=zzz").content.decode()


# Decisions ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def logged_decisions(vision: Department, nlp: Department, pool: Pool, mia: User) -> list[Decision]:
    """a: vision's fish starts; b: nlp's bird reclaims from fish; c: nlp's bird waits."""
    fish = make.claim(vision, pool, 2, "holding", name="fish", user=mia, person="mia")
    bird = make.claim(nlp, pool, 4, "pending", name="bird", person="noam")
    now, plan_pass = timezone.now(), PlanPass.objects.create(group=pool.group, snapshot=b"")
    rows = [
        Decision.objects.create(
            plan_pass=plan_pass, kind=kind, claim=claim, department=claim.department, pool=pool, at=now - days * DAY
        )
        for kind, claim, days in (("admit", fish, 9), ("reclaim", bird, 2), ("wait", bird, 0))
    ]
    rows[1].victims.add(fish)
    return rows


def decisions(client: Client, **query: str) -> list[str]:
    page = client.get("/decisions/", query)
    assert page.status_code == 200
    rows = list(page.context["page"])
    assert [line["id"] for line in lines(client, "/decisions/", query)] == [row.public_id for row in rows]
    return [row.kind for row in rows]


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ({}, "wait reclaim admit"),
        ({"sort": "time"}, "admit reclaim wait"),
        ({"sort": "amount"}, "admit wait reclaim"),
        ({"sort": "-for"}, "admit wait reclaim"),
        ({"q": "fish"}, "reclaim admit"),  # as the claim, and as a victim
        ({"q": "bird noam"}, "wait reclaim"),
        ({"kind": "wait"}, "wait"),
        ({"to": str((timezone.now() - 1 * DAY).date())}, "reclaim admit"),
        ({"department": "vision", "q": "bird"}, ""),
    ],
)
def test_decisions_are_searched_and_sorted(
    logged_decisions: list[Decision], root: User, query: dict[str, str], kinds: str
) -> None:
    assert decisions(client_of(root), **query) == kinds.split()


def test_search_reveals_nothing_about_claims_of_others(logged_decisions: list[Decision], mia: User) -> None:
    """Mia sees that nlp reclaimed from her claim, but no search reveals for which claim or for whom."""
    client = client_of(mia)
    assert decisions(client) == ["reclaim", "admit"]
    assert decisions(client, q="fish") == ["reclaim", "admit"]
    assert decisions(client, q="nlp") == ["reclaim"]
    assert [decisions(client, q=word) for word in ("bird", "noam", logged_decisions[1].public_id)] == [[], [], []]
    row = lines(client, "/decisions/", {"kind": "reclaim"})[0]
    assert (row["name"], row["person"], row["released_by"]) == ("", "", "fish")
    assert "bird" not in client.get("/decisions/").content.decode()


def test_columns_of_decisions_are_hidden(logged_decisions: list[Decision], root: User) -> None:
    assert client_of(root).get("/decisions/?columns=kind").content.decode().count("<td") == 3 * 2


def test_ten_thousand_decisions_cost_no_more_queries(
    logged_decisions: list[Decision], root: User, django_assert_max_num_queries: Any
) -> None:
    one = logged_decisions[0]
    Decision.objects.bulk_create(
        [
            Decision(plan_pass=one.plan_pass, kind="admit", claim=one.claim, department=one.department, pool=one.pool)
            for _number in range(10_000)
        ],
        batch_size=1000,
    )
    client = client_of(root)
    for query in ({}, {"sort": "-amount"}, {"q": "fish"}, {"page": "150"}):
        with django_assert_max_num_queries(20):
            assert client.get("/decisions/", query).status_code == 200


@pytest.mark.parametrize("path", ["/requests/", "/decisions/"])
def test_garbage_in_the_query_is_not_an_error(
    logged_decisions: list[Decision], quota_requests: list[QuotaRequest], root: User, path: str
) -> None:
    response = client_of(root).get(f"{path}?{GARBAGE}")
    assert response.status_code == 200
    assert "Nothing matches" in response.content.decode()
