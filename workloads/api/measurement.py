"""`clusters/{c}/metrics/`: the Prometheus that measures a cluster; `workloads/{id}/usage/`: a workload's measured use."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible
from portal.api.base import ApiView, FreeText, Strict
from portal.errors import N_, Invalid
from portal.text.numbers import natural
from quotas.models import Cluster
from workloads.api.resources import workload_for
from workloads.measurement import sources
from workloads.measurement.history import STEPS, points_of, source_for
from workloads.measurement.series import EXPORTERS
from workloads.models import MetricsAuth, MetricsSource


class SourceIn(Strict):
    url = serializers.CharField(max_length=500, help_text="http or https; may be inside the cluster.")
    auth = serializers.ChoiceField(MetricsAuth.values, default=MetricsAuth.NONE.value)
    username = serializers.CharField(max_length=200, default="", allow_blank=True, help_text="With auth basic.")
    secret = FreeText(
        required=False,
        max_length=8000,
        help_text="Token or password; without it the stored one stays. Never given out.",
    )
    ca = FreeText(default="", allow_blank=True, max_length=100_000, help_text="PEM; empty: the system's certificates.")
    exporters = serializers.ListField(
        child=serializers.ChoiceField(EXPORTERS), default=list(EXPORTERS), min_length=1, max_length=len(EXPORTERS)
    )
    selector = serializers.CharField(
        max_length=300, default="", allow_blank=True, help_text='Label matchers for every query: cluster="a".'
    )


class SourceOut(serializers.ModelSerializer[MetricsSource]):
    exporters = serializers.ListField(child=serializers.CharField())
    failure = serializers.SerializerMethodField(help_text="Why the last try failed; empty while it works.")

    class Meta:
        model = MetricsSource
        fields = [
            "url", "auth", "username", "ca", "exporters", "selector", "measured_at", "ranks", "gpu_ranks", "failing_since",
            "failure",
        ]  # fmt: skip

    def get_failure(self, source: MetricsSource) -> str:
        return sources.failure_text(source.failure)


class FoundMetricOut(serializers.Serializer[Any]):
    exporter = serializers.CharField()
    metric = serializers.CharField()
    series = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())
    age = serializers.FloatField(allow_null=True, help_text="Seconds since the newest sample; null: there is none.")


class FoundOut(serializers.Serializer[Any]):
    metrics = FoundMetricOut(many=True)
    pods = serializers.IntegerField(help_text="Pods of the portal that GPU series name.")
    silent = serializers.ListField(child=serializers.CharField(), help_text="GPU nodes without GPU series.")


def cluster_for(view: ApiView, name: str) -> Cluster:
    """The cluster of this name, for operators. Raises NotVisible."""
    view.actor.require_operator()
    row = Cluster.objects.filter(name=name).first()
    if row is None:
        raise NotVisible
    return row


class SourceView(ApiView):
    """For operators. Settings are tested before they are stored."""

    @extend_schema(operation_id="cluster_metrics_read", responses=SourceOut)
    def get(self, request: Request, cluster: str) -> Response:
        source = sources.source_of(cluster_for(self, cluster))
        return Response(SourceOut(source or MetricsSource(exporters=[])).data)

    @extend_schema(operation_id="cluster_metrics_set", request=SourceIn, responses=SourceOut)
    def put(self, request: Request, cluster: str) -> Response:
        row = cluster_for(self, cluster)
        wish = sources.Wish(**self.read(SourceIn))
        return Response(SourceOut(sources.set_source(actor=self.actor, cluster=row, wish=wish)).data)

    @extend_schema(operation_id="cluster_metrics_remove", responses={204: None})
    def delete(self, request: Request, cluster: str) -> Response:
        sources.remove_source(actor=self.actor, cluster=cluster_for(self, cluster))
        return Response(status=204)


class SourceTest(ApiView):
    """What the connected Prometheus has: which series, of which nodes, and how recent."""

    without_body = frozenset({"post"})

    @extend_schema(operation_id="cluster_metrics_test", request=None, responses=FoundOut)
    def post(self, request: Request, cluster: str) -> Response:
        return Response(FoundOut(sources.try_source(actor=self.actor, cluster=cluster_for(self, cluster))).data)


MOST_POINTS = 20_000
"""The most in one response: a day in steps of five minutes for 69 ranks, or a month in hours for 27."""
DAY = dt.timedelta(days=1)


class PointOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField(help_text="Begin of the step.")
    gpu = serializers.FloatField(allow_null=True, help_text="Share of time in which its cards computed, 0 to 1.")
    gpu_mib = serializers.IntegerField(allow_null=True, help_text="On all its cards together.")
    watts = serializers.IntegerField(allow_null=True, help_text="Of all its cards together.")
    cpu_milli = serializers.IntegerField(allow_null=True)
    memory_mib = serializers.IntegerField(allow_null=True)
    cards = serializers.IntegerField(help_text="Cards or MIG instances that were measured.")


class RankUseOut(serializers.Serializer[Any]):
    rank = serializers.IntegerField()
    points = PointOut(many=True)


class MeasuredUseOut(serializers.Serializer[Any]):
    since = serializers.DateTimeField(help_text="As asked for.")
    until = serializers.DateTimeField()
    step = serializers.IntegerField(help_text="Seconds.")
    measured_at = serializers.DateTimeField(
        allow_null=True, help_text="When its cluster was last measured; null: never."
    )
    failing_since = serializers.DateTimeField(allow_null=True, help_text="Since when its cluster is not measured.")
    ranks = RankUseOut(many=True)


class WorkloadUsage(ApiView):
    """The mean use of each rank by steps. null, or a missing step, means not measured; it does not mean 0."""

    @extend_schema(
        operation_id="workloads_usage",
        responses=MeasuredUseOut,
        parameters=[
            OpenApiParameter(
                "from", dt.datetime, description="Start of the period; by default 24 hours before `until`."
            ),
            OpenApiParameter("until", dt.datetime, description="End of the period; by default now."),
            OpenApiParameter(
                "step",
                {"type": "integer", "enum": list(STEPS), "default": 300},
                description="Length of a step in seconds: 300 (kept for 30 days) or 3600 (400 days); by default 300.",
            ),
        ],
    )
    def get(self, request: Request, workload: str) -> Response:
        row = workload_for(self.actor, workload)
        until = self.moment("until") or timezone.now()
        since = self.moment("from") or until - DAY
        asked = self.text("step") or "300"
        step = natural(asked)
        if step not in STEPS:
            text = N_("step can be %(steps)s seconds, not %(step)s.")
            raise Invalid(text, field="step", steps=" / ".join(map(str, STEPS)), step=asked[:40])
        if since >= until:
            raise Invalid(N_("from must be before until."), field="from")
        if (count := round((until - since).total_seconds() / step) * row.pods) > MOST_POINTS:
            text = N_(
                "That would be %(count)s points; at most %(most)s are given. Ask for a shorter time or a longer step."
            )
            raise Invalid(text, field="from", count=count, most=MOST_POINTS)
        source = source_for(row.attempts.order_by("-number").first())
        data = {
            "since": since, "until": until, "step": step,
            "measured_at": source and source.measured_at, "failing_since": source and source.failing_since,
            "ranks": [{"rank": rank, "points": points} for rank, points in points_of(row, since, until, step).items()],
        }  # fmt: skip
        return Response(MeasuredUseOut(data).data)

    def moment(self, name: str) -> dt.datetime | None:
        """A time in the query; without an offset it is UTC. None: not given. Raises Invalid."""
        text = self.text(name).replace(" ", "+")  # an unescaped + in a query is decoded as a space
        if not text:
            return None
        try:
            value = parse_datetime(text)
        except ValueError:
            value = None
        if value is not None and not 2000 <= value.year < 2100:
            text = N_("The year %(year)s is out of range: enter a time from %(first)s to %(last)s.")
            raise Invalid(text, field=name, year=value.year, first=2000, last=2099)
        if value is None:
            example = N_("%(name)s is a time such as 2026-05-04T10:00:00Z, not %(text)s.")
            raise Invalid(example, field=name, name=name, text=text[:40])
        return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
