"""The rule in docs/quota-rules-by-number.md that explains what a page shows: code on the page → number of the rule."""

from __future__ import annotations

from typing import Final

RULES: Final[dict[str, int]] = {
    # Subjects of pages.
    "guarantee": 1, "borrowing": 2, "lenders": 3, "windows": 4, "limits": 5, "policy": 13, "victims": 15, "notice": 17,
    "queued_again": 19, "recall": 20, "outside": 22, "evidence": 23, "budget": 24,
    # Decisions of the planner, and the first words of verdicts.
    "admit": 8, "reclaim": 10, "wait": 11, "impossible": 5, "withdraw": 12,
    "starts_own": 1, "starts_borrowing": 2, "starts_by": 9, "waits": 11, "cannot": 5,
    # States of workloads.
    "queued": 11, "recalled": 17, "stopping": 17,
    # Why a claim waits or is impossible, by the code of the reason (quotas/engine/reasons.py).
    "not_enough": 8, "over_borrow_limit": 2, "lent_out_returning": 14, "held_for": 11, "not_lent": 3, "fragmented": 8,
    "guarantee_kept_for": 11, "no_node_to_clear": 10,
    "user_cap": 5, "department_paused": 5, "over_budget": 24, "pool_short": 22, "no_such_profile": 5, "above_ceiling": 5,
    "not_preemptible": 14, "own_only": 5, "waiting_for_gang": 8, "backoff_until": 19, "cluster_unreachable": 22,
}  # fmt: skip
