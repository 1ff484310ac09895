"""`configuration/`: the installation's configuration as one YAML file. For operators."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api.base import ApiView
from portal.api.idempotency import idempotent
from portal.api.schema import CONFIRM, DRY_RUN, IDEMPOTENCY_KEY
from portal.errors import N_, Invalid
from portal.infra import confirm
from quotas.api.quotas import BreakOut, StoppedOut
from workloads.configuration import plan

YAML = "application/yaml"


class YamlText(BaseParser):
    """Leaves the body as text, so that errors can name the line."""

    media_type = YAML

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> dict[str, str]:
        try:
            return {"text": stream.read().decode()}
        except UnicodeDecodeError:
            raise Invalid(N_("The file is not UTF-8 text.")) from None


class JsonText(YamlText):
    """JSON is YAML."""

    media_type = "application/json"


class ChangeOut(serializers.Serializer[Any]):
    path = serializers.CharField(source="name", help_text="Such as departments.vision.quotas.a100.guaranteed.")
    before = serializers.CharField(allow_null=True, help_text="As the file writes it; null: it is not there.")
    after = serializers.CharField(allow_null=True)


class PlanOut(serializers.Serializer[Any]):
    """What the file changes, and the immediate effects of that."""

    applied = serializers.BooleanField(help_text="false: it was a dry run.")
    changes = ChangeOut(many=True, help_text="Empty: the file matches the current settings.")
    sentence = serializers.CharField(source="preview.sentence")
    lines = serializers.ListField(child=serializers.CharField(), source="preview.lines")
    stopped = StoppedOut(many=True, source="preview.stopped")
    promised_at = serializers.DateTimeField(
        source="preview.promised_at", allow_null=True, help_text="By when all would be back."
    )
    breaks = serializers.SerializerMethodField(help_text="What it takes from somebody; the first 100.")
    confirm = serializers.CharField(
        source="mark", help_text="Sent as `confirm`, exactly this plan is carried out, or none."
    )

    @extend_schema_field(BreakOut(many=True))
    def get_breaks(self, row: plan.Plan) -> list[dict[str, str]]:
        return confirm.as_json(row.preview.breaks)


class Configuration(ApiView):
    parser_classes = [YamlText, JsonText]
    dry_runs = frozenset({"post"})

    @extend_schema(operation_id="configuration_export", responses={(200, YAML): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponse:
        """Departments, quotas, settings of pools, images, presets and group rules, sorted. Applying the file changes nothing."""
        self.actor.require_operator()
        return HttpResponse(plan.export(), content_type=f"{YAML}; charset=utf-8")

    @extend_schema(
        operation_id="configuration_apply",
        request={YAML: OpenApiTypes.STR, "application/json": OpenApiTypes.OBJECT},
        responses=PlanOut,
        parameters=[
            DRY_RUN, CONFIRM, IDEMPOTENCY_KEY,
            OpenApiParameter("source", str, description="The name of the file, for the audit log."),
        ],
    )  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        """Applies the file, completely or not at all. What it does not name stays as it is."""
        self.actor.require_operator()
        data: Any = request.data
        text = data.get("text", "")  # a request without a body has none
        row = plan.apply(
            actor=self.actor, text=text, source=self.text("source"), dry_run=self.flag("dry_run"), confirmed=self.confirmed
        )  # fmt: skip
        return Response(PlanOut(row).data)
