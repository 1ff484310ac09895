"""The verdict on a request or workload: one of five headlines, then numbers; with the same sentences as on the pages."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework import serializers

from portal.access import Actor
from portal.api.base import serialize
from portal.models import Department
from quotas.engine.what_if import Headline
from quotas.models import Claim, ClaimState
from workloads.estimates.ask import start_of
from workloads.estimates.forward import CONFIDENCE
from workloads.estimates.words import is_range, start_lines
from workloads.idle import exemptions
from workloads.idle.names import idle_sentences
from workloads.idle.policies import Policies
from workloads.models import Attempt, StartEstimate, Workload
from workloads.requests.request import WorkloadRequest
from workloads.requests.verdict import verdict_of
from workloads.requests.what_you_get import offer_of
from workloads.status.attempts import estimate_of
from workloads.status.status_line import situation_of

HEADLINES = [headline.value for headline in Headline]
HEADLINE_OF = {"reclaim": Headline.STARTS_BY, "impossible": Headline.CANNOT}  # decision on a pending claim; else WAITS


class AlternativeOut(serializers.Serializer[Any]):
    """Another request that would start now."""

    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")
    units_per_pod = serializers.IntegerField()
    text = serializers.CharField()


class GivenOut(serializers.Serializer[Any]):
    """What the requested amount gives, what is charged for it, and how it is isolated."""

    gets = serializers.CharField(help_text="In words: half a T4, 7.5 GiB, not isolated.")
    charge = serializers.CharField()
    system = serializers.CharField()
    isolation = serializers.CharField()
    risks = serializers.CharField()
    memory = serializers.CharField(help_text="full | soft | none: whether it is kept from neighbours.")
    compute = serializers.CharField()
    faults = serializers.CharField()


class EstimateOut(serializers.ModelSerializer[StartEstimate]):
    """A simulation of the queue with runtimes of similar workloads: it starts between `low` and `high` with this `confidence`."""

    confidence = serializers.SerializerMethodField(
        help_text="0.8: in 80 of 100 cases. null: there is no estimate, or only `latest` is known."
    )
    why = serializers.CharField(
        help_text="Why there is none: runtimes_unknown, beyond_horizon (7 days), too_many in the queue, or failed; being_made: "
            "before submitting, ask again in some seconds; else empty."
    )  # fmt: skip

    class Meta:
        model = StartEstimate
        fields = ["low", "median", "high", "confidence", "latest", "basis", "why", "made_at"]
        extra_kwargs = {
            "low": {"help_text": "null: there is no estimate."},
            "high": {"help_text": "null beside a low: perhaps later than in 7 days."},
            "latest": {
                "help_text": "If everything runs to its maximum runtime and nobody comes first; null: it may start later even so."
            },
            "basis": {
                "help_text": "What the ended runs from which runtimes were learned have in common with those that run: "
                "user_and_image, user, department, kind, any; limit: only maximum runtimes are known; or empty."
            },
        }

    def get_confidence(self, estimate: StartEstimate) -> float | None:
        return CONFIDENCE if is_range(estimate) else None


class VerdictOut(serializers.Serializer[Any]):
    """For a request: what would happen. For a workload: what happens now; `headline` is null once it has ended."""

    headline = serializers.ChoiceField(HEADLINES, allow_null=True)
    title = serializers.CharField(help_text="One sentence.")
    lines = serializers.ListField(child=serializers.CharField(), help_text="The numbers, as sentences.")
    advice = serializers.ListField(
        child=serializers.CharField(), help_text="What to do about it, as sentences, beside the alternatives."
    )
    contract = serializers.CharField(help_text="What borrowing means.")
    idle_policy = serializers.ListField(
        child=serializers.CharField(), help_text="What happens to such work when it is idle, as sentences."
    )
    alternatives = AlternativeOut(many=True)
    by = serializers.DateTimeField(allow_null=True, help_text="It starts by then at the latest.")
    unit = serializers.CharField()
    own = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    largest = serializers.IntegerField(allow_null=True, help_text="The largest request that could ever run.")
    position = serializers.IntegerField(allow_null=True)
    estimate = EstimateOut(
        allow_null=True,
        help_text="When it will probably start; null where it starts now, or never. `lines` say it, too.",
    )
    given = GivenOut(allow_null=True)


def before_submitting(actor: Actor, department: Department, request: WorkloadRequest) -> dict[str, Any]:
    """The verdict on a request that is not submitted yet. Raises Forbidden, InvalidRequest, TokenUsedUp."""
    verdict = verdict_of(actor=actor, department=department, request=request)
    estimate = start_of(actor, department, request, verdict)
    answer = {
        "headline": verdict.headline.value,
        "title": verdict.title,
        "lines": [*verdict.lines, *(start_lines(estimate) if estimate else ())],
        "advice": verdict.advice,
        "contract": verdict.contract,
        "idle_policy": verdict.idle_policy,
        "alternatives": verdict.alternatives,
        "by": verdict.by,
        "unit": request.pool.unit,
        "own": verdict.facts.own,
        "borrowed": verdict.facts.borrowed,
        "largest": verdict.facts.largest,
        "position": verdict.facts.position or None,
        "estimate": estimate,
        "given": offer_json(request),
    }
    return dict(VerdictOut(answer).data)


def offer_json(request: WorkloadRequest) -> dict[str, Any] | None:
    """The fields of GivenOut for the request; None if no module implements the pool's sharing system."""
    offer = offer_of(request)
    if offer is None:
        return None
    levels = zip(("memory", "compute", "faults"), (each.level for each in offer.isolation_levels), strict=True)
    words = {name: getattr(offer, name) for name in ("gets", "charge", "system", "isolation", "risks")}
    return words | dict(levels)


def verdict_now(actor: Actor, workload: Workload, attempt: Attempt | None) -> dict[str, Any]:
    """The verdict on a workload: the sentences of its page, with the numbers of its last planning decision."""
    situation = situation_of(actor, workload, attempt)
    claim = attempt.claim if attempt else None
    waiting = claim is not None and claim.state == ClaimState.PENDING
    answer = {
        "headline": headline_of(claim),
        "title": situation.sentence,
        "lines": situation.details,
        "advice": situation.advice,
        "contract": "",
        "idle_policy": _idle_policy(workload),
        "alternatives": [],
        "by": claim.promised_at if claim and waiting else None,
        "unit": workload.pool.unit,
        "own": claim.own if claim else 0,
        "borrowed": claim.borrowed if claim else 0,
        "largest": None,
        "position": claim.position if claim and waiting else None,
        "estimate": estimate_of(workload),
        "given": None,
    }
    return serialize(VerdictOut, answer, {})


def _idle_policy(workload: Workload) -> list[str]:
    if workload.is_final:
        return []
    rule = Policies().effective(workload.pool_id, workload.department_id, workload.kind)
    exemption = exemptions.of_workload(workload, timezone.now()) if rule else None
    return idle_sentences(workload.kind, rule, exemption)


def headline_of(claim: Claim | None) -> str | None:
    if claim is None or claim.state == ClaimState.RELEASED:
        return None
    if claim.state == ClaimState.PENDING:
        return HEADLINE_OF.get(claim.decision, Headline.WAITS).value
    return (Headline.STARTS_BORROWING if claim.borrowed else Headline.STARTS_OWN).value
