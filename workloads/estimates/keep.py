"""Estimates of starts in the database: recomputed while workloads wait, and compared with the real starts."""

from __future__ import annotations

import datetime as dt
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from django.db.models import DurationField, F, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from quotas.engine import types as e
from quotas.models import Claim, ClaimState, PoolGroup
from quotas.planning.snapshot import load_snapshot, moment
from workloads.estimates.calibrate import Correction, Past, correction_of
from workloads.estimates.forward import HORIZON, Estimate, Estimates, NoEstimate, estimates
from workloads.estimates.outcomes import Outcome
from workloads.estimates.runtimes import Runtimes, Traits, size_of
from workloads.estimates.words import is_range
from workloads.models import Attempt, StartEstimate
from workloads.replay.demand import Job
from workloads.replay.history import Terms, Windows, demand_of

HISTORY = dt.timedelta(days=90)
MOST_RUNS = 20_000
CAME = dt.timedelta(days=15)  # past submissions that may be repeated
REREAD = dt.timedelta(minutes=10)  # after which the past is read again; a few minutes more change no estimate
AT_MOST = 8.0  # s of computing for a pool group
AFRESH = dt.timedelta(seconds=45)
COMPARED = dt.timedelta(days=30)
LEARNED = dt.timedelta(days=14)  # past estimates that correct new ones; older ones were under another load
TIMES = ("low", "median", "high")
SHOWN = (*TIMES, "latest", "basis", "why")
TRAITS = (
    "author__username",
    "department__slug",
    "image__name",
    "kind",
    "units_per_pod",
    "pods",
    "pool__units_per_card",
)
log = structlog.get_logger(__name__)


def estimate_all(*, now: dt.datetime) -> None:
    """Estimates the starts in every pool group with a waiting workload whose estimate is missing or old."""
    for group in PoolGroup.objects.all():
        waiting = _waiting(group)
        oldest = waiting.aggregate(at=Min(Coalesce("start_estimate__made_at", now - 2 * AFRESH)))["at"]
        if oldest is not None and oldest <= now - AFRESH:
            _estimate(group, now)


def _waiting(group: PoolGroup) -> QuerySet[Attempt]:
    return Attempt.objects.filter(
        workload__pool__group=group, finished_at=None, claim__state=ClaimState.PENDING, claim__released_at=None
    )


def _estimate(group: PoolGroup, now: dt.datetime) -> None:
    began = time.monotonic()
    by_claim = played(group, load_snapshot(group, now=now), traits_of_live(group), now=now)
    corrections = corrections_of(group, now=now)
    _write(group, by_claim, corrections, now)
    log.info("starts.estimated", group=group.pk, claims=len(by_claim), took_ms=round(1000 * (time.monotonic() - began)))


def played(
    group: PoolGroup,
    snapshot: e.Snapshot,
    traits: Mapping[e.ClaimId, Traits],
    *,
    now: dt.datetime,
    only: Collection[e.ClaimId] | None = None,
    seconds: float = AT_MOST,
) -> Estimates:
    """Estimates for the pending claims of the snapshot, or only for those in `only`, within `seconds` of computing."""
    began, past, terms = time.monotonic(), _seen_by(group, now), Terms.of(group)
    recalls = Claim.objects.filter(pool__group=group, pods=0, released_at=None).only("public_id", "until")
    return estimates(
        snapshot,
        traits,
        past.runtimes,
        past.jobs,
        lambda: time.monotonic() - began > seconds,
        ends={e.ClaimId(each.public_id): int(each.until.timestamp()) for each in recalls if each.until},
        calendar=lambda: _calendar(terms, snapshot, now),
        only=only,
    )


def _calendar(terms: Terms, snapshot: e.Snapshot, now: dt.datetime) -> Windows | None:
    """The lending windows of the next days; pauses and budgets stay as in the snapshot."""
    calendar = terms.calendar(now, now + dt.timedelta(seconds=HORIZON))
    if calendar is None:
        return None
    known = {each.id: each for each in snapshot.departments}

    def changed(later: e.Snapshot) -> e.Snapshot:
        departments = (
            replace(d, paused=known[d.id].paused, budgets=known[d.id].budgets)
            for d in later.departments
            if d.id in known
        )
        return replace(later, departments=tuple(departments))

    return replace(calendar, changed=changed)


@dataclass(frozen=True, slots=True)
class Seen:
    """The past of a pool group: how long workloads ran, and the jobs of the last days."""

    read_at: dt.datetime
    runtimes: Runtimes
    jobs: tuple[Job, ...]


_seen: dict[int, Seen] = {}  # by the group's primary key, in each process; entries are replaced, never changed


def _seen_by(group: PoolGroup, now: dt.datetime) -> Seen:
    past = _seen.get(group.pk)
    if past is None or not dt.timedelta(0) <= now - past.read_at < REREAD:
        came, _unknown = demand_of(group, now - CAME, now)
        past = _seen[group.pk] = Seen(now, learned(group, now=now), came.jobs)
    return past


def traits_of_live(group: PoolGroup) -> dict[e.ClaimId, Traits]:
    live = Attempt.objects.filter(workload__pool__group=group, finished_at=None)
    fields = [f"workload__{name}" for name in TRAITS]
    return {e.ClaimId(id): traits_of(*of) for id, *of in live.values_list("claim__public_id", *fields)}


def traits_of(
    user: str | None, department: str, image: str, kind: str, units: int, pods: int, card: int | None
) -> Traits:
    return Traits(user or "", department, image, kind, size_of(units * pods / (card or 1)))


def learned(group: PoolGroup, *, now: dt.datetime) -> Runtimes:
    """Runtimes learned from the group's workloads that ended in the last HISTORY, in all their attempts together, and from
    running ones, without which long runtimes would be missing."""
    rows = (
        Attempt.objects.filter(
            workload__pool__group=group, workload__finished_at__gt=now - HISTORY, started_at__isnull=False,
            finished_at__isnull=False,
        )
        .values("workload", *(f"workload__{name}" for name in TRAITS))
        .annotate(ran=Sum(F("finished_at") - F("started_at"), output_field=DurationField()), last=Max("finished_at"))
        .order_by("-last")[:MOST_RUNS]
    )  # fmt: skip
    runtimes = Runtimes()
    for row in rows:
        runtimes.learn(
            traits_of(*(row[f"workload__{name}"] for name in TRAITS)), max(1, round(row["ran"].total_seconds()))
        )
    running = Attempt.objects.filter(workload__pool__group=group, started_at__lt=now, finished_at=None)
    for started_at, *of in running.values_list("started_at", *(f"workload__{name}" for name in TRAITS)):
        runtimes.learn(traits_of(*of), max(1, round((now - started_at).total_seconds())), over=False)
    return runtimes


def corrections_of(group: PoolGroup, *, now: dt.datetime) -> dict[str, Correction]:
    """Pool → correction, from first estimates of the last LEARNED whose attempt has started or waits longer than its high end."""
    rows = StartEstimate.objects.filter(
        attempt__workload__pool__group=group, first_made_at__gt=now - LEARNED, first_played__isnull=False
    ).values_list(
        "attempt__workload__pool__slug", "first_made_at", "first_played", "attempt__admitted_at", "attempt__finished_at"
    )
    pasts: dict[str, list[Past]] = defaultdict(list)
    for pool, made, played_then, admitted, finished in rows:
        if made is None or played_then is None:
            continue
        low, middle, high = played_then
        waited = round(((admitted or now) - made).total_seconds())
        late = finished is None and waited > (HORIZON if high is None else high)
        if admitted is not None or late:
            pasts[pool].append(Past(int(made.timestamp()) // 3600, low, middle, high, waited))
    return {pool: correction_of(past) for pool, past in pasts.items()}


def corrected(each: Estimate | NoEstimate, correction: Correction | None, now: dt.datetime) -> Estimate | NoEstimate:
    """The estimate with the correction applied, as it is shown."""
    return each if isinstance(each, NoEstimate) or correction is None else correction.of(each, int(now.timestamp()))


def _write(group: PoolGroup, by_claim: Estimates, corrections: Mapping[str, Correction], now: dt.datetime) -> None:
    """Stores the estimates of claims that still wait. The first estimate with a range is kept besides the last one."""
    rows = {attempt.claim.public_id: attempt for attempt in _waiting(group).select_related("claim__pool")}
    new = [
        _row(rows[id], each, corrected(each, corrections.get(rows[id].claim.pool.slug), now), now)
        for id, each in by_claim.items()
        if id in rows
    ]
    StartEstimate.objects.bulk_create(
        new, update_conflicts=True, unique_fields=["attempt"], update_fields=["made_at", "played", *SHOWN]
    )
    first = {f"first_{name}": F(name) for name in ("made_at", "played", *TIMES)}
    ranges = [row.attempt for row in new if is_range(row)]
    StartEstimate.objects.filter(attempt__in=ranges, first_made_at=None).update(**first)


def _row(attempt: Attempt, raw: Estimate | NoEstimate, each: Estimate | NoEstimate, now: dt.datetime) -> StartEstimate:
    at = int(now.timestamp())
    times = None
    if isinstance(raw, Estimate):
        times = [None if when is None else max(0, when - at) for when in (raw.low, raw.median, raw.high)]
    return StartEstimate(attempt=attempt, made_at=now, played=times, **columns_of(each))


def columns_of(each: Estimate | NoEstimate) -> dict[str, Any]:
    """The columns that are shown, by the names of SHOWN."""
    if isinstance(each, NoEstimate):
        return {"why": each.why}
    at = {name: getattr(each, name) for name in (*TIMES, "latest")}
    return {"basis": each.basis or "", **{name: None if when is None else moment(when) for name, when in at.items()}}


# Outcomes ------------------------------------------------------------------------------------------------------------


def outcomes(*, now: dt.datetime) -> dict[str, list[Outcome]]:
    """Name of the pool → outcomes of the first estimates of the last COMPARED, if the attempt has started or still waits after
    its range."""
    overdue = Q(attempt__admitted_at=None, attempt__finished_at=None, first_high__lt=now - dt.timedelta(seconds=60))
    rows = StartEstimate.objects.filter(
        overdue | Q(attempt__admitted_at__isnull=False), first_made_at__gt=now - COMPARED
    ).values_list(
        "attempt__workload__pool__name",
        "first_made_at",
        "first_low",
        "first_median",
        "first_high",
        "attempt__admitted_at",
    )
    by_pool: dict[str, list[Outcome]] = defaultdict(list)
    for pool, made, low, middle, high, started in rows:
        if made is not None and low is not None and middle is not None:  # always true; for the types
            by_pool[pool].append(Outcome(made, low, middle, high, started or now))
    return {pool: by_pool[pool] for pool in sorted(by_pool)}
