"""Markdown of the project's own documents as HTML: CommonMark with tables, headings with GitHub's anchors, no raw HTML.

markdown-it-py escapes HTML in the text and refuses links that run something; no other element comes out of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

Resolve = Callable[[str], str]  # a link as it is written → its URL; "" drops the link and keeps its text


@dataclass(frozen=True, slots=True)
class Section:
    """A heading (`level` 1 to 6) with the text below it, up to the next heading of any level."""

    level: int
    title: str
    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    html: str
    sections: tuple[Section, ...]
    rows: tuple[tuple[str, ...], ...]
    """Rows of all tables without their headers, each cell as HTML."""

    @property
    def title(self) -> str:
        return self.sections[0].title if self.sections else ""


_parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def slug(title: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def render(source: str, resolve: Resolve, original: tuple[Section, ...] = ()) -> Document:
    """The document without its title, which the page shows (the first of `sections`).

    Items of numbered lists under a heading that says "rules" have the anchors `rule-1`, `rule-2`, … A translation gets the
    anchors of its `original`, heading by heading, so that links work in every language, and keeps GitHub's as well.
    """
    tokens = _parser.parse(source)
    sections: list[Section] = []
    used: dict[str, int] = {}
    has_rules = False
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            title = _words(tokens[index + 1])
            anchor = slug(title)
            used[anchor] = used.get(anchor, -1) + 1
            anchor = f"{anchor}-{used[anchor]}" if used[anchor] else anchor
            model = Section(int(token.tag[1]), title, anchor, "")
            if len(sections) < len(original):
                model = original[len(sections)]
            if model.anchor != anchor:
                _mark(tokens[index + 1], anchor)
            token.attrSet("id", model.anchor)
            sections.append(Section(int(token.tag[1]), title, model.anchor, ""))
            has_rules = bool(re.search(r"\brules? \d", model.title))
        elif token.type == "list_item_open" and token.info and token.level == 1 and has_rules:
            token.attrSet("id", f"rule-{token.info}")
        elif token.type == "inline":
            _links(token, resolve)
            if sections and tokens[index - 1].type != "heading_open":
                sections[-1] = _longer(sections[-1], _words(token))
        elif token.type == "table_open":
            token.attrSet("class", "table table-vcenter")
    if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        tokens = tokens[3:]
    html: str = _parser.renderer.render(tokens, _parser.options, {})
    html = html.replace("<table ", '<div class="table-responsive"><table ').replace("</table>", "</table></div>")
    html = re.sub(r"<th( [^>]*)?></th>", "<td></td>", html)  # an empty cell is no column header
    html = re.sub(r"<thead>\s*<tr>\s*(<td></td>\s*)+</tr>\s*</thead>\s*", "", html)
    html = html.replace("&lt;br&gt;", "<br>")  # the one element for which cells of tables have no Markdown
    html = html.replace("<pre>", '<pre tabindex="0">')  # wide blocks can be scrolled with the keyboard, too
    return Document(html, tuple(sections), tuple(_rows(tokens)))


def _rows(tokens: list[Token]) -> Iterator[tuple[str, ...]]:
    row: list[str] = []
    for index, token in enumerate(tokens):
        if token.type == "td_open":
            row.append(_parser.renderer.render([tokens[index + 1]], _parser.options, {}))
        elif token.type == "tr_close" and row:
            yield tuple(row)
            row = []


def _words(token: Token) -> str:
    return "".join(child.content if child.type != "softbreak" else " " for child in token.children or ())


def _mark(heading: Token, anchor: str) -> None:
    """Adds a second anchor at the beginning of the heading."""
    mark = Token("span_open", "span", 1, attrs={"id": anchor})
    heading.children = [mark, Token("span_close", "span", -1), *(heading.children or ())]


def _longer(section: Section, text: str) -> Section:
    return Section(section.level, section.title, section.anchor, f"{section.text} {text}".strip())


def _links(token: Token, resolve: Resolve) -> None:
    """Resolves the addresses of links; pictures become their alternative text."""
    children, left, dropped = token.children or [], [], 0
    for child in children:
        if child.type == "image":
            text = Token("text", "", 0)
            text.content = child.content
            left.append(text)
        elif child.type == "link_open":
            address = resolve(str(child.attrGet("href") or ""))
            if not address:
                dropped += 1
                continue
            child.attrSet("href", address)
            left.append(child)
        elif child.type == "link_close" and dropped:
            dropped -= 1
        else:
            left.append(child)
    token.children = left
