"""Workloads with their attempts and claims, read in a constant number of queries."""

from __future__ import annotations

from django.db.models import Prefetch, QuerySet

from workloads.models import Attempt, Workload

RELATED = ("department", "author", "pool")


def with_attempts(rows: QuerySet[Workload], *related: str) -> QuerySet[Workload]:
    """`rows` with their attempts, oldest first, each with its claim; `related`: relations to load as well."""
    attempts = Attempt.objects.select_related("claim").order_by("number")
    return rows.select_related(*RELATED, *related).prefetch_related(
        Prefetch("attempts", queryset=attempts, to_attr="known_attempts")
    )


def known_attempts(workload: Workload) -> list[Attempt]:
    """The workload's attempts, loaded with it or now."""
    attempts: list[Attempt] | None = getattr(workload, "known_attempts", None)
    if attempts is None:
        attempts = list(workload.attempts.select_related("claim").order_by("number"))
        workload.known_attempts = attempts  # type: ignore[attr-defined]
    return attempts
