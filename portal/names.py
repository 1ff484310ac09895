"""Which characters a name or another text of one line may have: the one rule that forms, API, models and actions use.

Two checks. `line`: a text of one line has no characters that are invisible or reorder the text around them. `plain`: also, a
name must not look like another one (Unicode Technical Standard 39). The reasons are in docs/adr/0031.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from portal.errors import N_, Invalid

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Controls, format characters (bidi marks, zero width), surrogates, private use, separators of lines and paragraphs."""
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffd\ufffe\uffff")
"""Letters and marks without a visible shape, and replacements for unreadable characters."""
VARIANTS = frozenset(
    map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
)  # select the shape of the preceding character
MOST_MARKS = 4  # accents on one letter: no script needs more, and more of them cover the lines above
WORD = re.compile(r"[^\W_]+")


def line(text: Any) -> None:
    """Raises ValidationError for a character that must not be in one line of text, naming it and its position."""
    if not isinstance(text, str):
        return
    marks = 0
    for place, sign in enumerate(text, start=1):
        category = unicodedata.category(sign)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        variant = sign in VARIANTS and (place == 1 or unicodedata.category(text[place - 2])[0] == "L")
        if category in HIDDEN or sign in BLANK or variant:
            params = {"code": f"U+{ord(sign):04X}", "place": place}
            raise ValidationError(
                _(
                    "Character %(place)s (%(code)s) is invisible: a line break, a control character or a "
                    "direction mark. Remove it."
                ),
                code="hidden_character",
                params=params,
            )
        if marks > MOST_MARKS:
            raise ValidationError(
                ngettext_lazy(
                    "More than %(most)s accent on one letter.", "More than %(most)s accents on one letter.", MOST_MARKS
                ),
                code="too_many_accents",
                params={"most": MOST_MARKS},
            )


JOINED = "\u200d"  # zero width joiner: combines emoji, such as a family


def paragraph(text: Any) -> None:
    """`line` for a text of several lines. Raises ValidationError, also if nothing of it is visible."""
    if not isinstance(text, str):
        return
    for each in re.split(r"[\r\n\t]", text):
        line(each.replace(JOINED, ""))


def plain(text: str) -> None:
    """Raises ValidationError if a word looks like one of Latin letters, but has others: раураl (Cyrillic а, р, у).

    A letter of another script beside Latin ones is accepted if it does not look Latin (λ, 张, И), and so are additional Latin
    letters of some languages (Yılmaz).
    """
    line(text)
    _one_script(text, _stranger)


def _one_script(text: str, replaced: Callable[[str], str]) -> None:
    for word in WORD.findall(text):
        drawn = "".join(map(replaced, word))
        if len(word) > 1 and drawn != word and drawn.isascii():
            raise ValidationError(
                _(
                    "“%(word)s” contains letters that look like those of “%(drawn)s” but are different. Use a "
                    "single script."
                ),
                code="look_alike",
                params={"word": word, "drawn": drawn},
            )


@cache
def _table() -> dict[str, list[dict[str, str]]]:
    """Unicode's confusables: each character with those that look alike. Loaded on first use, because it is large."""
    from confusable_homoglyphs.confusables import confusables_data

    table: dict[str, list[dict[str, str]]] = confusables_data
    return table


@cache
def latin(sign: str) -> str:
    """The ASCII letters or digit that this letter looks like; itself if there are none. An accent is part of the letter."""
    if sign.isascii():
        return sign
    candidates = (entry["c"] for entry in _table().get(sign, ()))
    return next((text for text in candidates if text.isascii() and text.isalnum()), sign)


def _stranger(sign: str) -> str:
    """`latin` of letters of other scripts only."""
    return sign if unicodedata.name(sign, "").startswith("LATIN") else latin(sign)


@cache
def _drawn(sign: str) -> str:
    """One representative for all characters that look alike, such as 口 and ロ. ASCII characters stay distinct (l and
    1)."""
    if sign.isascii():
        return sign
    alike = {sign}
    for _step in range(2):  # to the prototype in the table, and to the others that look like that
        alike |= {entry["c"] for each in alike for entry in _table().get(each, ()) if len(entry["c"]) == 1}
    return min(alike)


def same_looking(text: str, others: Iterable[str]) -> str:
    """The first of `others` that looks like the text, ignoring case; "" if none does."""
    wanted = _skeleton(text)
    return next((other for other in others if _skeleton(other) == wanted), "")


def _skeleton(text: str) -> str:
    return "".join(_drawn(sign) for sign in unicodedata.normalize("NFKC", text).casefold())


FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF10, 0xFF5B) if chr(code).isalnum()}
SPACES = re.compile(r"[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")


def tidy(text: str) -> str:
    """The text with composed letters, trimmed, single spaces, and full-width letters and digits (ＧＰＵ１) as ordinary
    ones."""
    return SPACES.sub(" ", unicodedata.normalize("NFC", text).translate(FULL_WIDTH)).strip()


def cleaned(text: str, *, name: bool = True) -> str:
    """The nearest text that the rule accepts, for one stored before the rule existed: `line`, and for a name also
    `plain`.

    "" if nothing is left. A text that the rule accepts stays unchanged.
    """
    try:
        (plain if name else line)(text)
    except ValidationError:
        signs, marks = list[str](), 0
        for sign in text:
            category = unicodedata.category(sign)
            marks = marks + 1 if category in ("Mn", "Me") else 0
            if category in ("Cc", "Zl", "Zp"):
                signs.append(" ")
            elif category not in HIDDEN and sign not in BLANK | VARIANTS and marks <= MOST_MARKS:
                signs.append(sign)
        text = tidy("".join(signs))
        return WORD.sub(lambda word: _in_one_script(word[0]), text) if name else text
    return text


def _in_one_script(word: str) -> str:
    drawn = "".join(map(_stranger, word))
    return drawn if len(word) > 1 and drawn.isascii() else word


def checked(text: str, field: str = "name") -> str:
    """The name, tidied. Raises Invalid with the field."""
    text = tidy(text)
    _refuse(plain, text, field)
    return text


def checked_paragraph(text: str, field: str) -> str:
    """The text of several lines as it is. Raises Invalid with the field."""
    _refuse(paragraph, text, field)
    return text


def login(text: str) -> str:
    """A login name in the form in which it is stored and compared (NFKC). Raises Invalid (username)."""
    text = unicodedata.normalize("NFKC", text).strip()
    _refuse(line, text, "username")
    _refuse(lambda text: _one_script(text, latin), text, "username")
    if text and not any(sign.isalnum() for sign in text):
        raise Invalid(N_("A login name must contain a letter or a digit."), field="username")
    return text


def _refuse(check: Any, text: str, field: str) -> None:
    try:
        check(text)
    except ValidationError as error:
        sentence = " ".join(error.messages).replace("%", "%%")
        raise Invalid(sentence, code=str(error.code), field=field) from error


def printable(text: str) -> str:
    """The text as one line for a mail's header, whatever characters an old name contains."""
    return " ".join("".join(" " if unicodedata.category(sign) in HIDDEN else sign for sign in text).split())


class LineInput(forms.CharField):
    """One line of text in a form."""

    rule = staticmethod(line)

    def to_python(self, value: Any) -> Any:
        """Checked here, because subclasses convert the text to a number."""
        text = super().to_python(tidy(value) if isinstance(value, str) else value)
        self.rule(text)
        return text


class NameInput(LineInput):
    rule = staticmethod(plain)


if TYPE_CHECKING:
    Column = models.CharField[str, str]  # generic only in the stubs
else:
    Column = models.CharField


class LineField(Column):
    """A column for one line of text. For migrations it is a CharField: the rule is not part of the schema."""

    default_validators = [line]
    form_class: type[forms.CharField] = LineInput

    def deconstruct(self) -> Any:
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.CharField", args, kwargs

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**{"form_class": self.form_class, **kwargs})


class NameField(LineField):
    default_validators = [plain]
    form_class = NameInput
