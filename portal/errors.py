"""Problems that a person or program can act on. Exceptions are defined beside the function that raises them; this is their base
class.

The API answers a Problem with application/problem+json, pages with the form again and 422, and tasks retry.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext, ngettext

from portal.text.words import file_size, unit_name


def N_(text: str) -> str:
    """Marks a sentence for the translators; it is translated when it is shown."""
    return text


def ngettext_noop(one: str, many: str) -> tuple[str, str]:
    """Marks a sentence with a plural for the translators."""
    return one, many


class Problem(Exception):
    """A refusal, with the figures for its message.

    `message` is an English sentence with placeholders %(name)s, marked by N_; `numbers` fill it and are fields of the response.
    If it counts something, `plural` is the plural form, both marked by ngettext_noop, and `numbers` has the `count`. `field`
    names the input at fault, if one is.
    """

    status = 409
    code = "conflict"
    message = N_("This is not possible at present.")
    plural = ""

    def __init__(self, message: str = "", *, code: str = "", field: str = "", **numbers: Any) -> None:
        self.plural = "" if message else self.plural
        self.message = message or self.message
        self.code = code or self.code
        self.field = field
        self.numbers = numbers
        text = self.plural if self.plural and numbers["count"] != 1 else self.message
        super().__init__(text % numbers)

    @property
    def detail(self) -> str:
        """The sentence in the reader's language."""
        numbers = self.numbers
        if "unit" in numbers:
            numbers = numbers | {"unit": unit_name(numbers["unit"])}
        text = ngettext(self.message, self.plural, numbers["count"]) if self.plural else gettext(self.message)
        return text % numbers


class Invalid(Problem):
    status = 422
    code = "invalid"


class Busy(Problem):
    """A lock could not be taken in time, or the database is unreachable: try again later."""

    status = 503
    code = "busy"
    message = N_("The system is busy. Nothing was changed. Try again in a few seconds.")
    retry_after = 3


class TooLarge(Problem):
    """The request is too large; `limit` in bytes."""

    status = 413
    code = "too_large"
    message = N_("The request is too large: at most %(size)s is accepted.")

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit, size=file_size(limit))
