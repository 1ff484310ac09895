"""On a wide screen no table is wider than its card, no figure or button overlaps its neighbour, and no word is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

TOO_WIDE = """() => [...document.querySelectorAll("main :is(.table-responsive, .table :is(thead th, td.num), .btn)")]
  .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth)
  .map((each) => `${each.className}: ${each.textContent.trim().slice(0, 30)}`)"""
BROKEN = r"""() => [...document.querySelectorAll("main .table :is(thead th, td.num)")].flatMap((cell) => {
  if (!cell.checkVisibility() || !cell.clientWidth) return [];
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/[\p{L}\p{N}.,]+/gu)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((box) => box.top)).size > 1) found.push(word[0] + " is broken");
    }
  }
  return found;
})"""
PAGES = {
    "alice": ("/", "/d/vision/workloads/", "/tokens/", "/pools/"),
    "bob": ("/", "/d/biology/", "/d/biology/workloads/"),
    "olivia": ("/d/vision/", "/d/vision/quotas/", "/pools/a100/", "/decisions/"),
    "oscar": (
        "/usage/", "/usage/?group=department", "/usage/?group=department,person,pool",
        "/usage/?group=department,person,pool,kind", "/operator/", "/operator/pools/", "/operator/nodes/",
        "/operator/departments/", "/operator/workloads/", "/operator/audit/", "/requests/",
        "/operator/users/", "/operator/users/alice/",
    ),
}  # fmt: skip


@pytest.mark.parametrize("username", PAGES)
def test_headings_and_figures_neither_break_nor_overlap(person: Callable[..., Any], username: str) -> None:
    somebody = person(username)
    faults = {}
    for address in PAGES[username]:
        page = somebody.go(address)
        expect(page.locator("main .table tbody tr, main .card").first).to_be_visible()
        faults[address] = page.evaluate(TOO_WIDE) + page.evaluate(BROKEN)
    assert {address: found for address, found in faults.items() if found} == {}
