"""Alignment, measured in a browser: what belongs in one line or in one column is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

LEFT = "each => Math.round(each.getBoundingClientRect().left)"


@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_department_tabs_fit_one_line_on_a_phone(person: Callable[..., Any], language: str) -> None:
    page = person("olivia", language=language, width=390).go("/d/vision/webhooks/")
    tops = page.locator(".department-tabs li").evaluate_all("all => all.map(each => each.getBoundingClientRect().top)")
    assert len(tops) == 6
    assert len(set(tops)) == 1
    assert page.locator(".department-tabs").evaluate("tabs => tabs.scrollWidth - tabs.clientWidth") <= 1


@pytest.mark.parametrize("width", [320, 360, 390])
@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_top_bar_fits_one_line_on_a_phone(person: Callable[..., Any], language: str, width: int) -> None:
    page = person("alice", language=language, width=width).go("/")
    heights = page.locator(".topbar .btn:visible").evaluate_all("all => all.map(each => each.offsetHeight)")
    assert len(heights) == 5
    assert set(heights) == {40}
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_columns_of_all_usage_tables_are_aligned(person: Callable[..., Any]) -> None:
    page = person("oscar").go("/usage/?group=department")
    tables = page.locator(".usage-table").evaluate_all(
        f"all => all.map(table => [...table.querySelectorAll('thead th')].map({LEFT}))"
    )
    assert len(tables) == 3
    assert tables[0] == tables[1] == tables[2]


def test_a_menu_of_a_list_opens_beside_the_sidebar(person: Callable[..., Any]) -> None:
    """Also where its button is the first in a line, as it is when the tools take two lines."""
    page = person("alice").go("/d/vision/workloads/?state=succeeded")
    edge = page.locator("aside.navbar-vertical").evaluate("bar => bar.getBoundingClientRect().right")
    for name in ("Columns", "Saved filters"):
        button = page.get_by_role("button", name=name)
        button.evaluate("each => { each.parentElement.style.order = -1; }")
        button.click()
        menu = page.locator(".list-tools .dropdown-menu.show")
        expect(menu).to_be_visible()
        assert menu.evaluate(LEFT) >= edge
        page.keyboard.press("Escape")
        button.evaluate("each => { each.parentElement.style.order = 0; }")


def test_workload_id_is_shown_whole_in_one_line(person: Callable[..., Any]) -> None:
    id = person("alice").go("/d/vision/workloads/latest/").locator("#workload-id")
    assert id.evaluate("code => [code.scrollWidth - code.clientWidth, Math.round(code.offsetHeight / 18)]") == [0, 1]


SPLIT = """each => {
  const range = document.createRange();
  range.selectNodeContents(each);
  return new Set([...range.getClientRects()].map((line) => Math.round(line.top))).size > 1 ? [each.textContent.trim()] : [];
}"""


@pytest.mark.parametrize("width", [390, 1000, 1400])
def test_short_facts_and_addresses_are_not_broken_inside_a_word(person: Callable[..., Any], width: int) -> None:
    """The audit log's facts, such as "lend limit: all", and the domains of e-mail addresses."""
    oscar = person("oscar", language="zh-CN", width=width)
    facts = oscar.go("/operator/audit/").locator(".audit-event .pair")
    broken = facts.evaluate_all(f"all => all.flatMap({SPLIT})")
    assert [text for text in broken if len(text) < 16] == []
    page = oscar.go("/operator/users/")
    page.evaluate("""document.querySelectorAll("td.text-break wbr").forEach((each) => {
      const domain = document.createElement("i");
      domain.append(each.nextSibling);
      each.after(domain);
    })""")
    assert page.locator("td.text-break i").count() > 5
    assert page.locator("td.text-break i").evaluate_all(f"all => all.flatMap({SPLIT})") == []


def test_text_sizes_follow_the_scale(person: Callable[..., Any]) -> None:
    page = person("alice").go("/")
    sizes = {
        name: page.locator(name).first.evaluate("each => getComputedStyle(each).fontSize")
        for name in ("body", "h1", ".demo-bar")
    }
    assert sizes == {"body": "14px", "h1": "20px", ".demo-bar": "13px"}


def test_template_dialog_hides_its_form_after_saving(person: Callable[..., Any]) -> None:
    page = person("alice").go("/d/vision/workloads/new/?preset=quick-look")
    page.get_by_role("button", name="Save as template").click()
    dialog = page.locator("dialog[open]")
    page.fill("#id_template_title", "Quick and mine")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("status")).to_contain_text("“Quick and mine” is saved")
    expect(dialog.locator("#id_template_title")).to_be_hidden()
    dialog.get_by_role("button", name="Close").click()
    page.reload()
    expect(page.locator("main").get_by_text("Quick and mine").first).to_be_visible()
