"""The estimated start of a request that is not submitted yet. A worker computes it; the HTTP request returns the known estimate,
or BEING_MADE, after which the client repeats it in some seconds. For each pool group one question is computed at a time; others
are dropped until the client repeats them."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import replace

import structlog
from django.core.cache import cache
from django.utils import timezone

from portal.access import Actor
from portal.background.hints import wake
from portal.models import Department
from quotas.engine import types as e
from quotas.engine.what_if import Headline, with_claim
from quotas.models import PoolGroup
from quotas.planning.snapshot import load_snapshot
from workloads.estimates.forward import Estimate, NoEstimate
from workloads.estimates.keep import columns_of, corrected, corrections_of, played, traits_of, traits_of_live
from workloads.estimates.runtimes import Traits
from workloads.models import StartEstimate
from workloads.requests.request import WorkloadRequest
from workloads.requests.verdict import Verdict

ANSWER_LASTS, QUESTION_LASTS = 90, 15  # s
AT_MOST = 3.0  # s of computing
BEING_MADE, FAILED = "being_made", "failed"
Question = tuple[str, e.Claim, Traits]
log = structlog.get_logger(__name__)


def start_of(actor: Actor, department: Department, request: WorkloadRequest, verdict: Verdict) -> StartEstimate | None:
    """The estimated start; None if the request starts at once or never. If its `why` is BEING_MADE, call again in some
    seconds."""
    if verdict.headline not in {Headline.WAITS, Headline.STARTS_BY}:
        return None
    now, group = timezone.now(), request.pool.group
    traits = traits_of(
        actor.user.username if actor.user else None, department.slug, request.image.name, request.kind,
        request.units_per_pod, request.pods, request.pool.units_per_card,
    )  # fmt: skip
    key = _key(verdict.claim, traits)
    known = cache.get(f"start-{key}")
    if known is not None:
        return StartEstimate(**known)
    if cache.add(_question(group.pk), (key, verdict.claim, traits), QUESTION_LASTS):
        wake("workloads.estimate_asked", group=group.pk)
    return StartEstimate(made_at=now, why=BEING_MADE)


def answer(group: PoolGroup, *, now: dt.datetime) -> None:
    """Answers the pending question of a pool group, if there is one. If the estimate fails, the answer is that there is none:
    otherwise the client would wait for ever."""
    asked: Question | None = cache.get(_question(group.pk))
    if asked is None:
        return
    key, claim, traits = asked
    try:
        each = _estimated(group, claim, traits, now)
    except Exception:
        log.exception("starts.estimate_failed", group=group.pk, pool=claim.pool)
        each = NoEstimate(FAILED)
    cache.set(f"start-{key}", {"made_at": now, **columns_of(each)}, ANSWER_LASTS)
    cache.delete(_question(group.pk))


def _estimated(group: PoolGroup, claim: e.Claim, traits: Traits, now: dt.datetime) -> Estimate | NoEstimate:
    at = int(now.timestamp())
    claim = replace(claim, submitted_at=at, queued_at=at)
    snapshot = with_claim(load_snapshot(group, now=now), claim)
    among = {**traits_of_live(group), claim.id: traits}
    estimate = played(group, snapshot, among, now=now, only={claim.id}, seconds=AT_MOST)[claim.id]
    return corrected(estimate, corrections_of(group, now=now).get(claim.pool), now)


def _question(group: int) -> str:
    return f"start-question-{group}"


def _key(claim: e.Claim, traits: Traits) -> str:
    """A key of the request; requests with equal keys have the same estimate."""
    same = replace(claim, id=e.ClaimId("-"), submitted_at=0, queued_at=None)
    return hashlib.sha256(repr((same, traits)).encode()).hexdigest()
