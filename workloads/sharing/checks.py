"""Checks common to all systems, based on their ABOUT, and the charge of a request."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from quotas.engine.units import compute_units
from workloads.sharing.api import N_, NONE, About, Problem, Request

# A container that sets these gets cards that it was not given, or escapes its limit. NVIDIA's container toolkit mounts
# devices by many of its variables (VISIBLE_DEVICES, MIG_CONFIG_DEVICES, IMEX_CHANNELS, GDS, …) and gets new ones, so all of
# them are reserved. LD_PRELOAD and LD_AUDIT load before the libraries by which some systems enforce limits; they are reserved
# everywhere, because a job may be run again in any pool.
RESERVED_ENV = frozenset({"NVIDIA_*", "CUDA_VISIBLE_DEVICES", "CUDA_DISABLE_CONTROL", "LD_PRELOAD", "LD_AUDIT"})
FREE_ENV = frozenset({"NVIDIA_TF32_OVERRIDE"})  # only how CUDA's libraries round
# Variables set in an image mount devices too, so the pod overrides them with its own. Not among them are
# NVIDIA_VISIBLE_DEVICES, which device plugins set, and variables that have nothing to do with devices.
NOTHING_MORE = {
    f"NVIDIA_{name}": ""
    for name in ("MIG_CONFIG_DEVICES", "MIG_MONITOR_DEVICES", "IMEX_CHANNELS", "GDS", "GDRCOPY", "MOFED", "NVSWITCH")
}


def common(request: Request, about: About, *, step: int | None = None) -> list[Problem]:
    """The problems of a request. `step`: what its units must be a multiple of, if the cluster's settings differ from ABOUT."""
    return [
        *reserved_env(request, about),
        *_amount(request, about, step or about.step),
        *_cores(request, about),
        *_extra(request, about),
        *peers(request, about),
    ]


def reserved_env(request: Request, about: About) -> Iterator[Problem]:
    patterns = RESERVED_ENV | about.reserved
    names = (name for name in request.env if name not in FREE_ENV)
    for name in sorted(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)):
        message = N_("%(name)s is reserved: it could change which cards the workload sees or how much of them.")
        yield Problem("env", "reserved_variable", message, {"name": name})


def _amount(request: Request, about: About, step: int) -> Iterator[Problem]:
    units, card = request.units, request.units_per_card
    if units < 1:
        yield Problem("units_per_pod", "too_little", N_("Request 1 or more."), {"asked": units})
    elif units % step:
        message = N_("The amount must be a multiple of %(step)s %(unit)s; %(asked)s is not.")
        yield Problem("units_per_pod", "not_a_multiple", message, {"step": step, "asked": units, "unit": about.unit})
    elif about.most is not None and units > about.most:
        message = N_("Request at most %(most)s: more shares do not give more of the card.")
        yield Problem("units_per_pod", "too_many", message, {"most": about.most, "asked": units})
    elif card and about.unit != "card" and units > card and not about.several:
        message = N_("A card has %(most)s %(unit)s and a pod gets part of one card: %(asked)s is too much.")
        numbers = {"most": card, "asked": units, "unit": about.unit}
        yield Problem("units_per_pod", "one_card", message, numbers)
    elif card and about.unit != "card" and units > card and units % card:
        message = N_(
            "Above one card, only whole cards are possible: request a multiple of %(card)s %(unit)s, not %(asked)s."
        )
        yield Problem("units_per_pod", "whole_cards", message, {"card": card, "asked": units, "unit": about.unit})


def _cores(request: Request, about: About) -> Iterator[Problem]:
    cores, step = request.cores, about.cores_step
    if cores is None:
        if about.cores == "must":
            message = N_("Enter the share of the card's compute, in percent.")
            yield Problem("cores_per_pod", "cores_missing", message, {"least": step, "most": 100})
    elif about.cores == NONE:
        message = N_("Compute cannot be limited here. Leave it empty.")
        yield Problem("cores_per_pod", "no_cores", message, {"asked": cores})
    elif not step <= cores <= 100 or cores % step:
        message = N_(
            "Enter %(least)s to 100 percent of a card's compute, in steps of %(least)s; %(asked)s is not valid."
        )
        yield Problem("cores_per_pod", "cores_out_of_range", message, {"least": step, "most": 100, "asked": cores})
    elif request.cards > 1 and cores != 100:
        message = N_("Above one card, only whole cards are possible: 100 percent of each, not %(asked)s.")
        yield Problem("cores_per_pod", "whole_cards", message, {"asked": cores})


def _extra(request: Request, about: About) -> Iterator[Problem]:
    for name in sorted(set(request.extra) - set(about.extra)):
        message = N_("%(name)s cannot be requested here.")
        yield Problem("extra", "unknown_option", message, {"name": name[:60]})


def peers(request: Request, about: About) -> Iterator[Problem]:
    if request.pods > 1 and request.peers and not about.peers:
        message = N_(
            "Pods on parts of cards cannot work together (NCCL does not allow two ranks on one card): "
            "choose whole cards."
        )
        yield Problem("pods", "no_peers", message, {"pods": request.pods})


def charge(request: Request, about: About) -> int:
    """Units that one pod is charged: the larger of its shares of memory and of compute, rounded up."""
    card, cores = request.units_per_card, request.cores
    if about.unit in ("card", "slice", "replica") or not card or not cores:
        return request.units
    return max(request.units, compute_units(cores * request.cards, card, request.cores_per_card))
