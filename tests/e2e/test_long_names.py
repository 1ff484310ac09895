"""One long unbroken name widens no page: 100 letters, 60 CJK characters, a file name of 255 bytes, at a desk and on a phone."""

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


@pytest.fixture
def named(person: Callable[..., Any]) -> tuple[Callable[[str], Any], str]:
    """A department, a team, a person, and workloads with such names and such a file, made by those who may."""
    oscar, alice = person("oscar"), person("alice")
    oscar.go("/operator/departments/")
    version = oscar.go("/operator/departments/vision/").input_value("[name=version]")
    change = {"name": LETTERS, "parent": "", "weight": "1", "version": version}
    assert oscar.page.evaluate(POST, ["/operator/departments/vision/", change])[1] == "/operator/departments/"
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


def test_a_long_unbroken_name_widens_no_page_is_not_squeezed_and_leaves_buttons_their_size(named: Any) -> None:
    who, workload = named
    pages = {
        "alice": ["/", "/d/vision/", "/d/vision/workloads/", workload, workload + "?tab=files", "/d/vision/workloads/new/",
                  "/d/vision/members/", "/pools/", "/decisions/", "/inbox/", "/profile/", "/tokens/", "/usage/"],
        "oscar": ["/", "/usage/", "/usage/?group=person,department,pool&person=alice", "/operator/pools/a100/", "/d/vision/",
                  "/d/vision/members/", "/d/vision/quotas/", "/operator/", "/operator/users/",
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
                for script in (WIDER, CRAMPED, SQUEEZED):
                    wide += [f"{name} {path} {width}: {each}" for each in page.evaluate(script)]
        someone.heard = [text for text in someone.heard if not any(w in text for w in ("sendAbort", "afterRequest"))]
    assert wide == [], "\n".join(wide)
