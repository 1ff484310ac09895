"""The log panel in a browser: it shows what a terminal would and no more, and does not redraw what is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.template.loader import render_to_string

from portal.models import Department
from workloads.models import Attempt, Workload

from .conftest import BASE

ORIGIN = "http://panel.test"
POLICY = (
    "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " require-trusted-types-for 'script'"
)
TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


class Panel:
    """A page with the panel alone, under a policy stricter than the portal's, and a server that answers as the portal does."""

    PIECE = 3000

    def __init__(self, browser: Any) -> None:
        self.log, self.lost, self.ended, self.asked, self.at = b"", 0, False, 0, ""
        self.earlier: list[bytes] = []  # the logs of earlier attempts
        self.page = browser.new_page(viewport={"width": 900, "height": 700})
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda line: self.faults.append(line.text) if line.type == "error" else None)
        self.page.route(f"{ORIGIN}/**", self.answer)

    def answer(self, route: Any) -> None:
        address = urlsplit(route.request.url)
        name = address.path.strip("/")
        if name.startswith("d/"):
            return self.piece(route, {key: value[0] for key, value in parse_qs(address.query).items()})
        if name and name != "favicon.ico":
            file = BASE / "static" / name.removeprefix("static/")
            return route.fulfill(body=file.read_text(), content_type=TYPES[name.rpartition(".")[2]])
        department, workload = Department(slug="vision"), Workload(public_id="one")
        newest = len(self.earlier) + 1
        chosen = int(parse_qs(address.query).get("attempt", [str(newest)])[0])
        body = render_to_string(
            "workloads/_log.html",
            {
                "department": department,
                "workload": workload,
                "log_rank": 0,
                "log_attempt": Attempt(number=chosen),
                "attempts": [(Attempt(number=number), (), "", None) for number in range(newest, 0, -1)],
                "request": {"GET": {"at": self.at}},
            },
        )
        scripts = "".join(
            f'<script src="/{each}" defer></script>' for each in ("vendor/anser.js", "terminal.js", "log.js")
        )
        html = f'<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="/portal.css">{scripts}<body>{body}</body>'
        return route.fulfill(body=html, content_type="text/html", headers={"Content-Security-Policy": POLICY})

    def piece(self, route: Any, given: dict[str, str]) -> None:
        self.asked += 1
        log = [*self.earlier, self.log][int(given["attempt"]) - 1]
        end = int(given["before"]) if "before" in given else None
        start = max(self.lost, int(given["offset"]) if "offset" in given else (end or len(log)) - self.PIECE)
        data = log[start : end if end is not None else None]
        if "offset" not in given and start > self.lost:
            cut = data.find(b"\n") + 1
            start, data = start + cut, data[cut:]
        headers = {
            "X-Log-Start": str(start), "X-Log-Offset": str(start + len(data)), "X-Log-End": "1" if self.ended else "0",
            "Content-Type": "text/plain; charset=utf-8",
        } | ({"X-Log-Lost": str(self.lost)} if self.lost else {})  # fmt: skip
        route.fulfill(body=data, headers=headers)

    def open(self, log: bytes, **more: Any) -> Panel:
        self.log = log
        vars(self).update(more)
        self.page.goto(ORIGIN + "/")
        self.settled()
        return self

    def add(self, data: bytes) -> None:
        self.log += data
        self.settled()

    def settled(self) -> None:
        """Waits until the panel has sent one more request and received its response."""
        before = self.asked
        while self.asked == before:
            self.page.evaluate("document.body.dispatchEvent(new Event('live'))")
            self.page.wait_for_timeout(20)
            if self.ended:
                break
        self.page.wait_for_timeout(50)

    @property
    def text(self) -> str:
        return str(self.page.evaluate("document.getElementById('log').textContent"))

    def until(self, code: str) -> None:
        end = time.monotonic() + 20
        while not self.page.evaluate(code):
            assert time.monotonic() < end, code
            self.page.wait_for_timeout(20)

    def value(self, code: str) -> Any:
        return self.page.evaluate(code)


@pytest.fixture
def panel(chromium: Any) -> Iterator[Panel]:
    made = Panel(chromium)
    yield made
    assert made.faults == []
    made.page.close()


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (b"10%\r 50%\r100%\ndone\n", "100%\ndone\n"),
        (b"\r10%\r20%", "20%"),
        (b"kept\r\nnext\r\n", "kept\nnext\n"),
        (b"kept\r", "kept"),
        (b"abc\x08\x08x\n", "ax\n"),
        (b"gone\x1b[2Kline\n", "line\n"),
        (b"\x1b]0;title\x07a\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\\n", "alink\n"),
        (b"\x1b[2J\x1b[1;1Hx\x1bPq#0\x1b\\y\x1b(Bz\x1b[?25l\n", "xyz\n"),
        ("a‮b⁦c‎d​e﻿f\n".encode(), "a⟨U+202E⟩b⟨U+2066⟩c⟨U+200E⟩d⟨U+200B⟩e⟨U+FEFF⟩f\n"),
        ("\u009b31mred\u0085x\0\x01\x7f\ty\n".encode(), "31mredx\ty\n"),
        (b"<script>document.title='bad'</script><img src=x onerror=alert(1)>&amp;\n",
         "<script>document.title='bad'</script><img src=x onerror=alert(1)>&amp;\n"),
        (b"bad \xff byte \xe4\xb8\xad\n", "bad � byte 中\n"),
        (b"\x1b[31mred\x1b[0m plain \x1b[1;38;5;208morange\x1b[0m\n", "red plain orange\n"),
    ],
)  # fmt: skip
def test_panel_shows_what_a_terminal_would_and_nothing_harmful(panel: Panel, log: bytes, shown: str) -> None:
    panel.open(log, ended=True)
    assert panel.text == shown
    assert panel.value("document.querySelectorAll('#log :not(span)').length") == 0


def test_log_in_pieces_cut_anywhere_looks_the_same(panel: Panel) -> None:
    log = "1%\r\x1b[32m2%\x1b[0m\r\n\x1b[38;2;1;2;3mé中\x1b[4;31mx\x1b[m\x1b]0;t\x1b\\y\rz\n\x1b[1mbold\n".encode()
    panel.open(b"")
    for at in range(len(log)):
        panel.add(log[at : at + 1])
    cut = panel.value("document.getElementById('log').innerText")
    assert cut == "2%\nz\nbold\n"
    panel.open(log)
    assert panel.value("document.getElementById('log').innerText") == cut


def test_colours_continue_across_lines_and_pieces_until_reset(panel: Panel) -> None:
    panel.open(b"\x1b[31mone\n")
    panel.add(b"two\x1b[0m\nthree \x1b[38:2::10:20:30mexact\x1b[0m \x1b[48;5;21mcube\x1b[39;49m\n")
    code = (
        "[...document.querySelectorAll('#log span')].filter(s => s.className || s.style.cssText)"
        ".map(s => [s.textContent.trim(), s.className || s.style.cssText])"
    )
    assert panel.value(code) == [
        ["one", "ansi-red"], ["two", "ansi-red"], ["exact", "color: rgb(10, 20, 30);"],
        ["cube", "background-color: rgb(0, 0, 255);"],
    ]  # fmt: skip


LINES = b"".join(b"line %04d\n" % n for n in range(1000))


def test_selection_and_scroll_position_stay_unless_the_panel_follows_the_end(panel: Panel) -> None:
    panel.open(LINES)
    at_end = "(() => { const l = document.getElementById('log'); return l.scrollHeight - l.scrollTop - l.clientHeight < 8; })()"
    assert panel.value(at_end)
    panel.add(b"more\n" * 5)
    assert panel.value(at_end)
    panel.page.evaluate("document.getElementById('log').scrollTop = 300")
    panel.until("!document.getElementById('follow').checked")
    select = (
        "(() => { const n = document.getElementById('log').firstChild; const r = new Range(); r.setStart(n, 3); r.setEnd(n, 40);"
        " getSelection().removeAllRanges(); getSelection().addRange(r); return String(getSelection()); })()"
    )
    selected = panel.value(select)
    panel.add(b"and more\n" * 50)
    assert panel.value("String(getSelection())") == selected
    assert panel.value("document.getElementById('log').scrollTop") == 300
    panel.page.check("#follow")
    assert panel.value(at_end)


def test_earlier_parts_load_without_moving_what_is_read(panel: Panel) -> None:
    panel.open(LINES, lost=2000, ended=True)
    first = panel.text.split("\n")[0]
    assert "The first 2 KiB are not kept" in panel.page.text_content("#log-lost")
    panel.page.evaluate("document.getElementById('log').scrollTop = 0")
    for _ in range(5):
        if panel.page.is_hidden("#log-earlier"):
            break
        asked = panel.asked
        panel.page.click("#log-earlier")
        panel.until("!document.getElementById('log-earlier').disabled")
        assert panel.asked == asked + 1
        assert panel.value("document.getElementById('log').scrollTop") > 1000
        panel.page.evaluate("document.getElementById('log').scrollTop = 0")
    assert panel.text == LINES[2000:].decode()
    assert first in panel.text


def test_search_covers_what_is_loaded_and_then_earlier_parts(panel: Panel) -> None:
    panel.open(LINES.replace(b"line 0003\n", b"Needle.* 3\n"), ended=True)
    panel.page.fill("#log-find", "LINE 099")
    assert panel.page.text_content("#log-found") == "0 of 10"
    panel.page.press("#log-find", "Enter")
    assert panel.page.text_content("#log-found") == "1 of 10"
    panel.page.press("#log-find", "Shift+Enter")
    assert panel.page.text_content("#log-found") == "10 of 10"
    assert panel.value("CSS.highlights.get('log-found').size") == 10
    panel.page.fill("#log-find", "needle.*")
    panel.page.press("#log-find", "Enter")
    panel.until("document.getElementById('log-found').textContent == '1 of 1'")
    assert panel.text.startswith("line 0000\n")
    assert not panel.page.is_checked("#follow")


def test_search_says_that_nothing_matches(panel: Panel) -> None:
    panel.open(b"all is well\n", ended=True)
    panel.page.click("#log-errors")
    panel.until("document.getElementById('log-found').textContent == 'No match'")
    panel.page.fill("#log-find", "well")
    assert panel.page.text_content("#log-found") == "0 of 1"
    panel.page.fill("#log-find", "")
    assert panel.page.text_content("#log-found") == ""


def marked_line(panel: Panel) -> str:
    return str(panel.value("[...(CSS.highlights.get('log-line') ?? [])].join()"))


def test_search_for_errors_starts_at_the_last_one(panel: Panel) -> None:
    log = LINES.replace(b"line 0003\n", b"ValueError: 3\n").replace(b"line 0990\n", b"Out of memory\n")
    panel.open(log, ended=True)
    panel.page.click("#log-errors")
    assert panel.page.text_content("#log-found") == "1 of 1"
    assert panel.value("[...CSS.highlights.get('log-found-now')].join()") == "Out of memory"
    panel.page.fill("#log-find", "line 099")
    assert panel.page.text_content("#log-found") == "0 of 9"


def test_link_has_the_offset_of_a_line_in_the_whole_log_and_opens_there(panel: Panel) -> None:
    log = b"\x1b[31mred\x1b[0m \xc3\xa9\r\n" + LINES  # offsets in bytes and in characters differ
    panel.open(log, ended=True)
    panel.page.fill("#log-find", "line 0995")
    panel.page.press("#log-find", "Enter")
    panel.page.click("#log-share")
    panel.until("location.search != ''")
    place = int(parse_qs(urlsplit(panel.page.url).query)["at"][0])
    assert log[place : place + 9] == b"line 0995"
    panel.faults.clear()  # this origin has no clipboard
    far = log.index(b"line 0100")
    panel.open(log, ended=True, at=str(far))
    panel.until("CSS.highlights.has('log-line')")
    assert marked_line(panel) == "line 0100"
    assert "line 0099\nline 0100\n" in panel.text  # with the text before it
    assert panel.text.rstrip().endswith("line 0999")
    assert not panel.page.is_checked("#follow")


def test_log_of_an_earlier_attempt_is_shown_searched_and_linked_to(panel: Panel) -> None:
    panel.open(b"second run\n", ended=True, earlier=[LINES])
    assert panel.text == "second run\n"
    assert panel.value("document.getElementById('attempt').value") == "2"
    panel.page.select_option("#attempt", "1")
    panel.page.evaluate("document.getElementById('attempt').form.requestSubmit()")  # as portal.js does on a page
    panel.page.wait_for_url("**attempt=1")
    panel.until("document.getElementById('log').textContent != ''")
    assert panel.text.endswith("line 0999\n")
    assert "second run" not in panel.text
    assert "attempt=1" in panel.page.get_by_role("link", name="Download").get_attribute("href")
    panel.page.fill("#log-find", "line 0003")  # in a part that is not loaded yet
    panel.page.press("#log-find", "Enter")
    panel.until("document.getElementById('log-found').textContent == '1 of 1'")
    panel.page.click("#log-share")
    panel.until("location.search.includes('at=')")
    linked = parse_qs(urlsplit(panel.page.url).query)
    assert (linked["attempt"], linked["at"]) == (["1"], [str(LINES.index(b"line 0003"))])
    panel.faults.clear()  # this origin has no clipboard


def test_link_to_a_line_that_is_no_longer_kept_opens_at_the_first_kept_line(panel: Panel) -> None:
    panel.open(LINES, ended=True, lost=LINES.index(b"line 0500"), at="20")
    panel.until("CSS.highlights.has('log-line') || document.getElementById('log').textContent != ''")
    assert panel.text.startswith("line 0500\n")


def test_line_wrapping_can_be_switched_and_is_remembered(panel: Panel) -> None:
    panel.open(b"x" * 2000 + b"\n", ended=True)
    wide = "document.getElementById('log').scrollWidth > document.getElementById('log').clientWidth"
    assert not panel.value(wide)
    panel.page.uncheck("#log-wrap")
    assert panel.value(wide)
    panel.page.reload()
    assert not panel.page.is_checked("#log-wrap")
