"""The verdict: one of five headlines, then numbers. The same object before submitting and on the workload itself."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.access import Actor
from portal.models import Department
from workloads import verdicts
from workloads.requests import WorkloadRequest


class VerdictOut(serializers.Serializer[Any]):
    decision = serializers.CharField(help_text="admit, reclaim, wait or impossible")
    headline = serializers.CharField()
    sentences = serializers.ListField(child=serializers.CharField())


def verdict_of(*, actor: Actor, department: Department, request: WorkloadRequest) -> dict[str, Any]:
    found = verdicts.verdict_of(actor=actor, department=department, request=request)
    return dict(VerdictOut(found).data)
