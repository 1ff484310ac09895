"""`quarantines/`: nodes and cards that are or were out of use because of a fault. For operators."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible
from portal.api.base import ApiView, Moment, Paragraph, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import CONFIRM, DRY_RUN, IDEMPOTENCY_KEY, page_of
from portal.infra import confirm
from portal.text.words import stored_sentence
from quotas.api.quotas import PreviewOut, preview_answer
from quotas.health import quarantines
from quotas.health.previews import preview_quarantine
from quotas.models import Node, Quarantine


class NoticeOut(serializers.Serializer[Any]):
    claim = serializers.CharField(help_text="The claim of the attempt that has to leave.")
    leave_by = serializers.DateTimeField(allow_null=True, help_text="null: non-preemptible, informed and not stopped.")


class QuarantineOut(serializers.ModelSerializer[Quarantine]):
    id = serializers.CharField(source="public_id")
    node = serializers.CharField(source="node.name")
    node_id = serializers.CharField()
    cluster = serializers.CharField(source="node.cluster.name")
    card = serializers.IntegerField(allow_null=True, help_text="Its index on the node; null: the whole node.")
    sign = serializers.CharField(help_text="What a rule has seen, as source/name; empty: begun by an operator.")
    reason = serializers.SerializerMethodField()
    by = serializers.CharField(source="began_by.username", default=None, allow_null=True, help_text="null: a rule.")
    ended_by = serializers.CharField(source="ended_by.username", default=None, allow_null=True)
    overruled = serializers.BooleanField(
        source="is_overruled", help_text="An operator ended it though the sign is still there: it does not begin again "
        "until the sign has been away."
    )  # fmt: skip
    notices = serializers.SerializerMethodField(help_text="The claims that were given notice.")

    class Meta:
        model = Quarantine
        fields = [
            "id", "node", "node_id", "cluster", "card", "sign", "reason", "by", "began_at", "until", "ended_at", "ended_by",
            "overruled", "notices",
        ]  # fmt: skip

    def get_reason(self, row: Quarantine) -> str:
        return stored_sentence(row.sentence)

    def get_notices(self, row: Quarantine) -> list[dict[str, Any]]:
        return list(
            NoticeOut([{"claim": claim, "leave_by": by} for claim, by in row.deadlines.items()], many=True).data
        )


class QuarantineIn(Strict):
    node = serializers.IntegerField(min_value=1, max_value=2**31 - 1, help_text="Its id.")
    card = serializers.IntegerField(
        min_value=0, max_value=2**15 - 1, allow_null=True, default=None,
        help_text="Only where the portal decides which card a workload gets; null: the whole node.",
    )  # fmt: skip
    why = Paragraph(max_length=500, help_text="Shown to everybody whose workload has to leave.")
    until = Moment(allow_null=True, default=None, help_text="It ends then by itself.")


def rows() -> QuerySet[Quarantine]:
    return Quarantine.objects.select_related("node__cluster", "began_by", "ended_by")


class Quarantines(ApiView):
    dry_runs = frozenset({"post"})
    ordering = "-public_id"

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.actor.require_operator()

    @extend_schema(
        operation_id="quarantines_list",
        responses=page_of(QuarantineOut),
        parameters=[
            OpenApiParameter("node", int, description="Only those of this node and its cards, by the node's `id`."),
            OpenApiParameter("card", int, description="Only those of cards with this index on their node, from 0."),
            OpenApiParameter("in_force", bool, description="Only quarantines that have not ended."),
        ],
    )
    def get(self, request: Request) -> Response:
        matches = rows()
        for name in ("node", "card"):
            if (number := self.number(name)) is not None:
                matches = matches.filter(**{name: number})
        if self.flag("in_force"):
            matches = matches.filter(ended_at=None)
        return self.page(matches, QuarantineOut)

    @extend_schema(
        operation_id="quarantines_begin",
        request=QuarantineIn,
        responses={201: QuarantineOut, 200: PreviewOut},
        parameters=[DRY_RUN, CONFIRM, IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """No new workload starts there. Running ones get notice and are queued again, and nothing is counted against them."""
        asked = self.read(QuarantineIn)
        node = Node.objects.select_related("cluster").filter(pk=asked["node"]).first()
        if node is None:
            raise NotVisible
        asked |= {"node": node}
        quarantines.check(**asked)
        foreseen = preview_quarantine(actor=self.actor, node=node, card=asked["card"])
        place = quarantines.place(node, asked["card"])
        if self.flag("dry_run"):
            return preview_answer(foreseen, None, place)
        confirm.require(foreseen.breaks, self.confirmed, facts=place)
        row = rows().get(pk=quarantines.quarantine(actor=self.actor, **asked).pk)
        location = reverse("api:quarantine", args=[row.public_id])
        return Response(QuarantineOut(row).data, status=201, headers={"Location": location})


class QuarantineView(ApiView):
    def quarantine(self, public_id: str) -> Quarantine:
        self.actor.require_operator()
        row = rows().filter(public_id=public_id).first()
        if row is None:
            raise NotVisible
        return row

    @extend_schema(operation_id="quarantines_read", responses=QuarantineOut)
    def get(self, request: Request, quarantine: str) -> Response:
        return Response(QuarantineOut(self.quarantine(quarantine)).data)

    @extend_schema(operation_id="quarantines_end", responses={204: None})
    def delete(self, request: Request, quarantine: str) -> Response:
        """Ends the quarantine; workloads with notice that have not left may stay. 409 if it has already ended."""
        quarantines.put_back(actor=self.actor, row=self.quarantine(quarantine))
        return Response(status=204)
