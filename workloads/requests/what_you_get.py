"""What an amount means for the person who requests it: what they get, what is charged, what can go wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from django.utils.translation import gettext as _

from portal.text.words import amount, cores, memory
from quotas.models import Pool
from workloads.requests.gpu_amounts import about, examples, in_words
from workloads.requests.request import WorkloadRequest
from workloads.sharing import About


@dataclass(frozen=True, slots=True)
class IsolationLevel:
    """One resource and how it is isolated from neighbours; `level` is full, soft or none."""

    what: str
    level: str
    word: str


@dataclass(frozen=True, slots=True)
class RequestOffer:
    gets: str  # "half a T4, 7.5 GiB, not isolated"
    charge: str
    system: str
    isolation_levels: tuple[IsolationLevel, ...]
    isolation: str
    risks: str


def offer_of(request: WorkloadRequest) -> RequestOffer | None:
    """What the request gets; None if no module implements the pool's sharing system."""
    pool, system = request.pool, about(request.pool)
    if system is None:
        return None
    parts = [in_words(pool, request.units_per_pod, request.profile)]
    if request.cores_per_pod:
        parts.append(_("%(percent)s %% of its compute") % {"percent": request.cores_per_pod})
    parts.append(isolation_word(system))
    text = _(", ").join(parts)
    if request.pods > 1:
        text = _("%(pods)s pods with %(gets)s each") % {"pods": request.pods, "gets": text}
    return RequestOffer(
        text, charge(request), _(system.title), isolation_levels(system), _(system.isolation), _(system.risks)
    )


def charge(request: WorkloadRequest) -> str:
    """What is charged, and why if that is more than the requested memory."""
    pool, total = request.pool, request.charge * request.pods
    numbers = {"charge": amount(total, pool), "percent": request.cores_per_pod or 0}
    if request.beside_charge > request.card_charge:
        return _("Charged to quota: %(charge)s, because the requested CPU and memory are the larger share.") % numbers
    if request.profile:
        return _("Charged to quota: %(charge)s.") % numbers
    if request.charge > request.units_per_pod:
        return _("Charged to quota: %(charge)s, because %(percent)s %% of the compute is the larger share.") % numbers
    return _("Charged to quota: %(charge)s.") % numbers


def beside(pool: Pool) -> str:
    """A sentence about the CPU and memory that come with a card; "" if they are unlimited."""
    cpu, host_memory = pool.with_a_card
    numbers = {"cpu": cores(cpu), "memory": memory(host_memory)}
    if cpu and host_memory:
        return (
            _("Each card includes %(cpu)s CPU and %(memory)s of memory; requests above that are charged as more cards.")
            % numbers
        )
    if cpu:
        return _("Each card includes %(cpu)s CPU; requests above that are charged as more cards.") % numbers
    if host_memory:
        return _("Each card includes %(memory)s of memory; requests above that are charged as more cards.") % numbers
    return ""


def above_share(request: WorkloadRequest) -> str:
    """The notice for a request of more CPU or memory than comes with its cards, by the one that determines the charge; "" for
    others."""
    if request.beside_charge <= request.card_charge:
        return ""
    pool, (cpu, host_memory) = request.pool, request.pool.with_a_card
    by_cpu = cpu and (not host_memory or request.cpu_milli * host_memory >= request.memory_mib * cpu)
    asked = _("%(cpu)s CPU") % {"cpu": cores(request.cpu_milli)} if by_cpu else memory(request.memory_mib)
    text = _(
        "%(asked)s is more than %(card)s includes (%(share)s per card): each pod is charged "
        "%(charge)s. Anything above the guaranteed quota is borrowed and may be recalled."
    )
    share = _("%(cpu)s CPU") % {"cpu": cores(cpu)} if by_cpu else memory(host_memory)
    return text % {
        "asked": asked, "share": share,
        "card": amount(request.card_charge, pool), "charge": amount(request.charge, pool),
    }  # fmt: skip


def isolation_word(system: About) -> str:
    """The isolation in a word: the weaker of memory and faults."""
    if system.memory == "full":
        return _("isolated") if system.faults == "full" else _("separate memory, shared faults")
    return _("memory limited by software") if system.memory == "soft" else _("not isolated")


def isolation_levels(system: About) -> tuple[IsolationLevel, ...]:
    levels = {"full": _("isolated"), "soft": _("limited by software"), "none": _("shared")}
    rows = ((_("GPU memory"), system.memory), (_("Compute"), system.compute), (_("Faults"), system.faults))
    return tuple(IsolationLevel(what, level, levels[level]) for what, level in rows)


@dataclass(frozen=True, slots=True)
class Offer:
    """A pool and what its sharing system provides, described for a researcher."""

    pool: Pool
    title: str
    gives: str
    risks: str
    isolation: str
    isolation_levels: tuple[IsolationLevel, ...]
    cores: bool
    extras: str  # names of About.extra
    label: str  # of the amount
    examples: str
    beside: str


def amount_label(pool: Pool) -> str:
    labels = {
        "card": _("Cards"), "MiB": _("GPU memory (GiB)"), "percent": _("Share of a card (%)"), "replica": _("Shares"),
    }  # fmt: skip
    return labels.get(pool.unit, _("Amount"))


def offers(pools: Iterable[Pool]) -> list[Offer]:
    offered = []
    for pool in pools:
        system = about(pool)
        if system is None:
            continue
        offered.append(
            Offer(
                pool, _(system.title), _(system.gives), _(system.risks), _(system.isolation), isolation_levels(system),
                system.cores != "none", " ".join(system.extra), amount_label(pool), examples(pool),
                beside(pool),
            )
        )  # fmt: skip
    return offered


def compute_share(pool: Pool, units: int) -> int | None:
    """The percentage of compute that corresponds to `units` of memory; None if the system does not limit compute."""
    system = about(pool)
    if system is None or system.cores == "none" or not units:
        return None
    share = min(Fraction(100), Fraction(100 * units, pool.units_per_card))
    step = system.cores_step
    return min(100, -(-share.numerator // (share.denominator * step)) * step)
