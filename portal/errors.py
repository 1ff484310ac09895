"""Problems a person or program can act on. Exceptions live beside the function that raises them; this is their base.

The API turns a Problem into application/problem+json, pages into the form again with 422, tasks into a retry.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext

from portal.words import unit_name


def N_(text: str) -> str:
    """Marks a sentence for the translators; it is translated when it is shown."""
    return text


class Problem(Exception):
    """A refusal with its numbers.

    `message` is an English sentence with %(name)s places, marked by N_; `numbers` fill it and are fields of the answer.
    `field` names the input at fault, if one is.
    """

    status = 409
    code = "conflict"
    message = N_("This is not possible now.")

    def __init__(self, message: str = "", *, code: str = "", field: str = "", **numbers: Any) -> None:
        self.message = message or self.message
        self.code = code or self.code
        self.field = field
        self.numbers = numbers
        super().__init__(self.message % numbers)

    @property
    def detail(self) -> str:
        """The sentence in the reader's language."""
        numbers = self.numbers
        if "unit" in numbers:
            numbers = numbers | {"unit": unit_name(numbers["unit"])}
        return gettext(self.message) % numbers


class Invalid(Problem):
    status = 422
    code = "invalid"


class Busy(Problem):
    """A lock was not to be had in time, or the database is away: the caller should come back."""

    status = 503
    code = "busy"
    message = N_("The system is busy. Nothing was changed; try again in a few seconds.")
    retry_after = 3
