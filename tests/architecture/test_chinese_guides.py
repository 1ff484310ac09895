"""The Chinese guides (docs/zh) agree with the English ones: the same sections, paragraphs, code, numbers, links and labels,
and no later changes."""

from __future__ import annotations

import pytest

from tests.architecture import chinese_guides as guides

NAMES = guides.names()


def test_every_chinese_guide_translates_an_english_one() -> None:
    assert NAMES
    assert [name for name in NAMES if not (guides.ENGLISH / f"{name}.md").is_file()] == []


@pytest.mark.parametrize("name", NAMES)
def test_translation_has_the_structure_of_its_original(name: str) -> None:
    assert guides.differences(name, *guides.of(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_section_of_the_original_has_changed_since_its_translation(name: str) -> None:
    changed = guides.changed(name)
    assert changed == [], (
        f"docs/{name}.md has changed in {changed}: change docs/zh/{name}.md likewise, "
        "then run python -m tests.architecture.chinese_guides"
    )


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_chinese_guides_where_they_exist_and_to_existing_headings(name: str) -> None:
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
    ("before", "after", "problem"),
    [
        ("# 预算", "## 预算", "“预算” is where"),
        ("1. “新", "## 多余\n\n1. “新", "“多余” is where"),
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
def test_difference_is_reported_with_its_section(before: str, after: str, problem: str) -> None:
    english, chinese = guides.parts(ORIGINAL), TRANSLATION
    assert guides.differences("a", english, guides.parts(chinese)) == []
    problems = guides.differences("a", english, guides.parts(chinese.replace(before, after, 1)))
    assert len(problems) == 1, problems
    assert problem in problems[0]
    assert "“预算”" in problems[0] or "“多余”" in problems[0]
