"""The researcher's journeys in a real browser, on the demo with real processes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import TimeoutError as TooLate
from playwright.sync_api import expect

Arrive = Callable[..., Any]


def submit(page: Any, command: str, name: str, preset: str = "quick-look") -> None:
    """Submits a workload from a preset; ends on the workload's page."""
    page.goto(
        page.url.split("/", 3)[0] + "//" + page.url.split("/", 3)[2] + f"/d/vision/workloads/new/?preset={preset}"
    )
    page.fill("#id_name", name)
    page.fill("#id_command", command)
    expect(page.locator("#verdict [data-verdict]")).to_be_visible()
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("h1")).to_have_text(name)


def test_workload_can_be_followed_from_preset_to_result_without_a_reload(person: Arrive) -> None:
    alice = person("alice")
    page = alice.page
    page.get_by_role("link", name=re.compile("Quick look")).click()  # from home, two clicks to a running workload
    expect(page.locator("#verdict .verdict-headline")).to_have_text(re.compile("^Starts now"))
    page.fill("#id_command", "train --steps 4")
    page.fill("#id_name", "first-look")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("h1")).to_have_text("first-look")
    page.evaluate("window.notReloaded = true")
    expect(page.locator("#now[data-state=running]")).to_be_visible()
    expect(page.locator("#log")).to_contain_text("step")
    expect(page.locator("#now[data-state=succeeded]")).to_be_visible(timeout=40_000)
    expect(page.locator("[data-sentence]")).to_contain_text("exit code 0")
    assert page.evaluate("window.notReloaded") is True
    page.get_by_role("link", name="Files", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download checkpoint.json").click()
    assert '"step"' in download.value.path().read_text()
    page.get_by_role("button", name="Run again").click()
    expect(page.locator("h1")).to_have_text("first-look")
    expect(page.get_by_text("Rerun of")).to_be_visible()


def test_verdict_follows_the_form_and_its_pool(person: Arrive) -> None:
    page = person("alice").go("/d/vision/workloads/new/?preset=train-1")
    headline = page.locator("#verdict .verdict-headline")
    page.fill("#id_units_per_pod", "15")
    expect(headline).to_have_text("Cannot run as requested.")
    expect(page.locator("#verdict")).to_contain_text("14 cards")
    page.fill("#id_units_per_pod", "x")
    expect(page.locator("#verdict")).to_contain_text("not a valid amount")
    page.select_option("#id_pool", "a100-mig")
    expect(page.locator("[data-profile]")).to_be_visible()
    expect(page.locator("[data-amount]")).to_be_hidden()
    expect(headline).to_have_text(re.compile("^Starts now"))


def test_alternative_that_starts_now_fills_the_form(person: Arrive) -> None:
    """A smaller request in the same pool, and one of the same size in a pool that counts in another unit."""
    page = person("alice").go("/d/vision/workloads/new/?preset=train-1")
    headline = page.locator("#verdict .verdict-headline")
    for chosen in ("[data-take-pool=a100]", ":not([data-take-pool=a100])[data-take-pool]"):
        page.select_option("#id_pool", "a100")
        page.fill("#id_units_per_pod", "15")
        expect(headline).to_have_text("Cannot run as requested.")
        offer = page.locator(f"#verdict {chosen}").first
        pool, units = offer.get_attribute("data-take-pool"), offer.get_attribute("data-take-units")
        offer.click()
        expect(page.locator("#id_pool")).to_have_value(pool)
        expect(page.locator("#id_units_per_pod")).to_have_value(units)
        expect(headline).to_have_text(re.compile("^Starts now"))


def test_amount_can_be_chosen_and_a_template_saved_by_keyboard(person: Arrive) -> None:
    alice = person("alice")
    page = alice.go("/d/vision/workloads/new/?preset=train-1")
    step = page.locator("#step-2")
    expect(step).to_contain_text(re.compile("now|within|waits"))
    step.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#id_units_per_pod")).to_have_value("2")
    expect(page.locator("#step-2[aria-pressed=true]")).to_be_focused()
    expect(page.locator("#step-1[aria-pressed=false]")).to_be_visible()
    page.get_by_text("Environment variables").click()
    page.fill("#id_env", "A=1")
    expect(page.locator("#inside-variables")).to_have_text("1 variable")
    page.get_by_role("button", name="Save as template").click()
    page.keyboard.type("two by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("#save-template")).to_contain_text("“two by keyboard” is saved.")
    assert alice.axe() == []
    page.get_by_role("link", name="Manage templates").last.click()
    page.get_by_role("link", name="Use two by keyboard").click()
    expect(page.locator("#id_units_per_pod")).to_have_value("2")
    expect(page.locator("#id_env")).to_have_value("A=1")


def test_verdict_and_submit_stay_visible_on_a_phone(person: Arrive) -> None:
    page = person("alice", width=390).go("/d/vision/workloads/new/?preset=train-1")
    bar = page.locator(".submit-bar")
    expect(bar).to_be_in_viewport(ratio=1)
    expect(bar).to_contain_text(re.compile("Starts"))
    page.fill("#id_units_per_pod", "15")
    expect(bar).to_contain_text("Cannot run as requested.")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(bar).to_be_in_viewport(ratio=1)
    copy, bar_box = page.get_by_text("Copy as").bounding_box(), bar.bounding_box()
    assert copy["y"] + copy["height"] <= bar_box["y"]  # the bar does not cover the last element


def test_stop_dialog_says_what_is_lost_and_clone_keeps_the_request(person: Arrive) -> None:
    alice = person("alice")
    page = alice.page
    submit(page, "train --steps 600", "long-one")
    expect(page.locator("#now[data-state=running]")).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    dialog = page.locator("dialog#stop")
    expect(dialog).to_contain_text("unsaved work is lost")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Stop", exact=True).click()
    dialog.get_by_role("button", name="Stop").click()
    expect(page.locator("#now[data-state=cancelled]")).to_be_visible()
    page.get_by_role("link", name="Clone").click()
    expect(page.locator("#id_command")).to_have_value("train --steps 600")


def test_file_chosen_in_the_form_is_available_when_the_workload_starts(person: Arrive, tmp_path: Any) -> None:
    page = person("alice").go("/d/vision/workloads/new/?preset=quick-look")
    file = tmp_path / "input.txt"
    file.write_text("from the form")
    page.fill("#id_name", "reads-a-file")
    page.fill("#id_command", "cat input.txt")
    page.set_input_files("#id_files", str(file))
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#log")).to_contain_text("from the form")


def test_tabs_switch_without_a_page_load_and_their_address_opens_the_same(person: Arrive) -> None:
    alice = person("alice")
    page = alice.page
    submit(page, "printf 'name,loss\\nresnet,0.3\\n' > results.csv; echo written", "writes-a-table")
    expect(page.locator("#log")).to_contain_text("written")
    page.evaluate("window.same = true")
    page.get_by_role("link", name="Files", exact=True).click()
    page.get_by_role("link", name="results.csv", exact=True).click()
    cell = page.get_by_role("cell", name="resnet")
    expect(cell).to_be_visible()
    expect(page).to_have_url(re.compile(r"tab=files&view=results\.csv#log-panel$"))
    assert alice.axe() == []
    page.get_by_role("link", name="Log", exact=True).first.click()
    expect(page.locator("#log")).to_contain_text("written")
    assert page.evaluate("window.same")
    page.get_by_role("link", name="Files", exact=True).click()
    page.get_by_role("link", name="results.csv", exact=True).click()
    expect(cell).to_be_visible()
    page.reload()
    expect(cell).to_be_visible()


def test_search_help_and_shortcuts_work_by_keyboard(person: Arrive) -> None:
    page = person("alice").page
    page.keyboard.press("Control+k")
    page.keyboard.type("baseline")
    expect(page.locator(".palette-item").first).to_contain_text("baseline-resnet")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("baseline-resnet")
    page.wait_for_load_state("load")
    page.keyboard.press("?")
    expect(page.locator("dialog#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#keys")).to_be_hidden()
    for _try in range(3):  # two keys within 1.2 s: a stalled machine may be too slow, as a person may be
        page.keyboard.press("g")
        page.keyboard.press("w")
        with contextlib.suppress(TooLate):
            page.wait_for_url("**/d/vision/workloads/", timeout=7_000)
            break
    expect(page.locator("h1")).to_have_text("Workloads")


def test_preempted_borrower_sees_a_countdown_is_queued_again_and_keeps_the_earlier_log(person: Arrive) -> None:
    borrower = person("bob").go("/")
    alice = person("alice").page
    submit(alice, "train --steps 30", "needs-four", preset="train-4")
    expect(alice.locator("#now")).to_contain_text("has been returned")
    banner = borrower.locator(".notice").first
    expect(banner).to_contain_text("is being recalled by Computer Vision")
    banner.get_by_role("link", name="Open").click()
    expect(borrower.locator("[data-sentence]")).to_contain_text("is recalling its capacity")
    before = borrower.locator(".big-number").inner_text()
    expect(borrower.locator(".big-number")).not_to_have_text(before)
    borrower.get_by_role("button", name="Saved – release now").click()
    expect(borrower.get_by_text("Attempt 2", exact=True)).to_be_visible(timeout=30_000)
    expect(alice.locator("#now[data-state=running]")).to_be_visible(timeout=90_000)
    alice.get_by_role("button", name="Stop", exact=True).click()
    alice.locator("dialog#stop").get_by_role("button", name="Stop").click()
    expect(borrower.locator("#log[data-attempt='2']")).to_be_visible(timeout=90_000)  # it has started again
    borrower.select_option("#attempt", "1")  # the log of the attempt that was preempted is still there
    expect(borrower).to_have_url(re.compile("attempt=1"))
    expect(borrower.locator("#log")).to_contain_text("step")
    expect(borrower.locator("#log[data-attempt='1']")).to_be_visible()


PAGES = [
    "/", "/d/vision/workloads/", "/d/vision/workloads/?state=failed", "/d/vision/workloads/new/?preset=train-4",
    "/profile/", "/tokens/", "/d/nlp/", "/d/vision/templates/",
]  # fmt: skip


@pytest.mark.parametrize(("language", "theme", "width"), [("en-US", "light", 390), ("zh-CN", "dark", 1400)])
def test_every_page_is_accessible_and_fits_the_screen(person: Arrive, language: str, theme: str, width: int) -> None:
    alice = person("alice", language=language, theme=theme, width=width)
    alice.go("/d/vision/workloads/")
    one = alice.page.get_by_role("link", name="baseline-resnet").get_attribute("href")
    for path in [*PAGES, *(f"{one}?tab={tab}" for tab in ("log", "files", "events", "spec"))]:
        page = alice.go(path)
        page.wait_for_load_state("load")
        page.wait_for_timeout(400)
        assert alice.axe() == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    alice.heard = [text for text in alice.heard if "404" not in text]
