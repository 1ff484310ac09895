"""`departments/{department}/templates/`: request templates. `request` is a body for `workloads/`, without the values of
secrets."""

from __future__ import annotations

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Right, department_for
from portal.api.base import ApiView, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import IDEMPOTENCY_KEY, page_of
from portal.errors import Invalid
from workloads.api.resources import API_NAMES
from workloads.api.shapes import WorkloadIn, request_from
from workloads.models import RequestTemplate
from workloads.requests import request_templates as templates
from workloads.requests.validation import InvalidRequest


class TemplateOut(serializers.ModelSerializer[RequestTemplate]):
    id = serializers.CharField(source="public_id")
    department = serializers.CharField(source="department.slug")
    shared = serializers.BooleanField(help_text="The department's; false: your own, which nobody else sees.")
    request = serializers.DictField(source="body", help_text="A body for POST …/workloads/; secrets have no value.")

    class Meta:
        model = RequestTemplate
        fields = ["id", "department", "name", "shared", "request", "saved_at"]


class TemplateIn(Strict):
    name = serializers.CharField(max_length=templates.LONGEST)
    shared = serializers.BooleanField(default=False, help_text="For the whole department; needs the role owner.")
    request = WorkloadIn()


class TemplateChange(Strict):
    name = serializers.CharField(max_length=templates.LONGEST)


class RequestTemplates(ApiView):
    ordering = ("name", "pk")

    @extend_schema(operation_id="templates_list", responses=page_of(TemplateOut))
    def get(self, request: Request, department: str) -> Response:
        """Your own templates in this department, and the department's shared ones."""
        where = department_for(self.actor, department, Right.SUBMIT)
        return self.page(templates.templates_of(self.actor, where), TemplateOut)

    @extend_schema(
        operation_id="templates_add", request=TemplateIn, responses={201: TemplateOut}, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.SUBMIT)
        values = self.read(TemplateIn)
        asked = values.pop("request")
        try:
            row = templates.save_template(actor=self.actor, department=where, request=request_from(asked), **values)
        except InvalidRequest as error:  # errors of the request inside
            for fault in error.errors:
                fault.field = f"request.{API_NAMES.get(fault.field, fault.field)}"
            raise
        except Invalid as error:
            if not isinstance(error, templates.NameTaken | templates.TooMany):
                error.field = error.field if error.field == "name" else f"request.{error.field}"
            raise
        location = reverse("api:request-template", args=[where.slug, row.public_id])
        return Response(TemplateOut(row).data, status=201, headers={"Location": location})


class RequestTemplateView(ApiView):
    def row(self, department: str, template: str) -> RequestTemplate:
        where = department_for(self.actor, department, Right.SUBMIT)
        return templates.template_for(self.actor, where, template)

    @extend_schema(operation_id="templates_read", responses=TemplateOut)
    def get(self, request: Request, department: str, template: str) -> Response:
        return Response(TemplateOut(self.row(department, template)).data)

    @extend_schema(operation_id="templates_rename", request=TemplateChange, responses=TemplateOut)
    def patch(self, request: Request, department: str, template: str) -> Response:
        row = self.row(department, template)
        templates.require_change(self.actor, row)  # before the body is validated
        row = templates.rename_template(actor=self.actor, template=row, name=self.read(TemplateChange)["name"])
        return Response(TemplateOut(row).data)

    @extend_schema(operation_id="templates_delete", responses={204: None})
    def delete(self, request: Request, department: str, template: str) -> Response:
        templates.delete_template(actor=self.actor, template=self.row(department, template))
        return Response(status=204)
