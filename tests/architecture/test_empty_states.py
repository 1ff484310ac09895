"""Every list has an empty state: a table without rows does not say what to do next."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from django.template.base import Lexer, TokenType

from tests.architecture.sources import ROOT

TEMPLATES = ROOT / "templates"
COMPONENTS = ("_components/empty.html", "_components/no_match.html")
HIDDEN = "left out with its heading where there is nothing to say"
GUARDED = "only included where there are rows; the page that includes it has the empty state"
NEVER = "never empty"
SAYS = "a sentence of the preview says that there is none"
WITHOUT = {
    "portal/_invite_forms.html: invitations": HIDDEN,
    "portal/inbox_settings.html: group.list": NEVER,
    "portal/operator.html: jobs": NEVER,
    "portal/webhooks.html: deliveries": HIDDEN,
    "problem.html: problem.rows": HIDDEN,
    "quotas/_budget_bars.html: states": HIDDEN,
    "quotas/_cards_table.html: overview.rows": GUARDED,
    "quotas/_requests_table.html: rows": GUARDED,
    "quotas/_teams.html: teams": GUARDED,
    "quotas/_trend.html: trend.points": "the numbers behind a drawing, which says that there are none",
    "quotas/budgets.html: states": "a group of budgets has some",
    "quotas/decision.html: side.victims": HIDDEN,
    "quotas/node_health.html: each.leaving": HIDDEN,
    "quotas/operator_node.html: preview.stopped": SAYS,
    "quotas/operator_pool.html: prices": HIDDEN,
    "quotas/pool.html: view.outside_pods": HIDDEN,
    "quotas/preview.html: preview.stopped": SAYS,
    "quotas/usage.html: section.lines": "a section has lines; without sections the page has the empty state",
    "quotas/work.html: claims": "a part of a preview, which says it in a sentence",
    "workloads/operator_cluster.html: lines": NEVER,
    "workloads/_events.html: decisions": HIDDEN,
    "workloads/_file.html: row": "what is in a file",
    "workloads/_idle_exemptions.html: past": HIDDEN,
    "workloads/_idle_preview.html: rows": SAYS,
    "workloads/_preview.html: preview.ranks": HIDDEN,
    "workloads/_ranks.html: ranks": GUARDED,
    "workloads/backtest.html: changes": NEVER,
    "workloads/backtest.html: cells": HIDDEN,
    "workloads/backtest.html: departments": HIDDEN,
    "workloads/design.html: colours": NEVER,
    "workloads/design.html: states": NEVER,
    "workloads/mine.html: each.pools": HIDDEN,
    "workloads/mine.html: ended": HIDDEN,
    "workloads/mode_change.html: leavers": HIDDEN,
    "workloads/operator_clusters.html: found": "the answer to a test of the connection, whose heading has the number",
    "workloads/operator_configuration.html: plan.changes": SAYS,
    "workloads/operator_metrics.html: found.metrics": "the answer to a test of the connection",
}


@dataclass
class Block:
    """An open tag, or the whole file. `has_component`: a component is in one of its branches; `lists`: the lists of the
    tables inside."""

    tag: str
    rows: str = ""  # the list, if it is the loop of a table
    has_component: bool = False
    lists: list[str] = field(default_factory=list)


def lists_without_an_empty_state(source: str) -> list[str]:
    """The lists in tables of a template for which neither `{% empty %}` nor a component in another branch of an `{% if %}`
    says what would be there."""
    open_tags, in_table = [Block("file")], False
    for token in Lexer(source).tokenize():
        if token.token_type == TokenType.TEXT:
            for end in re.findall(r"<(/?)tbody", token.contents):
                in_table = not end
        if token.token_type != TokenType.BLOCK:
            continue
        words, inner = token.split_contents(), open_tags[-1]
        if words[0] == "for":
            inside = any(each.rows for each in open_tags)
            open_tags.append(Block("for", rows=words[words.index("in") + 1] if in_table and not inside else ""))
        elif words[0] in ("if", "with"):
            open_tags.append(Block(words[0]))
        elif words[0] == "empty":
            inner.rows = ""
        elif words[0] == "include" and words[1].strip("\"'") in COMPONENTS:
            for each in open_tags:
                each.has_component = True
        elif words[0] == f"end{inner.tag}":
            open_tags.pop()
            open_tags[-1].lists += [] if inner.tag == "if" and inner.has_component else inner.lists
            open_tags[-1].lists += [inner.rows] if inner.rows else []
    return open_tags[0].lists


@pytest.mark.parametrize(
    ("source", "lists"),
    [
        ("<tbody>{% for a in rows %}<tr></tr>{% endfor %}</tbody>", ["rows"]),
        ("<tbody>{% for a in rows %}{% for b in a.parts %}{% endfor %}{% endfor %}</tbody>", ["rows"]),
        ("<tbody>{% for a in rows %}<tr></tr>{% empty %}<tr></tr>{% endfor %}</tbody>", []),
        ("{% if rows %}<tbody>{% for a in rows %}{% endfor %}</tbody>{% endif %}", ["rows"]),
        ("{% if rows %}<tbody>{% for a in rows %}{% endfor %}</tbody>{% else %}<p>none</p>{% endif %}", ["rows"]),
        (
            "{% if rows %}<tbody>{% for a in rows %}{% endfor %}</tbody>"
            '{% else %}{% include "_components/empty.html" with title=t only %}{% endif %}',
            [],
        ),
        (
            '{% if a %}{% include "_components/empty.html" %}{% endif %}<tbody>{% for b in a %}{% endfor %}</tbody>',
            ["a"],
        ),
        ("{% for a in rows %}<p></p>{% endfor %}", []),
    ],
)
def test_what_counts_as_an_empty_state(source: str, lists: list[str]) -> None:
    assert lists_without_an_empty_state(source) == lists


def test_every_list_has_an_empty_state() -> None:
    without = {
        f"{path.relative_to(TEMPLATES)}: {name}"
        for path in TEMPLATES.rglob("*.html")
        for name in lists_without_an_empty_state(path.read_text())
    }
    assert without == set(WITHOUT)
