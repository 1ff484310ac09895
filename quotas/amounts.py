"""GPU amounts as people write them, converted to a pool's unit: 4, 10 GiB, half a card, 25 %."""

from __future__ import annotations

import re
from fractions import Fraction

from django.utils.translation import gettext as _

from portal.errors import N_, Invalid
from portal.text.words import exact
from quotas.models import Pool

NUMBER = r"(?P<number>\d+/\d+|[1-9]\d{0,2}(?:,\d{3})+|\d+(?:[.,]\d+)?)"
THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+")  # as pages write thousands; any other comma is a decimal comma
AMOUNT = re.compile(rf"{NUMBER}\s*(?P<unit>[^\d\s.,/]*)")
WORDS = {"half": "1/2", "a half": "1/2", "quarter": "1/4", "a quarter": "1/4", "third": "1/3", "a third": "1/3",
         "half a card": "1/2", "a quarter of a card": "1/4", "半张": "1/2", "半张卡": "1/2", "半": "1/2"}  # fmt: skip
MEBIBYTES = {"": 1, "m": 1, "mb": 1, "mib": 1, "g": 1024, "gb": 1024, "gib": 1024, "t": 2**20, "tib": 2**20}
CARDS = {"card", "cards", "gpu", "gpus", "张", "张卡", "卡", "块"}
PERCENT = {"%", "percent", "％"}
REPLICAS = {"replica", "replicas", "份", "副本", "个副本"}
SLICES = {"slice", "slices", "切片", "个切片"}
LARGEST = 2**31 - 1
LEAST_MIB = 256
"""The least amount of GPU memory in MiB. A CUDA context alone takes more, so a smaller amount has the wrong unit."""
LONGEST = 60
"""The most characters of an amount; longer text is refused without parsing, because it may be thousands of digits."""


def parts(text: str) -> tuple[Fraction, str] | None:
    """ "7.5 GiB" → (15/2, "gib"); a fraction without a unit is one of a card. None if the text is not an amount."""
    match = AMOUNT.fullmatch(WORDS.get(text.strip().lower(), text.strip()))
    if match is None:
        return None
    number, unit = match["number"], match["unit"].lower()
    if THOUSANDS.fullmatch(number):
        number = number.replace(",", "")
    value = Fraction(0) if number.endswith("/0") else Fraction(number.replace(",", "."))
    return value, unit or ("card" if "/" in number else "")


def units_of(text: str, pool: Pool, least: int = 1) -> int:
    """The amount in the pool's unit. A number without a unit is GiB in a pool of memory, else in the pool's unit.

    Raises Invalid (units), also for fewer units than `least` (0 or 1) and for fractions of a unit: 9.5 cards do not become 10.
    Only memory is rounded up, to a MiB.
    """
    amount = parts(text) if len(text) <= LONGEST else None
    units = None if amount is None else _in_units(*amount, pool)
    if units is None:
        text, examples = text.strip()[:60], examples_of(pool)
        raise Invalid(
            N_("“%(text)s” is not a valid amount here. Examples: %(examples)s."), code="shape", field="units", text=text,
            examples=examples,
        )  # fmt: skip
    if units < least:
        raise Invalid(N_("The amount must be greater than zero."), code="too_little", field="units")
    if units > LARGEST:
        raise Invalid(N_("The amount is too large."), code="too_many", field="units")
    whole = -(-units.numerator // units.denominator)
    if whole != units and pool.unit != "MiB":
        raise not_whole(text, whole, pool)
    return whole


def not_whole(text: str, becomes: int, pool: Pool, field: str = "units") -> Invalid:
    """The error for an amount that would have to be rounded up to `becomes` units."""
    return Invalid(
        N_("%(text)s is not a whole number of %(unit)s: enter %(size)s, or less."),
        code="not_whole", field=field, text=text.strip(), unit=counted_in(pool), size=exact(becomes, pool), becomes=becomes,
    )  # fmt: skip


def check_not_little(units: int | None, pool: Pool, field: str = "units") -> None:
    """Raise Invalid for a few MiB, where GiB must be meant. Zero and None (no limit) are valid."""
    if pool.unit == "MiB" and units and units < LEAST_MIB:
        meant = units if units * 1024 <= pool.units_per_card else 1
        raise Invalid(
            N_("%(units)s MiB of GPU memory is very little: did you mean %(meant)s GiB? The minimum is "
                "%(least)s MiB."),
            code="very_little", field=field, units=units, meant=meant, least=LEAST_MIB,
        )  # fmt: skip


def exactly(text: str, pool: Pool) -> Fraction | None:
    """The amount in the pool's unit before rounding up; None if it cannot be expressed."""
    amount = parts(text) if len(text) <= LONGEST else None
    if amount is None:
        return None
    number, unit = amount
    return _in_units(number, "card" if unit == "" and number < 1 and pool.unit != "MiB" else unit, pool)


def _in_units(number: Fraction, unit: str, pool: Pool) -> Fraction | None:
    if pool.unit == "MiB" and unit in MEBIBYTES:
        return number * MEBIBYTES[unit or "gib"]
    own = {"card": CARDS, "percent": PERCENT, "replica": REPLICAS, "slice": SLICES}.get(pool.unit, set())
    if unit == "" or unit in own:
        return number
    if unit in CARDS:
        return number * pool.units_per_card
    if unit in PERCENT:
        return number * pool.units_per_card / 100
    if unit in MEBIBYTES and pool.card_mib and not pool.mig:
        return number * MEBIBYTES[unit] * pool.units_per_card / pool.card_mib
    return None


def written(units: int, pool: Pool) -> str:
    """An amount as text that `units_of` parses to exactly the same units."""
    return exact(units, pool) if pool.unit == "MiB" else str(units)


def first_amount(pool: Pool) -> str:
    """The initial amount of a form: one card, or the only share that can be requested."""
    return written(pool.units_per_card if pool.unit in ("MiB", "percent") else 1, pool)


def counted_in(pool: Pool) -> str:
    """The unit of a number without a unit."""
    return {
        "card": _("cards"), "replica": _("replicas"), "slice": _("slices"), "percent": _("percent of a card"), "MiB": "GiB",
    }.get(pool.unit, pool.unit)  # fmt: skip


def examples_of(pool: Pool) -> str:
    """Examples of amounts for this pool."""
    return {
        "card": _("a number of cards: 2"),
        "MiB": _("memory (6 GiB) or a share of a card (half, 25 %)"),
        "percent": _("a share of a card (half, 25 %) or memory (6 GiB)"),
        "replica": _("a number of replicas (2) or of cards (half, 2 cards)"),
        "slice": _("a number of slices (4) or of cards (half, 2 cards)"),
    }.get(pool.unit, "1")
