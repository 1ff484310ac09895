"""Text and buttons stay in place when parts of a page that load later arrive, and at live updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

SHIFTS = """window.shifts = [];
const words = (node) => [node.nodeName, node.className?.baseVal ?? node.className, node.textContent.trim().slice(0, 30)];
const told = ({ node }) => (node ? words(node).join(" ") : "");
new PerformanceObserver((list) => {
  for (const shift of list.getEntries()) window.shifts.push([shift.value, ...shift.sources.map(told)]);
}).observe({ type: "layout-shift", buffered: true });"""
LIVE = "htmx.trigger(document.body, 'live')"
DRAWN = "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(drawn, 50))))"
PLACES = """() => {
  scrollTo(0, 0);
  const all = [...document.querySelectorAll("#request button, #request input")];
  return all.filter((each) => !each.closest("#verdict") && each.checkVisibility())
    .map((each) => [each.name || each.textContent.trim(), Math.round(each.getBoundingClientRect().top)]);
}"""
SENTENCE_BESIDE = """(time) => {
  document.querySelector(".situation-time .big-number").textContent = time;
  return document.querySelector("[data-sentence]").getBoundingClientRect().top;
}"""
MOST = 0.01  # score, good below 0.1: allows for a number that is a digit longer, or a log that begins
NEW = "/d/vision/workloads/new/"
PAGES = {
    "alice": ("/", "/d/vision/workloads/", NEW, NEW + "?preset=train-1", "/d/vision/workloads/latest/", "/pools/", "/inbox/"),
    "olivia": ("/d/vision/", "/d/vision/members/", "/d/vision/recall/", "/pools/a100/", "/usage/"),
    "oscar": ("/operator/", "/operator/workloads/", "/operator/pools/a100/", "/card-map/"),
}  # fmt: skip


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("username", PAGES)
def test_nothing_moves_on_load_or_live_update(person: Callable[..., Any], username: str, width: int) -> None:
    someone = person(username, width=width)
    someone.context.add_init_script(SHIFTS)
    moved = {path: shifts for path in PAGES[username] if (shifts := always_moves(someone, path))}
    assert moved == {}


def always_moves(someone: Any, path: str) -> list[Any]:
    """Shifts that occur each time the page is opened; new data, such as one more row, shifts the layout only once."""
    for _visit in range(3):
        page = someone.go(path)
        for update in ("", LIVE, LIVE):
            page.evaluate(update)
            page.evaluate(DRAWN)
            expect(page.locator(".htmx-request, [aria-busy=true]")).to_have_count(0)
            page.evaluate(DRAWN)
        shifts: list[Any] = page.evaluate("window.shifts")
        if sum(value for value, *_told in shifts) <= MOST:
            return []
    return shifts


@pytest.mark.parametrize("width", [1400, 768, 390])
def test_sentence_of_a_workload_does_not_move_as_its_time_grows(person: Callable[..., Any], width: int) -> None:
    alice = person("alice", language="zh-CN", width=width, theme="dark")
    page = alice.go("/d/vision/workloads/?state=running")
    page.locator("tbody a[href*='/workloads/']").first.click()
    expect(page.locator(".situation-time")).to_be_visible()
    page.wait_for_load_state()  # places are measured with the style sheets
    tops = [page.evaluate(SENTENCE_BESIDE, time) for time in ("4 秒", "1 分钟 49 秒", "23 小时 59 分钟")]
    assert len(set(tops)) == 1, tops


def test_growing_preview_does_not_move_the_form(person: Callable[..., Any]) -> None:
    """Neither the field in use nor the buttons pressed next: Submit, Save as template."""
    page = person("alice").go(NEW + "?preset=quick-look")
    page.locator("#verdict [data-verdict]").wait_for()
    before = page.evaluate(PLACES)
    assert "Save as template" in {name for name, _top in before}
    page.fill("#id_max_runtime", "1 year")
    page.locator("#verdict [data-verdict]").wait_for(state="detached")
    page.fill("#id_max_runtime", "2h")
    page.locator("#verdict [data-verdict]").wait_for()
    assert page.evaluate(PLACES) == before
