"""`audit/`: who changed what. Operators see everything, quota owners the entries of their departments."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Right, department_for
from portal.api.base import ApiView
from portal.api.schema import DEPARTMENT, page_of
from portal.models import AuditEntry


class AuditEntryOut(serializers.ModelSerializer[AuditEntry]):
    id = serializers.CharField(source="pk")
    actor = serializers.CharField(source="actor_name")
    token = serializers.CharField(source="token_name")
    department = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    before = serializers.DictField(allow_null=True)
    after = serializers.DictField(allow_null=True)
    source = serializers.CharField(  # type: ignore[assignment]
        help_text="The file it was applied from; empty: none."
    )

    class Meta:
        model = AuditEntry
        fields = [
            "id",
            "at",
            "actor",
            "token",
            "action",
            "department",
            "target",
            "before",
            "after",
            "request_id",
            "source",
        ]


class Audit(ApiView):
    @extend_schema(
        operation_id="audit_list",
        responses=page_of(AuditEntryOut),
        parameters=[
            DEPARTMENT,
            OpenApiParameter(
                "action", str, description="Only this action, or all that begin with it, such as `quota.`."
            ),
            OpenApiParameter("actor", str, description="Only what this person or service account did, by user name."),
        ],
    )
    def get(self, request: Request) -> Response:
        rows = AuditEntry.objects.select_related("department")
        if self.text("department"):
            rows = rows.filter(department=department_for(self.actor, self.text("department"), Right.STEER))
        elif not (self.actor.sees_all and self.actor.may(Right.OPERATE, None)):
            steered = [pk for pk in self.actor.seen if self.actor.may(Right.STEER, pk)]
            rows = rows.filter(Q(department__in=steered) | Q(actor=self.user, department__in=self.actor.seen))
        if self.text("action"):
            rows = rows.filter(action__startswith=self.text("action"))
        if self.text("actor"):
            rows = rows.filter(actor_name=self.text("actor"))
        return self.page(rows, AuditEntryOut)
