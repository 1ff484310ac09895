"""Tables at a desk: no figure stands over its neighbour, and no heading or figure breaks inside a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

BROKEN = r"""() => [...document.querySelectorAll("main .table :is(thead th, td.num)")].flatMap((cell) => {
  if (!cell.checkVisibility() || !cell.clientWidth) return [];
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  const found = cell.scrollWidth > cell.clientWidth ? [cell.textContent.trim() + " is over its neighbour"] : [];
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
    "olivia": ("/d/vision/", "/d/vision/quotas/", "/pools/a100/", "/decisions/"),
    "oscar": (
        "/usage/", "/usage/?group=department", "/usage/?group=department,person,pool",
        "/usage/?group=department,person,pool,kind", "/operator/", "/operator/pools/", "/operator/nodes/",
        "/operator/departments/", "/operator/workloads/", "/operator/audit/", "/requests/",
    ),
}  # fmt: skip


@pytest.mark.parametrize("username", PAGES)
def test_headings_and_figures_are_whole_and_beside_each_other(person: Callable[..., Any], username: str) -> None:
    somebody = person(username)
    faults = {}
    for address in PAGES[username]:
        page = somebody.go(address)
        expect(page.locator("main .table tbody tr").first).to_be_visible()
        faults[address] = page.evaluate(BROKEN)
    assert {address: found for address, found in faults.items() if found} == {}
