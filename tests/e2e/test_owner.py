"""The quota owner's journeys in a real browser, on the demo with real processes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

Arrive = Callable[..., Any]

PAGES = [
    "/requests/",
    "/d/vision/requests/new/",
    "/d/vision/",
    "/d/vision/?days=30",
    "/d/vision/quotas/",
    "/d/vision/quotas/a100/",
    "/d/vision/recall/",
    "/d/vision/members/",
    "/d/vision/members/alice/remove/",
    "/d/vision/webhooks/",
    "/usage/",
    "/usage/?group=pool&range=last_month",
    "/pools/",
    "/pools/a100/",
    "/pools/t4/",
    "/pools/a100-mig/",
    "/decisions/",
    "/inbox/",
    "/inbox/settings/",
]


def test_usage_can_be_drilled_into_and_exported_as_csv(person: Arrive) -> None:
    """From the board to the users of a department, and to one of them; the chosen range is kept."""
    olivia = person("olivia")
    page = olivia.go("/d/vision/")
    page.get_by_role("link", name="Usage report").click()
    page.get_by_role("link", name="Last 7 days").click()
    page.get_by_role("link", name="Person", exact=True).click()
    expect(page.locator(".usage-table").first).to_contain_text("not measured")
    page.locator(".usage-table").first.get_by_role("link", name="Alice Chen").click()
    page.wait_for_url(re.compile("range=7d"))
    expect(page.locator(".usage-filter", has_text="alice")).to_be_visible()
    expect(page.locator(".usage-table tbody tr").first).to_contain_text(re.compile("job|notebook"))
    page.locator(".usage-filter", has_text="Computer Vision").click()
    expect(page.locator(".usage-filter", has_text="Computer Vision")).to_have_count(0)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    text = download.value.path().read_text()
    assert text.startswith("\ufeffkind,unit,own_hours")
    page.fill("[name=from]", "2026-02-02")
    page.fill("[name=until]", "2026-02-01")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_contain_text("The end is before the beginning")
    olivia.heard = [text for text in olivia.heard if "422" not in text]


def test_recall_can_be_started_watched_live_and_withdrawn(person: Arrive) -> None:
    """The board shows it without a reload, and the borrower sees it at the same time."""
    olivia, bob = person("olivia"), person("bob")
    page = olivia.go("/d/vision/")
    expect(page.locator("#now tr", has_text="A100 80GB, whole cards").first).to_contain_text("6 cards lent")
    page.get_by_role("link", name="Recall").click()
    expect(page.locator("#preview")).to_contain_text("have to release")
    expect(page.locator("#preview")).to_contain_text("of another department")
    page.fill("#id_units", "9")
    expect(page.locator("#preview")).to_contain_text("at most 8")
    page.fill("#id_units", "6")  # all that is lent: for less, any two borrowers leave, and by now it could be others
    expect(page.locator("#preview")).to_contain_text("All released by")
    olivia.send(page.get_by_role("button", name="Recall"))
    page.evaluate("window.notReloaded = true")
    notice = page.locator("#now .notice", has_text="Recall")
    expect(notice).to_contain_text(re.compile(r"Recall: \d of 6 cards"))
    expect(notice.locator("time[data-time=countdown]").first).to_be_visible()
    board = bob.go("/d/biology/")
    expect(board.locator("#now .notice").first).to_contain_text("to Computer Vision")
    expect(notice).to_contain_text("returned and held for you", timeout=120_000)
    assert page.evaluate("window.notReloaded") is True
    notice.get_by_role("button", name="Withdraw").click()
    expect(page.locator(".toast")).to_contain_text("released")
    expect(page.locator("#now .notice", has_text="Recall")).to_have_count(0)
    bob.go("/decisions/?kind=reclaim")
    expect(bob.page.locator("tbody")).to_contain_text("Computer Vision")


def test_lend_limit_is_changed_after_a_preview_and_is_in_the_history(person: Arrive) -> None:
    page = person("olivia").go("/d/vision/quotas/a100-mig/")
    expect(page.locator("#id_guaranteed")).to_be_disabled()
    page.fill("#id_lend_limit", "4")
    page.fill("#id_why", "a deadline next week")
    expect(page.locator("#preview")).to_contain_text(re.compile("No workload|have to release"))
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_contain_text("Quotas of")
    expect(page.locator("main")).to_contain_text("a deadline next week")


def test_preview_request_has_the_fields_of_the_form_without_its_protection_tokens(person: Arrive) -> None:
    page = person("olivia").page
    with page.expect_request(lambda each: "/recall/preview/" in each.url) as asked:
        page.goto(page.url.rstrip("/") + "/d/vision/recall/?pool=a100&units=2")
    assert "pool=a100" in asked.value.url
    assert "csrf" not in asked.value.url
    assert "form_key" not in asked.value.url


def test_new_member_joins_by_an_invitation_link_and_can_be_removed(person: Arrive) -> None:
    page = person("olivia").go("/d/vision/members/")
    page.get_by_role("button", name="Create link").click()
    link = page.locator("#invitation-link").input_value()
    newcomer = person("").page
    newcomer.goto(link)
    newcomer.fill("#id_username", "nina")
    newcomer.fill("#id_full_name", "Nina Li")
    newcomer.fill("#id_password", "correct horse battery")
    newcomer.get_by_role("button", name="Create account and join").click()
    expect(newcomer.locator("h1")).to_have_text("Home")
    page.goto(page.url.split("/d/")[0] + "/d/vision/members/")
    row = page.locator("tr", has_text="Nina Li")
    row.get_by_role("combobox").select_option("viewer")
    row.get_by_role("button", name="Set").click()
    expect(page.locator(".toast")).to_contain_text("was changed")
    page.locator("tr", has_text="Nina Li").get_by_role("link", name="Remove").click()
    expect(page.locator("main")).to_contain_text("has no queued or running workloads here")
    page.get_by_role("button", name="Remove Nina Li").click()
    expect(page.locator("tbody").first).not_to_contain_text("Nina Li")


def test_user_cap_is_saved_in_its_row(person: Arrive) -> None:
    page = person("olivia").go("/d/vision/members/")
    row = page.locator("#caps tr", has_text="T4")
    row.get_by_role("textbox").fill("8 GiB")
    row.get_by_role("button", name="Save").click()
    expect(page.locator("#caps [role=status]")).to_contain_text("T4")


def test_quota_is_requested_in_chinese_and_approved_in_english(person: Arrive) -> None:
    alice = person("alice", language="zh-CN", theme="dark", width=390)
    page = alice.go("/d/vision/requests/new/?pool=a100&wanted=borrow_limit")
    expect(page.locator("h1")).to_contain_text("申请配额")
    page.fill("#id_units", "8")
    page.fill("#id_why", "秋季检测比赛需要更多显卡。" * 20)
    page.get_by_role("button", name="提交申请").click()
    expect(page.locator("dl.facts")).to_contain_text("待处理")
    assert alice.axe() == []
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    oscar = person("oscar").go("/requests/")
    oscar.locator("section", has_text="Waiting for your approval").get_by_role("link").first.click()
    expect(oscar.locator("#preview")).to_contain_text("Preview")
    oscar.fill("#id_units", "7")
    oscar.fill("#id_note", "Seven, until the contest is over.")
    oscar.get_by_role("button", name="Approve").click()
    expect(oscar.locator("dl.facts").first).to_contain_text("Approved: 7 cards")
    page.reload()
    expect(page.locator("dl.facts")).to_contain_text("已批准：7 张卡")
    expect(page.locator("dl.facts")).to_contain_text("Seven, until the contest is over.")
    alice.go("/inbox/")
    expect(page.locator("main")).to_contain_text("批准了")


def test_double_click_sends_a_form_once(person: Arrive) -> None:
    """Regression: a second click while the page checked its session was sent, too, but without the button's value, which
    for a switch means the opposite."""
    page = person("olivia").go("/d/vision/")
    page.get_by_role("button", name="Pause").click()
    page.locator("#pause").get_by_role("button", name="Pause").dblclick()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Resume").dblclick()
    expect(page.get_by_role("button", name="Pause").first).to_be_visible()
    alice = person("alice").go("/d/vision/requests/new/?pool=a100&wanted=borrow_limit")
    alice.fill("#id_units", "9")
    alice.fill("#id_why", "asked twice")
    alice.get_by_role("button", name="Send request").dblclick()
    alice.wait_for_url(re.compile(r"/requests/[0-9a-z]{26}/$"))
    alice.fill("#id_text", "said once")
    alice.get_by_role("button", name="Comment").dblclick()
    expect(alice.locator("section", has_text="said once")).to_have_count(1)
    oscar = person("oscar").go("/requests/")
    rows = oscar.locator("section tr", has_text="9 cards")
    expect(rows).to_have_count(1)
    rows.get_by_role("link").click()
    expect(oscar.get_by_text("said once")).to_have_count(1)
    oscar.fill("#id_note", "looks good")
    oscar.get_by_role("button", name="Approve").dblclick()
    expect(oscar.locator("dl.facts").first).to_contain_text("Approved: 9 cards")


@pytest.mark.parametrize(("language", "theme", "width"), [("en-US", "light", 1400), ("zh-CN", "dark", 390)])
def test_every_page_is_accessible_and_fits_the_screen(person: Arrive, language: str, theme: str, width: int) -> None:
    olivia = person("olivia", language=language, theme=theme, width=width)
    found = {}
    for path in PAGES:
        page = olivia.go(path)
        page.wait_for_load_state("networkidle") if "/recall" in path or "/quotas/" in path else None
        page.wait_for_timeout(300)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        found[path] = olivia.axe() + ([f"{wide} px too wide"] if wide > 0 else [])
    assert {path: faults for path, faults in found.items() if faults} == {}
