"""Spaces in Chinese messages: between Chinese and Latin text there is one, between two Chinese characters there is none.

The catalog has a space beside each placeholder, because names and amounts may be Latin; it is left out where the value is
Chinese: "%(units)s 由召回预留" gives "1 张卡由召回预留" and "15 GiB 由召回预留".
"""

from __future__ import annotations

import re
from typing import Any

from django.utils.translation import trans_real

LANGUAGE = "zh-hans"
CHINESE = r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]"
BESIDE = re.compile(rf"(?<={CHINESE}) (?=%\(\w+\)s)|(?<=\)s) (?={CHINESE})")
MARK = "\ue000"  # where such a space is, until the values are known
NEEDLESS = re.compile(rf"(?<={CHINESE}){MARK}(?={CHINESE})")


class Message(str):
    """A translation with spaces beside its placeholders."""

    __slots__ = ()

    def __mod__(self, values: Any) -> str:
        return NEEDLESS.sub("", BESIDE.sub(MARK, self) % values).replace(MARK, " ")


class Translations(trans_real.DjangoTranslation):
    """The catalog of a language; the Chinese one has these messages."""

    _catalog: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.to_language() == LANGUAGE:
            for key, text in list(self._catalog.items()):
                if BESIDE.search(text):
                    self._catalog[key] = Message(text)


def begin() -> None:
    """Lets Django load its translations in this way."""
    trans_real.DjangoTranslation = Translations  # type: ignore[misc]  # a class, which is replaced
