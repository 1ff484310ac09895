"""`nodes/{n}/mode/` and `mode_changes/`: how a node can share its cards, the preview of a change, and the change itself.

For operators. A change is one row that advances from stage to stage by itself; it can be started, read and cancelled.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible
from portal.api.base import ApiView, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import CONFIRM, IDEMPOTENCY_KEY, page_of
from portal.infra import confirm
from quotas.api.quotas import BreakOut
from quotas.models import Node
from workloads.models import ModeChange
from workloads.nodes import cluster_registry
from workloads.nodes.modes import actions
from workloads.nodes.modes.changes import live, still_there
from workloads.nodes.modes.previews import (
    BEST_ALIKE,
    BEST_EACH,
    breaks_of,
    check_target,
    losses,
    modes_of,
    preview,
    table_of,
    target_of,
)
from workloads.nodes.modes.recipes import named_layouts
from workloads.sharing import SYSTEMS


class Layout(serializers.DictField):
    """MIG instances of one card: {profile: count}."""

    child = serializers.IntegerField(min_value=1, max_value=16)


class TargetIn(Strict):
    """The mode that the node should have. Fields that the mode does not use are ignored."""

    mode = serializers.CharField(max_length=20, help_text="A key of `modes` of the node.")
    replicas = serializers.IntegerField(default=0, help_text="timeslicing, mps: how many share a card.")
    rename = serializers.BooleanField(
        default=True, help_text="timeslicing, mps: offer them as nvidia.com/gpu.shared, not as whole cards."
    )
    config = serializers.CharField(
        default="", allow_blank=True, max_length=60,
        help_text=f"mig: a configuration of `configs`; {BEST_EACH} or {BEST_ALIKE}: what serves the queue best.",
    )  # fmt: skip
    layouts = serializers.ListField(
        child=Layout(), default=list, max_length=256,
        help_text="mig: instead of `config`, the profiles of each card, by index, as a preview tells them.",
    )  # fmt: skip


class ChangeIn(TargetIn):
    node = serializers.IntegerField(min_value=1, max_value=2**63 - 1, help_text="`id` of the node.")


class TargetOut(serializers.Serializer[Any]):
    mode = serializers.CharField()
    replicas = serializers.IntegerField(default=0)
    rename = serializers.BooleanField(default=True)
    config = serializers.CharField(default="", allow_blank=True)
    layouts = serializers.ListField(child=Layout(), default=list)
    mig = serializers.CharField(default="", help_text="The table of profiles of the product.")


class ModesOut(serializers.Serializer[Any]):
    node = serializers.CharField()
    name = serializers.CharField()
    cluster = serializers.CharField()
    sharing = serializers.CharField(help_text="What it runs now.")
    modes = serializers.ListField(child=serializers.CharField())
    configs = serializers.DictField(child=Layout(), help_text="mig: {name: the profiles of every card}.")
    systems = serializers.ListField(child=serializers.CharField(), help_text="What it may be pinned to.")
    product = serializers.CharField(help_text="What its cards are.")
    change = serializers.CharField(allow_null=True, help_text="The one that is under way.")


class LeaverOut(serializers.Serializer[Any]):
    """A workload on the node; `by`: when it would receive SIGTERM. null: it is non-preemptible, so the change waits for it."""

    department = serializers.CharField(source="claim.department.slug")
    workload = serializers.CharField(source="claim.workload")
    name = serializers.CharField(source="claim.name")
    pool = serializers.CharField(source="claim.pool.slug")
    units = serializers.IntegerField(source="claim.units")
    by = serializers.DateTimeField(allow_null=True)


class LossOut(serializers.Serializer[Any]):
    pool = serializers.CharField(source="pool.slug")
    before = serializers.IntegerField()
    after = serializers.IntegerField()
    short = serializers.IntegerField(help_text="How much more is promised of it than is left.")


class ModePreviewOut(serializers.Serializer[Any]):
    """What would be written and which workloads would have to leave. Nothing is written."""

    target = TargetOut(help_text="With the layouts that a proposal found.")
    leavers = LeaverOut(many=True)
    empty_by = serializers.DateTimeField(allow_null=True)
    losses = LossOut(many=True)
    labels = serializers.DictField(child=serializers.CharField(allow_null=True), help_text="null: it is taken away.")
    diff = serializers.ListField(child=serializers.CharField(), help_text="Of the configuration that plugins read.")
    fault = serializers.CharField(allow_blank=True, help_text="Why it cannot be begun.")
    breaks = BreakOut(many=True, help_text="What it takes from somebody; the first 100.")
    confirm = serializers.CharField(
        allow_null=True, help_text="Send it as `confirm` with the change itself; null: nothing needs to be confirmed."
    )


class ModeChangeOut(serializers.ModelSerializer[ModeChange]):
    id = serializers.CharField(source="public_id")
    node = serializers.CharField(source="node_id")
    name = serializers.CharField(source="node.name")
    cluster = serializers.CharField(source="node.cluster.name")
    author = serializers.CharField(source="author.username", default=None, allow_null=True)
    final = serializers.BooleanField(source="is_final")
    target = TargetOut()
    labels = serializers.DictField(child=serializers.CharField(allow_null=True))
    still_there = serializers.SerializerMethodField(help_text="Workloads that it waits for.")

    class Meta:
        model = ModeChange
        fields = [
            "id", "node", "name", "cluster", "author", "target", "labels", "stage", "stage_since", "final", "deadline",
            "cancel_requested_at", "started_at", "finished_at", "message", "still_there",
        ]  # fmt: skip

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_still_there(self, change: ModeChange) -> list[str]:
        return [claim.workload for claim in still_there(change)]


class PinIn(Strict):
    """Fields that are left out keep their value."""

    system = serializers.CharField(
        max_length=40, allow_blank=True, required=False, help_text="Empty: as its marks say."
    )
    product = serializers.CharField(
        max_length=63, allow_blank=True, required=False,
        help_text="Of its cards, as nvidia.com/gpu.product has it. Empty: as its labels say.",
    )  # fmt: skip


class OperatorView(ApiView):
    """A view for operators; for others it does not exist (404)."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.actor.require_operator()

    def node(self, pk: int) -> Node:
        row = Node.objects.filter(pk=pk).select_related("cluster").first()
        if row is None:
            raise NotVisible
        return row

    def modes(self, node: Node) -> Response:
        table = table_of(node)
        answer = {
            "node": node.pk, "name": node.name, "cluster": node.cluster.name, "sharing": node.sharing,
            "modes": modes_of(node),
            "configs": {name: dict(layout) for name, layout in named_layouts(table).items()} if table else {},
            "systems": list(SYSTEMS), "product": node.product,
            "change": change.public_id if (change := live(node)) else None,
        }  # fmt: skip
        return Response(ModesOut(answer).data)


def changes() -> QuerySet[ModeChange]:
    """All mode changes, with the relations that their JSON needs."""
    return ModeChange.objects.select_related("node__cluster", "author")


class NodeMode(OperatorView):
    @extend_schema(operation_id="node_mode_read", responses=ModesOut)
    def get(self, request: Request, node: int) -> Response:
        return self.modes(self.node(node))

    @extend_schema(operation_id="node_mode_preview", request=TargetIn, responses=ModePreviewOut)
    def post(self, request: Request, node: int) -> Response:
        """Previews a change; nothing is written."""
        row = self.node(node)
        target = target_of(row, **self.read(TargetIn))
        check_target(row, target)
        foreseen = preview(row, target, actions.keeper_of(row))
        breaks = breaks_of(self.actor, row, target)
        answer = {
            "target": target.as_json(), "leavers": foreseen.leavers, "empty_by": foreseen.empty_by,
            "losses": losses(row, target), "labels": foreseen.labels, "diff": foreseen.diff, "fault": foreseen.fault,
            "breaks": confirm.as_json(breaks), "confirm": confirm.mark_of(breaks, target.as_json()) if breaks else None,
        }  # fmt: skip
        return Response(ModePreviewOut(answer).data)


class NodePin(OperatorView):
    @extend_schema(operation_id="node_pin", request=PinIn, responses=ModesOut)
    def put(self, request: Request, node: int) -> Response:
        """Pins the node's sharing system and card product, where detection from its labels is wrong or ambiguous."""
        row = self.node(node)
        return self.modes(cluster_registry.pin_node(actor=self.actor, node=row, **self.read(PinIn)))


class ModeChanges(OperatorView):
    ordering = "-public_id"

    @extend_schema(
        operation_id="mode_changes_list",
        responses=page_of(ModeChangeOut),
        parameters=[
            OpenApiParameter("node", int, description="Only changes of this node, by its `id`."),
            OpenApiParameter("live", bool, description="Only changes that have not ended."),
        ],
    )
    def get(self, request: Request) -> Response:
        rows = changes()
        if (node := self.number("node")) is not None:
            rows = rows.filter(node=node)
        if self.flag("live"):
            rows = rows.filter(finished_at=None)
        return self.page(rows, ModeChangeOut)

    @extend_schema(
        operation_id="mode_changes_start",
        request=ChangeIn,
        responses={202: ModeChangeOut},
        parameters=[IDEMPOTENCY_KEY, CONFIRM],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Drains the node and notifies the workloads there; the rest happens by itself."""
        values = self.read(ChangeIn)
        row = self.node(values.pop("node"))
        target = target_of(row, **values)
        actions.check_start(row, target)
        confirm.require(breaks_of(self.actor, row, target), self.confirmed, facts=target.as_json())
        change = actions.start(actor=self.actor, node=row, target=target)
        location = reverse("api:mode-change", args=[change.public_id])
        return Response(ModeChangeOut(change).data, status=202, headers={"Location": location})


class ModeChangeView(OperatorView):
    def change(self, public_id: str) -> ModeChange:
        row = changes().filter(public_id=public_id).first()
        if row is None:
            raise NotVisible
        return row

    @extend_schema(operation_id="mode_changes_read", responses=ModeChangeOut)
    def get(self, request: Request, change: str) -> Response:
        return Response(ModeChangeOut(self.change(change)).data)

    @extend_schema(operation_id="mode_changes_cancel", responses={202: ModeChangeOut})
    def delete(self, request: Request, change: str) -> Response:
        """Cancels the change: notified workloads may stay, and the node's previous configuration is restored."""
        row = actions.cancel(actor=self.actor, change=self.change(change))
        return Response(ModeChangeOut(row).data, status=202)
