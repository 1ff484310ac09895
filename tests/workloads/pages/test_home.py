"""The home page: complete in the first response, with running and waiting workloads, free and returning capacity."""

from __future__ import annotations

import re

import pytest
from django.core.cache import cache
from django.test import Client

from portal.models import Department, Role, User
from quotas.models import Pool
from tests import builders as make
from tests.architecture.doors import workload_of
from workloads.models import Image, Preset
from workloads.templatetags.sharing import takes

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    cache.clear()


class World:
    """Two nodes of two cards; all four are guaranteed to vision."""

    def __init__(self) -> None:
        self.pool = make.pool("a100", cards=4, nodes=2, notice=30, grace=25)
        self.vision, self.nlp = make.department("vision"), make.department("nlp")
        make.quota(self.vision, self.pool, 4)
        make.quota(self.nlp, self.pool, 0)
        self.alice = make.member(self.vision, username="alice")
        self.olivia = make.member(self.vision, Role.OWNER, username="olivia")


@pytest.fixture
def world() -> World:
    return World()


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def home(user: User, path: str = "/") -> str:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


def place_on(department: Department, pool: Pool, node: str, lender: Department | None = None) -> None:
    """One card of the node, own or borrowed from `lender`."""
    place = [{"node": node, "cards": [0]}]
    make.holding(department, pool, 0 if lender else 1, {lender: 1} if lender else None, placement=place)


def test_first_response_contains_workloads_and_free_capacity(world: World) -> None:
    workload_of(world.vision, world.pool, world.alice)
    page = home(world.alice)
    assert "Loading" not in page
    assert 'hx-trigger="load' not in page
    assert "train" in page
    assert "1 running 0 waiting" in text_of(page)


def test_home_shows_free_capacity_and_what_returns_within_notice_and_grace(world: World) -> None:
    first, second = world.pool.group.cluster.nodes.order_by("name")
    place_on(world.vision, world.pool, first.name)
    place_on(world.nlp, world.pool, second.name, world.vision)
    text = text_of(home(world.alice)).partition("Available now")[2]
    assert "2 cards at most 1 card at once" in text
    assert "+ 1 card within 55 s" in text


def test_home_shows_no_returning_capacity_if_nothing_is_lent(world: World) -> None:
    text = text_of(home(world.alice))
    assert "at most 2 cards at once" in text  # four own cards on nodes of two
    assert "within" not in text.partition("Available now")[2]


def test_presets_with_quota_are_linked_with_a_picture_of_their_cards(world: World) -> None:
    image = Image.objects.create(name="python:3.11", title="Python 3.11", interpreter="python")
    Preset.objects.create(
        slug="ranks", title="Two ranks", kind="distributed", pool=world.pool, pods=2,
        units_per_pod=1, image=image,
    )  # fmt: skip
    other = make.pool("t4", cards=1, units_per_card=16, unit="MiB")
    Preset.objects.create(slug="no-quota", title="Elsewhere", kind="job", pool=other, image=image)
    page = home(world.alice)
    assert '/d/vision/workloads/new/?preset=ranks"' in page
    assert "Elsewhere" not in page
    assert page.count('class="takes-part"') == 2


@pytest.mark.parametrize(
    ("pods", "units", "heights", "more"),
    [(1, 16, [14], False), (1, 40, [14, 14, 7], False), (2, 4, [4, 4], False), (1, 1, [2], False), (1, 160, [14] * 8, True),
     (9, 16, [14] * 4, True)],
)  # fmt: skip
def test_picture_of_a_preset_shows_the_used_part_of_each_card(
    pods: int, units: int, heights: list[int], more: bool
) -> None:
    drawn = takes(Preset(pods=pods, units_per_pod=units, pool=Pool(units_per_card=16)))
    assert [int(h) for h in re.findall(r'takes-part"[^>]* height="(\d+)"', drawn)] == heights
    assert ("…" in drawn) is more


def test_owner_sees_the_departments_board_before_own_workloads(world: World) -> None:
    page = home(world.olivia)
    assert page.index("View board") < page.index("My workloads")
    assert "three steps" not in page
    assert "View board" not in home(world.alice)


def test_operator_starts_at_the_overview_unless_the_login_has_a_target(world: World) -> None:
    oscar = make.user("oscar", is_operator=True)
    oscar.set_password("correct horse")
    oscar.save()
    login = {"username": "oscar", "password": "correct horse"}
    assert Client().post("/login/", login).headers["Location"] == "/operator/"
    assert Client().post("/login/?next=/pools/", login | {"next": "/pools/"}).headers["Location"] == "/pools/"
    page = home(oscar, "/operator/")
    assert "Loading" not in page
    assert "Clusters" in page


def test_home_of_an_operator_shows_only_the_selected_department(world: World) -> None:
    text = text_of(home(make.user("oscar", is_operator=True)))
    assert text.count("Available now to") == 1
