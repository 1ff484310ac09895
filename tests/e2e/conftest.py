"""The whole demo in a separate process, and people who use it with a real browser."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import free_port

BASE = Path(__file__).resolve().parents[2]
LANGUAGES = {"en-US": "en", "zh-CN": "zh-hans"}
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
READY = 90  # s
INTERRUPTED = "ERR_NETWORK_CHANGED"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.e2e)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(240))
            if not CHROMIUM and not os.environ.get("CI"):
                item.add_marker(pytest.mark.skip(reason="needs Chromium"))


def passwords(folder: Path) -> dict[str, str]:
    """User name → password of the demo with its data in this folder."""
    return dict(line.split() for line in (folder / "logins").read_text().splitlines())  # type: ignore[misc]


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


def fresh(folder: Path) -> dict[str, str]:
    """The environment of a demo with its data in this folder, without the variables of the test run."""
    keep = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG", "VIRTUAL_ENV"}}
    return keep | {"DEBUG": "true", "EMBEDDED": "true", "DATA_DIR": str(folder)}


@contextlib.contextmanager
def running_demo(folder: Path, migrated: Path) -> Iterator[str]:
    """Runs a demo on SQLite with its own data, as on a fresh machine; yields its address."""
    shutil.copy(migrated, folder)
    port, notebooks = free_port(), free_port()
    environment = fresh(folder) | {"PORT": str(port), "NOTEBOOK_PORT": str(notebooks)}
    log = (folder / "demo.log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "manage.py", "demo"], cwd=BASE, env=environment, stdout=log, stderr=subprocess.STDOUT
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address + "/login/", process, folder / "demo.log")
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)  # it stops the runs on the embedded cluster
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


@pytest.fixture(scope="module")  # a recall in one journey changes the state for the next one
def demo(demo_folder: Path, migrated: Path) -> Iterator[str]:
    with running_demo(demo_folder, migrated) as address:
        yield address


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=2).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the demo did not start:\n{log.read_text()[-4000:]}")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A Chromium. Until it is closed an event loop runs in this thread, in which Django refuses queries."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=20_000)  # a late result is not a failure: the machine may be busy

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as launched:
        yield launched


# A click waits until the page's scripts have run, as an expectation waits for its text: on a busy machine it would come before.
CLICK_AFTER_SCRIPTS = """
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("* { pointer-events: none !important }");
  document.adoptedStyleSheets = [sheet];
  addEventListener("DOMContentLoaded", () => (document.adoptedStyleSheets = []));
"""


class Person:
    """
    A person logged in with a separate browser context. Errors in the console fail the test. The browser requests reduced
    motion, so that pages are in their final state at once: during a transition axe would measure an intermediate colour.
    """

    def __init__(
        self, browser: Any, base: str, username: str, password: str, language: str = "en-US", theme: str = "light",
        width: int = 1400,
    ) -> None:  # fmt: skip
        self.base, self.password, self.heard = base, password, list[str]()
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, locale=language, color_scheme=theme, bypass_csp=False,
            reduced_motion="reduce",
        )  # fmt: skip
        self.context.add_init_script(CLICK_AFTER_SCRIPTS)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("pageerror", lambda error: self.heard.append(f"error: {error}"))
        self.page.on("console", self._heard)
        if username:
            self.go("/login/")
            self.page.fill("#id_username", username)
            self.page.fill("#id_password", password)
            self.page.click("main button.btn-primary")
            self.page.wait_for_url(lambda url: "/login/" not in url)  # the home page, or an operator's overview
            # Another journey has changed the person's language.
            if self.page.locator("html").get_attribute("lang") != LANGUAGES[language]:
                self.page.click("button[name=language]")
                self.page.locator(f"html[lang={LANGUAGES[language]}]").wait_for()

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.heard.append(message.text)

    def complaints(self) -> list[str]:
        """Errors in the console that the page has caused. A request that was aborted by leaving the page is reported twice, and
        so is one that failed because a network interface of this machine changed, such as a test cluster's; these do not
        count."""
        found = list[str]()
        interrupted = sum(INTERRUPTED in text for text in self.heard)
        for text in self.heard:
            failed = "sendError" in text and interrupted > 0
            before = text.replace("sendError" if failed else "sendAbort", "afterRequest")
            if before != text and found[-1:] == [before]:
                found.pop()
                interrupted -= failed
            elif INTERRUPTED not in text:
                found.append(text)
        return found

    def go(self, path: str) -> Any:
        from playwright.sync_api import Error

        while True:
            try:
                self.page.goto(self.base + path)
                return self.page
            except Error as error:
                if INTERRUPTED not in error.message:
                    raise

    def send(self, button: Any) -> None:
        """Presses a form's button, and confirms while the effects have changed since the preview that the page showed."""
        page = button.page
        with page.expect_navigation():
            button.click()
        while page.locator("form[data-confirm]").count():
            with page.expect_navigation():
                page.locator("form[data-confirm] button.btn-danger").click()
        self.heard = [text for text in self.heard if "409" not in text]

    def axe(self) -> list[str]:
        """Violations that axe finds on the present page; axe is injected in spite of the page's Content-Security-Policy."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


@pytest.fixture
def person(chromium: Any, demo: str, demo_folder: Path) -> Iterator[Callable[..., Person]]:
    made: list[Person] = []

    def arrive(username: str = "", *, language: str = "en-US", theme: str = "light", width: int = 1400) -> Person:
        password = passwords(demo_folder).get(username, "")
        made.append(Person(chromium, demo, username, password, language, theme, width))
        return made[-1]

    yield arrive
    complaints = [text for each in made for text in each.complaints()]
    for each in made:
        each.context.close()
    assert complaints == []
