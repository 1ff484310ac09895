"""The documents in docs/, as pages inside the portal: which there are, in which language, what a search finds in them."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import cache

from django.conf import settings
from django.urls import reverse
from django.utils.translation import get_language

from portal.text.markdown import Document, render

ROOT = settings.BASE_DIR / "docs"
CHINESE = "zh"  # docs/zh/ has the documents that are there in Chinese, under the same names
FOUND_MOST = 40


@dataclass(frozen=True, slots=True)
class Guide:
    name: str  # such as "quota-rules" or "adr/0050-…"
    document: Document
    is_translated: bool  # it is in the reader's language


@dataclass(frozen=True, slots=True)
class Hit:
    address: str
    guide: str
    section: str
    excerpt: str


@cache
def names() -> frozenset[str]:
    """Of all documents, without their endings."""
    return frozenset(
        path.relative_to(ROOT).with_suffix("").as_posix()
        for path in ROOT.rglob("*.md")
        if path.relative_to(ROOT).parts[0] != CHINESE
    )


def guide(name: str) -> Guide | None:
    """The document in the reader's language, else in English; None if there is none."""
    if name not in names():
        return None
    wants_chinese = (get_language() or "").startswith("zh")
    translated = wants_chinese and (ROOT / CHINESE / f"{name}.md").is_file()
    return Guide(name, _rendered(name, CHINESE if translated else ""), translated or not wants_chinese)


@cache
def changes() -> Document:
    """CHANGELOG.md; its links to files of the source are words."""
    return render((settings.BASE_DIR / "CHANGELOG.md").read_text("utf-8"), lambda link: link if "://" in link else "")


def address(name: str, anchor: str = "") -> str:
    return reverse("portal:help_page", args=[name]) + (f"#{anchor}" if anchor else "")


def search(words: str) -> list[Hit]:
    """Sections that have all of the words, those with them in the heading first. Decisions and design notes come last."""
    wanted = words.lower().split()
    if not wanted:
        return []
    hits: list[tuple[tuple[bool, bool, str], Hit]] = []
    for name in names():
        each = guide(name)
        for section in each.document.sections if each else ():
            text = f"{section.title} {section.text}"
            if not all(word in text.lower() for word in wanted):
                continue
            in_title = all(word in section.title.lower() for word in wanted)
            hit = Hit(
                address(name, section.anchor),
                each.document.title if each else name,
                section.title,
                _excerpt(section.text, wanted[0]),
            )
            hits.append(((not in_title, "/" in name, name), hit))
    return [hit for _order, hit in sorted(hits, key=lambda pair: pair[0])[:FOUND_MOST]]


def _excerpt(text: str, word: str) -> str:
    begin = max(0, text.lower().find(word) - 60)
    cut = text[begin : begin + 200]
    return ("…" if begin else "") + cut + ("…" if begin + 200 < len(text) else "")


@cache
def _rendered(name: str, language: str) -> Document:
    source = (ROOT / language / f"{name}.md").read_text("utf-8")
    return render(source, lambda link: _resolve(link, name))


def _resolve(link: str, name: str) -> str:
    """A link of the document `name`: to another document inside the portal, or away; "" if it leads to a file of the source."""
    if "://" in link or link.startswith(("#", "mailto:")):
        return link
    path, _mark, anchor = link.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)).removesuffix(".md")
    if target == "adr/README" or target in names():
        return address(target, anchor)
    return ""
