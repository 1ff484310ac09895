"""The card map page: what each reader sees, filters, how each kind of use is drawn, and the number of queries."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.models import Department, Role, User
from quotas.board.map_drawing import density, step
from quotas.models import Card, Claim, ClaimState, Node, Pool, Quarantine
from tests import builders as make

pytestmark = pytest.mark.django_db


def on(node: str, *cards: int, **more: Any) -> list[dict[str, Any]]:
    return [{"pod": 0, "node": node, "cards": list(cards), **more}]


def page(client: Client, reader: User, address: str, status: int = 200) -> str:
    client.force_login(reader, backend="django.contrib.auth.backends.ModelBackend")
    response = client.get(address)
    assert response.status_code == status, response.content.decode()[:2000]
    return response.content.decode()


def drawn(text: str) -> list[str]:
    """The classes of every path and mark on the map's nodes, in order."""
    return re.findall(
        r'<(?:path|circle) class="([^"]*)"', text.partition('class="map-nodes"')[2].partition("</aside>")[0]
    )


@pytest.fixture
def pool() -> Pool:
    return make.pool("a100", cards=8, nodes=2)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 4)
    return vision


@pytest.fixture
def world(pool: Pool, vision: Department) -> dict[str, User]:
    """Node 1: vision uses a card of its own, two borrowed and one leaving. Node 2: nlp uses one card of its own, idle."""
    nlp = make.department("nlp")
    make.quota(nlp, pool, 2)
    people = {"valentin": make.member(vision, Role.MEMBER, "valentin"), "ned": make.member(nlp, Role.MEMBER, "ned")}
    people["sam"] = make.member(make.department("other"), Role.OWNER, "sam")
    people["root"] = make.user("root", is_operator=True)
    train: dict[str, Any] = {"name": "train-cats", "user": people["valentin"], "workload": "w1", "max_runtime": 7200}
    make.holding(vision, pool, own=1, borrowed={nlp: 2}, placement=on("a100-n1", 0, 1, 2), **train)
    leave_by = timezone.now() + dt.timedelta(minutes=5)
    make.holding(vision, pool, own=1, state=ClaimState.LEAVING, leave_by=leave_by, placement=on("a100-n1", 3))
    make.holding(nlp, pool, own=1, name="secret-llm", user=people["ned"], workload="w2", placement=on("a100-n2", 0),
                 idle_since=timezone.now())  # fmt: skip
    return people


def test_each_kind_of_use_has_its_own_drawing(client: Client, world: dict[str, User], pool: Pool) -> None:
    node = Node.objects.get(name="a100-n2")
    Card.objects.filter(node=node, index=1).update(outside=1)
    Card.objects.filter(node=node, index=2).update(quarantined=True)
    Card.objects.filter(node=node, index=3).update(healthy=False)
    classes = drawn(page(client, world["root"], "/card-map/"))
    assert classes == [
        "own d1 hn", "borrowed d1 hn", "hatch", "borrowed d1 hn", "hatch", "leaving d1 hn",
        "own d2 hn", "idle", "outside", "dots", "quarantined", "cross", "withheld", "slash",
    ]  # fmt: skip
    Node.objects.filter(pk=node.pk).update(drained=True)
    classes = drawn(page(client, world["root"], "/card-map/"))
    assert classes.count("slash") == 3, "work on a drained node is marked, too"
    assert classes.count("cross") == 1


def test_non_members_see_amounts_and_end_times_but_no_names_or_idleness(
    client: Client, world: dict[str, User], pool: Pool
) -> None:
    first, second = Node.objects.order_by("name")
    for reader, own, foreign in (("valentin", first, second), ("ned", second, first)):
        text = page(client, world[reader], "/card-map/")
        assert "another department" in text
        assert {"own d1 hn", "own d0 hx"} <= set(drawn(text))
        other = page(client, world[reader], f"/card-map/nodes/{foreign.pk}/")
        assert "another department" in other
        for secret in ("train-cats", "secret-llm", "valentin" if reader == "ned" else "ned", "w1", "w2", "idle since"):
            assert secret not in other.partition("map-node")[2], secret
        assert ("train-cats" if reader == "valentin" else "secret-llm") in page(
            client, world[reader], f"/card-map/nodes/{own.pk}/"
        )
    text = page(client, world["sam"], "/card-map/")
    assert set(re.findall(r" d(\d)", text.partition('class="map-nodes"')[2])) == {"0"}
    assert "Vision" not in text.partition('id="card-map"')[2]
    assert 'class="idle' not in text, "idleness of others' work is not shown"
    assert "Vision" in page(client, world["root"], "/card-map/")
    client.logout()
    assert client.get("/card-map/").headers["Location"].startswith("/login/")
    assert client.get(f"/card-map/nodes/{first.pk}/").headers["Location"].startswith("/login/")


def test_node_details_show_user_workload_and_end_time(client: Client, world: dict[str, User], pool: Pool) -> None:
    node = Node.objects.get(name="a100-n1")
    Quarantine.objects.create(node=node, card=2, why="fan is loud")
    text = page(client, world["valentin"], f"/card-map/nodes/{node.pk}/?card=1")
    words = " ".join(re.sub(r"<[^>]+>", " ", text.partition('class="map-node"')[2]).split())
    assert "card 0 Vision · own · 1 card train-cats · valentin since" in words
    assert "cards 1 to 2 Vision · borrowed · 2 cards train-cats" in words, "cards with the same use share one line"
    assert "until" in words
    assert "being recalled" in words
    assert "fan is loud" in words
    assert text.count('class="map-chosen"') == 2, "the term and the description of the chosen card"
    page(client, world["valentin"], "/card-map/nodes/999999/", 404)
    bare = Node.objects.create(cluster=node.cluster, name="without-cards")
    page(client, world["valentin"], f"/card-map/nodes/{bare.pk}/", 404)
    for odd in ("x", "-1", "99999999999"):
        page(client, world["valentin"], f"/card-map/nodes/{node.pk}/?card={odd}")


def words_of(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_free_count_agrees_with_the_drawing_when_cards_are_held(
    client: Client, world: dict[str, User], pool: Pool
) -> None:
    """Cards are held for a waiting workload and by a recall; other readers do not see for whom."""
    nlp = Department.objects.get(slug="nlp")
    make.claim(nlp, pool, 1, name="secret-next", reserved={"units": 1, "places": []})
    make.claim(nlp, pool, 1, ClaimState.HOLDING, pods=0, name="secret-recall", started_at=timezone.now())
    Claim.objects.filter(name="secret-llm").update(started_at=timezone.now() - dt.timedelta(hours=1))
    node = Node.objects.get(name="a100-n2")
    for reader in ("sam", "root"):
        text = page(client, world[reader], "/card-map/")
        assert sum(each == "free" for each in drawn(text)) == 3
        assert "2 nodes · 1 card free, 2 cards held for departments" in words_of(text)
        assert "free or held for departments" in words_of(text)
        details = words_of(page(client, world[reader], f"/card-map/nodes/{node.pk}/"))
        assert "1 card free, 2 cards held for departments" in details
        board = words_of(page(client, world[reader], "/pools/a100/"))
        assert "Free now 1 card plus 2 cards held for departments" in board
        assert "free or held for departments" in board
        for shown in (text, details, board):
            assert "secret" not in shown or reader == "root"
    make.pool("t4", cards=1)
    assert "free or held" not in page(client, world["sam"], "/pools/t4/")
    assert "free or held" not in page(client, world["sam"], "/card-map/?pool=t4")


def test_charge_for_compute_is_shown_where_it_exceeds_the_requested_memory(client: Client) -> None:
    hami = make.pool("hami", cards=2, unit="MiB", units_per_card=32 * 1024)
    vision = make.department("vision")
    make.quota(vision, hami, 64 * 1024)
    make.holding(vision, hami, own=24 * 1024, asked_per_pod=8 * 1024, cores_per_pod=75, placement=on("hami-n1", 0))
    make.holding(vision, hami, own=4 * 1024, placement=on("hami-n1", 1))
    root = make.user("root", is_operator=True)
    details = words_of(page(client, root, f"/card-map/nodes/{Node.objects.get().pk}/"))
    assert "36 GiB free" in details
    assert "own · 8 GiB, charged 24 GiB" in details
    assert "own · 4 GiB " in details
    assert "Vision 0.4 cards" in words_of(page(client, root, "/card-map/"))
    table = words_of(page(client, root, "/pools/hami/?table=1"))
    assert "8 GiB, charged 24 GiB · 75 %" in table
    assert "Free now 36 GiB" in table


def test_filters_hide_nodes_and_fade_cards(client: Client, world: dict[str, User], pool: Pool) -> None:
    other = make.pool("t4", cards=2)
    root = world["root"]
    whole = page(client, root, "/card-map/")
    assert "T4" in whole.partition('class="map-nodes"')[2]
    only = page(client, root, "/card-map/?pool=a100").partition('id="card-map"')[2]
    assert f"{other.name} <span>" not in only
    borrowed = page(client, root, "/card-map/?state=borrowed")
    assert "2 nodes without such cards are not shown." in borrowed
    assert drawn(borrowed) == [
        "own d1 hn x", "borrowed d1 hn", "hatch", "borrowed d1 hn", "hatch", "leaving d1 hn x",
    ]  # fmt: skip
    nlp = page(client, root, "/card-map/?department=nlp")
    assert [each for each in drawn(nlp) if not each.endswith(" x")] == ["own d2 hn", "idle"], "with its own colour"
    assert "No card matches now." in page(client, root, "/card-map/?department=vision&state=idle")
    hidden = page(client, world["ned"], "/card-map/?department=vision")
    assert "are not shown" not in hidden, "a filter by a department that the reader cannot see is ignored"
    for odd in ("state=x", "pool=none", "show=x", "department=" + "x" * 500):
        page(client, root, f"/card-map/?{odd}")


def test_mig_slices_are_drawn_at_their_position_and_parts_of_cards_by_their_share(client: Client) -> None:
    mig = make.pool("mig", cards=1, unit="slice", units_per_card=8, sharing="mig", mig="A100-80GB")
    t4 = make.pool("t4", cards=1, unit="MiB", units_per_card=16_000)
    vision = make.department("vision")
    make.quota(vision, mig, 8)
    make.quota(vision, t4, 16_000)
    make.holding(vision, mig, own=4, profile="3g.40gb", placement=on("mig-n1", 0, start=4))
    make.holding(vision, t4, own=4_000, placement=on("t4-n1", 0))
    make.holding(vision, t4, own=8_000, placement=on("t4-n1", 0))
    root = make.user("root", is_operator=True)
    text = page(client, root, "/card-map/?pool=mig")
    shapes = re.findall(r'<path class="(\w+)[^"]*" d="M([\d.]+) 0h([\d.]+)v', text.partition('class="map-nodes"')[2])
    assert shapes == [("own", "11", "11"), ("free", "0", "11")]
    assert text.partition('class="tick" d="')[2].partition('"')[0].count("M") == 7
    text = page(client, root, "/card-map/?pool=t4")
    shapes = re.findall(r'<path class="(\w+)[^"]*" d="M([\d.]+) 0h([\d.]+)v', text.partition('class="map-nodes"')[2])
    assert shapes == [("own", "0", "5.5"), ("own", "5.5", "11"), ("free", "16.5", "5.5")]


def test_fixed_mig_instances_have_one_line_for_each_profile(client: Client) -> None:
    mig = make.pool("mig", cards=2, unit="slice", units_per_card=8, sharing="mig", mig="A100-80GB")
    Node.objects.update(instances={"1g.10gb": 4, "3g.40gb": 2})
    vision = make.department("vision")
    make.quota(vision, mig, 8)
    place = [{"pod": 0, "node": "mig-n1", "cards": []}]
    make.holding(vision, mig, own=4, profile="3g.40gb", placement=place, name="cut")
    root = make.user("root", is_operator=True)
    text = page(client, root, "/card-map/")
    assert drawn(text) == ["free"] * 4 + ["own d1 hn", "free"]
    assert "Vision 0.5 cards" in words_of(text), "half a card, not one instance"
    assert "own 0.5 cards, free 1 card" in text
    assert "4 of 4 free" in text
    assert "1 of 2 free" in text
    assert 'data-n="2" data-first="4"' in text
    details = page(client, root, f"/card-map/nodes/{Node.objects.get().pk}/")
    assert "4 × free" in details
    assert "cut" in details


@pytest.mark.parametrize(("cards", "size"), [(80, "large"), (81, "medium"), (800, "medium"), (801, "small")])
def test_cards_are_drawn_smaller_the_more_there_are(cards: int, size: str) -> None:
    assert density(cards) == size


@pytest.mark.parametrize(
    ("activity", "expected"), [(0, 0), (0.004, 0), (0.01, 1), (0.25, 2), (0.749, 3), (0.75, 4), (1, 4)]
)
def test_activity_is_shown_in_five_steps_of_which_the_first_is_none(activity: float, expected: int) -> None:
    assert step(activity) == expected


def a_large_pool(nodes: int) -> Pool:
    pool = make.pool("h100", cards=8 * nodes, nodes=nodes)
    departments = [make.department(f"d{n}") for n in range(12)]
    for department in departments:
        make.quota(department, pool, 2)
    Claim.objects.bulk_create(
        Claim(
            department=departments[n % 12], pool=pool, name="train", workload=f"w{n}-{card}", units_per_pod=2,
            state=ClaimState.HOLDING, started_at=timezone.now(), placement=on(f"h100-n{n + 1}", card, card + 1),
        )
        for n in range(nodes) for card in (0, 2, 4)
    )  # fmt: skip
    return pool


def test_thousand_nodes_take_as_many_queries_as_one_and_a_small_page(client: Client) -> None:
    root = make.user("root", is_operator=True)
    make.holding(make.department(), make.pool("one", cards=1), own=1, placement=on("one-n1", 0))
    page(client, root, "/card-map/")
    with CaptureQueriesContext(connection) as few:
        page(client, root, "/card-map/")
    a_large_pool(1_000)
    with CaptureQueriesContext(connection) as many:
        text = page(client, root, "/card-map/")
    assert len(many) == len(few)
    assert text.count("<li><a href=") == 1_001
    assert len(text) < 1_500_000
    node = Node.objects.get(name="h100-n500")
    with CaptureQueriesContext(connection) as one:
        page(client, root, f"/card-map/nodes/{node.pk}/")
    assert len(one) <= len(many) + 2


def test_names_of_nodes_and_departments_are_escaped(client: Client) -> None:
    pool = make.pool("a100", cards=1)
    Node.objects.update(name="<script>x</script>")
    rude = make.department("rude", name="<i>&\"'")
    make.holding(rude, pool, own=1, placement=on("<script>x</script>", 0))
    text = page(client, make.user("root", is_operator=True), "/card-map/")
    assert "<script>x" not in text
    assert "<i>&" not in text


def test_page_of_a_large_pool_links_to_the_map_instead_of_listing_nodes(client: Client) -> None:
    a_large_pool(60)
    text = page(client, make.user("root", is_operator=True), "/pools/h100/")
    assert "/card-map/?pool=h100" in text
    assert "60 nodes. The card map shows every one of them" in text
    assert 'class="node"' not in text
