"""The documents inside the portal: links between them work, they contain no scripts, and a search finds them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import translation

from portal.models import User
from portal.text.changelog import read
from portal.text.markdown import render
from portal.web import guides
from tests import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    client = Client(headers={"Accept-Language": "en"})
    client.force_login(make.user("reader"), backend="django.contrib.auth.backends.ModelBackend")
    return client


def anchors(html: str) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', html))


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_links_between_guides_lead_to_existing_guides_and_anchors(language: str) -> None:
    with translation.override(language):
        broken, ids = broken_links()
    assert len(ids) > 60
    assert broken == []


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_link_to_a_file_shows_the_documents_title_in_the_guides_language(language: str) -> None:
    with translation.override(language):
        found = {name: guides.guide(name) for name in guides.names()}
        titles = {name: each.document.title for name, each in found.items() if each}
        links = [
            (each, target, text)
            for each in found.values()
            if each
            for target, text in re.findall(r'<a href="/help/([\w/-]+)/">([^<]*)</a>', each.document.html)
        ]
    assert [text for _guide, _target, text in links if text.endswith(".md")] == []
    assert ("quota-rules", titles["quota-rules"]) in [
        (target, text) for each, target, text in links if each.name == "user-guide"
    ]


def broken_links() -> tuple[list[tuple[str, str]], dict[str, set[str]]]:
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
    return broken, ids


def test_a_translation_has_the_anchors_of_its_original() -> None:
    """So the same address leads to the same paragraph in each language, and "Why? Rule 11" to that rule."""
    translated = [
        path.relative_to(guides.ROOT / "zh").with_suffix("").as_posix() for path in (guides.ROOT / "zh").rglob("*.md")
    ]
    assert translated
    for name in translated:
        ids = []
        for language in ("en", "zh-hans"):
            with translation.override(language):
                guide = guides.guide(name)
                assert guide
                assert guide.is_translated
                ids.append(([section.anchor for section in guide.document.sections], anchors(guide.document.html)))
        (english, english_ids), (chinese, chinese_ids) = ids
        assert english == chinese
        assert english_ids <= chinese_ids


def test_translated_headings_also_have_their_own_anchors_as_on_github() -> None:
    original = render("# T\n\n## One `x`\n\n## What counts (rules 2–3)\n\n2. a\n", str)
    document = render("# 题\n\n## 一 `x`\n\n## 计量（规则 2–3）\n\n2. 甲\n\n见[上](#一-x)。\n", str, original.sections)
    assert [section.anchor for section in document.sections] == ["t", "one-x", "what-counts-rules-23"]
    assert {"one-x", "一-x", "rule-2"} <= anchors(document.html)
    assert '<span id="一-x"></span>一' in document.html


def test_help_shows_guides_and_says_which_are_not_translated(client: Client) -> None:
    index = client.get("/help/").content.decode()
    assert reverse("portal:help_page", args=["quota-rules"]) in index
    assert reverse("portal:help_page", args=["runbooks"]) not in index  # for operators
    page = client.get("/help/quota-rules-by-number/", headers={"Accept-Language": "en"}).content.decode()
    assert 'id="rule-17"' in page
    assert "no translation" not in page
    other = client.get(
        "/help/adr/0012-python-and-make-are-enough-for-the-demo-and-the-tests/", headers={"Accept-Language": "zh-hans"}
    )
    assert "英文" in other.content.decode()
    assert client.get("/help/nothing/").status_code == client.get("/help/../secret/").status_code == 404


def test_guide_is_shown_in_the_readers_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_search_finds_paragraphs_with_headings_first(client: Client) -> None:
    with translation.override("en"):
        hits = guides.search("lending windows")
    assert hits[0].section == "Lending windows"
    assert all(hit.address.startswith("/help/") for hit in hits)
    assert guides.search("") == guides.search("xyzzy plugh") == []
    assert "quota-rules" in client.get("/help/?q=starvation_after").content.decode()
    assert client.get("/help/?q=<script>").status_code == 200


def test_search_finds_chinese_words_without_spaces_between_them() -> None:
    with translation.override("zh-hans"):
        assert "用户指南" in {hit.guide for hit in guides.search("借出时段")}
        assert guides.search("预算限额GPU小时的") == guides.search("预算 限额 gpu 小时") != []
        assert "预算" in guides.search("预算限额")[0].excerpt
        assert guides.search("预算香蕉") == guides.search("的") == []


def test_whats_new_page_shows_the_changelog(client: Client) -> None:
    page = client.get("/help/whats-new/", headers={"Accept-Language": "en"}).content.decode()
    assert "0.1.0" in page
    numbers = [int(number) for number in re.findall(r"(\d+) changes?<", page)]
    assert numbers == [len(group.entries) for version in guides.changes() for group in version.groups]
    assert 'href="docs/' not in page
    assert reverse("portal:whats_new") in client.get("/help/").content.decode()


def test_a_table_without_headings_has_no_head() -> None:
    assert "<thead" not in render("| | |\n|---|---|\n| a | b |\n", lambda link: link).html
    assert "<td></td>\n<th>x</th>" in render("| | x |\n|---|---|\n| a | b |\n", lambda link: link).html
    assert "<th></th>" not in "".join(
        render(each.read_text(), lambda link: link).html for each in guides.ROOT.rglob("*.md")
    )


def test_rendered_document_has_no_scripts_images_or_unsafe_links() -> None:
    source = "# T\n\n<script>alert(1)</script> [a](javascript:alert(1)) ![p](x.png) <img src=x onerror=y>\n\n## B\n\n[l](b.md)\n"
    document = render(source, lambda link: "" if link.endswith(".md") else link)
    assert "a<br>b" in render("| h |\n|---|\n| a<br>b |\n", str).html
    assert "<script" not in document.html
    assert "<img" not in document.html
    assert "javascript:" not in re.sub(r"\[a\]\(javascript:alert\(1\)\)", "", document.html)
    assert "<a" not in document.html
    assert [section.anchor for section in document.sections] == ["t", "b"]


def test_changelog_is_complete_grouped_and_has_short_headlines() -> None:
    source = (settings.BASE_DIR / "CHANGELOG.md").read_text()
    versions = guides.changes()
    assert [each.name for each in versions] == re.findall(r"^## \[([^]]+)\]", source, re.M)
    entries = [entry for version in versions for group in version.groups for entry in group.entries]
    assert len(entries) == len(re.findall(r"^- ", source, re.M)) > 150
    plain = [re.sub(r"<[^>]+>", "", entry.headline) for entry in entries]
    assert sum(len(text) <= 200 for text in plain) > 0.75 * len(plain)
    for text, entry in zip(plain, entries, strict=True):
        assert text, entry
        assert not entry.headline.startswith("<p>")
    for version in versions:
        for group in version.groups:
            order = [entry.is_technical for entry in group.entries]
            assert order == sorted(order)


def test_headline_ends_with_its_sentence_but_not_inside_code_or_brackets() -> None:
    entries = read(
        "# C\n\n## [1.0.0] - 2026-01-02\n\n### Added\n\n- One thing. `a. B` more.\n- Two (x. Y) things\n  go on. Then `z`.\n"
        "\n### Fixed\n\n- <script>x</script> is [there](docs/operations.md).\n"
    )[0].groups
    assert [(each.headline, each.rest) for each in entries[0].entries] == [
        ("One thing", "<code>a. B</code> more."),
        ("Two (x. Y) things go on", "Then <code>z</code>."),
    ]
    assert entries[1].entries[0].headline == "&lt;script&gt;x&lt;/script&gt; is there"


def test_new_changes_of_a_version_are_marked_until_they_are_opened(client: Client) -> None:
    mark = "There are changes you have not read"
    assert mark in client.get("/help/").content.decode()
    assert mark not in client.get("/help/whats-new/").content.decode()
    assert mark not in client.get("/help/").content.decode()
    User.objects.update(changes_read="0.0.9")  # an upgrade
    assert mark in client.get("/help/").content.decode()
    assert client.post("/help/whats-new/").status_code == 405


def test_list_marks_guides_that_are_not_in_the_readers_language(client: Client) -> None:
    marked = re.compile(r"<strong>([^<]+)</strong> <span class=\"tag\" lang=\"en\">English</span>")
    assert marked.findall(client.get("/help/").content.decode()) == []
    chinese = client.get("/help/", headers={"Accept-Language": "zh-hans"}).content.decode()
    assert "Quota rules: reference" in marked.findall(chinese)
    assert "Quota rules" not in marked.findall(chinese)
