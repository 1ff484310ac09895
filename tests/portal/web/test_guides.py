"""The documents inside the portal: every link between them leads somewhere, nothing of them runs, a search finds them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from portal.text.markdown import render
from portal.web import guides
from tests import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(make.user("reader"), backend="django.contrib.auth.backends.ModelBackend")
    return client


def anchors(html: str) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', html))


def test_links_between_guides_lead_to_guides_and_to_paragraphs_that_are_there() -> None:
    broken = []
    ids = {
        name: anchors(guide.document.html) | {guide.document.sections[0].anchor}
        for name in guides.names()
        if (guide := guides.guide(name))
    }
    for name in guides.names():
        guide = guides.guide(name)
        assert guide is not None
        for link in re.findall(r'href="([^"]+)"', guide.document.html):
            path, _mark, anchor = unquote(link).partition("#")
            if "://" in link or link.startswith("mailto:"):
                continue
            target = path.removeprefix("/help/").removesuffix("/") if path else name
            if target not in ids or (anchor and anchor not in ids[target]):
                broken.append((name, link))
    assert len(ids) > 60
    assert broken == []


def test_the_help_shows_guides_and_says_so_where_there_is_no_translation(client: Client) -> None:
    index = client.get("/help/").content.decode()
    assert reverse("portal:help_page", args=["quota-rules"]) in index
    assert reverse("portal:help_page", args=["runbooks"]) not in index  # for operators
    page = client.get("/help/quota-rules/", headers={"Accept-Language": "en"}).content.decode()
    assert 'id="rule-17"' in page
    assert "no translation" not in page
    other = client.get("/help/adr/0012-python-and-make-are-enough/", headers={"Accept-Language": "zh-hans"})
    assert "英文" in other.content.decode()
    assert client.get("/help/nothing/").status_code == client.get("/help/../secret/").status_code == 404


def test_a_translation_is_shown_to_who_reads_that_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zh").mkdir()
    (tmp_path / "first.md").write_text("# First\n")
    (tmp_path / "zh" / "first.md").write_text("# 第一\n")
    monkeypatch.setattr(guides, "ROOT", tmp_path)
    guides.names.cache_clear()
    try:
        assert guides.names() == {"first"}
        titles = {}
        for language in ("en", "zh-hans"):
            with translation.override(language):
                guide = guides.guide("first")
                assert guide
                assert guide.is_translated
                titles[language] = guide.document.title
        assert titles == {"en": "First", "zh-hans": "第一"}
    finally:
        guides.names.cache_clear()
        guides._rendered.cache_clear()


def test_a_search_finds_paragraphs_headings_first(client: Client) -> None:
    with translation.override("en"):
        hits = guides.search("lending windows")
    assert hits[0].section == "Lending windows"
    assert all(hit.address.startswith("/help/") for hit in hits)
    assert guides.search("") == guides.search("xyzzy plugh") == []
    assert "quota-rules" in client.get("/help/?q=starvation_after").content.decode()
    assert client.get("/help/?q=<script>").status_code == 200


def test_what_is_new_is_the_changelog(client: Client) -> None:
    page = client.get("/help/whats-new/", headers={"Accept-Language": "en"}).content.decode()
    assert "Unreleased" in page
    assert 'href="docs/' not in page
    assert reverse("portal:whats_new") in client.get("/help/").content.decode()


def test_nothing_of_a_document_runs() -> None:
    source = "# T\n\n<script>alert(1)</script> [a](javascript:alert(1)) ![p](x.png) <img src=x onerror=y>\n\n## B\n\n[l](b.md)\n"
    document = render(source, lambda link: "" if link.endswith(".md") else link)
    assert "<script" not in document.html
    assert "<img" not in document.html
    assert "javascript:" not in re.sub(r"\[a\]\(javascript:alert\(1\)\)", "", document.html)
    assert "<a" not in document.html
    assert [section.anchor for section in document.sections] == ["t", "b"]
