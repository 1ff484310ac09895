"""`departments/{d}/preview/`: what moving a department or changing its weight would do. Read only."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Right, department_for
from portal.api.base import ApiView
from portal.api.departments import parent_named
from quotas.api.quotas import PreviewOut, preview_answer
from quotas.previews.department_move import preview_department


class DepartmentPreview(ApiView):
    @extend_schema(
        operation_id="departments_preview",
        responses=PreviewOut,
        parameters=[
            OpenApiParameter(
                "parent",
                str,
                description="The department above it after the change, by its `id`: empty for none, absent for no change.",
            ),
            OpenApiParameter(
                "weight",
                {"type": "integer", "minimum": 1, "maximum": 1_000_000},
                description="The weight after the change: a whole number up to 1000000, absent for no change.",
            ),
        ],
    )
    def get(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.OPERATE)
        sent = "parent" in request.query_params
        parent = parent_named(self.text("parent") or None) if sent else where.parent
        weight = self.number("weight", maximum=1_000_000)
        return preview_answer(
            preview_department(
                actor=self.actor,
                department=where,
                parent=parent,
                weight=where.weight if weight is None else weight,
            ),
            None,
        )
