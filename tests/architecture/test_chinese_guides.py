"""docs/zh says what docs/ says: the same sections, paragraphs, code, numbers, links and labels, and of the same day."""

from __future__ import annotations

import pytest

from tests.architecture import chinese_guides as guides

NAMES = guides.names()


def test_each_translates_a_guide() -> None:
    assert NAMES
    assert [name for name in NAMES if not (guides.ENGLISH / f"{name}.md").is_file()] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_has_what_its_original_has(name: str) -> None:
    assert guides.differences(name, *guides.of(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_section_of_the_original_has_changed_since(name: str) -> None:
    changed = guides.changed(name)
    assert changed == [], (
        f"docs/{name}.md has changed in {changed}: change docs/zh/{name}.md likewise, "
        "then run python -m tests.architecture.chinese_guides"
    )


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_the_chinese_guide_where_there_is_one_and_to_headings_that_are_there(name: str) -> None:
    links = [link for part in guides.of(name)[1] for block in part.blocks for link in block.links if "://" not in link]
    wrong = [link for link in links if "#no " in guides.place(link, name, "zh/")]
    wrong += [link for link in links if link.startswith("../") and link[3:].split(".md")[0] in NAMES]
    assert wrong == []


ORIGINAL = """# Budgets

At 80 % they are *warned* by [mail](b.md); `over_budget` says so.

| a | b |
|---|---|
| one | `two` |

    make demo   # starts

1. *New workload*
"""
TRANSLATION = """# 预算

达到 80 % 时以[邮件](b.md)提醒，`over_budget` 会说明。

| 甲 | 乙 |
|---|---|
| 一 | `two` |

    make demo   # 启动

1. “新建任务”
"""


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("# 预算", "## 预算", "“预算” stands where"),
        ("1. “新", "## 多余\n\n1. “新", "“多余” stands where"),
        ("80 %", "90 %", "numbers are missing in “达到 90 %"),
        ("`over_budget`", "`budget`", "['budget', 'over_budget']"),
        ("b.md", "c.md", "links differ"),
        ("| 一 | `two` |\n", "", "other paragraphs, items or cells"),
        ("demo ", "serve ", "make serve"),
        ("新建任务", "新任务", "does not say 新建任务"),
        ("提醒，", "提醒，\n", "broken over lines"),
        ("会说明", "**会说明：**是", "shows an asterisk"),
    ],
)
def test_what_differs_is_named_with_its_section(before: str, after: str, says: str) -> None:
    english, chinese = guides.parts(ORIGINAL), TRANSLATION
    assert guides.differences("a", english, guides.parts(chinese)) == []
    said = guides.differences("a", english, guides.parts(chinese.replace(before, after, 1)))
    assert len(said) == 1, said
    assert says in said[0]
    assert "“预算”" in said[0] or "“多余”" in said[0]
