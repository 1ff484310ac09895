"""Workloads with their attempts and claims, read in a constant number of queries."""

from __future__ import annotations

import datetime as dt

from django.db.models import Prefetch, QuerySet
from django.utils import timezone

from workloads.models import Attempt, IdleSpell, StartEstimate, State, Workload

LATELY = dt.timedelta(minutes=15)
RELATED = ("department", "author", "pool", "external", "token__holder")


def with_attempts(rows: QuerySet[Workload], *related: str) -> QuerySet[Workload]:
    """`rows` with their attempts, oldest first, each with its claim; `related`: relations to load as well."""
    spells = Prefetch("idle_spells", IdleSpell.objects.filter(ended_at=None).select_related("kept_by"), "live_spells")
    attempts = Attempt.objects.select_related("claim", "start_estimate").order_by("number").prefetch_related(spells)
    return rows.select_related(*RELATED, *related).prefetch_related(
        Prefetch("attempts", queryset=attempts, to_attr="known_attempts")
    )


def known_attempts(workload: Workload) -> list[Attempt]:
    """The workload's attempts, loaded with it or now."""
    attempts: list[Attempt] | None = getattr(workload, "known_attempts", None)
    if attempts is None:
        attempts = list(workload.attempts.select_related("claim", "start_estimate").order_by("number"))
        workload.known_attempts = attempts  # type: ignore[attr-defined]
    return attempts


def estimate_of(workload: Workload) -> StartEstimate | None:
    """The estimated start of a queued workload; None if there is no recent estimate, or no planning pass has decided yet."""
    attempts = known_attempts(workload) if workload.state == State.QUEUED else []
    if not attempts or not attempts[-1].claim.position:
        return None
    estimate: StartEstimate | None = getattr(attempts[-1], "start_estimate", None)
    return estimate if estimate is not None and estimate.made_at > timezone.now() - LATELY else None


def idle_spell(workload: Workload) -> IdleSpell | None:
    """The live idle spell of a running workload, loaded with its attempts or now."""
    attempts = known_attempts(workload) if workload.state == State.RUNNING else []
    if not attempts:
        return None
    spells: list[IdleSpell] | None = getattr(attempts[-1], "live_spells", None)
    if spells is None:
        spells = list(attempts[-1].idle_spells.filter(ended_at=None).select_related("kept_by"))
        attempts[-1].live_spells = spells  # type: ignore[attr-defined]
    return spells[0] if spells else None
