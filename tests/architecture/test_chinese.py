"""Chinese messages, guides and texts of the API: polite, with full-width punctuation, and with docs/glossary.md's word for
each term."""

from __future__ import annotations

import re

import pytest

from portal.api.operations import chinese_words, words
from portal.text import catalogs
from portal.views.api_docs import chinese_terms
from tests.architecture import chinese_guides
from tests.architecture.sources import ROOT

CJK = r"[\u3400-\u9fff]"
WIDE = r"[，。：；？！（）“”、]"
ROW = re.compile(r"^\| ([\w -]+?) \| ([\u3400-\u9fff]+) \| ", re.M)
GLOSSARY = dict(ROW.findall((ROOT / "docs" / "glossary.md").read_text()))
GLOSSARY.pop("term")  # the header of each table

# Where English uses the word in another sense, or as a verb.
OTHER_SENSES = re.compile(
    r"failed attempts|[Tt]ime slices?|claims its|Microsoft Teams|%%?\(\w+\)s|%\w|\?preset="
    r"|WebP as an image|shows the decision|Recall contract|From notice until free|nobody notices"
    r"|Client scopes|Membership, claim|A claim that is missing|slices of time|by slices|that slices|slices missing"
    r"|`[^`]+`"
)
NOT_HELD = {"queue"}  # a position in the queue is 排队, the queue itself 队列


def sentences() -> list[tuple[str, str]]:
    pairs = []
    for message in catalogs.read("zh_Hans"):
        if message.id:
            english = message.id if isinstance(message.id, str) else message.id[-1]
            pairs += [(english, chinese) for chinese in catalogs.texts(message)]
    for name in chinese_guides.names():
        for pair in zip(*chinese_guides.of(name), strict=False):  # test_chinese_guides.py compares their numbers
            pairs += [(one.words, other.words) for one, other in zip(*(part.blocks for part in pair), strict=False)]
    for name, own in chinese_words().items():  # tests/portal/api/test_operations.py compares their keys
        pairs += [(words()[name].get(key, ""), chinese) for key, chinese in own.items()]
    return [*pairs, *chinese_terms().items()]


SENTENCES = sentences()


def matching(pattern: str) -> list[str]:
    return [chinese for _english, chinese in SENTENCES if re.search(pattern, chinese)]


def test_readers_are_addressed_politely() -> None:
    assert matching("你") == []


def test_punctuation_beside_chinese_is_full_width() -> None:
    assert matching(rf"{CJK}[,;:?!()]|[,;:?!()]{CJK}") == []
    assert matching(rf"{CJK}\.(?:\s|$)") == []


def test_chinese_and_latin_are_separated_by_a_space_but_full_width_marks_are_not() -> None:
    placeholder = re.compile(r"%%?\(\w+\)s")
    bare = [(text, placeholder.sub("\0", text)) for _english, text in SENTENCES]
    assert [text for text, plain in bare if re.search(rf"{CJK}[A-Za-z0-9]|[A-Za-z0-9]{CJK}", plain)] == []
    assert [text for text, plain in bare if re.search(rf"{WIDE} +{CJK}|{CJK} +{WIDE}", plain)] == []


def test_glossary_has_one_chinese_word_for_each_term() -> None:
    assert len(GLOSSARY) >= 50
    assert len(set(GLOSSARY.values())) == len(GLOSSARY)
    assert set(GLOSSARY) >= NOT_HELD


@pytest.mark.parametrize("term", sorted(GLOSSARY.keys() - NOT_HELD))
def test_term_is_translated_by_its_word_in_the_glossary(term: str) -> None:
    """Where the English sentence has the term, the Chinese one has its word."""
    spelled = re.compile(rf"(?<![\w-]){re.escape(term)}s?(?![\w-])", re.I)
    other = [
        (english, chinese)
        for english, chinese in SENTENCES
        if spelled.search(OTHER_SENSES.sub(" ", english)) and GLOSSARY[term] not in chinese
    ]
    assert other == []


def test_no_template_has_a_space_after_a_translated_colon() -> None:
    """A colon that ends a message includes its own space, so that the full-width one has none."""
    bare = re.compile(r"""\{% translate ["'][^"']*:["'] %\} (?=\S)""")
    pages = sorted((ROOT / "templates").rglob("*.html"))
    assert len(pages) > 100
    assert [page.name for page in pages if bare.search(page.read_text())] == []


def test_sentences_in_templates_are_separated_by_the_space_of_their_language() -> None:
    """A template has `{% space %}` between two sentences, so that no space follows a Chinese full stop."""
    end = r"""[.?!](?:["'] %\}|\{% endblocktranslate %\})"""
    follows = (
        r"""\{% (?:blocktranslate(?! trimmed asvar)|if|why|due)\b|\{% translate (?![^%]* as \w+ %)|\{\{|<a |<span"""
    )
    bare = re.compile(rf"{end}\s+(?={follows})")
    apart = {
        "Delete {{ name }}?{% endblocktranslate %}",
        "({{ zone }}).{% endblocktranslate %}",
        "Stop {{ name }}?{% endblocktranslate %}",
    }
    without_space = [
        f"{page.name}: {text[: hit.end()][-90:]}"
        for page in sorted((ROOT / "templates").rglob("*.html"))
        for text in [page.read_text()]
        for hit in bare.finditer(text)
        if not text[: hit.end()].rstrip().endswith(tuple(apart))  # titles of dialogs, and a line above a table
    ]
    assert without_space == []
