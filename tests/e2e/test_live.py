"""Live updates of open pages: title, badge, notifications, ledger and clocks; and what they leave unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

Arrive = Callable[..., Any]
NOTIFICATIONS = """
window.shown = [];
window.Notification = class {
  static permission = "default";
  static async requestPermission() { return (this.permission = "granted"); }
  constructor(title, options) { window.shown.push([title, options.body, options.tag]); }
};
"""


def test_focus_stays_on_its_element_when_rows_arrive(person: Arrive) -> None:
    alice = person("alice")
    page = alice.go("/d/vision/workloads/")
    link = page.get_by_role("link", name="baseline-resnet", exact=True)
    link.focus()
    page.evaluate("window.notReloaded = true")
    other = alice.context.new_page()
    other.goto(alice.base + "/d/vision/workloads/new/?preset=quick-look")
    other.fill("#id_name", "arrives-later")
    other.get_by_role("button", name="Submit").click()
    expect(other.locator("h1")).to_have_text("arrives-later")
    page.bring_to_front()
    expect(page.get_by_role("link", name="arrives-later", exact=True)).to_be_visible()
    assert page.evaluate("document.activeElement.textContent.trim()") == "baseline-resnet"
    page.get_by_role("checkbox").nth(2).focus()
    value = page.evaluate("document.activeElement.value")
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        page.evaluate("htmx.trigger(document.body, 'live')")
    expect(page.locator("tbody")).to_be_visible()
    assert page.evaluate("document.activeElement.value") == value
    assert page.evaluate("window.notReloaded") is True
    other.close()


def test_refresh_changes_only_elements_that_differ(person: Arrive) -> None:
    alice = person("alice")
    page = alice.go("/d/vision/workloads/")
    page.evaluate("for (const row of document.querySelectorAll('#rows tbody tr')) row.known = row.id")
    rows = page.locator("#rows tbody tr")
    count = rows.count()
    other = alice.context.new_page()
    other.goto(alice.base + "/d/vision/workloads/new/?preset=quick-look")
    other.fill("#id_name", "one-more-row")
    other.get_by_role("button", name="Submit").click()
    expect(other.locator("h1")).to_have_text("one-more-row")
    other.close()
    page.bring_to_front()
    expect(rows.filter(has_text="one-more-row")).to_be_visible()
    new, *others = page.evaluate("[...document.querySelectorAll('#rows tbody tr')].map((row) => [row.id, row.known])")
    assert new[1] is None, "the row that came is a new element"
    assert all(id == known for id, known in others), "the other rows are the same elements as before"
    assert len(others) >= count - 1, "except the last one, if it has moved to the next page"


def test_focused_element_is_updated_by_a_refresh(person: Arrive) -> None:
    page = person("alice").go("/d/vision/workloads/")
    link = page.get_by_role("link", name="baseline-resnet", exact=True)
    link.evaluate("""(link) => {
      link.known = true;
      link.textContent = "what it was called before";
      link.focus();
      link.closest("td").prepend(document.createElement("button")); // what goes changes the places of what stays
    }""")
    page.evaluate("htmx.trigger(document.body, 'live')")
    expect(link).to_be_visible()
    assert link.evaluate("(link) => link.known")
    expect(link).to_be_focused()


def test_clock_never_shows_zero_seconds_ago(person: Arrive) -> None:
    page = person("alice").go("/")
    page.evaluate("""() => {
      window.texts = { relative: [], due: [] };
      for (const kind of ["relative", "due"]) for (let ms = -400; ms <= 3000; ms += 170) {
        const clock = document.createElement("time");
        clock.dateTime = new Date(Date.now() + ms).toISOString();
        clock.dataset.time = kind;
        if (kind === "relative" && ms === -400) clock.id = "oldest";
        new MutationObserver(() => window.texts[kind].push(clock.textContent)).observe(clock, { childList: true });
        document.body.append(clock);
      }
    }""")
    expect(page.locator("#oldest")).to_have_text("3 s ago")
    texts = page.evaluate("window.texts")
    assert not [text for kind in texts.values() for text in kind if re.search(r"\b0 s", text)]
    assert not [text for text in texts["due"] if "ago" in text]
    assert {"now", "in 1 s"} <= set(texts["due"])
    assert "just now" in texts["relative"]


def test_recall_updates_title_badge_notifications_and_ledger_without_a_reload(person: Arrive) -> None:
    olivia, bob = person("olivia"), person("bob")
    bob.context.add_init_script(NOTIFICATIONS)
    page = bob.go("/inbox/settings/")  # no part of it is live
    chooser = page.locator("[data-notify]")
    expect(chooser).to_contain_text("Off.")
    chooser.get_by_role("button", name="Turn on browser notifications").click()
    expect(chooser).to_contain_text("On:")
    page.evaluate("window.notReloaded = true; document.hasFocus = () => false")
    plain = page.title()
    badge = page.locator("[data-unread]")

    board = olivia.go("/d/vision/")
    board.evaluate("window.notReloaded = true")
    loan = board.locator("#past tr", has_text="Computational Biology").filter(has_text="A100 80GB, whole cards")
    expect(loan).to_contain_text("4 cards")
    form = olivia.context.new_page()
    form.goto(olivia.base + "/d/vision/recall/")
    form.fill("#id_units", "9")
    expect(form.locator("#preview")).to_contain_text("at most 8")  # so that the next preview is of the next amount
    # All that is lent: for less, any two borrowers leave, and part of the loan could remain.
    form.fill("#id_units", "6")
    expect(form.locator("#preview")).to_contain_text("All released by")
    olivia.send(form.get_by_role("button", name="Recall"))
    form.close()

    expect(page).to_have_title(re.compile(rf"^\(\d+\) 0:\d\d fold-[ab] · {re.escape(plain)}$"), timeout=40_000)
    expect(badge).to_be_visible()
    count = int(badge.inner_text())
    shown = page.evaluate("window.shown")
    assert shown[0][0] == "GPU quota portal"
    assert re.search(r"fold-[ab] is being recalled", shown[-1][1])
    assert len({tag for _title, _body, tag in shown}) == len(shown)  # each once
    assert page.evaluate("window.notReloaded") is True

    message = bob.go("/inbox/?show=unread").get_by_role("link", name=re.compile(r"^fold-[ab] is being recalled")).first
    name = message.inner_text().split()[0]
    message.click()
    expect(page.locator("h1")).to_have_text(name)
    expect(page).to_have_title(re.compile(rf"^(\({count - 1}\) )?(0:\d\d .*)?{name} · "), timeout=40_000)
    page.get_by_role(
        "link", name=re.compile("^View the decision for Computer Vision|^Why it was recalled")
    ).first.click()
    expect(page.locator("h1")).to_contain_text("Computer Vision: 6 cards")
    expect(page.get_by_role("heading", name="Must release")).to_be_visible()

    board.bring_to_front()
    expect(loan).to_contain_text("returned", timeout=120_000)
    assert board.evaluate("window.notReloaded") is True


def test_notification_switch_says_where_it_cannot_work(person: Arrive) -> None:
    bob = person("bob", language="zh-CN", width=390)
    bob.context.add_init_script("delete window.Notification")
    chooser = bob.go("/inbox/settings/").locator("[data-notify]")
    expect(chooser).to_contain_text("https")
    expect(chooser.get_by_role("button")).to_be_hidden()


def test_page_without_events_shows_when_it_was_updated_and_never_zero_seconds(person: Arrive) -> None:
    alice = person("alice")
    alice.context.add_init_script(
        """window.EventSource = class { static CLOSED = 2; readyState = 0; addEventListener() {} close() {} };
        window.told = [];
        addEventListener("DOMContentLoaded", () => setInterval(() => {
          const text = document.querySelector("[data-live-text]").textContent;
          if (window.told.at(-1) !== text) window.told.push(text);
        }, 50));"""
    )
    page = alice.go("/d/vision/")
    expect(page.locator("[data-live-text]").first).to_have_text("updated just now")
    expect(page.locator("[data-live-text]").first).to_have_text(re.compile("^updated [1-9]"))
    told = page.evaluate("window.told")
    assert "updated just now" in told, told
    assert not any(" 0 s" in text for text in told), told


COUNTED = """window.streams = [];
window.EventSource = class extends EventSource {
  constructor(...given) { super(...given); window.streams.push(this); }
};"""


def test_silent_event_stream_is_reopened(person: Arrive) -> None:
    """After a sleep or a change of network, a connection can be lost without either side noticing."""
    alice = person("alice")
    alice.context.add_init_script(COUNTED)
    alice.page.clock.install()
    page = alice.go("/d/vision/")
    text = page.locator("[data-live-text]").first
    expect(text).to_have_text("live")
    page.clock.fast_forward(30_000)
    expect(text).to_have_text("live")
    assert page.evaluate("window.streams.length") == 1
    page.clock.fast_forward(60_000)
    page.wait_for_function("window.streams.length === 2 && window.streams[0].readyState === EventSource.CLOSED")
    page.clock.run_for(2_000)
    expect(text).to_have_text("live")


def test_refresh_without_a_response_is_given_up_and_reported(person: Arrive) -> None:
    alice = person("alice")
    page = alice.go("/d/vision/")
    assert page.evaluate("htmx.config.timeout") == 30_000  # ms
    page.route(re.compile("/d/vision/"), lambda _route: None)  # no response, as on a connection that broke silently
    page.evaluate("htmx.config.timeout = 300; htmx.trigger(document.body, 'live')")
    expect(page.locator("#toasts")).to_contain_text("Cannot reach the server")
    page.unroute(re.compile("/d/vision/"))
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        page.evaluate("htmx.config.timeout = 30_000; htmx.trigger(document.body, 'live')")
    # htmx reports them.
    alice.heard = [text for text in alice.heard if not re.match("htmx:(afterRequest|timeout)", text)]
