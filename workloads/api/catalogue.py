"""`presets/`, `images/` and `clusters/`: what a workload can be created from, and where it can run."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible, Right
from portal.api.base import ApiView, FreeText, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import CONFIRM, IDEMPOTENCY_KEY, page_of
from portal.errors import N_, Invalid
from portal.infra import confirm
from quotas.amounts import LONGEST, units_of
from quotas.api.quotas import IN_UNITS, MOST
from quotas.models import Cluster
from workloads.api.fields import Cores
from workloads.api.setups import SetupIn, SetupOut
from workloads.api.shapes import image_named, pool_named
from workloads.models import ASKED_HERE, CHOICES, Image, Preset
from workloads.nodes import cluster_registry
from workloads.requests import images_and_presets
from workloads.runtime.setups import Setup


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
            "cpu", "memory_mib", "max_runtime", "pods", "setup", "order", "active",
        ]  # fmt: skip


class PresetChange(Strict):
    title = serializers.CharField(max_length=100, required=False)
    description = serializers.CharField(max_length=200, allow_blank=True, required=False)
    kind = serializers.ChoiceField(CHOICES, required=False)
    pool = serializers.CharField(max_length=60, required=False)
    image = serializers.CharField(max_length=200, required=False, help_text="Its name.")
    pods = serializers.IntegerField(min_value=1, max_value=MOST, required=False)
    units_per_pod = serializers.IntegerField(min_value=1, max_value=MOST, required=False, help_text=IN_UNITS)
    amount = serializers.CharField(max_length=LONGEST, required=False, help_text="The same in words: 2 cards, 6 GiB.")
    cores_per_pod = serializers.IntegerField(min_value=1, max_value=MOST, allow_null=True, required=False)
    profile = serializers.CharField(max_length=40, allow_blank=True, required=False)
    command = serializers.ListField(child=FreeText(allow_blank=True, trim_whitespace=False), required=False)
    cpu = Cores(source="cpu_milli", required=False)
    memory_mib = serializers.IntegerField(min_value=1, max_value=MOST, required=False)
    max_runtime = serializers.IntegerField(min_value=1, max_value=MOST, allow_null=True, required=False, help_text="s")
    setup = SetupIn(required=False)
    order = serializers.IntegerField(min_value=0, max_value=32_767, required=False)
    active = serializers.BooleanField(required=False, help_text="Offered to people.")


class PresetIn(PresetChange):
    id = serializers.SlugField(max_length=40)
    title = serializers.CharField(max_length=100)
    kind = serializers.ChoiceField(CHOICES)
    pool = serializers.CharField(max_length=60)
    image = serializers.CharField(max_length=200, help_text="Its name.")


def filled(preset: Preset, values: dict[str, Any]) -> Preset:
    """Sets these values on the preset, unsaved, and returns it. Raises Invalid (pool, image, amount, setup)."""
    if "pool" in values:
        preset.pool = pool_named(values.pop("pool"))
    if "image" in values:
        preset.image = image_named(values.pop("image"))
    if "amount" in values:
        try:
            values["units_per_pod"] = units_of(values.pop("amount"), preset.pool)
        except Invalid as error:
            error.field = "amount"
            raise
    if "setup" in values:
        values["setup"] = Setup(**values["setup"]).as_json()
    for name, value in values.items():
        setattr(preset, name, value)
    return preset


class Presets(ApiView):
    ordering = ("order", "title", "pk")

    @extend_schema(
        operation_id="presets_list",
        responses=page_of(PresetOut),
        parameters=[
            OpenApiParameter("kind", str, enum=list(ASKED_HERE), description="Only presets of this kind of workload.")
        ],
    )
    def get(self, request: Request) -> Response:
        rows = Preset.objects.filter(active=True).select_related("pool", "image")
        if self.text("kind"):
            rows = rows.filter(kind=self.text("kind"))
        return self.page(rows, PresetOut)

    @extend_schema(
        operation_id="presets_add", request=PresetIn, responses={201: PresetOut}, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """For operators."""
        self.actor.require_operator()
        values = self.read(PresetIn)
        slug = values.pop("id")
        if Preset.objects.filter(slug=slug).exists():
            raise Invalid(N_("Preset %(slug)s already exists."), field="id", slug=slug)
        row = images_and_presets.save_preset(actor=self.actor, preset=filled(Preset(slug=slug), values))
        return Response(PresetOut(row).data, status=201, headers={"Location": reverse("api:preset", args=[slug])})


class PresetView(ApiView):
    def row(self, slug: str) -> Preset:
        row = Preset.objects.select_related("pool", "image").filter(slug=slug).first()
        if row is None or not (row.active or self.actor.may(Right.OPERATE, None)):
            raise NotVisible
        return row

    @extend_schema(operation_id="presets_read", responses=PresetOut)
    def get(self, request: Request, preset: str) -> Response:
        return Response(PresetOut(self.row(preset)).data)

    @extend_schema(operation_id="presets_change", request=PresetChange, responses=PresetOut)
    def patch(self, request: Request, preset: str) -> Response:
        """For operators. What is not `active` is no longer offered."""
        self.actor.require_operator()
        row = self.row(preset)
        seen = images_and_presets.mark_of(row)
        row = images_and_presets.save_preset(actor=self.actor, preset=filled(row, self.read(PresetChange)), seen=seen)
        return Response(PresetOut(row).data)


class ImageOut(serializers.ModelSerializer[Image]):
    id = serializers.CharField(source="pk")
    kinds = serializers.ListField(child=serializers.CharField(), help_text="Empty: for all.")

    class Meta:
        model = Image
        fields = ["id", "name", "title", "kinds", "min_driver", "active"]


class ImageChange(Strict):
    title = serializers.CharField(max_length=100, required=False)
    kinds = serializers.ListField(child=serializers.ChoiceField(CHOICES), required=False, help_text="Empty: for all.")
    interpreter = serializers.CharField(
        max_length=300, allow_blank=True, required=False, help_text="Embedded cluster only."
    )
    min_driver = serializers.IntegerField(min_value=1, max_value=MOST, allow_null=True, required=False)
    active = serializers.BooleanField(required=False, help_text="Offered to people.")


class ImageIn(ImageChange):
    name = serializers.CharField(max_length=200, help_text="The reference that clusters pull.")
    title = serializers.CharField(max_length=100)


class Images(ApiView):
    ordering = ("title", "pk")

    @extend_schema(operation_id="images_list", responses=page_of(ImageOut))
    def get(self, request: Request) -> Response:
        return self.page(Image.objects.filter(active=True), ImageOut)

    @extend_schema(operation_id="images_add", request=ImageIn, responses={201: ImageOut}, parameters=[IDEMPOTENCY_KEY])
    @idempotent
    def post(self, request: Request) -> Response:
        """For operators."""
        self.actor.require_operator()
        values = self.read(ImageIn)
        if Image.catalogue().filter(name=values["name"]).exists():
            raise Invalid(N_("Image %(name)s already exists."), field="name", name=values["name"])
        image = Image.to_enter(values["name"])
        for name, value in values.items():
            setattr(image, name, value)
        row = images_and_presets.save_image(actor=self.actor, image=image)
        return Response(ImageOut(row).data, status=201, headers={"Location": reverse("api:image", args=[row.pk])})


class ImageView(ApiView):
    def row(self, pk: int) -> Image:
        row = Image.catalogue().filter(pk=pk).first()
        if row is None or not (row.active or self.actor.may(Right.OPERATE, None)):
            raise NotVisible
        return row

    @extend_schema(operation_id="images_read", responses=ImageOut)
    def get(self, request: Request, image: int) -> Response:
        return Response(ImageOut(self.row(image)).data)

    @extend_schema(operation_id="images_change", request=ImageChange, responses=ImageOut)
    def patch(self, request: Request, image: int) -> Response:
        """For operators. What is not `active` is no longer offered."""
        self.actor.require_operator()
        row = self.row(image)
        seen = images_and_presets.mark_of(row)
        for name, value in self.read(ImageChange).items():
            setattr(row, name, value)
        return Response(ImageOut(images_and_presets.save_image(actor=self.actor, image=row, seen=seen)).data)


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
    """For operators. The connection is tested before it is stored; credentials are never returned."""

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
