"""`recalls/`: reclaim guaranteed units as an owner, and follow their return."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Any

from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Actor, NotVisible, Right, department_for, visible
from portal.api.base import ApiView, Moment, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import CONFIRM, DEPARTMENT, DRY_RUN, IDEMPOTENCY_KEY, page_of
from portal.infra import confirm
from quotas.api.quotas import IN_UNITS, MOST, POOL, PreviewOut, pool_for, preview_answer
from quotas.api.reasons import Reader, SideOut
from quotas.board.usage_now import leavers
from quotas.models import Claim, ClaimState
from quotas.previews.recall import preview_recall
from quotas.rules.recalls import check_end, create_recall, withdraw_recall


class ReturningOut(SideOut):
    gone_by = serializers.DateTimeField(help_text="The deadline of the recalled claim.")


class RecallOut(serializers.ModelSerializer[Claim]):
    id = serializers.CharField(source="public_id")
    department = serializers.CharField(source="department.slug")
    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")
    units = serializers.IntegerField()
    returned = serializers.SerializerMethodField(help_text="How many of the units are back.")
    returning = serializers.SerializerMethodField(help_text="Who still has to go, and by when.")
    by = serializers.CharField(source="user.username", default=None, allow_null=True)

    class Meta:
        model = Claim
        fields = [
            "id", "department", "pool", "unit", "units", "returned", "returning", "state", "promised_at", "until", "by",
            "submitted_at", "released_at",
        ]  # fmt: skip

    def leaving(self, recall: Claim) -> list[Claim]:
        victims: dict[int, list[Claim]] = self.context["leavers"]
        return victims.get(recall.pk, [])

    def get_returned(self, recall: Claim) -> int:
        if recall.state in {ClaimState.HOLDING, ClaimState.RELEASED}:
            return recall.units if recall.started_at else 0
        reserved = int((recall.reserved or {}).get("units", 0))
        return max(0, reserved - sum(claim.units for claim in self.leaving(recall)))

    @extend_schema_field(ReturningOut(many=True))
    def get_returning(self, recall: Claim) -> list[dict[str, Any]]:
        reader: Reader = self.context["reader"]
        rows = [reader.side(claim) | {"gone_by": claim.leave_by} for claim in self.leaving(recall)]
        return list(ReturningOut(rows, many=True).data)


def serializer_context(actor: Actor, recalls: Collection[Claim]) -> dict[str, Any]:
    """The context of RecallOut for all these recalls, read at once."""
    awaited = {id for recall in recalls for id in recall.waiting_on}
    leaving = Claim.objects.filter(Q(preempted_for__in=recalls) | Q(public_id__in=awaited), state=ClaimState.LEAVING)
    return {"reader": Reader(actor), "leavers": leavers([*recalls, *leaving.select_related("department", "pool")])}


class RecallIn(Strict):
    department = serializers.SlugField()
    pool = serializers.SlugField()
    units = serializers.IntegerField(min_value=1, max_value=MOST, help_text=IN_UNITS)
    until = Moment(allow_null=True, default=None, help_text="It ends then by itself.")


def recalls() -> QuerySet[Claim]:
    return Claim.objects.filter(pods=0).select_related("department", "pool", "user")


class Recalls(ApiView):
    dry_runs = frozenset({"post"})

    @extend_schema(
        operation_id="recalls_list",
        responses=page_of(RecallOut),
        parameters=[
            DEPARTMENT,
            POOL,
            OpenApiParameter("running", bool, description="Only recalls that have not ended."),
        ],
    )
    def get(self, request: Request) -> Response:
        rows = visible(self.actor, recalls())
        if self.text("department"):
            rows = rows.filter(department=department_for(self.actor, self.text("department")))
        if self.text("pool"):
            rows = rows.filter(pool=pool_for(self.text("pool")))
        if self.flag("running"):
            rows = rows.exclude(state=ClaimState.RELEASED)
        return self.page(rows, RecallOut, lambda page: serializer_context(self.actor, page))

    @extend_schema(
        operation_id="recalls_ask",
        request=RecallIn,
        responses={201: RecallOut, 200: PreviewOut},
        parameters=[DRY_RUN, CONFIRM, IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        values = self.read(RecallIn)
        where = department_for(self.actor, values.pop("department"), Right.STEER)
        asked: dict[str, Any] = {"actor": self.actor, "department": where, "pool": pool_for(values.pop("pool"))}
        until: dt.datetime | None = values["until"]
        facts = {"pool": asked["pool"].slug, "units": values["units"]}
        if self.flag("dry_run"):
            check_end(until, now=timezone.now())
            return preview_answer(preview_recall(**asked, units=values["units"]), asked["pool"], facts)
        if self.confirmed:  # optional here: a recall is expected to stop borrowers
            foreseen = preview_recall(**asked, units=values["units"])
            confirm.require(foreseen.breaks, self.confirmed, facts=facts)
        answered: dict[str, Any] = {}

        def store_answer(claim: Claim) -> None:
            answered["data"] = RecallOut(claim, context=serializer_context(self.actor, [claim])).data
            answered["headers"] = {"Location": reverse("api:recall", args=[claim.public_id])}
            self.keep(201, answered["data"], answered["headers"])

        create_recall(**asked, units=values["units"], until=until, also=store_answer)
        return Response(answered["data"], status=201, headers=answered["headers"])


class RecallView(ApiView):
    def recall(self, id: str, right: Right = Right.SEE) -> Claim:
        row = visible(self.actor, recalls()).filter(public_id=id).first()
        if row is None:
            raise NotVisible
        self.actor.require(right, row.department)
        return row

    @extend_schema(operation_id="recalls_read", responses=RecallOut)
    def get(self, request: Request, recall: str) -> Response:
        row = self.recall(recall)
        return Response(RecallOut(row, context=serializer_context(self.actor, [row])).data)

    @extend_schema(operation_id="recalls_withdraw", responses={204: None})
    def delete(self, request: Request, recall: str) -> Response:
        """Victims that have not left continue. Withdrawing twice is harmless."""
        withdraw_recall(actor=self.actor, claim=self.recall(recall, Right.STEER))
        return Response(status=204)
