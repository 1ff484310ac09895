"""The title of every page names the page and what it belongs to, so that tabs and bookmarks can be told apart."""

from __future__ import annotations

import re

from tests.architecture import sources

TITLE = re.compile(r"{% block title %}(.+?){% endblock title %}")


def test_every_title_names_the_page_and_what_it_belongs_to() -> None:
    pages = {path: TITLE.search(path.read_text()) for path in (sources.ROOT / "templates").rglob("*.html")}
    titles = {sources.name(path): match[1] for path, match in pages.items() if match}
    assert len(titles) > 80
    assert [page for page, title in titles.items() if " · " not in title] == ["templates/base.html"]  # pages replace it
