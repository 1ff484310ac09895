"""Reports and budgets on a phone: every figure is on the screen, none is reached by scrolling sideways only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

HIDDEN = """() => [...document.querySelectorAll("main td, main tbody th, main tfoot th")].filter((cell) => {
  const box = cell.getBoundingClientRect();
  return box.width && (box.left < 0 || box.right > document.documentElement.clientWidth);
}).map((cell) => cell.textContent.trim())"""


@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_no_figure_hides_beyond_the_edge(person: Callable[..., Any], language: str) -> None:
    oscar = person("oscar", language=language, width=390, theme="dark")
    page = oscar.go("/d/vision/budgets/new/")
    page.fill("#id_hours", "10")
    with page.expect_navigation():  # to the end: before its style sheets are there nothing stands where it will
        page.locator("main button.btn-primary").click()
    expect(page.locator("main .quota-bar")).to_be_visible()
    assert page.evaluate(HIDDEN) == []
    for address in ("/usage/", "/usage/?group=department,person,pool,kind", "/usage/?group=person"):
        oscar.go(address)
        expect(page.locator(".usage-table tbody tr").first).to_be_visible()
        expect(page.locator("main .quota-bar").first).to_be_visible()
        assert page.evaluate(HIDDEN) == [], address
        assert oscar.axe() == []
    oscar.go("/d/vision/budgets/")
    page.get_by_role("link", name="编辑" if language == "zh-CN" else "Edit").click()
    page.locator("main button.btn-danger, main [data-dialog]").first.click()
    page.locator("dialog[open] button.btn-danger").click()
    expect(page.locator("main .quota-bar")).to_have_count(0)
