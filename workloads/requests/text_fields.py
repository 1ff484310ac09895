"""Fields for text as people write it: "8h", "1d 12h", "15 GiB", "python train.py --lr 1e-3", NAME=value lines."""

from __future__ import annotations

import re
import shlex
from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from portal.names import LineInput
from portal.text.words import cores
from quotas.amounts import MEBIBYTES
from quotas.forms.durations import parts_of
from workloads.runtime import expansion

BARE_GIB = 4096  # a number this large without a unit is probably meant in MiB


class MemoryField(LineInput):
    """MiB from "8 GiB", "512 MiB". A number without a unit is in GiB; one that is too large for that is refused."""

    default_error_messages = {
        "shape": _("“%(text)s” is not a valid amount of memory. Examples: 8 GiB, 512 MiB."),
        "unit": _("%(text)s GiB is more than any node has. Enter %(text)s MiB, or the number of GiB."),
    }

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            mebibytes = parts_of(text, MEBIBYTES | {"": 1024})
            bare = text.replace(".", "").isdigit()
            if bare and mebibytes >= BARE_GIB * 1024:
                raise ValidationError(self.error_messages["unit"], code="which_unit", params={"text": text})
            return mebibytes
        except ValueError:
            raise ValidationError(self.error_messages["shape"], code="shape", params={"text": text}) from None

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        return f"{value // 1024} GiB" if value % 1024 == 0 else f"{value} MiB"


class CoresField(forms.DecimalField):
    """CPU in cores, such as 0.5 or 2, stored in millicores."""

    def __init__(self, *, label: Any = None) -> None:
        super().__init__(label=label, min_value=Decimal("0.1"), max_value=1024, decimal_places=3)

    def clean(self, value: Any) -> Any:
        cores = super().clean(value)
        return None if cores is None else int(cores * 1000)

    def prepare_value(self, value: Any) -> Any:
        return cores(value) if isinstance(value, int) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        given = Decimal(initial) / 1000 if isinstance(initial, int) else initial
        return super().has_changed(given, data)


QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\$`]|\\.)*"|\\.""")
ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)  # $'a\r\n': bash, and POSIX since 2024
TOKENS = re.compile(rf"""{ANSI.pattern}|'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^'"\\$]+|.""", re.DOTALL)
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL)
LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
SHELL_SIGNS = frozenset('|&;<>()$`*?[~#"\n')
SHELL_WORDS = frozenset(
    {".", ":", "!", "{", "case", "cd", "command", "eval", "exec", "exit", "export", "for", "if", "set", "trap"}
    | {"ulimit", "umask", "unset", "until", "while"}
)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def from_ansi(text: str) -> str:
    """Decodes the text between $' and '. Raises ValueError for a number that is not a character."""

    def letter(match: re.Match[str]) -> str:
        for digits, base in zip(match.groups()[:4], (16, 16, 16, 8), strict=True):
            if digits is not None:
                return chr(min(int(digits, base), 0x110000))
        return LETTERS.get(match[5], match[5] if match[5] in "\\'\"?" else match[0])

    return ESCAPE.sub(letter, text)


def as_ansi(text: str) -> str:
    """The text as $'…' on one line, with characters that every text area preserves."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\r", "\\r").replace("\n", "\\n")
    return f"$'{escaped}'"


def plain_quotes(text: str) -> str:
    """`text` with every $'…' replaced by an ordinary quoted string."""
    return "".join(shlex.quote(from_ansi(t[1])) if t[1] is not None else t[0] for t in TOKENS.finditer(text))


def needs_shell(text: str) -> bool:
    """Whether a shell would do more with the text than split it into words."""
    if SHELL_SIGNS & {*QUOTED.sub("", text)}:
        return True
    first = text.split(maxsplit=1)[0]
    return first in SHELL_WORDS or ASSIGNMENT.match(first) is not None


class CommandField(forms.CharField):
    """A command as typed in a terminal. It is split into words if that is all that a shell would do (then the image needs no
    shell), else it becomes one `sh -ec` script. Stored words are shown such that parsing returns the same words."""

    widget = forms.Textarea
    default_error_messages = {"quotes": _("A quotation mark in the command is not closed.")}

    def __init__(self, *, own_names: bool = False, **options: Any) -> None:
        """`own_names`: the portal itself replaces $(PORTAL_…) in the command, so that these need no shell."""
        super().__init__(**options)
        self.own_names = own_names

    def to_python(self, value: Any) -> Any:
        text = (super().to_python(value) or "").replace("\r\n", "\n").strip()
        try:
            plain = plain_quotes(text)
            words = shlex.split(plain, comments=True)
        except ValueError:
            if "\n" in text:
                return ("sh", "-ec", text)  # perhaps a here-document: the shell reports an error if it is one
            raise ValidationError(self.error_messages["quotes"], code="quotes") from None
        looked_at = expansion.OWN.sub("name", plain) if self.own_names else plain
        return ("sh", "-ec", text) if words and needs_shell(looked_at) else tuple(words)

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str) or value is None:
            return value
        words = tuple(value)
        if len(words) == 3 and words[:2] == ("sh", "-ec") and self._reads_back(words[2], words):
            return words[2]
        return " ".join(_quoted(word, first=not at) for at, word in enumerate(words))

    def _reads_back(self, text: str, words: tuple[str, ...]) -> bool:
        try:
            return "\r" not in text and self.to_python(text) == words
        except ValidationError:
            return False


def _quoted(word: str, *, first: bool) -> str:
    if "\r" in word:  # browsers send every line break as \r\n
        return as_ansi(word)
    if first and (word in SHELL_WORDS or ASSIGNMENT.match(word)):
        return f"'{word}'" if shlex.quote(word) == word else shlex.quote(word)
    return shlex.quote(word)


BLOCK = re.compile(r"\s*([^=\s<]+)<<(\S+)\s*")


class VariablesField(forms.CharField):
    """One NAME=value per line; a value of several lines is written as NAME<<END, the lines, END."""

    widget = forms.Textarea
    default_error_messages = {
        "shape": _("Line %(line)s has no “=”. Enter one NAME=value per line."),
        "open": _("The value of %(name)s begins in line %(line)s but is not closed by a line %(end)s."),
        "escape": _("Line %(line)s: the number after a backslash is not a valid character."),
        "twice": _("Line %(line)s: %(name)s is defined twice."),
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"strip": False})  # the last value may end with a space

    def wrong(self, code: str, **numbers: Any) -> ValidationError:
        return ValidationError(self.error_messages[code], code=code, params=numbers)

    def read_ansi(self, text: str, line: int) -> str:
        try:
            return from_ansi(text)
        except ValueError:
            raise self.wrong("escape", line=line) from None

    def to_python(self, value: Any) -> Any:
        variables: dict[str, str] = {}
        lines = (super().to_python(value) or "").replace("\r\n", "\n").split("\n")
        at = 0
        while at < len(lines):
            line, number = lines[at], at + 1
            at += 1
            if not line.strip():
                continue
            if block := BLOCK.fullmatch(line):
                name, end = block.groups()
                if end not in lines[at:]:
                    raise self.wrong("open", name=name, line=number, end=end)
                last = lines.index(end, at)
                name, content, at = name, "\n".join(lines[at:last]), last + 1
            else:
                name, equals, content = line.partition("=")
                if not equals:
                    raise self.wrong("shape", line=number)
                name = name.strip()
                if ansi := ANSI.fullmatch(content):
                    content = self.read_ansi(ansi[1], number)
            if name in variables:
                raise self.wrong("twice", line=number, name=name)
            variables[name] = content
        return variables

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return "\n".join(_variable(name, content) for name, content in value.items())
        return value


def _variable(name: str, content: str) -> str:
    if "\r" in content or ANSI.fullmatch(content):
        return f"{name}={as_ansi(content)}"
    if "\n" not in content:
        return f"{name}={content}"
    lines, end = content.split("\n"), "END"
    while end in lines:
        end += "_"
    return "\n".join([f"{name}<<{end}", *lines, end])
