"""`presets/`, `images/` and `clusters/`: what a workload may start from, and where it may run."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible
from portal.api.base import ApiView, FreeText, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import CONFIRM, IDEMPOTENCY_KEY, page_of
from portal.infra import confirm
from quotas.models import Cluster
from workloads.api.fields import Cores
from workloads.api.setups import SetupOut
from workloads.models import Image, Preset
from workloads.nodes import cluster_registry


class PresetOut(serializers.ModelSerializer[Preset]):
    id = serializers.CharField(source="slug")
    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")
    image = serializers.CharField(source="image.name")
    command = serializers.ListField(child=serializers.CharField())
    cpu = Cores(source="cpu_milli")
    setup = SetupOut()

    class Meta:
        model = Preset
        fields = [
            "id", "title", "description", "kind", "pool", "unit", "units_per_pod", "cores_per_pod", "profile", "image", "command",
            "cpu", "memory_mib", "max_runtime", "pods", "setup",
        ]  # fmt: skip


class Presets(ApiView):
    ordering = ("order", "title", "pk")

    @extend_schema(
        operation_id="presets_list", responses=page_of(PresetOut), parameters=[OpenApiParameter("kind", str)]
    )
    def get(self, request: Request) -> Response:
        rows = Preset.objects.filter(active=True).select_related("pool", "image")
        if self.text("kind"):
            rows = rows.filter(kind=self.text("kind"))
        return self.page(rows, PresetOut)


class ImageOut(serializers.ModelSerializer[Image]):
    kinds = serializers.ListField(child=serializers.CharField(), help_text="Empty: for all.")

    class Meta:
        model = Image
        fields = ["name", "title", "kinds", "min_driver"]


class Images(ApiView):
    ordering = ("title", "pk")

    @extend_schema(operation_id="images_list", responses=page_of(ImageOut))
    def get(self, request: Request) -> Response:
        return self.page(Image.objects.filter(active=True), ImageOut)


class ClusterOut(serializers.ModelSerializer[Cluster]):
    id = serializers.CharField(source="name")
    options = serializers.JSONField()

    class Meta:
        model = Cluster
        fields = ["id", "kind", "active", "options", "unreachable_since", "seen_at", "created_at"]


class ClusterIn(Strict):
    name = serializers.SlugField(max_length=40)
    kubeconfig = FreeText(
        default="", allow_blank=True, max_length=200_000, help_text="Empty: the portal's own service account."
    )
    options = serializers.DictField(default=dict)


class ClusterChange(Strict):
    kubeconfig = FreeText(required=False, allow_blank=True, max_length=200_000)
    options = serializers.DictField(required=False)
    active = serializers.BooleanField(required=False)


class Clusters(ApiView):
    """For operators. The connection is tested before it is kept, and never given out."""

    ordering = "name"

    @extend_schema(operation_id="clusters_list", responses=page_of(ClusterOut))
    def get(self, request: Request) -> Response:
        self.actor.require_operator()
        return self.page(Cluster.objects.all(), ClusterOut)

    @extend_schema(
        operation_id="clusters_add", request=ClusterIn, responses={201: ClusterOut}, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request) -> Response:
        self.actor.require_operator()
        cluster = cluster_registry.add_cluster(actor=self.actor, **self.read(ClusterIn))
        location = reverse("api:cluster", args=[cluster.name])
        return Response(ClusterOut(cluster).data, status=201, headers={"Location": location})


class ClusterView(ApiView):
    def cluster(self, name: str) -> Cluster:
        self.actor.require_operator()
        row = Cluster.objects.filter(name=name).first()
        if row is None:
            raise NotVisible
        return row

    @extend_schema(operation_id="clusters_read", responses=ClusterOut)
    def get(self, request: Request, cluster: str) -> Response:
        return Response(ClusterOut(self.cluster(cluster)).data)

    @extend_schema(operation_id="clusters_change", request=ClusterChange, responses=ClusterOut, parameters=[CONFIRM])
    def patch(self, request: Request, cluster: str) -> Response:
        row = self.cluster(cluster)
        changes: dict[str, Any] = self.read(ClusterChange)
        if row.active and changes.get("active") is False:
            confirm.require(cluster_registry.breaks_of(row), self.confirmed)
        return Response(ClusterOut(cluster_registry.change_cluster(actor=self.actor, cluster=row, **changes)).data)
