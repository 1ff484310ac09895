"""The card map in a real browser: both views, clicks, the keyboard alone, filters, and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

Arrive = Callable[..., Any]


def test_click_and_arrow_keys_show_who_uses_a_card(person: Arrive) -> None:
    page = person("oscar").go("/card-map/?pool=a100")
    side = page.locator("#map-node")
    expect(side).to_contain_text("Click a card")
    page.locator(".map-card").first.click()
    expect(side.locator("h2")).to_have_text("dgx-1")
    expect(side.locator("dd").first).to_contain_text("own")
    expect(page.locator(".map-here")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(side.locator("h2")).to_have_text("dgx-2")
    expect(side.locator("dt.map-chosen")).to_contain_text("card")
    assert page.locator('.map-nodes a[tabindex="0"]').count() == 1, "one stop for the Tab key"
    page.evaluate("htmx.trigger('#card-map', 'live')")
    expect(page.locator(".map-here")).to_have_count(1)


FILL = "getComputedStyle(document.querySelector('#card-map .map-nodes path.own')).fill"  # in one step: the map refreshes itself


def test_whose_and_used_are_two_views_of_one_drawing(person: Arrive) -> None:
    page = person("oscar").go("/card-map/?pool=a100")
    whose, scale = page.evaluate(FILL), page.get_by_text("Share of the last minutes in which it computed:")
    expect(scale).to_be_hidden()
    page.get_by_text("Used", exact=True).click()
    expect(scale).to_be_visible()
    assert "map-unmeasured" in page.evaluate(FILL), "the demo's cards are not measured"
    page.locator("select[name=state]").select_option("own")
    page.wait_for_url(lambda url: "state=own" in url)
    assert "show=used" in page.url, "a filter keeps the view"
    expect(scale).to_be_visible()
    page.get_by_text("Whose", exact=True).click()
    assert page.evaluate(FILL) == whose


def test_researcher_sees_other_departments_without_their_names(person: Arrive) -> None:
    page = person("alice").go("/card-map/?pool=a100")
    expect(page.locator("#card-map")).to_contain_text("another department")
    page.locator(".map-card", has_text="another department").first.click()
    side = page.locator("#map-node")
    expect(side).to_contain_text("another department")
    expect(side.get_by_role("link", name="A100 80GB, whole cards")).to_be_visible()


VARIANTS = [("zh-CN", "light", 1400), ("en-US", "dark", 390)]


@pytest.mark.parametrize(("language", "theme", "width"), VARIANTS)
def test_card_map_is_accessible_and_fits_the_screen(person: Arrive, language: str, theme: str, width: int) -> None:
    oscar = person("oscar", language=language, theme=theme, width=width)
    found = {}
    for path in (
        "/card-map/",
        "/card-map/?show=used",
        "/card-map/?department=vision&state=own",
        "/card-map/?pool=a100-mig",
    ):
        page = oscar.go(path)
        page.locator(".map-nodes svg").first.click()
        page.locator("#map-node h2").wait_for()
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        found[path] = oscar.axe() + ([f"{wide} px too wide"] if wide > 0 else [])
    page = oscar.go(page.locator(".map-nodes a").first.get_attribute("href"))
    found["node"] = oscar.axe()
    assert {path: faults for path, faults in found.items() if faults} == {}
