"""Amounts and times in human-readable form, in the active language."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext


def amount(units: float | None, pool: Any) -> str:
    """`4` of a pool (or of a unit's name) → "4 cards", "15 GiB", "3 slices". None is "no limit". Fractions are rounded to one
    decimal, except for memory: "2.5 cards"."""
    if units is None:
        return _("no limit")
    unit = pool if isinstance(pool, str) else pool.unit
    rounded = round(units, 1)
    written = int(rounded) if rounded == int(rounded) else rounded
    n, number = (written if isinstance(written, int) else 2), {"n": f"{written:,}"}  # 2: any number that is not one
    if unit == "card":
        return ngettext("%(n)s card", "%(n)s cards", n) % number
    if unit == "replica":
        return ngettext("%(n)s replica", "%(n)s replicas", n) % number
    if unit == "slice":
        return ngettext("%(n)s slice", "%(n)s slices", n) % number
    if unit == "percent":
        return f"{written:,} %"
    return memory(round(units))


def charged(asked: int, charge: int, pool: Any) -> str:
    """What is occupied and, if it is more, what is charged: "8 GiB, charged 24 GiB"."""
    if asked == charge:
        return amount(asked, pool)
    return _("%(asked)s, charged %(charge)s") % {"asked": amount(asked, pool), "charge": amount(charge, pool)}


def exact(units: int | None, pool: Any) -> str:
    """`amount` without rounding, for what people decide on or enter again: "30721 MiB", not "30 GiB"."""
    if units is None or (pool if isinstance(pool, str) else pool.unit) != "MiB":
        return amount(units, pool)
    return f"{units} MiB" if units % 512 or 0 < units < 1024 else memory(units).replace(",", "")


def limit_in_words(name: str, units: int | None, pool: Any) -> str:
    """`exact` of an amount of a quota; None is "all" of a `lend_limit` (nobody can lend more than what is idle), else "no limit".
    Without its unit if the pool was deleted."""
    if units is None and name == "lend_limit":
        return _("all")
    return exact(units, pool) if units is None or pool else f"{units:,}"


def guarantee(units: int, pool: Any) -> str:
    """An amount of guaranteed quota; "none" instead of "0 GiB"."""
    return exact(units, pool) if units else _("none")


def part(units: int, pool: Any) -> str:
    """An amount in front of "of 16 cards": `15`; in front of "of 30 GiB": "15 GiB", because memory needs its unit."""
    return memory(units) if pool.unit == "MiB" else f"{units:,}"


def unit_name(unit: str) -> str:
    """The plural name of a pool's unit: "cards" for `card`; MiB stays MiB."""
    return {"card": _("cards"), "replica": _("replicas"), "slice": _("slices"), "percent": "%"}.get(unit, unit)


def unit_hours(unit: str) -> str:
    """The name of the hours of a pool's unit, in which reports count. Hours of memory are counted in GiB. GPU-hours, in which
    budgets count the use of all pools together, are something else (docs/glossary.md)."""
    return {
        "card": _("Card-hours"), "MiB": _("GiB-hours"), "slice": _("Slice-hours"), "replica": _("Replica-hours"),
        "percent": _("Card-hours (shares of a card)"),
    }.get(unit, unit)  # fmt: skip


def memory(mebibytes: int | None) -> str:
    """MiB as text with a short number: 512 MiB, 15 GiB, 1.5 GiB; zero is 0 GiB."""
    if mebibytes is None:
        return ""
    if 0 < abs(mebibytes) < 1024:
        return f"{mebibytes} MiB"
    return f"{mebibytes / 1024:,.1f}".removesuffix(".0") + " GiB"


def listed(values: Iterable[Any]) -> str:
    """The values joined as a list in the active language: "a, b, c"."""
    return pgettext("between things that are listed", ", ").join(map(str, values))


def space() -> str:
    """What stands between two sentences: nothing in Chinese, whose marks bring their own space."""
    return _("%(sentence)s %(next)s") % {"sentence": "", "next": ""}


def sentences(texts: Iterable[str]) -> str:
    """The texts as one paragraph."""
    return space().join(texts)


def file_size(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    step = min(3, (size.bit_length() - 1) // 10)
    return f"{size / 1024**step:.1f} {('KiB', 'MiB', 'GiB')[step - 1]}"


def cores(cpu_milli: float | None) -> str:
    return "" if cpu_milli is None else f"{cpu_milli / 1000:.3f}".rstrip("0").rstrip(".")


def percent(share: float | None) -> str:
    """0.25 → "25 %"; below one percent with a decimal; from 1,000 % on as a factor: "40×". "" for None."""
    if share is None:
        return ""
    if share >= 10:
        return _("%(factor)s×") % {"factor": f"{share:,.0f}"}
    return f"{share * 100:.1f} %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def price(amount: Decimal | None) -> str:
    """A price without trailing zeros: 0.5, 12."""
    return "" if amount is None else f"{amount.normalize():,f}"


def duration(seconds: float | dt.timedelta | None) -> str:
    """Seconds → the two largest parts: "2 d 3 h", "4 min 10 s"."""
    if seconds is None:
        return ""
    left = int(seconds.total_seconds() if isinstance(seconds, dt.timedelta) else seconds)
    parts: list[str] = []
    for size, label in ((86400, _("d")), (3600, _("h")), (60, _("min")), (1, _("s"))):
        count, left = divmod(max(left, 0), size)
        if count or (size == 1 and not parts):
            parts.append(f"{count} {label}")
    return " ".join(parts[:2])


def stored_sentence(stored: Mapping[str, Any]) -> str:
    """The translation of a stored sentence, {"message", "params"}; a param may be a stored sentence itself."""
    params = stored.get("params", {}).items()
    return _(stored["message"]) % {n: stored_sentence(v) if isinstance(v, Mapping) else v for n, v in params}
