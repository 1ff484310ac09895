"""GPU amounts as people write them, converted to a pool's unit: 7.5 GiB, half a card, 3g.40gb, 2 cards.

The memory of a MIG instance is from published output of `nvidia-smi mig -lgip` (the "gb" in a profile's name is a rounded
share, not the usable memory); for profiles without published output it is the card's share, slightly more than the true value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from django.utils.translation import gettext as _

from portal.errors import N_, Invalid
from portal.text.words import amount, listed, memory
from quotas.amounts import (
    CARDS,
    LARGEST,
    MEBIBYTES,
    PERCENT,
    REPLICAS,
    SLICES,
    check_not_little,
    exactly,
    examples_of,
    not_whole,
    parts,
)
from quotas.engine.mig_profiles import KNOWN, PRODUCTS, Table, profile_of, profiles_of
from quotas.models import Node, Pool
from workloads.requests.request import settings_of
from workloads.sharing import SYSTEMS, About, mig

INSTANCE_GIB: dict[str, dict[str, float]] = {
    "A30": {"1g.6gb": 5.81, "1g.6gb+me": 5.81, "2g.12gb": 11.69, "2g.12gb+me": 11.69, "4g.24gb": 23.44},
    "A100-40GB": {"1g.5gb": 4.75, "1g.5gb+me": 4.75, "1g.10gb": 9.62, "2g.10gb": 9.62, "3g.20gb": 19.5, "4g.20gb": 19.5,
                  "7g.40gb": 39.25},
    "A100-80GB": {"1g.10gb": 9.5, "1g.10gb+me": 9.5, "1g.20gb": 19.5, "2g.20gb": 19.5, "3g.40gb": 39.25, "4g.40gb": 39.25,
                  "7g.80gb": 78.75},
    "H100-80GB": {"1g.10gb": 9.75, "1g.10gb+me": 9.75, "1g.20gb": 19.62, "2g.20gb": 19.62, "3g.40gb": 39.5,
                  "4g.40gb": 39.5, "7g.80gb": 79.25},
    "H200-141GB": {"1g.18gb": 16.0, "1g.18gb+me": 16.0, "2g.35gb": 32.5, "7g.141gb": 140.0},
    "B200-180GB": {"4g.90gb": 89.0},
}  # fmt: skip
CARD_GIB = {
    "A30": 24.0,
    "A100-40GB": 40.0,
    "A100-80GB": 80.0,
    "H100-80GB": 79.65,
    "H200-141GB": 140.4,
    "B200-180GB": 179.06,
}


BARE_MIB = 1024  # a number this large without a unit is probably meant in MiB


@dataclass(frozen=True, slots=True)
class Asked:
    """Units of the pool, or a MIG profile."""

    units: int
    profile: str = ""


def about(pool: Pool) -> About | None:
    """The pool's sharing system; None if no module implements it."""
    system = SYSTEMS.get(pool.sharing)
    return system.ABOUT if system else None


def card_mib(pool: Pool) -> int | None:
    """Memory of one card in MiB; None if unknown."""
    if pool.card_mib:
        return pool.card_mib
    if pool.unit == "MiB":
        return pool.units_per_card
    table = PRODUCTS.get(pool.mig)
    return round(CARD_GIB.get(pool.mig, table.gb) * 1024) if table is not None else None


def instance_mib(table: str, profile: str) -> int | None:
    """Memory of a MIG instance in MiB; None if unknown."""
    if gib := INSTANCE_GIB.get(table, {}).get(profile):
        return round(gib * 1024)
    slice_profile, known = profile_of(table, profile), PRODUCTS.get(table)
    if slice_profile is None or known is None:
        return None
    return round(CARD_GIB.get(table, known.gb) * 1024 * slice_profile.size / known.slices)


# Parsing ----------------------------------------------------------------------------------------------------------------


def read(text: str, pool: Pool) -> Asked:
    """The amount that the text means. A number without a unit is in GiB if the pool counts memory. Raises Invalid."""
    text = text.strip()
    if pool.mig and (profile := _profile_named(text, pool.mig)):
        return Asked(0, profile)
    parsed = parts(text)
    if parsed is None:
        raise not_an_amount(text, pool)
    number, unit = parsed
    if number <= 0:
        raise Invalid(N_("The amount must be greater than zero."), code="too_little", field="units_per_pod")
    if unit == "" and pool.unit == "MiB":
        if number >= BARE_MIB:
            raise Invalid(
                N_("%(number)s GiB is more than a card has. Enter %(number)s MiB, or the number of GiB."),
                code="which_unit", field="units_per_pod", number=int(number),
            )  # fmt: skip
        unit = "gib"
    if unit == "" and number < 1:
        unit = "card"
    asked = _bounded(_in_units(number, unit, text, pool))
    check_not_little(asked.units, pool, "units_per_pod")
    return asked


def read_unrounded(text: str, pool: Pool) -> Asked:
    """`read` for programs. Also raises Invalid, with the rounded number, for an amount that a form would ask to confirm because
    it is rounded up. For MIG it returns the smallest sufficient instance."""
    asked = read(text, pool)
    if not asked.profile and becomes(text, pool):
        raise not_whole(text, asked.units, pool, "units_per_pod")
    return asked


def _bounded(asked: Asked) -> Asked:
    if asked.units > LARGEST:
        raise Invalid(N_("The amount is too large."), code="too_many", field="units_per_pod")
    return asked


def becomes(text: str, pool: Pool) -> str:
    """The amount that the text is rounded up to, such as "2 cards" for 1.5; "" if it is exact. Raises Invalid."""
    asked = read(text, pool)
    if asked.profile:
        return "" if _profile_named(text.strip(), pool.mig) else in_words(pool, 0, asked.profile)
    exact = exactly(text, pool)
    tolerated = 1 if pool.unit == "MiB" else 0  # a MiB does not matter
    return "" if exact is None or asked.units - exact <= tolerated else amount(asked.units, pool)


def _in_units(number: Fraction, unit: str, text: str, pool: Pool) -> Asked:
    if unit in MEBIBYTES and unit:
        return _of_memory(number * MEBIBYTES[unit], pool)
    if unit in PERCENT:
        return _of_card(number / 100, pool)
    if unit in CARDS:
        return _of_card(number, pool)
    if unit == "" or (pool.unit == "replica" and unit in REPLICAS) or (pool.unit == "slice" and unit in SLICES):
        if pool.mig:
            return Asked(0, _smallest_profile(pool, lambda size, _mib: size >= number, text))
        return Asked(-(-number.numerator // number.denominator))
    raise not_an_amount(text, pool)


def not_an_amount(text: str, pool: Pool) -> Invalid:
    return Invalid(
        N_("“%(text)s” is not a valid amount here. Examples: %(examples)s."), code="shape", field="units_per_pod", text=text[:60],
        examples=examples(pool),
    )  # fmt: skip


def examples(pool: Pool) -> str:
    """Examples of amounts for this pool, as part of a sentence."""
    if pool.mig:
        return _("a profile (%(profile)s), memory (10 GiB) or a share of a card (half)") % {
            "profile": next(iter(PRODUCTS[pool.mig]))
        }
    return _("1, for one share of a card") if pool.unit == "replica" else examples_of(pool)


def _of_memory(mib: Fraction, pool: Pool) -> Asked:
    """The amount with at least this memory."""
    card, whole = card_mib(pool), -(-mib.numerator // mib.denominator)
    if pool.unit == "MiB":
        return Asked(_stepped(whole, pool))
    if pool.mig:
        return Asked(0, _smallest_profile(pool, lambda _size, has: has is not None and has >= whole, memory(whole)))
    if card is None:
        raise Invalid(
            N_("The memory of a card of %(pool)s is not known: request %(examples)s."), code="no_memory_known",
            field="units_per_pod", pool=pool.name, examples=examples(pool),
        )  # fmt: skip
    return _of_card(Fraction(whole, card), pool)


def _of_card(share: Fraction, pool: Pool) -> Asked:
    if pool.mig:
        slices = mig.slices(pool.mig)
        text = share_in_words(share)
        return Asked(0, _smallest_profile(pool, lambda size, _mib: Fraction(size, slices) >= share, text))
    units = share * pool.units_per_card
    if pool.unit == "replica":
        return Asked(_replicas(units, pool))
    whole = -(-units.numerator // units.denominator)
    return Asked(_stepped(whole, pool) if pool.unit != "card" else whole)


def _replicas(units: Fraction, pool: Pool) -> int:
    if units > 1:
        raise Invalid(
            N_("One share here is 1/%(replicas)s of a card, and several shares do not give more of it: "
                "choose another pool."),
            code="too_many", field="units_per_pod", replicas=pool.units_per_card,
        )  # fmt: skip
    return 1


def _stepped(units: int, pool: Pool) -> int:
    """Rounded up to a multiple of the system's step."""
    system = about(pool)
    step = system.step if system and settings_of(pool.group.cluster).gpu_mem_unit == "GiB" else 1
    most = pool.units_per_card
    rounded = -(-units // step) * step
    return rounded if rounded <= most or units > most else units


def _profile_named(text: str, table: str) -> str:
    name = text.lower().removeprefix("mig-").removeprefix("nvidia.com/mig-")
    return name if profile_of(table, name) else ""


def _smallest_profile(pool: Pool, enough: Callable[[int, int | None], bool], text: str) -> str:
    """The smallest sufficient profile; of two with the same slices, the one with more compute. `text` is for the error."""
    table = PRODUCTS[pool.mig]
    present = profiles_present([pool])[pool.mig] if pool.pk else table.keys()
    fitting = [
        (profile.size, -int(name[0]), name)
        for name, profile in ((name, table[name]) for name in dict.fromkeys([*table, *present]))
        if name in present and not profile.media and enough(profile.size, instance_mib(pool.mig, name))
    ]
    if not fitting:
        largest = max(present, key=lambda name: table[name].size, default="–")
        raise Invalid(
            N_("No instance of %(pool)s is that large (%(asked)s): the largest is %(largest)s."), code="no_such_profile",
            field="units_per_pod", pool=pool.name, asked=text, largest=largest,
        )  # fmt: skip
    name: str = min(fitting)[2]
    return name


def profiles_present(pools: Iterable[Pool]) -> dict[str, list[str]]:
    """MIG table → profiles that some node has, in the table's order; all of them if instances are cut on demand."""
    by_table: dict[str, set[str]] = {pool.mig: set() for pool in pools if pool.mig}
    nodes = Node.objects.filter(cards__pool__in=[pool.pk for pool in pools if pool.mig], present=True).distinct()
    for table, instances in nodes.values_list("cards__pool__mig", "instances"):
        if table in by_table:
            by_table[table] |= set(instances or profiles_of(table))
    return {table: _in_order(PRODUCTS.get(table), names) for table, names in by_table.items()}


def _in_order(table: Table | None, names: set[str]) -> list[str]:
    """NVIDIA's profiles in the table's order, then those derived from their names; all of the table if `names` is empty."""
    if table is None:
        return []
    derived = sorted(name for name in names if name in table and not table.is_said(name))
    return [*(name for name in table if name in names or not names), *derived]


def is_derived(table: str, profile: str) -> bool:
    """Whether no NVIDIA table has the profile, so that its slices are derived from its name."""
    return table not in KNOWN or not PRODUCTS[table].is_said(profile)


# In words ---------------------------------------------------------------------------------------------------------------


def product_name(product: str) -> str:
    """A short name of the product: Tesla-T4 → T4, NVIDIA-A100-SXM4-80GB → A100 80GB."""
    words = (
        product.partition("-MIG-")[0].removesuffix("-SHARED").removeprefix("NVIDIA-").removeprefix("Tesla-").split("-")
    )
    return " ".join(word for word in words if not re.fullmatch(r"SXM\d|PCIE|PCIe|HBM\d\w*", word))


def share_in_words(share: Fraction) -> str:
    known = {
        Fraction(1, 4): _("a quarter"), Fraction(1, 3): _("a third"), Fraction(1, 2): _("half"),
        Fraction(2, 3): _("two thirds"), Fraction(3, 4): _("three quarters"),
    }  # fmt: skip
    percent = round(float(share) * 100)
    return known.get(share) or _("%(percent)s%%") % {"percent": percent if percent else "< 1"}


def in_words(pool: Pool, units: int, profile: str = "") -> str:
    """The amount as a researcher would put it: "half a T4, 7.5 GiB"."""
    card, name = card_mib(pool), product_name(pool.product)
    if pool.mig and (slice_profile := profile_of(pool.mig, profile)):
        share = Fraction(slice_profile.size, mig.slices(pool.mig))
        has = instance_mib(pool.mig, profile)
        return _joined(f"{profile}{_(': ')}{_part(share, name)}", has, about_it=True)
    share = Fraction(units, pool.units_per_card)
    if pool.unit == "card" or (share.denominator == 1 and pool.unit != "replica"):
        count = int(share)
        text = (_("a whole %(card)s") if count == 1 else _("%(count)s whole %(card)s")) % {"count": count, "card": name}
        return _joined(text, card * count if card else None, about_it=True)
    if pool.unit == "MiB":
        return _joined(_part(share, name), units, about_it=False)
    if pool.unit == "replica":
        numbers = {"replicas": pool.units_per_card, "a_card": _with_article(name)}
        text = _("one of %(replicas)s shares of %(a_card)s") % numbers
        limited = pool.sharing == "mps"
        return _joined(text, round(card / pool.units_per_card) if card and limited else None, about_it=True)
    return _joined(_part(share, name), round(float(share) * card) if card else None, about_it=True)


def _part(share: Fraction, name: str) -> str:
    numbers = {"a_card": _with_article(name)}
    if share == Fraction(1, 2):
        return _("half %(a_card)s") % numbers
    nice = share.limit_denominator(64)
    if abs(float(nice - share)) > 0.005 or nice == 0:
        nice = share
    return _("%(share)s of %(a_card)s") % (numbers | {"share": share_in_words(nice)})


def _with_article(name: str) -> str:
    """The card with its English article; languages without articles translate both forms alike."""
    text = _("an %(card)s") if name[:1] in "AEFHILMNORSX" else _("a %(card)s")
    return text % {"card": name}


def _joined(text: str, mib: int | None, *, about_it: bool) -> str:
    if not mib:
        return text
    size = memory(mib)
    return _("%(text)s, about %(memory)s") % {"text": text, "memory": size} if about_it else listed((text, size))
