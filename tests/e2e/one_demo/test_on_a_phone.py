"""Pages on a phone: every figure is visible without scrolling sideways, and no date is cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

HIDDEN = """() => [...document.querySelectorAll("main td, main tbody th, main tfoot th")].filter((cell) => {
  const box = cell.getBoundingClientRect();
  return cell.checkVisibility() && box.width && (box.left < 0 || box.right > document.documentElement.clientWidth);
}).map((cell) => cell.textContent.trim())"""
# Date fields that are narrower than the browser draws them where there is enough room.
CUT_DAYS = """() => [...document.querySelectorAll("main input[type=date]")].filter((input) => {
  const whole = input.cloneNode();
  whole.style.cssText = "position: absolute; width: auto; min-width: 0; max-width: none; flex: none";
  input.parentNode.append(whole);
  const needed = whole.getBoundingClientRect().width;
  whole.remove();
  return input.getBoundingClientRect().width < needed - 4;
}).map((input) => input.name)"""
# Full-width punctuation includes its space; another space after it is left over from the English page.
GAPS = r"""() => document.querySelector("main").innerText.match(/.{0,12}[。！？；，：] +\S.{0,12}/g) ?? []"""
PAGES = {
    "alice": (
        "/", "/d/vision/", "/d/vision/workloads/", "/d/vision/quotas/", "/d/vision/members/", "/d/vision/requests/new/",
        "/requests/", "/decisions/", "/inbox/", "/inbox/settings/", "/tokens/", "/profile/", "/pools/", "/pools/a100/",
        "/usage/",
    ),
    "olivia": ("/d/vision/quotas/", "/d/vision/members/", "/d/vision/recall/", "/backtests/"),
    "oscar": (
        "/operator/", "/operator/pools/", "/operator/nodes/", "/operator/nodes/1/health/", "/operator/departments/",
        "/operator/users/", "/operator/groups/", "/operator/audit/", "/operator/clusters/", "/operator/images/",
        "/operator/policies/", "/operator/estimates/", "/operator/workloads/",
    ),
}  # fmt: skip


@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_figures_of_budgets_and_usage_are_within_the_screen(person: Callable[..., Any], language: str) -> None:
    oscar = person("oscar", language=language, width=390, theme="dark")
    page = oscar.go("/d/vision/budgets/new/")
    page.fill("#id_hours", "10")
    with page.expect_navigation():  # wait for the style sheets: without them, positions are not final
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
    with page.expect_navigation():  # wait for the scripts: without them, the button opens nothing
        page.get_by_role("link", name="编辑" if language == "zh-CN" else "Edit").click()
    page.locator("main button.btn-danger, main [command=show-modal]").first.click()
    page.locator("dialog[open] button.btn-danger").click()
    expect(page.locator("main .quota-bar")).to_have_count(0)


@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
@pytest.mark.parametrize("username", PAGES)
def test_pages_have_nothing_beyond_the_edge_of_the_screen(
    person: Callable[..., Any], username: str, language: str
) -> None:
    somebody = person(username, language=language, width=390, theme="dark")
    for address in PAGES[username]:
        page = somebody.go(address)
        assert page.evaluate(HIDDEN) == [], address
        assert page.evaluate(CUT_DAYS) == [], address
        assert page.evaluate(GAPS) == [], address
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address


def test_one_button_opens_the_sheet_of_operator_pages(person: Callable[..., Any]) -> None:
    oscar = person("oscar", width=390, theme="dark")
    page = oscar.go("/operator/audit/")
    sheet = page.get_by_role("navigation", name="Operator pages")
    expect(sheet).to_be_hidden()
    page.get_by_role("button", name="Operator pages").press("Enter")
    expect(sheet.locator("[aria-current=page]")).to_be_in_viewport(ratio=1)
    assert oscar.axe() == []
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    page.get_by_role("button", name="Operator pages").click()
    sheet.get_by_role("link", name="Groups").click()
    expect(page.locator("h1")).to_have_text("Groups")
