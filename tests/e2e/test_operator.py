"""The operator's journeys in a real browser, on the demo with real processes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

Arrive = Callable[..., Any]

PAGES = [
    "/operator/",
    "/operator/audit/",
    "/operator/clusters/",
    "/operator/departments/",
    "/operator/departments/vision/",
    "/operator/design/",
    "/operator/images/",
    "/operator/images/new/",
    "/operator/nodes/",
    "/operator/nodes/1/",
    "/operator/nodes/1/health/",
    "/operator/pools/",
    "/operator/pools/a100/",
    "/operator/presets/new/",
    "/operator/users/",
    "/operator/users/alice/",
    "/help/quota-rules/",
]


def test_overview_shows_that_the_system_is_healthy(person: Arrive) -> None:
    page = person("oscar").go("/operator/")
    expect(page.locator("#system")).to_contain_text("Claims, ledger, cards and guaranteed quotas are consistent.")
    expect(page.locator("#system")).to_contain_text("reachable")
    job = page.locator("#processes tr").filter(has=page.get_by_role("cell", name="Planning", exact=True))
    expect(job).to_contain_text(re.compile("OK|running"), timeout=60_000)  # the beat may only just have begun


def test_drained_node_makes_its_pool_short_until_it_is_undrained(person: Arrive) -> None:
    oscar = person("oscar")
    page = oscar.go("/operator/nodes/")
    row = page.locator("tr", has_text="dgx-2")
    row.get_by_role("link", name="Drain").click()
    expect(page.locator("main")).to_contain_text("no new workload starts on dgx-2")
    oscar.send(page.get_by_role("button", name="Drain dgx-2"))
    expect(page.locator("tr", has_text="dgx-2")).to_contain_text("drained")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("#system .notice", has_text="whole cards")).to_contain_text("less than guaranteed")
    page.get_by_role("link", name="Nodes").click()
    page.locator("tr", has_text="dgx-2").get_by_role("button", name="Undrain").click()
    expect(page.locator("tr", has_text="dgx-2")).to_contain_text("in service")
    page.get_by_role("link", name="Audit log").click()
    expect(page.locator("tbody")).to_contain_text("Node drained")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert "node.returned" in download.value.path().read_text()


def test_a_faulty_node_is_quarantined_and_returned_to_service_in_both_languages(person: Arrive) -> None:
    oscar = person("oscar")
    page = oscar.go("/operator/nodes/")
    page.locator("tr", has_text="dgx-2").get_by_role("link", name="Health").click()
    expect(page.locator("#preview")).to_contain_text(re.compile("to leave"))
    page.get_by_label("Reason").fill("XID 79 in slot 3")
    oscar.send(page.locator("#quarantine").get_by_role("button", name="Quarantine"))
    banner = page.locator("section", has_text="The node is quarantined")
    expect(banner).to_contain_text("XID 79 in slot 3")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("#system .notice", has_text="quarantined")).to_contain_text("XID 79 in slot 3")
    page.goto(page.url.replace("/operator/", "/pools/a100/"))
    expect(page.locator("#map")).to_contain_text("quarantined: XID 79 in slot 3")
    page.go_back()
    page.get_by_role("link", name="Nodes").click()
    page.locator("tr", has_text="dgx-2").get_by_role("link", name="Health").click()
    page.get_by_role("button", name="中文").click()
    expect(page.locator("main")).to_contain_text("该节点已隔离")
    page.get_by_role("button", name="恢复使用").click()
    expect(page.locator("main")).to_contain_text("此处没有被隔离的硬件")
    expect(page.locator("tbody tr", has_text="XID 79 in slot 3")).to_contain_text("Oscar")
    page.get_by_role("button", name="English").click()
    expect(page.locator("main")).to_contain_text("Nothing here is quarantined.")


def test_a_budget_is_set_shown_changed_in_two_tabs_and_removed_in_both_languages(person: Arrive) -> None:
    oscar = person("oscar")
    page = oscar.go("/d/vision/")
    page.get_by_role("link", name="Budgets", exact=True).click()
    page.locator("main").get_by_role("link", name="Set a budget").first.click()
    page.locator("#id_hours").fill("5000")
    expect(page.locator("#preview")).to_contain_text("of 5,000 GPU-hours")
    page.get_by_role("button", name="Save").click()
    row = page.locator("tbody tr", has_text="Computer Vision")
    expect(row).to_contain_text("of 5,000 GPU-hours")
    expect(page.locator("main")).to_contain_text("Months and days begin at midnight in UTC")
    row.get_by_role("link", name="Edit").click()
    other = oscar.context.new_page()
    other.goto(page.url)
    other.locator("#id_hours").fill("6000")
    other.get_by_role("button", name="Save").click()
    expect(other.locator("tbody tr", has_text="Computer Vision")).to_contain_text("of 6,000 GPU-hours")
    page.locator("#id_hours").fill("7000")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("[data-conflict]")).to_contain_text("6000")
    page.goto(page.url.partition("/budgets/")[0] + "/")
    expect(page.locator("main")).to_contain_text("of 6,000 GPU-hours")  # a part of the board
    alice = person("alice", language="zh-CN", width=390).go("/d/vision/budgets/")
    expect(alice.locator("tbody")).to_contain_text("/ 6,000 GPU 小时")
    expect(alice.locator("main")).to_contain_text("月和日从 UTC 的零点开始")
    assert alice.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.get_by_role("link", name="Budgets", exact=True).click()
    page.locator("tbody tr", has_text="Computer Vision").get_by_role("link", name="Edit").click()
    page.get_by_role("button", name="Remove").first.click()
    page.locator("dialog#remove").get_by_role("button", name="Remove").click()
    expect(page.locator("main")).to_contain_text("No budgets")
    oscar.heard = [text for text in oscar.heard if "409" not in text]


def test_promising_more_than_the_pool_has_is_refused_with_both_numbers(person: Arrive) -> None:
    oscar = person("oscar")
    page = oscar.go("/d/robotics/quotas/a100/")
    page.fill("#id_guaranteed", "5")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("main")).to_contain_text(re.compile(r"add up to 19 cards, but .* has only 16 cards"))
    expect(page.locator("#id_guaranteed")).to_have_value("5")
    oscar.heard = [text for text in oscar.heard if "422" not in text]


def test_department_can_be_created_with_its_first_quota_and_owner(person: Arrive) -> None:
    page = person("oscar").go("/operator/departments/")
    page.fill("#id_slug", "optics")
    page.fill("#id_name", "Optics")
    page.get_by_role("button", name="Create").click()
    row = page.locator("tr", has_text="optics")
    row.get_by_role("link", name="Quotas").click()
    page.locator("tr", has_text="T4").get_by_role("link", name="Set").click()
    page.fill("#id_guaranteed", "4")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("tr", has_text="T4").first).to_contain_text("4 GiB")
    page.get_by_role("link", name="Members").click()
    page.fill("#id_add-username", "bob")
    page.locator("#id_add-role").select_option("owner")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("tbody").first).to_contain_text("Bob Okafor")
    bob = person("bob").go("/inbox/")
    expect(bob.locator("main")).to_contain_text("quota owner of Optics")


def test_changed_notice_of_a_pool_is_shown_to_everyone(person: Arrive) -> None:
    page = person("oscar").go("/operator/pools/t4/")
    page.fill("#id_notice", "40s")
    page.get_by_role("button", name="Save").first.click()
    expect(page.locator(".toast")).to_be_visible()
    pool = person("alice").go("/pools/t4/")
    expect(pool.locator("main")).to_contain_text("40 s before SIGTERM")


@pytest.mark.parametrize(("language", "theme", "width"), [("zh-CN", "light", 1400), ("en-US", "dark", 390)])
def test_every_page_is_accessible_and_fits_the_screen(person: Arrive, language: str, theme: str, width: int) -> None:
    oscar = person("oscar", language=language, theme=theme, width=width)
    found = {}
    for path in PAGES:
        page = oscar.go(path)
        page.wait_for_timeout(400)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        found[path] = oscar.axe() + ([f"{wide} px too wide"] if wide > 0 else [])
    assert {path: faults for path, faults in found.items() if faults} == {}


def test_refresh_keeps_the_scroll_position_and_focus_of_a_wide_table(person: Arrive) -> None:
    page = person("oscar", width=390).go("/pools/a100/?table=1")
    table = page.locator("#map .table-responsive").first
    expect(table).to_have_attribute("tabindex", "0")
    find = "const table = document.querySelector('#map .table-responsive');"
    page.evaluate(f"() => {{ {find} table.focus(); table.scrollLeft = 60; }}")
    page.evaluate("""() => new Promise((refreshed) => document.body.addEventListener("htmx:afterSettle", (event) => {
      if (event.detail.elt.id === "map") refreshed();
    }))""")
    kept = page.evaluate(
        f"() => {{ {find} return [table.scrollLeft, table.tabIndex, table === document.activeElement]; }}"
    )
    assert kept == [60, 0, True]


def test_mode_change_form_shows_only_the_fields_of_the_chosen_mode(person: Arrive) -> None:
    page = person("oscar").go("/operator/nodes/")
    page.locator("tr", has_text="dgx-2").get_by_role("link", name="Change mode").click()
    expect(page.locator("#id_mode")).to_have_value("whole")
    expect(page.locator("#id_replicas")).to_be_hidden()
    page.select_option("#id_mode", "mig")
    expect(page.locator("#id_config")).to_be_visible()
    expect(page.locator("#id_replicas")).to_be_hidden()
    page.select_option("#id_mode", "timeslicing")
    expect(page.locator("#id_config")).to_be_hidden()
    page.fill("#id_replicas", "4")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("main")).to_contain_text("failRequestsGreaterThanOne: true")
    expect(page.locator("#id_replicas")).to_be_visible()
    assert page.locator("form[method=post] input[name=rename]").get_attribute("value") == "True"
