"""A Chinese message has no space between two Chinese characters, whatever is inserted, but has one beside Latin text."""

from __future__ import annotations

import re

from django.template import Context, Template
from django.utils import translation
from django.utils.translation import gettext, gettext_lazy, ngettext, npgettext, pgettext

from portal.text import catalogs, spacing
from portal.text.words import amount

PLACEHOLDER = re.compile(r"%\((\w+)\)([sd])")
GAP = re.compile(rf"(?!甲){spacing.CHINESE} 甲|甲 (?!甲){spacing.CHINESE}")  # two values beside each other stay apart


def translated() -> list[tuple[str, str]]:
    """(catalog's text, what gettext returns) of every Chinese message with placeholders."""
    found = []
    for message in catalogs.read("zh_Hans"):
        for text in catalogs.texts(message):
            if not message.id or not PLACEHOLDER.search(text):
                continue
            if isinstance(message.id, str):
                given = pgettext(message.context, message.id) if message.context else gettext(message.id)
            else:
                one, many = message.id
                given = npgettext(message.context, one, many, 2) if message.context else ngettext(one, many, 2)
            found.append((text, given))
    return found


def test_no_message_has_a_space_between_two_chinese_characters() -> None:
    with translation.override("zh-hans"):
        messages = translated()
    assert sum(" %(" in text or ")s " in text for text, _given in messages) > 500
    for text, given in messages:
        chinese, latin = (
            {name: 7 if kind == "d" else word for name, kind in PLACEHOLDER.findall(text)} for word in "甲A"
        )
        assert not GAP.search(given % chinese), text
        assert given % latin == text % latin


def test_spaces_inside_inserted_values_are_kept() -> None:
    with translation.override("zh-hans"):
        sentence = gettext("Quota of %(department)s in %(pool)s") % {"department": "视觉 一组", "pool": "A100 整卡"}
    assert sentence == "视觉 一组在 A100 整卡的配额"


def test_templates_and_lazy_messages_follow_the_same_rule() -> None:
    page = Template("{% load i18n %}{% blocktranslate %}Quota of {{ department }} in {{ pool }}{% endblocktranslate %}")
    lazy = gettext_lazy("Quota of %(department)s in %(pool)s")
    with translation.override("zh-hans"):
        assert amount(2, "card") == "2 张卡"
        for department, expected in {"视觉": "视觉在", "Vision": "Vision 在", "<b>": "&lt;b&gt; 在"}.items():
            assert page.render(Context({"department": department, "pool": "甲"})) == expected + "甲的配额"
        assert lazy % {"department": "视觉", "pool": "甲"} == "视觉在甲的配额"
    with translation.override("en"):
        assert lazy % {"department": "视觉", "pool": "甲"} == "Quota of 视觉 in 甲"
