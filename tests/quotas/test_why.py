"""Each “why” link of a page leads to an existing paragraph of the quota rules, and each kind of reason has one."""

from __future__ import annotations

import re

from portal.web import guides
from portal.web.why import RULES
from quotas.engine.reasons import REASONS
from quotas.engine.types import DecisionKind
from tests.architecture.sources import ROOT
from workloads.requests.verdict import Headline


def test_each_reason_decision_and_headline_has_its_rule() -> None:
    kinds = {*REASONS, *map(str, DecisionKind), *map(str, Headline), "withdraw", "queued", "recalled", "stopping"}
    assert kinds - set(RULES) == set()


def test_each_rule_is_a_paragraph_of_the_document() -> None:
    guide = guides.guide("quota-rules-by-number")
    assert guide
    paragraphs = set(re.findall(r'id="rule-(\d+)"', guide.document.html))
    assert paragraphs == {str(number) for number in range(1, 25)}
    assert {str(rule) for rule in RULES.values()} <= paragraphs


def test_every_topic_that_templates_link_has_a_rule() -> None:
    topics = {
        topic
        for path in (ROOT / "templates").rglob("*.html")
        for topic in re.findall(r'{% why "(\w+)" %}', path.read_text())
    }
    assert len(topics) >= 7
    assert topics <= set(RULES)
