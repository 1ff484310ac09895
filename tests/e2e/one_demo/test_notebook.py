"""A notebook in a real browser: the button, JupyterLab on its own origin, a cell, and what its scripts cannot reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import TimeoutError, expect

Arrive = Callable[..., Any]
REACH = """async (portal) => {
    const answers = [document.cookie];
    for (const options of [{credentials: "include"}, {credentials: "include", method: "POST", body: "x=1"}]) {
        try { answers.push((await fetch(portal + "/mine/", options)).status); } catch (error) { answers.push("refused"); }
    }
    return answers;
}"""


def test_jupyter_runs_a_cell_on_an_origin_that_cannot_reach_the_portal(person: Arrive, demo: str) -> None:
    alice = person("alice")
    page = alice.go("/d/vision/workloads/new/?preset=notebook")
    page.get_by_role("button", name="Submit").click()
    button = page.get_by_role("button", name="Open notebook")
    expect(button).to_be_visible(timeout=40_000)
    workload = page.url.rstrip("/").rsplit("/", 1)[1]
    with page.expect_popup() as opened:
        button.click()
    lab = opened.value
    lab.wait_for_url(f"http://{workload}.localhost:*/notebooks/{workload}/lab*")
    assert run_a_cell(lab, "print(6 * 7)") == "42"
    cookies, read, written = lab.evaluate(REACH, demo)
    assert "csrftoken" not in cookies
    assert "notebook=" not in cookies
    assert (read, written) == ("refused", "refused")
    page.get_by_role("button", name="Stop").first.click()


def run_a_cell(lab: Any, code: str) -> str:
    """Runs the code in a new notebook of an open JupyterLab, as a person would; returns its output.

    When a network interface comes or goes on this machine (a test cluster's), Chromium aborts what it is loading. Only
    then the page is loaded again, as a person would.
    """
    broken_off: list[str] = []
    lab.on("requestfailed", lambda request: broken_off.append(str(request.failure)))
    while True:
        try:
            return _run_a_cell(lab, code)
        except (AssertionError, TimeoutError):
            if not any("ERR_NETWORK_CHANGED" in failure for failure in broken_off):
                raise
            broken_off.clear()
            lab.reload()


def _run_a_cell(lab: Any, code: str) -> str:
    lab.locator(".jp-LauncherCard").first.click(timeout=30_000)
    cell = lab.locator(".jp-Notebook .cm-content").first
    expect(cell).to_be_visible(timeout=30_000)
    expect(lab.get_by_text("(ipykernel) | Idle")).to_be_visible(timeout=30_000)  # earlier, Jupyter drops what is run
    cell.click()
    expect(cell).to_be_focused()
    cell.press_sequentially(code)
    expect(cell).to_have_text(code)
    cell.press("Shift+Enter")
    output = lab.locator(".jp-OutputArea-output").first
    expect(output).not_to_be_empty(timeout=30_000)
    return str(output.inner_text().strip())
