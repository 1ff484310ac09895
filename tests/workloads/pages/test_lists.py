"""Lists of workloads: sorting, columns, dates, CSV, bulk actions, saved views, and the list of all for operators."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from portal.models import SavedFilter
from portal.web.facets import Filter
from portal.web.lists import Column, ListState
from tests import builders as make
from tests.workloads.pages.test_workloads import World, as_, submit
from workloads.models import Workload

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    return World()


def listed_names(client: Client, **query: str) -> list[str]:
    """The listed names in their order."""
    page = client.get(reverse("workloads:list", args=["vision"]), query)
    assert page.status_code == 200
    return [row.workload.name for row in page.context["rows"]]


def create_three(world: World) -> None:
    """Creates b with 1 card ten days ago, a with 4 yesterday, c with 2 now."""
    client = as_(world.alice)
    for name, cards, days in (("b", "1", 10), ("a", "4", 1), ("c", "2", 0)):
        row = submit(client, world, name=name, units_per_pod=cards)
        Workload.objects.filter(pk=row.pk).update(submitted_at=timezone.now() - dt.timedelta(days=days))


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("", "cab"),
        ("name", "abc"),
        ("-name", "cba"),
        ("amount", "bca"),
        ("-amount", "acb"),
        ("no", "cab"),
        ("share", "cab"),
    ],
)
def test_list_is_sorted_by_the_column_in_the_address(world: World, sort: str, names: str) -> None:
    create_three(world)
    assert listed_names(as_(world.alice), sort=sort) == list(names)


def test_date_filter_uses_local_days_and_includes_both_ends(world: World) -> None:
    create_three(world)
    client, today = as_(world.alice), timezone.localdate()
    day = dt.timedelta(days=1)
    assert listed_names(client, **{"from": str(today - 2 * day)}) == ["c", "a"]
    assert listed_names(client, to=str(today - day)) == ["a", "b"]
    assert listed_names(client, **{"from": str(today - day), "to": str(today - day)}) == ["a"]
    assert listed_names(client, **{"from": "2026-02-31", "to": "soon"}) == [
        "c",
        "a",
        "b",
    ]  # invalid dates are ignored
    assert listed_names(client, to="9999-12-31") == ["c", "a", "b"]


def test_columns_can_be_chosen_and_the_name_always_stays(world: World) -> None:
    create_three(world)
    page = as_(world.alice).get(reverse("workloads:list", args=["vision"]), {"columns": "pool,submitted"})
    shown = [each.column.name for each in page.context["list"].headings if each.is_shown]
    assert shown == ["name", "pool", "submitted"]
    assert page.content.decode().count("<td") == 3 * 4  # with the checkbox


def test_sort_links_reverse_the_order_and_keep_the_filters() -> None:
    columns = [Column("name", "Name", ("name",), fixed=True), Column("size", "Size", ("size",), number=True)]
    state = ListState(QueryDict("state=failed&page=3&sort=name&q=x"), columns, searched=())
    name, size = state.headings
    assert (name.direction, name.sorts) == ("ascending", "?state=failed&q=x&sort=-name")
    assert size.sorts == "?state=failed&q=x&sort=-size"  # the largest first
    assert ListState(QueryDict("sort=-size"), columns, searched=()).headings[1].sorts == "?sort=size"
    assert size.toggles == "?state=failed&sort=name&q=x&columns=name"
    filters = [Filter("state", "State", "state")]
    state = ListState(QueryDict("state=failed&page=3&sort=name&q=x&other=1"), columns, searched=(), filters=filters)
    assert state.carried == [("sort", "name"), ("state", "failed")]


@pytest.mark.parametrize(
    ("address", "column", "direction"),
    [
        ("/d/vision/workloads/", "submitted", "descending"),
        ("/operator/workloads/", "submitted", "descending"),
        ("/requests/", "time", "descending"),
        ("/decisions/", "time", "descending"),
        ("/inbox/", "time", "descending"),
        ("/operator/audit/", "at", "descending"),
        ("/operator/users/", "user", "ascending"),
        ("/d/vision/members/", "user", "ascending"),
        ("/tokens/", "state", "ascending"),
    ],
)
def test_every_list_shows_and_marks_the_column_by_which_it_is_sorted(
    world: World, address: str, column: str, direction: str
) -> None:
    client = as_(make.user("root", is_operator=True))
    [marked] = [each for each in client.get(address).context["list"].headings if each.direction]
    assert (marked.column.name, marked.direction, marked.is_shown) == (column, direction, True)
    turned = client.get(address + marked.sorts).context["list"]
    [marked] = [each for each in turned.headings if each.direction]
    assert marked.column.name == column
    assert marked.direction != direction
    assert turned.carried


def test_state_of_live_workloads_says_since_when_unless_a_column_does(world: World) -> None:
    create_three(world)
    live, ended = Workload.objects.get(name="a"), Workload.objects.get(name="b")
    Workload.objects.filter(pk=ended.pk).update(state="succeeded", finished_at=timezone.now())
    client, address = as_(world.alice), reverse("workloads:list", args=["vision"])
    page = client.get(address).content.decode()
    assert 'aria-sort="descending"' in page
    assert page.count('data-time="since"') == 2
    row = page.split(f'id="row-{ended.public_id}"')[1].split("</tr>")[0]
    assert 'data-time="since"' not in row
    assert f'id="row-{live.public_id}"' in page
    page = client.get(address, {"columns": "state,since"}).content.decode()
    assert page.count('data-time="since"') == 3


def test_csv_has_the_same_rows_in_the_same_order_as_the_page(world: World) -> None:
    create_three(world)
    client = as_(world.alice)
    response = client.get(reverse("workloads:list", args=["vision"]), {"sort": "name", "q": "", "format": "csv"})
    lines = b"".join(response.streaming_content).decode("utf-8-sig").splitlines()  # type: ignore[attr-defined]
    assert lines[0].startswith("id,name,kind,state,department,pool,unit,units,own,borrowed,author")
    assert [line.split(",")[1] for line in lines[1:]] == ["a", "b", "c"]
    response = client.get(reverse("workloads:list", args=["vision"]), {"q": "b", "format": "csv"})
    assert len(b"".join(response.streaming_content).splitlines()) == 2  # type: ignore[attr-defined]
    assert as_(world.stranger).get(reverse("workloads:list", args=["vision"]), {"format": "csv"}).status_code == 404


def test_bulk_extension_explains_which_workloads_were_not_extended(world: World) -> None:
    client = as_(world.alice)
    own, hers = submit(client, world, name="own"), submit(as_(world.carol), world, name="hers")
    endless = submit(client, world, name="endless", max_runtime="")
    chosen = {"workload": [own.public_id, hers.public_id, endless.public_id], "do": "extend-8h"}
    page = client.post(reverse("workloads:several", args=["vision"]), chosen, follow=True).content.decode()
    assert "1 workload was extended." in page
    assert "hers: This requires the role owner." in page
    assert "endless: " in page
    own.refresh_from_db()
    hers.refresh_from_db()
    assert (own.max_runtime, hers.max_runtime, own.state) == (10 * 3600, 2 * 3600, "queued")


def test_only_operators_can_list_all_workloads(world: World) -> None:
    one = submit(as_(world.alice), world)
    operator = as_(make.user("root", is_operator=True))
    page = operator.get(reverse("workloads:everywhere"), {"department": "vision"})
    assert [row.workload.pk for row in page.context["rows"]] == [one.pk]
    assert "Vision" in page.content.decode()
    assert operator.get(reverse("workloads:everywhere"), {"department": "nlp"}).context["rows"] == []
    operator.post(reverse("workloads:several_everywhere"), {"workload": [one.public_id], "do": "stop"})
    one.refresh_from_db()
    assert one.state == "cancelled"
    for user in (world.owner, world.alice):
        for query in ({}, {"format": "csv"}):
            assert as_(user).get(reverse("workloads:everywhere"), query).status_code == 404
        assert as_(user).post(reverse("workloads:several_everywhere")).status_code == 404


def test_list_of_ten_thousand_rows_needs_few_queries_and_little_time(
    world: World, django_assert_max_num_queries: Any
) -> None:
    first = submit(as_(world.alice), world)
    fields = [each.attname for each in Workload._meta.concrete_fields if each.name not in ("id", "public_id")]
    blank = {name: getattr(first, name) for name in fields}
    Workload.objects.bulk_create(
        [Workload(**blank | {"name": f"job-{number:05d}", "state": "succeeded"}) for number in range(10_000)],
        batch_size=1000,
    )
    client = as_(make.user("root", is_operator=True))
    address = reverse("workloads:everywhere")
    for query in ({}, {"sort": "name"}, {"sort": "-amount", "state": "succeeded"}, {"q": "job-0999"}):
        with django_assert_max_num_queries(26):
            began = time.monotonic()
            assert client.get(address, query).status_code == 200
            assert time.monotonic() - began < 3  # on a busy machine; about 0.1 s


def test_saved_view_can_be_seen_and_deleted_only_by_its_owner(world: World) -> None:
    client, path = as_(world.alice), reverse("workloads:list", args=["vision"])
    form = {"path": path, "query": "state=failed&sort=-amount&page=3", "name": "my failures"}
    response = client.post(reverse("portal:filter_save"), form)
    assert response.headers["Location"] == f"{path}?state=failed&sort=-amount"
    page = client.get(path).content.decode()
    assert f'href="{path}?state=failed&amp;sort=-amount">my failures<' in page
    assert "my failures" not in as_(world.carol).get(path).content.decode()
    client.post(reverse("portal:filter_save"), form | {"query": "state=queued"})
    row = SavedFilter.objects.get()
    assert row.query == "state=queued"
    delete_url = reverse("portal:filter_delete", args=[row.pk])
    assert as_(world.carol).post(delete_url).status_code == 404
    assert client.post(delete_url).status_code == 302
    assert not SavedFilter.objects.exists()


@pytest.mark.parametrize("path", ["//evil.example/", "https://evil.example/", "/no/such/page", "/\\evil.example", ""])
def test_saved_view_must_point_to_a_page_of_the_portal(world: World, path: str) -> None:
    form = {"path": path, "query": "", "name": "x"}
    assert as_(world.alice).post(reverse("portal:filter_save"), form).status_code == 404
    assert not SavedFilter.objects.exists()


def test_blank_name_of_a_saved_view_is_refused_with_an_explanation(world: World) -> None:
    path = reverse("workloads:list", args=["vision"])
    page = as_(world.alice).post(reverse("portal:filter_save"), {"path": path, "name": " "}, follow=True)
    assert "Enter a name of 1 to 60 characters." in page.content.decode()
    assert not SavedFilter.objects.exists()
