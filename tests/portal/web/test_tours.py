"""Guided tours: offered once, followed step by step, closed for good, and started again from Help."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from portal.models import Department, Membership, Role, User
from portal.web.tours import TOURS
from tests import builders as make
from workloads.models import Image, Kind, Workload

pytestmark = pytest.mark.django_db
OFFER = "New here? A tour of"


def person(name: str, department: Department | None, role: Role = Role.MEMBER, **fields: bool) -> Client:
    user, client = make.user(name, **fields), Client(headers={"Accept-Language": "en"})
    if department is not None:
        Membership.objects.create(user=user, department=department, role=role)
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def post(client: Client, tour: str, step: str, **more: str) -> str:
    answer = client.post("/tour/", {"tour": tour, "step": step}, **more)  # type: ignore[arg-type]
    return answer.headers.get("Location", "") if answer.status_code == 302 else str(answer.status_code)


def test_steps_and_their_places_in_templates_match() -> None:
    """The walk through real pages is tests/e2e/one_demo/test_tours.py."""
    placed, elements = set(), set()
    for path in (Path(settings.BASE_DIR) / "templates").rglob("*.html"):
        source = path.read_text()
        for names in re.findall(r'{% tour ((?:"\w+" ?)+)%}', source):
            placed |= set(re.findall(r"\w+", names))
        for names in re.findall(r'data-tour="([\w ]+)"', source):
            elements |= set(names.split())
    steps = [step.name for tour in TOURS.values() for step in tour.steps]
    assert len(steps) == len(set(steps))
    assert set(steps) == placed == elements


def test_user_is_offered_the_tour_of_their_role_until_they_close_it() -> None:
    department = make.department("vision")
    alice, olivia = person("alice", department), person("olivia", department, Role.OWNER)
    oscar = person("oscar", None, is_operator=True)
    for client, page, key, others in ((alice, "/", "researcher", "/pools/"), (olivia, "/", "owner", "/inbox/"),
                                      (oscar, "/operator/", "operator", "/")):  # fmt: skip
        text = client.get(page).content.decode()
        assert OFFER in text
        assert f'name="tour" value="{key}"' in text
        assert OFFER not in client.get(others).content.decode()
        assert post(client, key, "", headers={"Referer": f"http://testserver{page}"}) == page
        for path in (page, others):
            assert 'name="tour"' not in client.get(path).content.decode()


def test_user_without_a_department_is_not_offered_a_tour() -> None:
    stranger = person("nobody", None)
    assert OFFER not in stranger.get("/").content.decode()
    assert post(stranger, "researcher", "start") == post(stranger, "operator", "start") == "404"


def test_tour_leads_from_page_to_page_and_continues_after_a_break() -> None:
    alice = person("alice", make.department("vision"))
    assert post(alice, "researcher", "start") == "/#tour"
    assert post(alice, "researcher", "presets") == "/d/vision/workloads/new/#tour"
    assert User.objects.values_list("tour", "tour_step", "tour_closed").get(username="alice") == (
        "researcher", "presets", False,
    )  # fmt: skip
    home = alice.get("/").content.decode()
    assert "The tour goes on: 2 of 5" in home
    assert 'name="step" value="presets"' in home
    assert post(alice, "researcher", "followed") == "/d/vision/workloads/latest/#tour"
    assert alice.get("/d/vision/workloads/latest/").headers["Location"] == "/d/vision/workloads/"
    assert "4 of 5" in alice.get("/d/vision/workloads/").content.decode()
    assert post(alice, "researcher", "") == "/"
    assert 'id="tour"' not in alice.get("/d/vision/workloads/").content.decode()
    assert 'value="researcher"' in alice.get("/help/").content.decode()
    assert post(alice, "researcher", "start") == "/#tour"  # from Help


def test_steps_on_pages_that_the_reader_cannot_open_are_left_out() -> None:
    viewer = person("vera", make.department("vision"), Role.VIEWER)
    assert post(viewer, "researcher", "start") == "/#tour"
    assert "1 of 3" in viewer.get("/").content.decode()
    assert post(viewer, "researcher", "presets") == "404"
    assert post(viewer, "pipelines", "start") == post(viewer, "owner", "start") == "404"


def test_step_whose_element_is_missing_is_shown_at_the_end_of_its_page() -> None:
    alice = person("alice", make.department("vision"))  # without quota anywhere: no presets, no preview
    post(alice, "researcher", "presets")
    page = alice.get("/d/vision/workloads/new/").content.decode()
    assert page.count('id="tour"') == page.count('id="tour-form"') == 1
    assert 'data-tour="presets"' not in page


@pytest.mark.parametrize(
    ("tour", "step"), [("", ""), ("nonsense", "start"), ("researcher", "health"), ("researcher", "x" * 999)]
)
def test_unknown_tour_or_step_gets_404_and_changes_nothing(tour: str, step: str) -> None:
    alice = person("alice", make.department("vision"))
    assert post(alice, tour, step) == "404"
    assert User.objects.get(username="alice").tour == ""


def test_closing_a_tour_leads_back_to_its_page_within_the_portal() -> None:
    alice = person("alice", make.department("vision"))
    for referer, target in (
        ("http://testserver/pools/?a=1", "/pools/?a=1"),
        ("https://evil.example/x", "/"),
        ("", "/"),
    ):
        assert post(alice, "researcher", "", headers={"Referer": referer}) == target


def test_address_of_the_latest_workload_leads_to_the_readers_own_newest() -> None:
    department = make.department("vision")
    alice = person("alice", department)
    pool, image = make.pool("a100"), Image.objects.create(name="py", title="Python")
    for name, author in (("first", "alice"), ("second", "alice"), ("third", "bob")):
        user = User.objects.filter(username=author).first() or make.user(author)
        Workload.objects.create(
            public_id=f"{name:0<26}",
            department=department,
            pool=pool,
            author=user,
            name=name,
            kind=Kind.JOB,
            units_per_pod=1,
            image=image,
        )
    assert (
        alice.get("/d/vision/workloads/latest/?tab=spec").headers["Location"].startswith("/d/vision/workloads/second")
    )
    assert alice.get("/d/vision/workloads/latest/?tab=spec").headers["Location"].endswith("/?tab=spec")
    assert person("eve", make.department("law")).get("/d/vision/workloads/latest/").status_code == 404
