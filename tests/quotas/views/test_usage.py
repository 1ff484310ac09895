"""The usage page, its CSV export and the API: who can see what, and that all three agree."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.models import Department, Membership, Role, User
from quotas.models import Claim, ClaimState, Decision, LedgerEntry, PlanPass, Pool
from quotas.reports.asked import KINDS
from quotas.spending.metering import sum_hours
from tests import builders as make
from tests.clients import ALL, token_of
from workloads.models import Kind

pytestmark = pytest.mark.django_db
NOW = timezone.now().replace(microsecond=0)


@pytest.fixture
def people() -> dict[str, User]:
    lab = make.department("lab")
    vision, nlp = make.department("vision", parent=lab), make.department("nlp", parent=lab)
    bio = make.department("bio")
    cards = make.pool("a100", cards=16)
    memory = make.pool("t4", unit="MiB", units_per_card=15_360, cards=2)
    for department in (vision, nlp, bio):
        make.quota(department, cards, 4)
    people = {
        "ann": make.member(vision, Role.MEMBER, "ann"),
        "ben": make.member(vision, Role.MEMBER, "ben"),
        "bob": make.member(bio, Role.MEMBER, "bob"),
        "lead": make.member(lab, Role.OWNER, "lead"),
        "head": make.member(bio, Role.OWNER, "head"),
        "root": make.user("root", is_operator=True),
    }
    make_run(vision, cards, people["ann"], own=2, kind="job")
    make_run(vision, cards, people["ben"], borrowed={nlp: 1}, kind="notebook")
    make_run(vision, memory, people["ann"], borrowed={None: 5_120}, kind="job")
    make_run(bio, cards, people["bob"], own=1, kind="job")
    return people


def make_run(department: Department, pool: Pool, user: User, *, kind: str, **units: Any) -> Claim:
    """A claim that has run for the last hour, after one minute of waiting."""
    claim = make.holding(department, pool, user=user, kind=kind, workload=f"w-{user.username}-{pool.slug}", **units,
                         started_at=NOW - dt.timedelta(hours=1), queued_at=NOW - dt.timedelta(minutes=61))  # fmt: skip
    LedgerEntry.objects.filter(claim=claim).update(ended_at=NOW)
    return claim


TIME = {"from": (NOW - dt.timedelta(days=1)).isoformat(), "until": (NOW + dt.timedelta(hours=1)).isoformat()}


def usage_of(user: User, **values: str) -> dict[str, Any]:
    client = Client()
    client.force_login(user)
    response = client.get("/api/v1/usage/", TIME | values)
    assert response.status_code == 200, response.content
    found: dict[str, Any] = response.json()
    return found


def rows(user: User, *by: str, **values: str) -> dict[tuple[str, ...], tuple[float, float]]:
    found = usage_of(user, group=",".join(by), **values)["results"]
    return {(*(row[name] for name in by), row["unit"]): (row["own"], row["borrowed"]) for row in found}


def test_member_sees_only_own_work(people: dict[str, User]) -> None:
    assert rows(people["ann"], "person") == {("ann", "card"): (2, 0), ("ann", "MiB"): (0, 5)}
    assert rows(people["ann"], "person", person="ben") == {}
    assert rows(people["bob"], "department", "kind") == {("bio", "job", "card"): (1, 0)}
    assert all(row["guaranteed"] is None and row["lent"] is None for row in usage_of(people["ann"])["results"])


def test_owner_sees_the_departments_tree_and_operator_sees_everything(people: dict[str, User]) -> None:
    assert rows(people["lead"], "person", pool="a100") == {("ann", "card"): (2, 0), ("ben", "card"): (0, 1)}
    assert rows(people["head"], "person") == {("bob", "card"): (1, 0)}
    assert set(rows(people["root"], "person", pool="a100")) == {("ann", "card"), ("ben", "card"), ("bob", "card")}
    by_department = {
        row["department"]: row for row in usage_of(people["lead"], group="department", pool="a100")["results"]
    }
    assert (by_department["nlp"]["lent"], by_department["vision"]["lent"]) == (1, 0)
    assert set(rows(people["root"], "department", department="lab", pool="a100")) == {
        ("vision", "card"),
        ("nlp", "card"),
    }


def test_token_of_one_department_sees_only_its_usage(people: dict[str, User]) -> None:
    make.member(Department.objects.get(slug="bio"), Role.OWNER, "both")
    both = User.objects.get(username="both")
    nlp = Department.objects.get(slug="nlp")
    Membership.objects.create(user=both, department=nlp, role=Role.MEMBER)
    make_run(nlp, Pool.objects.get(slug="a100"), both, own=3, kind="job")
    _row, secret = token_of(both, Department.objects.get(slug="bio"), ALL)
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    found = client.get("/api/v1/usage/", TIME | {"group": "person", "pool": "a100"}).json()["results"]
    assert {row["person"] for row in found} == {"bob"}
    _row, secret = token_of(people["lead"], Department.objects.get(slug="lab"), ["submit"])
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    assert client.get("/api/v1/usage/", TIME).json()["results"] == []


def test_days_begin_in_the_readers_zone_by_session_and_by_token(people: dict[str, User]) -> None:
    User.objects.filter(username="head").update(time_zone="Asia/Shanghai")
    _row, secret = token_of(User.objects.get(username="head"), Department.objects.get(slug="bio"), ALL)
    days = {"from": "2026-03-02", "until": "2026-03-02"}
    session = Client()
    session.force_login(User.objects.get(username="head"))
    for client in (session, Client(headers={"Authorization": f"Bearer {secret}"})):
        data = client.get("/api/v1/usage/", days).json()
        assert (data["start"], data["end"], data["zone"]) == (
            "2026-03-01T16:00:00Z", "2026-03-02T16:00:00Z", "Asia/Shanghai"
        )  # fmt: skip


def test_different_units_are_never_added_up(people: dict[str, User]) -> None:
    totals = {row["unit"]: row for row in usage_of(people["root"], group="person")["totals"]}
    assert (totals["card"]["own"], totals["card"]["borrowed"]) == (3, 1)
    assert totals["MiB"]["borrowed"] == 5  # GiB-hours
    assert totals["MiB"]["unit_seconds"]["borrowed"] == 5_120 * 3_600


def test_waits_are_from_queued_to_started_by_nearest_rank(people: dict[str, User]) -> None:
    pool, bio = Pool.objects.get(slug="a100"), Department.objects.get(slug="bio")
    for minutes in range(2, 21):
        make.claim(bio, pool, 1, ClaimState.RELEASED, user=people["bob"], kind="job", started_at=NOW,
                   queued_at=NOW - dt.timedelta(minutes=minutes), submitted_at=NOW - dt.timedelta(days=9))  # fmt: skip
    [row] = usage_of(people["head"], group="person")["results"]
    assert (row["starts"], row["wait_p50"], row["wait_p95"]) == (20, 600, 19 * 60)


def test_recalls_count_on_both_sides(people: dict[str, User]) -> None:
    pool = Pool.objects.get(slug="a100")
    asking = Claim.objects.get(user=people["bob"])
    victims = list(Claim.objects.filter(user__in=[people["ann"], people["ben"]], pool=pool))
    plan = PlanPass.objects.create(group=pool.group, snapshot=b"")
    for _ in range(2):  # decided again for the same victims: each counts once
        decision = Decision.objects.create(
            plan_pass=plan, kind="reclaim", claim=asking, department=asking.department, pool=pool, at=NOW, data={}
        )
        decision.victims.set(victims)
    found = {row["department"]: row for row in usage_of(people["root"], group="department", pool="a100")["results"]}
    assert (found["vision"]["recalls_suffered"], found["bio"]["recalls_caused"]) == (2, 2)
    assert (found["vision"]["recalls_caused"], found["bio"]["recalls_suffered"]) == (0, 0)


def test_csv_equals_the_api_and_escapes_formulas(people: dict[str, User]) -> None:
    User.objects.filter(username="ann").update(username="=cmd")
    Claim.objects.filter(person="ann").update(person="=cmd")
    client = Client()
    client.force_login(people["root"])
    response = client.get("/usage/export.csv", TIME | {"group": "person,pool"})
    assert response.streaming
    text = b"".join(response.streaming_content).decode()  # type: ignore[attr-defined]
    assert text.startswith("\ufeff")
    table = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    assert {row["person"] for row in table} == {"'=cmd", "ben", "bob"}
    data = usage_of(people["root"], group="person,pool")["results"]
    assert [(float(row["own_hours"]), float(row["borrowed_hours"])) for row in table] == [
        (row["own"], row["borrowed"]) for row in data
    ]


def test_page_has_a_table_for_each_unit_and_links_keep_the_filters(people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["root"])
    page = client.get("/usage/", TIME | {"group": "person", "kind": "job"}).content.decode()
    assert page.count('class="table table-vcenter card-table table-sm usage-table stacked"') == 2
    assert "GiB-hours" in page
    assert "Card-hours" in page
    assert "budgets count all pools together in GPU-hours" in page
    assert "not measured" in page
    into = next(each for each in re.findall(r'href="(\?[^"]*)"', page) if "person=ann" in each)
    assert "kind=job" in into
    assert "from=" in into
    empty = client.get("/usage/", {"from": "2001-01-01", "until": "2001-01-02"}).content.decode()
    assert "Nothing was used" in empty


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"range": "yesterday"}, "range"),
        ({"from": "2026-01-31"}, "until"),
        ({"from": "31.1.2026", "until": "2026-02-01"}, "from"),
        ({"from": "2026-02-01T10:00:00", "until": "2026-02-02"}, "from"),
        ({"from": "2026-02-02", "until": "2026-02-01"}, "until"),
        ({"from": "0001-01-01", "until": "2026-02-01"}, "from"),
        ({"from": "2026-01-01", "until": "9999-12-31"}, "until"),
        ({"from": "2001-01-01", "until": "2026-02-01"}, "until"),
        ({"from": "2026-01-01", "until": "2026-01-02", "range": "7d"}, "range"),
        ({"group": "colour"}, "group"),
        ({"group": ","}, "group"),
        ({"kind": "game"}, "kind"),
        ({"limit": "100000"}, "limit"),
    ],
)
def test_invalid_query_is_refused_with_its_field(people: dict[str, User], values: dict[str, str], field: str) -> None:
    client = Client()
    client.force_login(people["root"])
    response = client.get("/api/v1/usage/", values)
    assert (response.status_code, response.headers["Content-Type"]) == (422, "application/problem+json")
    assert [each["attr"] for each in response.json()["errors"]] == [field]
    if field != "limit":
        page = client.get("/usage/", values)
        assert page.status_code == 422
        assert response.json()["detail"].split("“")[0].split("'")[0][:20] in page.content.decode()


def test_departments_of_others_are_404(people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["bob"])
    for path in ("/usage/", "/usage/export.csv", "/api/v1/usage/"):
        assert client.get(path, {"department": "vision"}).status_code == 404
        assert client.get(path, {"pool": "none"}).status_code == 404


def test_number_of_queries_of_the_page_does_not_grow(people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["root"])
    sum_hours(now=NOW)
    counts = set()
    for days in (1, 3, 400):
        more = {"from": str((NOW - dt.timedelta(days=days)).date()), "until": str(NOW.date()), "group": "department"}
        client.get("/usage/", more)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            client.get("/usage/", more)
        counts.add(len(queries))
        make_run(
            Department.objects.get(slug="nlp"), make.pool(f"more-{days}"), make.user(f"more-{days}"), own=1, kind="job"
        )
    assert max(counts) - min(counts) <= 2  # reading daily sums takes one more query
    assert max(counts) < 40


def test_the_kinds_are_those_of_workloads() -> None:
    assert list(KINDS.items()) == [(kind.value, kind.label) for kind in Kind]


def test_allocated_against_used_shows_eight_users_on_one_scale_and_folds_the_rest(client: Client) -> None:
    pool, vision = make.pool("many", cards=16), make.department("many")
    make.quota(vision, pool, 16)
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for number in range(10):
        since = hour - dt.timedelta(hours=10 - number)
        make.holding(vision, pool, own=1, user=make.user(f"user{number}"), started_at=since)
    owner, member = make.member(vision, Role.OWNER), make.member(vision, Role.MEMBER)
    client.force_login(owner, backend="django.contrib.auth.backends.ModelBackend")
    page = client.get("/d/many/use/").content.decode()
    people = page.partition("by person")[2]
    first, _, rest = people.partition("<details>")
    assert re.findall(r"<span>(user\d)</span>", first) == [f"user{n}" for n in range(8)]
    assert re.findall(r"<span>(user\d)</span>", rest) == ["user8", "user9"]
    assert "Show 2 more" in people
    widths = re.findall(r'class="use-allocated" width="([\d.]+)"', people)
    assert [float(width) for width in widths] == [100 - 10 * n for n in range(10)]
    assert people.count("not measured") == 10
    client.force_login(member, backend="django.contrib.auth.backends.ModelBackend")
    page = client.get("/d/many/use/").content.decode()
    assert "Last 7 days" in page
    assert "by person" not in page
    assert "user0" not in page


def test_the_use_of_one_person_in_two_pools_of_shared_memory_is_not_added_up(client: Client) -> None:
    pools = [make.pool(name, units_per_card=48, unit="GiB", sharing="hami") for name in ("l40s", "a40")]
    vision = make.department("vision")
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    user = make.user("ann")
    for pool, units in zip(pools, (12, 30), strict=True):
        make.quota(vision, pool, 48)
        make.holding(vision, pool, own=units, user=user, started_at=hour - dt.timedelta(hours=2))
    client.force_login(make.member(vision, Role.OWNER), backend="django.contrib.auth.backends.ModelBackend")
    people = client.get("/d/vision/use/").content.decode().partition("by person")[2]
    bars = re.findall(
        r'<span>ann <span class="text-secondary">(.*?)</span></span><span class="tabular">([\d.]+)', people
    )
    assert bars == [(pools[1].name, "60.00"), (pools[0].name, "24.00")]


def test_person_filter_shows_full_names_only_of_users_known_to_the_reader(people: dict[str, User]) -> None:
    for username in ("ann", "bob"):
        User.objects.filter(username=username).update(first_name=username.capitalize(), last_name="Lang")

    def filters(reader: str, person: str) -> list[str]:
        client = Client()
        client.force_login(people[reader])
        page = " ".join(client.get("/usage/", {"person": person}).content.decode().split())
        return re.findall(r'usage-filter"[^>]*>Person: ([^<]*?) *<', page)

    assert filters("ann", "ann") == ["Ann Lang"]
    assert filters("root", "bob") == ["Bob Lang"]
    assert filters("ann", "bob") == ["bob"]
    assert filters("root", "gone") == ["gone"]
