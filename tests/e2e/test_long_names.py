"""Long unbroken names widen no page: 100 letters, 60 CJK characters, a file name of 255 bytes, at a desk and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LETTERS, HAN, FILE = "W" * 100, "长" * 60, "f" * 251 + ".txt"
POST = """async ([path, fields]) => {
  const session = await (await fetch("/session/")).json();
  const body = new FormData();
  body.set("csrfmiddlewaretoken", session.csrf);
  for (const [name, value] of Object.entries(fields)) body.set(name, value);
  if (fields.files) body.set("files", new File(["x"], fields.files));
  const answer = await fetch(path, { method: "POST", body });
  return [answer.status, new URL(answer.url).pathname];
}"""
WIDER = """() => {
  const most = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= most) return [];
  const scrolls = (element) => element && (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
  const wide = [...document.querySelectorAll("body *")].filter((element) => {
    const box = element.getBoundingClientRect();
    return box.width && box.right > most + 1 && !scrolls(element.parentElement);
  });
  return wide.slice(0, 5).map((element) => `${element.tagName}.${element.className} ${element.textContent.trim().slice(0, 30)}`);
}"""

CRAMPED = """() => {
  const seen = { visibilityProperty: true };
  const shown = [...document.querySelectorAll("main .btn")].filter((button) => button.checkVisibility(seen));
  const boxes = shown.map((button) => [button, button.getBoundingClientRect()]);
  const told = (button) => button.getAttribute("aria-label") || button.textContent.trim().slice(0, 30);
  const small = boxes.filter(([, box]) => box.width < 20 || box.height < 20).map(([button]) => `${told(button)} is small`);
  const covered = boxes.flatMap(([button, box], at) => boxes.slice(at + 1)
    .filter(([other, its]) => !button.closest(".btn-group") && !button.contains(other)
      && Math.min(box.right, its.right) - Math.max(box.left, its.left) > 1
      && Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top) > 1)
    .map(([other]) => `${told(button)} lies under ${told(other)}`));
  return [...small, ...covered].slice(0, 5);
}"""

SQUEEZED = """() => [...document.querySelectorAll("main h1, main h2, main h3")].flatMap((heading) => {
  const box = heading.getBoundingClientRect(), line = parseFloat(getComputedStyle(heading).lineHeight);
  const around = heading.closest(".card, .page-header, .dialog, main").getBoundingClientRect();
  return box.height > 1.6 * line && box.width < Math.min(0.6 * around.width, 400)
    ? [`${heading.textContent.trim().slice(0, 30)} is squeezed to ${Math.round(box.width)}`] : [];
})"""

OVER = """() => {
  const boxes = (cell) => {
    const found = [], range = document.createRange(), walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      if (walk.currentNode.parentElement.closest(".visually-hidden")) continue;
      range.selectNodeContents(walk.currentNode);
      found.push(...range.getClientRects());
    }
    return found;
  };
  const meet = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 2
    && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 2;
  const told = (cell) => cell.innerText.slice(0, 20);
  return [...document.querySelectorAll("main tr")].flatMap((row) => {
    const cells = [...row.cells].map((cell) => [cell, boxes(cell)]);
    return cells.flatMap(([cell, its], at) => cells.slice(at + 1)
      .filter(([, others]) => its.some((one) => others.some((other) => meet(one, other))))
      .map(([other]) => `${told(cell)} is written over ${told(other)}`));
  }).slice(0, 5);
}"""


@pytest.fixture
def named(person: Callable[..., Any]) -> tuple[Callable[[str], Any], str]:
    """A department, a webhook, a user and workloads with such names, and such a file, created through the pages."""
    oscar, alice = person("oscar"), person("alice")
    oscar.go("/operator/departments/")
    version = oscar.go("/operator/departments/vision/").input_value("[name=version]")
    change = {"name": LETTERS, "parent": "", "weight": "1", "version": version}
    assert oscar.page.evaluate(POST, ["/operator/departments/vision/", change])[1] == "/operator/departments/"
    hook = {"name": LETTERS[:80], "url": "https://open.feishu.cn/x", "shape": "generic", "secret": "", "language": "en"}
    assert oscar.page.evaluate(POST, ["/d/vision/webhooks/", hook])[0] == 200
    made = oscar.go("/d/vision/webhooks/").locator("main td a").first.get_attribute("href")
    assert oscar.page.evaluate(POST, [f"{made}try/", {}])[0] == 200
    alice.go("/profile/")
    mine = {"first_name": LETTERS, "last_name": HAN, "email": "", "language": "", "theme": "", "time_zone": ""}
    assert alice.page.evaluate(POST, ["/profile/", mine])[0] == 200
    page = alice.go("/d/vision/workloads/new/?preset=quick-look")
    fields = page.evaluate("() => Object.fromEntries(new FormData(document.getElementById('request')))")
    for name in (LETTERS, HAN):
        more = {"name": name, "files": FILE, "command": "mkdir folder; sleep 60"}
        status, path = page.evaluate(POST, ["/d/vision/workloads/new/", {**fields, **more}])
        assert (status, path.count("/")) == (200, 5), path
    return lambda who: oscar if who == "oscar" else alice, path


def test_long_names_neither_widen_pages_nor_cover_or_squeeze_elements(named: Any) -> None:
    who, workload = named
    pages = {
        "alice": ["/", "/d/vision/", "/d/vision/workloads/", workload, workload + "?tab=files", "/d/vision/workloads/new/",
                  "/d/vision/members/", "/pools/", "/decisions/", "/inbox/", "/profile/", "/tokens/", "/usage/"],
        "oscar": ["/", "/usage/", "/usage/?group=person,department,pool&person=alice", "/operator/pools/a100/", "/d/vision/",
                  "/d/vision/members/", "/d/vision/quotas/", "/d/vision/webhooks/", "/operator/", "/operator/users/",
                  "/operator/users/alice/", "/operator/departments/", "/operator/departments/vision/", "/operator/policies/",
                  "/operator/pools/", "/operator/nodes/", "/operator/clusters/", "/operator/images/", "/operator/audit/"],
    }  # fmt: skip
    wide = []
    for name, paths in pages.items():
        someone = who(name)
        for path in paths:
            page = someone.go(path)
            for width in (1400, 390):
                page.set_viewport_size({"width": width, "height": 900})
                for script in (WIDER, CRAMPED, SQUEEZED, OVER):
                    wide += [f"{name} {path} {width}: {each}" for each in page.evaluate(script)]
        someone.heard = [text for text in someone.heard if not any(w in text for w in ("sendAbort", "afterRequest"))]
    assert wide == [], "\n".join(wide)
