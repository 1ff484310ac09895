"""The amounts that the form offers as buttons, and when a workload of each would start."""

from __future__ import annotations

import re

import pytest

from tests import builders as make
from tests.workloads.pages.test_workloads import World, as_, verdict
from workloads.requests import verdict as module
from workloads.requests.offered_amounts import offered_amounts
from workloads.requests.request import WorkloadRequest

pytestmark = pytest.mark.django_db(transaction=True)
STEP = re.compile(
    r'aria-pressed="(\w+)"\s+data-take-pool="a100"\s+data-take-units="(\d+)".*?size">(.*?)<.*?when">(.*?)<', re.S
)


@pytest.fixture
def world() -> World:
    return World()


def offered(world: World, **changes: str) -> dict[str, tuple[str, bool]]:
    text = verdict(as_(world.alice), world.vision, world.form(**changes))
    return {units: (when, pressed == "true") for pressed, units, _size, when in STEP.findall(text)}


def test_each_offered_amount_says_when_it_would_start_and_impossible_ones_are_omitted(world: World) -> None:
    assert offered(world, units_per_pod="2") == {"1": ("now", False), "2": ("now", True), "4": ("now", False)}
    assert offered(world, units_per_pod="6")["6"] == ("now, 2 borrowed", True)  # the most that Vision can use


def test_offered_amount_says_when_lent_capacity_returns(world: World) -> None:
    placement = [{"pod": 0, "node": "a100-n1", "cards": [0, 1, 2, 3, 4, 5, 6]}]
    make.holding(world.nlp, world.pool, own=4, borrowed={world.vision: 3}, placement=placement, notice=600, grace=120)
    amounts = offered(world, units_per_pod="1")
    assert amounts["1"] == ("now", True)
    assert re.fullmatch(r"within 1[12] min( \d+ s)?, when lent capacity returns", amounts["4"][0])


def test_own_quota_only_offers_no_amount_that_needs_a_loan(world: World) -> None:
    assert "6" not in offered(world, own_only="on", units_per_pod="2")


def test_amounts_without_a_timely_verdict_are_offered_without_a_start_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEPS_TIME", -1)
    assert offered(world, units_per_pod="2") == {
        "1": ("", False),
        "2": ("now", True),
        "4": ("", False),
        "8": ("", False),
    }


def test_memory_is_offered_in_whole_gib_up_to_a_card_and_mig_by_profile(world: World) -> None:
    shared = make.pool("t4", unit="MiB", units_per_card=15 * 1024, sharing="hami")
    assert [each.label for each in offered_amounts(shared)] == ["2 GiB", "4 GiB", "8 GiB", "15 GiB"]
    request = WorkloadRequest(kind="job", name="x", pool=shared, image=world.image, units_per_pod=6 * 1024)
    assert [each.written for each in offered_amounts(shared, request)][2] == "6 GiB"
    sliced = make.pool("mig", unit="slice", units_per_card=7, sharing="mig", mig="A100-80GB")
    profiles = [each.profile for each in offered_amounts(sliced)]
    assert len(profiles) <= 6
    assert profiles[0].startswith("1g.")
    assert profiles[-1] == "7g.80gb"
