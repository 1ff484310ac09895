"""`usage/`: what was used, lent and left idle in a period, and what it cost."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api.base import ApiView
from portal.text.zones import zone_of
from quotas.api.quotas import POOL
from quotas.reports.asked import GROUPS, KINDS, RANGES, asked_of
from quotas.reports.queries import Report, report
from quotas.reports.sums import Row, hours
from quotas.reports.words import FIGURES

MOST = 5000
"""Rows of one answer."""


class UnitSecondsOut(serializers.Serializer[Any]):
    """Whole seconds times units of the pool, which add up exactly."""

    own = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    lent = serializers.IntegerField(allow_null=True)
    guaranteed = serializers.IntegerField(allow_null=True)
    idle = serializers.IntegerField(allow_null=True)
    measured = serializers.IntegerField(allow_null=True)
    covered = serializers.IntegerField(allow_null=True)


class UsageReportRowOut(serializers.Serializer[Any]):
    """Hours of cards, slices or replicas; of a GiB if `unit` is MiB; of a whole card if it is percent. null: not applicable, or
    unknown."""

    department = serializers.CharField(required=False, help_text="Where it is grouped by it.")
    person = serializers.CharField(required=False, help_text="Where it is grouped by it; empty: unknown.")
    pool = serializers.CharField(required=False, help_text="Where it is grouped by it.")
    kind = serializers.CharField(required=False, help_text="Where it is grouped by it; empty: an owner's recall.")
    unit = serializers.CharField(help_text="Of the pools; amounts of different units are never added up.")
    own = serializers.FloatField(help_text="Hours used inside the own guarantee.")
    borrowed = serializers.FloatField()
    lent = serializers.FloatField(allow_null=True)
    guaranteed = serializers.FloatField(allow_null=True)
    idle = serializers.FloatField(allow_null=True, help_text="Guaranteed, and neither used nor lent.")
    measured = serializers.FloatField(
        allow_null=True, help_text="In which cards computed, of `covered`; null: not measured."
    )
    covered = serializers.FloatField(allow_null=True, help_text="Allocated, and measured.")
    unit_seconds = UnitSecondsOut()
    starts = serializers.IntegerField(help_text="Attempts that started in this time.")
    wait_p50 = serializers.FloatField(allow_null=True, help_text="s, from queued to started.")
    wait_p95 = serializers.FloatField(allow_null=True, help_text="s")
    recalls_suffered = serializers.IntegerField(help_text="Attempts that were recalled.")
    recalls_caused = serializers.IntegerField(help_text="Attempts that were recalled for these.")
    cost = serializers.DecimalField(20, 2, allow_null=True, help_text="In `currency`; null: no price.")


class UsageReportOut(serializers.Serializer[Any]):
    start = serializers.DateTimeField(default_timezone=dt.UTC)
    end = serializers.DateTimeField(default_timezone=dt.UTC, help_text="Not included; never later than now.")
    zone = serializers.CharField(help_text="In which days begin.")
    group = serializers.ListField(child=serializers.CharField())
    currency = serializers.CharField()
    totals = UsageReportRowOut(many=True, help_text="One for each unit, over all rows.")
    results = UsageReportRowOut(many=True)
    left_out = serializers.IntegerField(help_text="Rows that are in the totals but not in this answer.")


TIME = "a day such as 2026-01-31 in the reader's time zone, or a time with its zone such as 2026-01-31T18:00:00Z"
PARAMETERS = [
    OpenApiParameter("range", str, enum=list(RANGES), default="this_month",
                     description="A period by name, instead of `from` and `until`; by default this month."),
    OpenApiParameter("from", str, description=f"When the report begins, together with `until`: {TIME}."),
    OpenApiParameter("until", str, description=f"When the report ends, together with `from`: {TIME}; a day is included."),
    OpenApiParameter("group", str, default="pool",
                     description=f"What has a row of its own: one or several of `{'`, `'.join(GROUPS)}`, separated by"
                     " commas; by default `pool`."),
    OpenApiParameter("department", str, description="Only work of this department and its teams, by its `id`."),
    OpenApiParameter("person", str, description="Only work of this person or service account, by user name."),
    POOL,
    OpenApiParameter("kind", str, enum=list(KINDS), description="Only workloads of this kind."),
    OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": 500},
                     description=f"Largest number of rows, 1 to {MOST}; by default 500. Totals count all rows."),
]  # fmt: skip


class UsageReport(ApiView):
    """Your own work, and all work in departments that you own; for operators, all work. The figures are those of the page
    *Usage*."""

    @extend_schema(operation_id="usage_report", responses=UsageReportOut, parameters=PARAMETERS)
    def get(self, request: Request) -> Response:
        limit = self.number("limit", 500, MOST) or 500
        chosen = self.user.time_zone  # requests with a token have no time zone of their own
        with timezone.override(zone_of(chosen) if chosen else timezone.get_current_timezone()):
            asked = asked_of(self.actor, {name: str(value) for name, value in request.query_params.items()})
            answer = _answer(report(self.actor, asked), limit)
        return Response(UsageReportOut(answer).data)


def _answer(result: Report, limit: int) -> dict[str, Any]:
    by = result.asked.by
    return {
        "start": result.asked.start, "end": result.asked.end, "zone": timezone.get_current_timezone_name(), "group": by,
        "currency": settings.CURRENCY, "totals": [_row(row, ()) for row in result.totals],
        "results": [_row(row, by) for row in result.rows[:limit]], "left_out": max(0, len(result.rows) - limit),
    }  # fmt: skip


def _row(row: Row, by: tuple[str, ...]) -> dict[str, Any]:
    figures = {name: getattr(row, name) for name in FIGURES}
    in_hours = {name: None if value is None else float(hours(value, row.unit)) for name, value in figures.items()}
    return {
        **dict(zip(by, row.key, strict=True)), "unit": row.unit, **in_hours, "unit_seconds": figures,
        "starts": row.starts, "wait_p50": row.median_wait, "wait_p95": row.long_wait,
        "recalls_suffered": row.suffered, "recalls_caused": row.caused, "cost": row.cost,
    }  # fmt: skip
