"""Every step of every tour, in a real page: its element is present and outlined, and the card beside it covers no main button."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from portal.web.tours import TOURS

WHO = {"researcher": "alice", "owner": "olivia", "operator": "oscar", "pipelines": "alice"}
STEP = """(name) => {
  const card = document.getElementById("tour"), element = card.nextElementSibling;
  const box = element.getBoundingClientRect(), its = card.getBoundingClientRect();
  const primary = [...document.querySelectorAll("main .btn-primary")].filter((each) => each.checkVisibility())
    .map((each) => each.getBoundingClientRect());
  return {
    element: (element.dataset.tour ?? "").split(" ").includes(name),
    seen: element.checkVisibility() && box.width > 100 && box.height > 10,
    outlined: getComputedStyle(element).outlineStyle === "solid",
    focused: card.contains(document.activeElement),
    covers: primary.some((box) => box.left < its.right && its.left < box.right && box.top < its.bottom && its.top < box.bottom),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
}"""
RIGHT = {"element": True, "seen": True, "outlined": True, "focused": True, "covers": False, "wide": 0}


@pytest.mark.parametrize(("language", "theme", "width"), [("en-US", "light", 1400), ("zh-CN", "dark", 390)])
@pytest.mark.parametrize("key", TOURS)
def test_every_step_has_its_element_in_a_real_page(
    person: Callable[..., Any], key: str, language: str, theme: str, width: int
) -> None:
    someone, steps = person(WHO[key], language=language, theme=theme, width=width), TOURS[key].steps
    page = someone.go("/help/")
    page.locator(f'form:has([value="{key}"]) button').click()
    faults = {}
    for number, step in enumerate(steps, start=1):
        card = page.locator("#tour")
        expect(card.locator("h2")).to_contain_text(
            f"{number} of {len(steps)}" if language == "en-US" else f"第 {number} 步，共 {len(steps)} 步"
        )
        page.wait_for_load_state()  # with its style sheets
        expect(card).to_be_in_viewport(ratio=1)
        answer = page.evaluate(STEP, step.name)
        if answer != RIGHT:
            faults[step.name] = {name: value for name, value in answer.items() if value != RIGHT[name]}
        if axe := someone.axe():
            faults[f"{step.name} axe"] = axe
        if number < len(steps):  # by keyboard: the card has the focus, Next is the first thing in it
            old = card.locator("h2").text_content()
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            expect(card.locator("h2")).not_to_have_text(old)
    assert faults == {}
    page.locator('#tour button[value=""]').click()
    expect(page.locator("#tour")).to_have_count(0)
    someone.go("/operator/" if key == "operator" else "/")
    expect(page.locator(".tour")).to_have_count(0)


def test_tour_is_offered_at_the_first_login_and_can_be_dismissed_for_good(person: Callable[..., Any]) -> None:
    bob = person("bob")
    page = bob.page
    offer = page.locator(".tour-offer")
    expect(offer).to_contain_text("New here? A tour of 5 steps")
    assert bob.axe() == []
    offer.get_by_role("button", name="Start the tour").click()
    expect(page.locator("#tour h2")).to_contain_text("1 of 5")
    page.get_by_role("button", name="Next", exact=True).click()
    expect(page.locator("#tour h2")).to_contain_text("2 of 5")
    page.get_by_role("button", name="Back", exact=True).click()
    expect(page.locator("#tour h2")).to_contain_text("1 of 5")
    page.wait_for_load_state()  # with its scripts
    page.evaluate("htmx.trigger(document.body, 'live')")  # a refresh of the part around it keeps it
    page.wait_for_timeout(1000)
    expect(page.locator("#tour h2")).to_contain_text("1 of 5")
    page.get_by_role("button", name="Do not show again").click()
    expect(page.locator(".toast")).to_contain_text("You can start it again under Help")
    again = person("bob")
    expect(again.page.locator("h1")).to_have_text("Home")
    expect(again.page.locator(".tour")).to_have_count(0)
