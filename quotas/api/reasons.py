"""Reasons and claims as far as one reader may see them: ids of other departments' workloads are left out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext
from rest_framework import serializers

from portal.access import Actor
from quotas.engine import explain
from quotas.engine.reasons import TIMES
from quotas.engine.snapshot_json import reason_from_json
from quotas.models import Claim, Pool
from quotas.wording import Sentences

REASONS = {
    "type": "array",
    "description": "Why not now, as data and as a sentence, and what can be done: see docs/quota-rules-reference.md, Reasons.",
    "items": {
        "type": "object",
        "required": ["code", "text", "advice"],
        "properties": {
            "code": {"type": "string"},
            "text": {"type": "string", "description": "One sentence with the numbers."},
            "advice": {"type": "string", "description": "What you can do about it, in one sentence."},
        },
        "additionalProperties": True,
    },
}


class Reader:
    """What one reader may see of the claims that answers mention, read with one query."""

    def __init__(self, actor: Actor, named: Iterable[str] = ()) -> None:
        self.actor, self.named = actor, set(named)
        self.words: dict[int, explain.Reader] = {}  # by pool
        rows = Claim.objects.filter(public_id__in=self.named).select_related("department", "pool") if self.named else ()
        self.claims = {claim.public_id: claim for claim in rows}

    @property
    def seen(self) -> frozenset[int]:
        return self.actor.seen

    def side(self, claim: Claim) -> dict[str, Any]:
        """The claim's department and amount; and its workload, if the reader may see the department."""
        known = claim.department_id in self.seen
        return {
            "department": claim.department.slug,
            "units": claim.units,
            "unit": claim.pool.unit,
            "workload": claim.workload or None if known else None,
            "name": claim.name if known else None,
        }

    def sides(self, ids: Iterable[str]) -> list[dict[str, Any]]:
        return [self.side(self.claims[each]) for each in ids if each in self.claims]

    def reasons(self, reasons: Iterable[dict[str, Any]], pool: Pool) -> list[dict[str, Any]]:
        return [self.reason(reason, pool) for reason in reasons]

    def reason(self, reason: dict[str, Any], pool: Pool) -> dict[str, Any]:
        words = self.words.get(pool.pk) or Sentences(self.actor, self.named).reader(pool)
        self.words[pool.pk] = words
        read = reason_from_json(reason)
        answer: dict[str, Any] = {
            "text": explain.sentence(read, gettext, words),
            "advice": explain.advice(read, gettext, words),
        }
        for name, value in reason.items():
            if name in TIMES and value is not None:  # RFC 3339 here
                answer[name] = dt.datetime.fromtimestamp(value, tz=dt.UTC)
            elif name == "victims":
                answer[name] = self.sides(value)
            elif name == "moves":
                answer[name] = [{**move, "claim": next(iter(self.sides([move["claim"]])), None)} for move in value]
            elif name == "claim":
                answer[name] = next(iter(self.sides([value])), None)
            else:
                answer[name] = value
        return answer


class SideOut(serializers.Serializer[Any]):
    """One claim as far as the reader may see it."""

    department = serializers.CharField()
    units = serializers.IntegerField()
    unit = serializers.CharField()
    workload = serializers.CharField(allow_null=True, help_text="Only in your own departments.")
    name = serializers.CharField(allow_null=True, help_text="Only in your own departments.")
