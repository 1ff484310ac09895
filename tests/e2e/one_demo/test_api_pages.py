"""The API's pages in a browser: copied samples run, Try it sends calls, and the pages are accessible."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

COPIED = "async (text) => (await navigator.clipboard.readText()) === text"
PAGES = ["/api/v1/docs/", "/api/v1/docs/pools/", "/api/v1/docs/workloads/"]


def run(language: str, text: str, environment: dict[str, str]) -> str:
    """Runs a copied call; returns its output."""
    commands = {
        "curl": ["sh", "-c", text],
        "Python": [sys.executable, "-c", text + "\nprint(answer.text)"],
        "gpuq": [sys.executable, "-m", *text.split()],
    }
    done = subprocess.run(
        commands[language], env=dict(os.environ) | environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_copied_sample_equals_the_shown_one_and_runs(person: Callable[..., Any]) -> None:
    alice = person("alice")
    page = alice.go("/tokens/")
    page.fill("#id_name", "copied")
    page.get_by_role("button", name="Create token").click()
    token = page.locator("#secret").text_content()
    environment = {"GPUQ_URL": alice.base, "GPUQ_TOKEN": token, "PYTHONPATH": "gpuq"}
    page = alice.go("/api/v1/docs/")
    page.locator("a.api-line[href$='#pools_read_all']").click()
    page.wait_for_url(re.compile("/docs/pools/#pools_read_all"))
    operation = page.locator("#pools_read_all")
    for language in ("curl", "Python", "gpuq"):
        sample = operation.locator("details.api-sample", has_text=re.compile(f"^\\s*{language}"))
        if sample.get_attribute("open") is None:
            sample.locator("summary").click()
        sample.get_by_role("button", name=re.compile(f"Copy as {language}")).click()
        expect(page.locator(".toast").last).to_contain_text("Copied")
        copied = sample.locator("pre").text_content()
        page.wait_for_function(COPIED, arg=copied)
        assert {"curl": "curl -sSf", "Python": "requests.get", "gpuq": "gpuq pools"}[language] in copied
        assert "a100" in run(language, copied, environment)


def test_every_sample_of_a_page_has_a_button_that_copies_it(person: Callable[..., Any]) -> None:
    page = person("alice").go("/api/v1/docs/workloads/")
    page.evaluate(
        "for (const each of document.querySelectorAll('details')) each.removeAttribute('name'), each.open = true"
    )
    buttons = page.locator("[data-copy]")
    assert buttons.count() > 30
    shown = []
    for number in range(buttons.count()):
        button = buttons.nth(number)
        button.evaluate("(each) => each.click()")
        text = page.locator(f"[id='{button.get_attribute('data-copy')}']").text_content()
        page.wait_for_function(COPIED, arg=text)
        shown.append(text)
    assert all(shown)
    assert len(set(shown)) == len(shown)


def test_try_it_sends_the_call_as_the_logged_in_user(person: Callable[..., Any]) -> None:
    alice = person("alice")
    page = alice.go("/api/v1/docs/pools/")
    page.locator("#pools_read_all").get_by_role("link", name="Try it").click()
    block = page.locator("#operations-pools-pools_read_all")
    # The address opens the operation, after all are drawn.
    block.get_by_role("button", name="Try it out").click(timeout=60_000)
    with page.expect_response(lambda answer: answer.url.endswith("/api/v1/pools/")) as answer:
        block.get_by_role("button", name="Execute").click()
    assert answer.value.status == 200
    expect(block.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
    expect(block.locator(".live-responses-table")).to_contain_text("a100")
    alice.heard = [text for text in alice.heard if "escaping deep link whitespace" not in text]  # of names with _


@pytest.mark.parametrize(("theme", "width"), [("light", 1400), ("dark", 390)])
def test_try_it_is_accessible_with_two_operations_open(person: Callable[..., Any], theme: str, width: int) -> None:
    alice = person("alice", theme=theme, width=width)
    page = alice.go("/api/v1/docs/try/")
    expect(page.locator("#swagger-ui .opblock").first).to_be_visible(timeout=60_000)
    assert alice.axe() == []
    for summary in page.locator(".opblock-summary-control").all()[:2]:
        summary.click()
    expect(page.locator(".opblock-body .responses-wrapper")).to_have_count(2)
    assert alice.axe() == []


@pytest.mark.parametrize(("language", "theme", "width"), [("en-US", "light", 1400), ("zh-CN", "dark", 390)])
def test_pages_are_accessible_and_fit_the_screen(
    person: Callable[..., Any], language: str, theme: str, width: int
) -> None:
    alice = person("alice", language=language, theme=theme, width=width)
    faults = {}
    for path in PAGES:
        page = alice.go(path)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        faults[path] = alice.axe() + ([f"{wide} px too wide"] if wide > 0 else [])
        if language == "zh-CN":
            expect(page.locator("main")).to_contain_text("提交任务" if path == PAGES[0] else "复制")
    assert {path: found for path, found in faults.items() if found} == {}
