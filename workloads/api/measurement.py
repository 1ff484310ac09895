"""`clusters/{c}/metrics/`: the Prometheus by which a cluster's use is measured."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible
from portal.api.base import ApiView, FreeText, Strict
from quotas.models import Cluster
from workloads.measurement import sources
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
    """Raises NotVisible, for anybody but operators."""
    view.actor.require_operator()
    row = Cluster.objects.filter(name=name).first()
    if row is None:
        raise NotVisible
    return row


class SourceView(ApiView):
    """For operators. It is asked before it is kept."""

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
    """What the Prometheus that is connected has: series, of which nodes, how fresh."""

    without_body = frozenset({"post"})

    @extend_schema(operation_id="cluster_metrics_test", request=None, responses=FoundOut)
    def post(self, request: Request, cluster: str) -> Response:
        return Response(FoundOut(sources.try_source(actor=self.actor, cluster=cluster_for(self, cluster))).data)
