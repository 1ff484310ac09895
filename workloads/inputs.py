"""Amounts as people write them: "8h", "1d 12h", "15 GiB", "python train.py --lr 1e-3", NAME=value lines."""

from __future__ import annotations

import re
import shlex
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from quotas.amounts import LARGEST, MEBIBYTES

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "": 60}
PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parts_of(text: str, factors: dict[str, int]) -> int:
    """The sum of "number unit" parts. Raises ValueError where something else stands."""
    rest = PART.sub("", text.lower()).strip(" ,")
    found = PART.findall(text.lower())
    if rest or not found or any(unit not in factors for _number, unit in found):
        raise ValueError(text)
    total = round(sum(float(number) * factors[unit] for number, unit in found))
    if total > LARGEST:
        raise ValueError(text)
    return total


class DurationField(forms.CharField):
    """Seconds from "8h", "90 min", "1d 12h"; a bare number is minutes. Empty is None."""

    default_error_messages = {"shape": _("“%(text)s” is not a duration. Write it like 8h, 90 min or 1d 12h.")}

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            return parts_of(text, SECONDS)
        except ValueError:
            raise ValidationError(self.error_messages["shape"], code="shape", params={"text": text}) from None

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        text, left = [], value
        for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
            count, left = divmod(left, size)
            if count:
                text.append(f"{count}{unit}")
        return " ".join(text)


class MemoryField(forms.CharField):
    """MiB from "8 GiB", "512 MiB"; a bare number is MiB."""

    default_error_messages = {"shape": _("“%(text)s” is not an amount of memory. Write it like 8 GiB or 512 MiB.")}

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            return parts_of(text, MEBIBYTES)
        except ValueError:
            raise ValidationError(self.error_messages["shape"], code="shape", params={"text": text}) from None

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        return f"{value // 1024} GiB" if value % 1024 == 0 else f"{value} MiB"


QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\$`]|\\.)*"|\\.""")
SHELL_SIGNS = frozenset('|&;<>()$`*?[~#"')
SHELL_WORDS = frozenset(
    {".", ":", "!", "{", "case", "cd", "command", "eval", "exec", "exit", "export", "for", "if", "set", "trap"}
    | {"ulimit", "umask", "unset", "until", "while"}
)


def needs_shell(text: str, words: list[str]) -> bool:
    """Whether a shell would do more with the line than split it into these words."""
    if SHELL_SIGNS & {*QUOTED.sub("", text)}:
        return True
    return words[0] in SHELL_WORDS or re.match(r"[A-Za-z_]\w*=", words[0]) is not None


class CommandField(forms.CharField):
    """What one would type in a terminal: words where they are nothing else (then the program itself gets the signals and
    the image needs no shell), else one `sh -ec` script."""

    widget = forms.Textarea
    default_error_messages = {"quotes": _("A quotation mark in the command is not closed.")}

    def to_python(self, value: Any) -> Any:
        text = (super().to_python(value) or "").replace("\r\n", "\n").strip()
        if "\n" in text:
            return ("sh", "-ec", text)
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            raise ValidationError(self.error_messages["quotes"], code="quotes") from None
        return ("sh", "-ec", text) if words and needs_shell(text, words) else tuple(words)

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str) or value is None:
            return value
        if len(value) == 3 and tuple(value[:2]) == ("sh", "-ec"):
            return value[2]
        return shlex.join(value)


class VariablesField(forms.CharField):
    """NAME=value, one a line."""

    widget = forms.Textarea
    default_error_messages = {"shape": _("Line %(line)s has no “=”. Write one NAME=value a line.")}

    def to_python(self, value: Any) -> Any:
        found: dict[str, str] = {}
        for number, line in enumerate((super().to_python(value) or "").replace("\r\n", "\n").split("\n"), start=1):
            if not line.strip():
                continue
            name, equals, content = line.partition("=")
            if not equals:
                raise ValidationError(self.error_messages["shape"], code="shape", params={"line": number})
            found[name.strip()] = content
        return found

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return "\n".join(f"{name}={content}" for name, content in value.items())
        return value
