"""Compares the Chinese guides (docs/zh) with the English ones of which they are translations: block by block, section by
section.

    python -m tests.architecture.chinese_guides     prints the differences, and stamps the English sections as translated

A stamp is a digest of an English section. `test_chinese_guides.py` fails for each section whose English words do not match its
stamp: change the Chinese section, too, then run this.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from posixpath import dirname, join, normpath
from urllib.parse import unquote

from babel.messages.pofile import read_po
from markdown_it import MarkdownIt
from markdown_it.token import Token

from portal.text.markdown import slug
from tests.architecture.sources import ROOT

ENGLISH = ROOT / "docs"
CHINESE = ENGLISH / "zh"
STAMPS = ROOT / "tests" / "architecture" / "data" / "chinese_guides.json"

NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")
MILLIONS = re.compile(r"([\d.]+) million")  # Chinese counts them in units of 万, ten thousand
COMMENT = re.compile(r"(?:^|\s)#\s.*$", re.M)
_parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


@dataclass
class Block:
    """A heading, paragraph, table cell or block of code. `words` is the text, with an `x` for each piece of code."""

    kind: str  # such as "h2", "li p", "td", "pre"
    words: str = ""
    code: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)  # emphasised: labels on pages
    broken: bool = False  # wrapped over several lines


@dataclass
class Part:
    """A section: its heading, and the blocks up to the next one."""

    title: str
    source: str
    blocks: list[Block]


def names() -> list[str]:
    return sorted(path.relative_to(CHINESE).with_suffix("").as_posix() for path in CHINESE.rglob("*.md"))


def parts(source: str) -> list[Part]:
    """The sections of a document that begins with a heading."""
    lines, found, around = source.splitlines(), [], []
    starts: list[int] = []
    for token in _parser.parse(source):
        if token.type == "heading_open":
            found.append(Part("", "", []))
            starts.append(token.map[0] if token.map else 0)
        if token.nesting == 1:
            around.append(token.tag)
        elif token.nesting == -1:
            around.pop()
        elif token.type in {"fence", "code_block"}:
            found[-1].blocks.append(Block(" ".join([*around, "pre"]), code={COMMENT.sub("", token.content)}))
        elif token.type == "inline":
            block = _block(" ".join(around), token)
            found[-1].blocks.append(block)
            found[-1].title = found[-1].title or token.content
    for part, start, end in zip(found, starts, [*starts[1:], len(lines)], strict=True):
        part.source = " ".join(" ".join(lines[start:end]).split())
    return found


def _block(kind: str, inline: Token) -> Block:
    block, label = Block(kind), False
    for child in inline.children or ():
        if child.type == "code_inline":
            block.code.add(child.content)
            block.words += "x"
        elif child.type in {"softbreak", "hardbreak"}:
            block.broken, block.words = True, f"{block.words} "
        elif child.type == "link_open":
            block.links.append(str(child.attrGet("href")))
        elif child.type in {"em_open", "em_close"}:
            label = child.type == "em_open"
            if label:
                block.labels.append("")
        elif child.type == "text":
            block.words += child.content
            if label:
                block.labels[-1] += child.content
    return block


@cache
def of(name: str) -> tuple[list[Part], list[Part]]:
    """The sections of a guide, English and Chinese."""
    english, chinese = (parts((folder / f"{name}.md").read_text()) for folder in (ENGLISH, CHINESE))
    return english, chinese


@cache
def labels() -> dict[str, set[str]]:
    """English sentence → its translations on Chinese pages."""
    found: dict[str, set[str]] = {}
    with (ROOT / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po").open("rb") as file:
        for message in read_po(file):
            if isinstance(message.id, str) and message.id:
                found.setdefault(message.id, set()).add(str(message.string))
    return found


def differences(name: str, english: list[Part], chinese: list[Part]) -> list[str]:
    """Differences between the translation of `name` and the original, as sentences with the section's title."""
    levels = [[part.blocks[0].kind for part in each] for each in (english, chinese)]
    for theirs, ours in zip_longest(english, chinese):
        if theirs is None or ours is None or theirs.blocks[0].kind != ours.blocks[0].kind:
            where = f"“{ours.title}” is" if ours else "nothing is"
            return [f"docs/zh/{name}.md: {where} where docs/{name}.md has “{theirs.title if theirs else '–'}” {levels}"]
    problems = []
    for theirs, ours in zip(english, chinese, strict=True):
        where = f"docs/zh/{name}.md, “{ours.title}” (“{theirs.title}”)"
        kinds = [[block.kind for block in each.blocks] for each in (theirs, ours)]
        if kinds[0] != kinds[1]:
            place = next(n for n, pair in enumerate(zip_longest(*kinds)) if pair[0] != pair[1])
            problems.append(
                f"{where}: other paragraphs, items or cells, from the {place + 1}th on ({len(kinds[0])}, {len(kinds[1])})"
            )
            continue
        problems += [
            f"{where}: {each}"
            for pair in zip(theirs.blocks, ours.blocks, strict=True)
            for each in _between(name, *pair)
        ]
    return problems


def _between(name: str, english: Block, chinese: Block) -> Iterator[str]:
    start = chinese.words[:30]
    if english.code != chinese.code:
        yield f"`code` differs in “{start}”: {sorted(english.code ^ chinese.code)}"
    in_chinese = MILLIONS.sub(lambda found: f"{float(found[1]) * 100:,.0f} 万", english.words)
    if missing := set(NUMBER.findall(in_chinese)) - set(NUMBER.findall(chinese.words)):
        yield f"numbers are missing in “{start}”: {sorted(missing)}"
    theirs = sorted(place(link, name, "") for link in english.links)
    ours = sorted(place(link, name, "zh/") for link in chinese.links)
    if theirs != ours:
        yield f"links differ in “{start}”: {theirs} {ours}"
    for label in (label for way in english.labels for label in way.split(" › ")):
        shown = labels().get(label, set())
        if shown and not any(each in chinese.words for each in shown):
            yield f"“{start}” does not say {' or '.join(sorted(shown))}, as pages do for “{label}”"
    if chinese.broken:
        yield f"“{start}” is broken over lines: a break is a space, which Chinese does not have"
    if "*" in chinese.words:
        yield f"“{start}” shows an asterisk: marks of emphasis must be beside letters, not beside ，。"


def place(link: str, name: str, folder: str) -> str:
    """The target of a link of docs/<folder><name>.md, as a path below docs/ and the number of the heading there; the same for
    a guide and its translation."""
    if "://" in link:
        return link
    path, _hash, anchor = unquote(link).partition("#")
    target = normpath(join(dirname(folder + name), path)) if path else f"{folder}{name}.md"
    if not anchor or not (ENGLISH / target).is_file():
        return target.removeprefix("zh/")
    anchors = [slug(re.sub(r"[`*]", "", part.title)) for part in parts((ENGLISH / target).read_text())]
    number = anchors.index(anchor) if anchor in anchors else f"no “{anchor}”"
    return f"{target.removeprefix('zh/')}#{number}"


def stamps(name: str) -> dict[str, str]:
    """The stamps of the sections of the English guide."""
    return {part.title: hashlib.sha256(part.source.encode()).hexdigest()[:12] for part in of(name)[0]}


def changed(name: str) -> list[str]:
    """The sections of the English guide that were changed after their translation."""
    stamped = json.loads(STAMPS.read_text()).get(name, {})
    return [title for title, stamp in stamps(name).items() if stamped.get(title) != stamp]


def main() -> int:
    problems = [sentence for name in names() for sentence in differences(name, *of(name))]
    if problems:
        print("\n".join(problems))
        return 1
    for name in names():
        for title in changed(name):
            print(f"docs/{name}.md, “{title}”: counts as translated now")
    STAMPS.write_text(json.dumps({name: stamps(name) for name in names()}, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
