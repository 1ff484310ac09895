"""Pools and decisions, as a browser gets them: everybody's cards, each reader's own names."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.utils import timezone

from portal.models import Role
from quotas.board.chart import draw
from quotas.board.history import Point
from quotas.engine.planning_pass import decide
from quotas.engine.types import ClaimId, Plan
from quotas.models import Card, Decision, LedgerEntry, Node, PlanPass, UsageHour
from quotas.planning.replay import packed
from quotas.planning.snapshot import load_snapshot
from tests import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def world():
    """vision reclaims 2 cards from nlp; other is not involved."""
    pool = make.pool("a100", name="A100 cards", cards=8)
    vision, nlp, other = make.department("vision"), make.department("nlp"), make.department("other")
    make.quota(vision, pool, 4)
    make.quota(nlp, pool, 1)
    people = {
        name: make.member(of, Role.MEMBER, name) for name, of in (("valentin", vision), ("ned", nlp), ("sam", other))
    }
    people["root"] = make.user("root", is_operator=True)
    preemptor = make.claim(vision, pool, 2, name="train-cats", workload="w-cats", user=people["valentin"])
    victim = make.holding(
        nlp, pool, borrowed={vision: 2}, name="secret-llm", workload="w-llm", user=people["ned"], state="leaving",
        placement=[{"pod": 0, "node": "a100-n1", "cards": [0, 1]}],
    )  # fmt: skip
    decision = Decision.objects.create(
        plan_pass=PlanPass.objects.create(group=pool.group, snapshot=b""),
        kind="reclaim",
        claim=preemptor,
        department=vision,
        pool=pool,
        data={"own": 2, "borrowed": 0, "from": {}, "by": 1_900_000_000, "waiting_on": [victim.public_id],
              "reasons": [{"code": "lent_out_returning", "victims": [victim.public_id], "at": 1_900_000_000}]},
    )  # fmt: skip
    decision.victims.add(victim)
    return {"pool": pool, "decision": decision, **people}


def page(client, user, url, status=200):
    client.force_login(user)
    response = client.get(url)
    assert response.status_code == status, response.content.decode()[:3000]
    return response.content.decode()


def test_everyone_sees_the_cards_but_only_the_names_of_their_own_work(client, world):
    for username in ("valentin", "sam"):
        text = page(client, world[username], "/pools/a100/")
        assert "Nlp" in text
        assert "secret-llm" not in text
        assert "w-llm" not in text
        assert "ned" not in text
    assert "secret-llm" in page(client, world["ned"], "/pools/a100/")
    assert "secret-llm" in page(client, world["root"], "/pools/a100/")


def test_guarantees_of_others_are_not_shown(client, world):
    text = page(client, world["sam"], "/pools/a100/")
    assert "4 cards</td>" not in text.split("By department")[1].split("Usage over time")[0]


def test_list_and_page_show_withheld_capacity(client, world):
    Node.objects.update(held_back="driver missing")
    text = page(client, world["sam"], "/pools/")
    assert "A100 cards" in text
    assert "short: 5 cards less than guaranteed" in text
    assert "withheld: driver missing" in page(client, world["sam"], "/pools/a100/")


def test_list_and_page_show_what_is_free_and_the_largest_request_that_fits(client, world):
    """Seven cards are free, but no node has more than four of them."""
    h100 = make.pool("h100", cards=8, nodes=2)
    place = [{"pod": 0, "node": "h100-n1", "cards": [0]}]
    make.holding(make.department("bio"), h100, borrowed={None: 1}, placement=place)
    row = page(client, world["sam"], "/pools/").split('href="/pools/h100/"')[1].split("</tr>")[0]
    assert re.findall(r'data-label="(Free now|Largest that fits)">([^<]+)<', row) == [
        ("Free now", "7 cards"), ("Largest that fits", "4 cards"),
    ]  # fmt: skip
    text = page(client, world["sam"], "/pools/h100/")
    assert re.findall(r'<div class="text-secondary">([^<]+)</div><div class="big-number">([^<]+)<', text)[:2] == [
        ("Free now", "7 cards"), ("Largest that fits now", "4 cards"),
    ]  # fmt: skip


def drawn(text):
    """kind → (x, width) in percent of the first bar on the page."""
    bar = text.split('class="quota-bar-drawing"')[1].split("</svg>")[0]
    found = re.findall(r'<rect class="quota-(\w+)" x="([\d.]+)%" y="1" width="([\d.]+)%"', bar)
    return {kind: (float(x), float(width)) for kind, x, width in found}


@pytest.mark.parametrize("promised", [0, 3, 10])
def test_bar_of_a_pool_is_scaled_to_the_pool_whatever_is_guaranteed(client, promised):
    pool = make.pool("t4", cards=10)
    vision, nlp = make.department("vision"), make.department("nlp")
    make.quota(vision, pool, promised)
    make.holding(vision, pool, own=6)
    make.holding(nlp, pool, borrowed={vision: 4})
    sam = make.member(make.department("other"), Role.MEMBER, "sam")
    bar = drawn(page(client, sam, "/pools/"))
    assert bar == {"own": (0, 60), "borrowed": (60, 40)}  # a full pool fills the bar
    LedgerEntry.objects.filter(own=False).update(ended_at=timezone.now())
    assert sum(width for _x, width in drawn(page(client, sam, "/pools/")).values()) == 60
    Card.objects.filter(pool=pool, index__gte=7).update(healthy=False)
    bar = drawn(page(client, sam, "/pools/"))
    assert bar == {"own": (0, 60), "away": (60, 30)}  # absent cards are not free
    assert "of 10 cards" in page(client, sam, "/pools/")


def test_cards_are_shown_as_a_table_on_request(client, world):
    text = page(client, world["valentin"], "/pools/a100/")
    assert 'href="?table=1#cards"' in text
    assert "a100-n1</td>" not in text
    client.force_login(world["valentin"])
    part = client.get("/pools/a100/?table=1", headers={"HX-Request": "true", "HX-Target": "map"}).content.decode()
    assert "a100-n1</td>" in part
    assert 'hx-get="/pools/a100/?table=1"' in part  # each refresh requests the table again
    assert 'href="?#cards"' in part


def test_refresh_computes_only_the_requested_part(client, world):
    client.force_login(world["valentin"])
    for part, others in (("map", "over-time"), ("past", "map-title")):
        text = client.get("/pools/a100/", headers={"HX-Request": "true", "HX-Target": part}).content.decode()
        assert f'id="{part}"' in text
        assert others not in text


def test_trend_of_a_pool_is_scaled_to_the_pool():
    pool, points = make.pool(), [Point(timezone.now() - dt.timedelta(hours=2), 3, 2, 1, 0)]
    kept = {"end": timezone.now(), "days": 7, "step": dt.timedelta(hours=1)}
    assert draw(pool, points, **kept, capacity=16).line.top == 16
    assert draw(pool, points, **kept).line.top == 4  # a department's: its guarantee, and what it borrows above


def test_chart_covers_the_chosen_range():
    end = timezone.now()
    points = [Point(end - dt.timedelta(hours=2), 3, 2, 1, 0)]
    week = draw(make.pool(), points, end=end, days=7, step=dt.timedelta(hours=1))
    assert week.line.begin == end - dt.timedelta(days=7)
    [x] = re.findall(r' x="([\d.]+)"', week.columns)
    assert float(x) == pytest.approx(1000 * (1 - 2 / 168), abs=0.1)
    assert len(week.line.ticks) in (6, 7)


def test_chart_has_the_numbers_of_each_hour_as_tooltips(client, world):
    reader, pool = make.member(make.department()), make.pool("t4", cards=4)
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    UsageHour.objects.create(
        department=make.department(),
        pool=pool,
        hour=hour - dt.timedelta(hours=1),
        guaranteed=7200,
        own=1800,
        borrowed=5400,
    )
    text = page(client, reader, "/pools/t4/")
    assert "own 0.5 cards · borrowed 1.5 cards · guaranteed 2 cards</title>" in text
    assert 'aria-current="true">1 day</a>' in text  # a new installation starts with the range of one day


def test_unknown_pool_is_404_and_pages_require_a_login(client, world):
    page(client, world["valentin"], "/pools/nothing/", 404)
    client.logout()
    for url in ("/pools/", "/pools/a100/", "/decisions/"):
        assert client.get(url).headers["Location"].startswith("/login/")


def test_preempting_side_sees_the_reason_but_not_the_victim(client, world):
    url = f"/decisions/{world['decision'].public_id}/"
    text = page(client, world["valentin"], url)
    assert "train-cats" in text
    assert "Nlp (" in text
    assert "secret-llm" not in text
    assert "train-cats" in page(client, world["valentin"], "/decisions/")


def test_victims_side_sees_the_preempting_department_but_not_its_workload(client, world):
    text = page(client, world["ned"], f"/decisions/{world['decision'].public_id}/")
    assert "secret-llm" in text
    assert "Vision requested 2 cards" in text
    assert "train-cats" not in text
    assert "valentin" not in text
    listed = page(client, world["ned"], "/decisions/")
    assert "secret-llm" in listed
    assert "train-cats" not in listed


def test_decision_names_its_planning_pass_and_operators_can_replay_it(client, world):
    url = f"/decisions/{world['decision'].public_id}/"
    row = world["decision"].plan_pass
    assert row.public_id in page(client, world["ned"], url)
    assert "?replay=1" not in page(client, world["ned"], url)
    assert "Replayed" not in page(client, world["ned"], f"{url}?replay=1")
    assert "Its snapshot is no longer kept" in page(client, world["root"], f"{url}?replay=1")
    PlanPass.objects.filter(pk=row.pk).update(snapshot=b"not what was written")
    assert "can no longer be read" in page(client, world["root"], f"{url}?replay=1")
    snapshot = load_snapshot(world["pool"].group, now=timezone.now())
    for plan, says in (
        (b"", "Its plan was not kept"),
        (packed(decide(snapshot)), "the plan is identical"),
        (packed(Plan(snapshot.id, (), (ClaimId("gone"),))), "2 decisions differ"),
    ):
        row.snapshot, row.plan = packed(snapshot), plan
        row.save()
        assert says in page(client, world["root"], f"{url}?replay=1")


def test_users_who_are_not_involved_see_no_decision(client, world):
    assert "No decisions yet" in page(client, world["sam"], "/decisions/")
    page(client, world["sam"], f"/decisions/{world['decision'].public_id}/", 404)
    page(client, world["root"], f"/decisions/{world['decision'].public_id}/")


def test_filters_are_taken_from_the_address(client, world):
    assert "train-cats" in page(client, world["valentin"], "/decisions/?kind=reclaim&pool=a100")
    assert "train-cats" not in page(client, world["valentin"], "/decisions/?kind=admit")
    assert page(client, world["valentin"], "/decisions/?kind=nonsense&page=x")


def test_null_character_in_an_address_is_a_bad_request(client, world):
    page(client, world["valentin"], "/decisions/?kind=%00", 400)
    page(client, world["valentin"], "/d/vision/work/%00/", 400)


def test_the_number_of_queries_of_a_list_does_not_grow(client, world, django_assert_max_num_queries):
    client.force_login(world["valentin"])
    row = world["decision"]
    for _ in range(30):
        copy = Decision.objects.create(
            plan_pass=row.plan_pass, kind="wait", claim=row.claim, department=row.department, pool=row.pool, data={}
        )
        copy.victims.add(*row.victims.all())
    with django_assert_max_num_queries(25):
        client.get("/decisions/")


def test_pools_have_the_same_order_on_every_page(client):
    vision = make.department("vision")
    pools = [make.pool(slug, name=name) for slug, name in (("t4", "Alpha"), ("a100", "Zeta"), ("mig", "Middle"))]
    for pool in pools:
        make.quota(vision, pool, 1)
        make.claim(vision, pool, 1)
    client.force_login(make.user("root", is_operator=True))
    addresses = (
        "/d/vision/",
        "/d/vision/quotas/",
        "/d/vision/members/",
        "/pools/",
        "/operator/pools/",
        "/backtests/",
    )
    for address in addresses:
        html = client.get(address).content.decode()
        main = html[html.index("<main") :]
        assert main.index("Zeta") < main.index("Middle") < main.index("Alpha"), address
