"""The introduction to the engine (docs/architecture.md, "In fifteen minutes") does not become longer, and leads from reasons
to rules."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from portal.web.why import RULES
from quotas.engine import planning_pass, preemption
from quotas.engine.reasons import REASONS
from tests.architecture.sources import ROOT

PROSE, CODE = 220, 120  # words a minute
PAGES = ["README.md", "docs/quota-rules.md"]
ENGINE = ROOT / "quotas" / "engine"
FILES = ["types.py", "planning_pass.py", "preemption.py"]
DETAILS = re.compile(r"^ *# Details\b.*$", re.MULTILINE)


def words(text: str) -> int:
    """The number of words with a letter or a digit: no borders of tables, no single brackets."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def of_page(name: str) -> tuple[int, int]:
    """Words of prose, and of code in blocks."""
    prose, *blocks = re.split(r"^```.*$", (ROOT / name).read_text(), flags=re.MULTILINE)
    return words(prose) + sum(map(words, blocks[1::2])), sum(map(words, blocks[::2]))


def of_source(name: str) -> tuple[int, int]:
    """Words of docstrings and comments, and of code without imports, above the line *Details*."""
    top, *below = DETAILS.split((ENGINE / name).read_text())
    assert below, f"{name} has no line that says where details begin"
    prose = code = 0
    for kind, line in statements(top):
        if kind in {tokenize.COMMENT, tokenize.STRING}:
            prose += words(line)
        elif not re.match(r"(from|import) ", line):
            code += words(line)
    return prose, code


def statements(source: str) -> Iterator[tuple[int, str]]:
    """Comments, docstrings, and all other statements as they are written."""
    tokens: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.type, token.string
        elif token.type == tokenize.NEWLINE and tokens:
            text = tokens[0].line if len(tokens) == 1 else source_of(source, tokens)
            alone = len(tokens) == 1 and tokens[0].type == tokenize.STRING
            yield (tokenize.STRING, tokens[0].string) if alone else (tokenize.NAME, text)
            tokens = []
        elif token.type not in {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}:
            tokens.append(token)


def source_of(source: str, tokens: list[tokenize.TokenInfo]) -> str:
    lines = source.splitlines()[tokens[0].start[0] - 1 : tokens[-1].end[0]]
    return "\n".join(line.partition("  # ")[0] for line in lines).strip()


def minutes() -> dict[str, tuple[int, int]]:
    return {name: of_page(name) for name in PAGES} | {name: of_source(name) for name in FILES}


def test_introduction_takes_fifteen_minutes_to_read() -> None:
    words_by_file = minutes()
    assert sum(prose / PROSE + code / CODE for prose, code in words_by_file.values()) <= 15, words_by_file
    assert words((ROOT / "docs" / "quota-rules.md").read_text()) <= 800


def test_introduction_names_the_rule_of_each_reason_and_where_it_is_decided() -> None:
    table = planning_pass.__doc__ or ""
    for reason in REASONS:
        [row] = re.findall(rf"^ {{4}}.*\b{reason}\b.*$", table, re.MULTILINE)
        rule = re.search(rf"\b{reason}\b.*?\((\d+)\)", row)
        assert rule, row
        assert int(rule[1]) == RULES[reason], row


def test_files_and_names_that_the_introduction_refers_to_exist() -> None:
    sources = {path.name: path.read_text() for path in ENGINE.glob("*.py")}
    defined = set(re.findall(r"^ *(?:def|class) (\w+)", "\n".join(sources.values()), re.MULTILINE))
    for module in (planning_pass, preemption):
        text = module.__doc__ or ""
        assert set(re.findall(r"\b\w+\.py\b", text)) <= sources.keys()
        names = {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", text)}
        assert names - defined - {"own", "reserved"} == set()


if __name__ == "__main__":
    for name, (prose, code) in minutes().items():
        print(f"{name:25} {prose:4} words of prose {code:4} of code {prose / PROSE + code / CODE:5.1f} minutes")
