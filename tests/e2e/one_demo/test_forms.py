"""Forms in a real browser: the end of a session, a switch of language, an amount of another unit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

NEW = "/d/vision/workloads/new/"


def fill(page: Any) -> None:
    page.fill("#id_name", "outlives")
    page.fill("#id_command", "python -c 'print(1)'\necho two")


def forgive(someone: Any) -> None:
    """Removes console errors about requests that had to be refused, and about panels that were requested again meanwhile."""
    wanted = ("401", "403", "422", "sendAbort", "afterRequest")
    someone.heard = [text for text in someone.heard if not any(word in text for word in wanted)]


def test_a_form_survives_the_end_of_its_session(person: Callable[..., Any]) -> None:
    """Cookies are removed while the form is open: a dialog asks for the password, and then the form is sent as typed."""
    alice = person("alice")
    page = alice.go(NEW + "?preset=quick-look")
    fill(page)
    alice.context.clear_cookies(name=re.compile("session"))
    # The panel beside the form may have opened the dialog by now, which blocks the pointer.
    page.locator("main button.btn-primary[type=submit]").evaluate("button => button.click()")
    dialog = page.locator("#session")
    expect(dialog).to_be_visible()
    assert page.input_value("#id_name") == "outlives"
    page.fill("#session-password", "wrong")
    dialog.locator("button[type=submit]").click()
    expect(dialog.locator("[data-fault]")).to_be_visible()
    page.fill("#session-password", alice.password)
    dialog.locator("button[type=submit]").click()
    page.wait_for_url("**/d/vision/workloads/*/")
    expect(page.locator("h1")).to_contain_text("outlives")
    forgive(alice)


def test_logging_in_in_another_tab_is_enough(person: Callable[..., Any]) -> None:
    alice = person("alice")
    page = alice.go(NEW + "?preset=quick-look")
    fill(page)
    alice.context.clear_cookies(name=re.compile("session"))
    other = alice.context.new_page()
    other.goto(alice.base + "/login/")
    other.fill("#id_username", "alice")
    other.fill("#id_password", alice.password)
    other.click("main button.btn-primary")
    other.wait_for_url(alice.base + "/")
    other.close()
    page.bring_to_front()
    expect(page.locator("#session")).to_be_hidden()  # the page has noticed the new login
    page.click("main button.btn-primary[type=submit]")
    page.wait_for_url("**/d/vision/workloads/*/")
    expect(page.locator("h1")).to_contain_text("outlives")
    forgive(alice)


def log_in_again(someone: Any) -> None:
    dialog = someone.page.locator("#session")
    expect(dialog).to_be_visible()
    someone.page.fill("#session-password", someone.password)
    dialog.locator("button[type=submit]").click()
    expect(dialog).to_be_hidden()


def test_preview_refused_for_an_ended_session_is_repeated_with_the_current_form(person: Callable[..., Any]) -> None:
    oscar = person("oscar")
    page = oscar.go("/operator/pools/a100/")
    preview = page.locator("#preview")
    expect(preview).to_contain_text("No workload is affected")
    oscar.context.clear_cookies(name=re.compile("session"))
    page.fill("#id_notice", "7s")
    log_in_again(oscar)
    expect(preview).to_contain_text("45 s")
    forgive(oscar)


def test_search_refused_for_an_ended_session_is_repeated_with_what_was_typed(person: Callable[..., Any]) -> None:
    oscar = person("oscar")
    page = oscar.go("/profile/")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette-results")).to_contain_text("Home")
    oscar.context.clear_cookies(name=re.compile("session"))
    page.fill("#palette-words", "visio")  # at once: the dialog that opens takes the keys typed after it
    log_in_again(oscar)
    expect(page.locator("#palette-results")).to_contain_text("Vision")
    assert page.input_value("#palette-words") == "visio"
    expect(page.locator(".palette-none")).to_be_hidden()
    page.fill("#palette-words", "nothing is called so")
    expect(page.locator(".palette-none")).to_be_visible()
    forgive(oscar)


def test_switching_the_language_keeps_what_was_typed(person: Callable[..., Any]) -> None:
    alice = person("alice")
    page = alice.go(NEW)
    fill(page)
    page.get_by_text("Recall, priority, waiting").click()
    page.check("#id_own_only")
    page.click("button[name=language]")
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")
    expect(page.locator("#id_name")).to_have_value("outlives")
    expect(page.locator("#id_command")).to_have_value("python -c 'print(1)'\necho two")
    expect(page.locator("#id_own_only")).to_be_checked()
    page.click("button[name=language]")
    expect(page.locator("html")).to_have_attribute("lang", "en")


def test_amount_is_reset_when_a_pool_of_another_unit_is_chosen(person: Callable[..., Any]) -> None:
    alice = person("alice")
    page = alice.go(NEW)
    options = page.locator("#id_pool option").evaluate_all(
        "all => all.map(o => [o.value, o.dataset.unit, o.dataset.first])"
    )
    units = {unit: (slug, first) for slug, unit, first in reversed(options)}
    assert {"cards", "GiB"} <= set(units)
    page.select_option("#id_pool", units["cards"][0])
    page.fill("#id_units_per_pod", "3")
    page.select_option("#id_pool", units["GiB"][0])
    expect(page.locator("#id_units_per_pod")).to_have_value(units["GiB"][1])
    expect(page.locator("[data-amount] label").first).to_have_text("GPU memory (GiB)")
    page.select_option("#id_pool", units["cards"][0])
    expect(page.locator("#id_units_per_pod")).to_have_value("1")
    page.fill("#id_units_per_pod", "1.5")
    expect(page.locator("[data-becomes]")).to_have_text("“1.5” is interpreted as 2 cards here.")


def test_ctrl_enter_submits_a_new_workload_from_any_field(person: Callable[..., Any]) -> None:
    page = person("alice").go("/d/vision/workloads/new/?preset=quick-look")
    page.fill("#id_command", "true")
    page.locator("#id_command").press("Control+Enter")
    page.wait_for_url(re.compile("/workloads/[0-9a-z]{26}/"))


def test_refused_form_links_to_each_invalid_field(person: Callable[..., Any]) -> None:
    """The first link has the focus; a link moves to its field, also to one in a closed fold."""
    alice = person("alice")
    page = alice.go(NEW)
    page.get_by_text("Recall, priority, waiting").click()
    page.fill("#id_max_wait", "soon")
    page.click("main button.btn-primary[type=submit]")
    links = page.locator("[role=alert] li a")
    expect(links).to_have_text(["Name", "Command", "Maximum waiting time"])
    expect(links.first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#id_name")).to_be_focused()
    page.locator("details:has(#id_max_wait)").evaluate("fold => fold.open = false")
    links.last.click()
    expect(page.locator("#id_max_wait")).to_be_focused()
    expect(page.locator("#id_max_wait")).to_be_in_viewport()
    forgive(alice)


def test_dialog_opens_and_closes_before_scripts_are_loaded(person: Callable[..., Any]) -> None:
    """On a slow network a page is read, and clicked, seconds before its scripts have come."""
    alice = person("alice")
    context = alice.context.browser.new_context(java_script_enabled=False, locale="en-US")
    context.add_cookies(alice.context.cookies())
    page = context.new_page()
    page.goto(alice.base + "/profile/")
    dialog = page.locator("dialog#end-sessions")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Log out everywhere").click()
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    context.close()


def test_button_of_a_form_is_not_primary_while_its_preview_is_refused(person: Callable[..., Any]) -> None:
    page = person("oscar").go("/d/vision/quotas/a100/")
    save, note = page.locator("#quota .card-footer button"), page.locator("#preview-refuses")
    present = page.input_value("#id_guaranteed")
    expect(page.locator("#preview .verdict-headline")).to_be_visible()
    expect(save).to_have_class("btn btn-primary")
    expect(note).to_be_hidden()
    page.fill("#id_guaranteed", "999")
    expect(note).to_be_visible()
    expect(save).to_have_class("btn")
    expect(save).to_have_accessible_description("Would be refused now: see the preview")
    expect(save).to_be_enabled()  # the preview is as old as the last key
    page.fill("#id_guaranteed", present)
    expect(note).to_be_hidden()
    expect(save).to_have_class("btn btn-primary")
