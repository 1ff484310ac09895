"""The verdict: one of five headlines, then numbers. The same sentences stand on the pages and in the command line."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.access import Actor
from portal.models import Department
from quotas.engine.verdict import Headline
from workloads.requests import WorkloadRequest
from workloads.verdicts import verdict_of

HEADLINES = [headline.value for headline in Headline]


class AlternativeOut(serializers.Serializer[Any]):
    """Another request that would start now."""

    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")
    units_per_pod = serializers.IntegerField()
    text = serializers.CharField()


class VerdictOut(serializers.Serializer[Any]):
    headline = serializers.ChoiceField(HEADLINES)
    title = serializers.CharField()
    lines = serializers.ListField(child=serializers.CharField())
    contract = serializers.CharField(help_text="What borrowing means.")
    alternatives = AlternativeOut(many=True)
    by = serializers.DateTimeField(allow_null=True, help_text="It starts by then at the latest.")
    unit = serializers.CharField()
    own = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    largest = serializers.IntegerField(allow_null=True, help_text="The largest request that could ever run.")
    position = serializers.IntegerField(allow_null=True)


def before_submitting(actor: Actor, department: Department, request: WorkloadRequest) -> dict[str, Any]:
    """Raises Forbidden, InvalidRequest."""
    found = verdict_of(actor=actor, department=department, request=request)
    told = {
        "headline": found.headline.value,
        "title": found.title,
        "lines": found.lines,
        "contract": found.contract,
        "alternatives": found.alternatives,
        "by": found.by,
        "unit": request.pool.unit,
        "own": found.facts.own,
        "borrowed": found.facts.borrowed,
        "largest": found.facts.largest,
        "position": found.facts.position or None,
    }
    return dict(VerdictOut(told).data)
