"""The documents in docs/ as pages of the portal: their list, their languages, and a search."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cache

from django.conf import settings
from django.urls import reverse
from django.utils.translation import get_language

from portal.text import changelog
from portal.text.markdown import Document, render

ROOT = settings.BASE_DIR / "docs"
CHINESE = "zh"  # docs/zh/ has the Chinese versions of documents, under the same names
FOUND_MOST = 40

HAN = r"\u3400-\u9fff"
WORD = re.compile(rf"(?:(?![的和与])[{HAN}])+|[^\s{HAN}]+")
PIECE = range(2, 7)  # characters of a Chinese word
FILE_NAME = re.compile(r"\[[\w./-]+\.md\]\(([^)\s]+)\)")  # a link whose text is the name of a document's file


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
    """The names of all documents, without the file extension."""
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
def changes() -> list[changelog.Version]:
    """The versions in CHANGELOG.md; links to source files become plain text."""
    return changelog.read((settings.BASE_DIR / "CHANGELOG.md").read_text("utf-8"))


def address(name: str, anchor: str = "") -> str:
    return reverse("portal:help_page", args=[name]) + (f"#{anchor}" if anchor else "")


def search(words: str) -> list[Hit]:
    """Sections that have all of the words, those with them in the heading first. Decisions and design notes come last."""
    wanted = WORD.findall(words.lower())
    if not wanted:
        return []
    hits: list[tuple[tuple[bool, bool, str], Hit]] = []
    for name in names():
        each = guide(name)
        for section in each.document.sections if each else ():
            text = f"{section.title} {section.text}"
            if not all(_has(text.lower(), word) for word in wanted):
                continue
            in_title = all(_has(section.title.lower(), word) for word in wanted)
            hit = Hit(
                address(name, section.anchor),
                each.document.title if each else name,
                section.title,
                _excerpt(section.text, wanted[0]),
            )
            hits.append(((not in_title, "/" in name, name), hit))
    return [hit for _order, hit in sorted(hits, key=lambda pair: pair[0])[:FOUND_MOST]]


def _has(text: str, word: str) -> bool:
    """Whether the text contains the word. Chinese has no spaces between words: a run of characters also counts if it can be cut
    into pieces that the text contains."""
    if word in text or not re.fullmatch(f"[{HAN}]+", word):
        return word in text
    ends = {0}  # positions up to which the word consists of pieces in the text
    for end in range(2, len(word) + 1):
        if any(end - size in ends and word[end - size : end] in text for size in PIECE):
            ends.add(end)
    return len(word) in ends


def _excerpt(text: str, word: str) -> str:
    while word not in text.lower():  # the text has only pieces of it
        word = word[:-1]
    begin = max(0, text.lower().find(word) - 60)
    cut = text[begin : begin + 200]
    return ("…" if begin else "") + cut + ("…" if begin + 200 < len(text) else "")


@cache
def _rendered(name: str, language: str) -> Document:
    place = posixpath.join(language, name)
    source = FILE_NAME.sub(lambda link: _titled(link, place), (ROOT / f"{place}.md").read_text("utf-8"))
    original = _rendered(name, "").sections if language else ()
    return render(source, lambda link: _resolve(link, place), original)


def _titled(link: re.Match[str], place: str) -> str:
    """The link with the document's title as its text, in the language of `place`: a page of the portal shows no files."""
    target = _target(link[1].partition("#")[0], place)
    if target not in names():
        return link[0]
    translated = ROOT / CHINESE / f"{target}.md"
    file = translated if place.startswith(f"{CHINESE}/") and translated.is_file() else ROOT / f"{target}.md"
    return f"[{file.read_text('utf-8').partition(chr(10))[0].removeprefix('# ')}]({link[1]})"


def _resolve(link: str, place: str) -> str:
    """A link of the document at `place` (such as "zh/quota-rules"): an address in the portal for a document of any language,
    external links unchanged; "" for a source file."""
    if "://" in link or link.startswith(("#", "mailto:")):
        return link
    path, _mark, anchor = link.partition("#")
    target = _target(path, place)
    if target == "adr/README" or target in names():
        return address(target, anchor)
    return ""


def _target(path: str, place: str) -> str:
    """The name of the document at `path`, as the document at `place` writes it."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    return target.removeprefix(f"{CHINESE}/").removesuffix(".md")
