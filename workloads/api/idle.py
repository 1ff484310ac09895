"""`…/idle_policy/` of pools and of departments in them, and `idle_exemptions/`."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible, Right, department_for, visible
from portal.api.base import ApiView, Moment, Paragraph, Strict, serialize
from portal.api.idempotency import idempotent
from portal.api.schema import IDEMPOTENCY_KEY, IF_MATCH, page_of
from portal.models import Department
from quotas.api.quotas import pool_for
from quotas.models import Pool
from workloads.api.resources import workload_for
from workloads.idle import exemptions, policies
from workloads.idle.rule import DEFAULT, LIMITS, Action
from workloads.models import ASKED_HERE, IdleExemption


def _number(name: str, text: str) -> serializers.IntegerField:
    least, most = LIMITS[name]
    return serializers.IntegerField(min_value=least, max_value=most, default=getattr(DEFAULT, name), help_text=text)


class RuleShape(Strict):
    below = _number("below", "Percent of GPU activity below which a rank is idle.")
    minutes = _number("minutes", "For so long every rank must be measured below that.")
    action = serializers.ChoiceField(
        [each.value for each in Action],
        help_text="nothing; warn; borrowed: stop what uses borrowed capacity only; stop.",
    )
    countdown = _number("countdown", "Minutes from the warning to the stop.")
    keep = _number("keep", "Minutes by which keep postpones the stop, once in an idle spell.")


class RulesShape(Strict):
    """A rule for each kind of workload; kinds that are left out have no rule here."""

    job = RuleShape(required=False)
    notebook = RuleShape(required=False)
    distributed = RuleShape(required=False)
    service = RuleShape(required=False)


class IdlePolicyIn(Strict):
    rules = RulesShape()


class IdlePolicyOut(serializers.Serializer[Any]):
    rules = RulesShape(help_text="What is set here.")
    effective = RulesShape(help_text="What is in force here: the strictest of the pool's and the departments'.")
    exempt_until = serializers.DateTimeField(
        allow_null=True,
        help_text="Until then all work of the department is exempt; null: it is not, or this is a pool's.",
    )
    version = serializers.IntegerField(help_text="The ETag; 0: never set.")


def answer_of(pool: Pool, department: Department | None) -> Response:
    row, every = policies.row_of(pool, department), policies.Policies()
    pk = department.pk if department else None
    effective = {kind: rule for kind in ASKED_HERE if (rule := every.effective(pool.pk, pk, kind)) is not None}
    exemption = exemptions.of_department(department, timezone.now()) if department else None
    data = {
        "rules": policies.as_json(policies.rules_of(row.rules)), "effective": policies.as_json(effective),
        "exempt_until": exemption and exemption.until, "version": row.version,
    }  # fmt: skip
    return Response(serialize(IdlePolicyOut, data, {}), headers={"ETag": f'"{row.version}"'})


class IdlePolicyView(ApiView):
    """Everybody may read a pool's policy, and members that of their department. Operators set a pool's; owners set their
    department's, which can only be stricter."""

    def place(self, department: str, pool: str) -> tuple[Pool, Department | None]:
        where = department_for(self.actor, department) if department else None
        return pool_for(pool), where

    def change(self, pool: Pool, department: Department | None, rules: policies.Rules) -> Response:
        version = self.version() or 0
        policies.set_policy(
            actor=self.actor, pool=pool, department=department, rules=rules, expected_version=version
        )  # fmt: skip
        return answer_of(pool, department)

    @extend_schema(responses=IdlePolicyOut)
    def get(self, request: Request, pool: str, department: str = "") -> Response:
        return answer_of(*self.place(department, pool))

    @extend_schema(request=IdlePolicyIn, responses=IdlePolicyOut, parameters=[IF_MATCH])
    def put(self, request: Request, pool: str, department: str = "") -> Response:
        where = self.place(department, pool)
        policies.require_right(self.actor, where[1])
        asked = self.read(IdlePolicyIn)["rules"]
        return self.change(*where, policies.rules_of(asked))

    @extend_schema(responses=IdlePolicyOut, parameters=[IF_MATCH])
    def delete(self, request: Request, pool: str, department: str = "") -> Response:
        """Removes what is set here; returns what is in force then."""
        where = self.place(department, pool)
        policies.require_right(self.actor, where[1])
        return self.change(*where, {})


def _named(name: str) -> Any:
    operations = {"get": "read", "put": "set", "delete": "unset"}
    return extend_schema_view(
        **{m: extend_schema(operation_id=f"{name}_idle_policy_{verb}") for m, verb in operations.items()}
    )


@_named("pool")
class PoolIdlePolicy(IdlePolicyView):
    pass


@_named("department")
class DepartmentIdlePolicy(IdlePolicyView):
    pass


class ExemptionOut(serializers.ModelSerializer[IdleExemption]):
    id = serializers.CharField(source="public_id")
    department = serializers.CharField(source="department.slug")
    workload = serializers.CharField(
        source="workload.public_id", default=None, allow_null=True, help_text="null: all work of the department."
    )
    by = serializers.CharField(source="author.username", default=None, allow_null=True)
    in_force = serializers.SerializerMethodField()

    class Meta:
        model = IdleExemption
        fields = ["id", "department", "workload", "why", "until", "by", "created_at", "ended_at", "in_force"]

    def get_in_force(self, row: IdleExemption) -> bool:
        return row.ended_at is None and row.until > timezone.now()


class ExemptionIn(Strict):
    workload = serializers.CharField(
        max_length=26, allow_null=True, default=None, help_text="Its id; null: the whole department, by operators only."
    )
    why = Paragraph(max_length=500, help_text="The reason. It is shown to everybody who can see the workload.")
    until = Moment(help_text=f"At most {exemptions.LONGEST.days} days from now.")


class Exemptions(ApiView):
    ordering = "-public_id"

    @extend_schema(
        operation_id="idle_exemptions_list", responses=page_of(ExemptionOut),
        parameters=[OpenApiParameter("in_force", bool, description="Only exemptions that have not ended.")],
    )  # fmt: skip
    def get(self, request: Request, department: str) -> Response:
        rows = IdleExemption.objects.filter(department=department_for(self.actor, department))
        if self.flag("in_force"):
            rows = rows & exemptions.in_force(timezone.now())
        return self.page(rows.select_related("department", "workload", "author"), ExemptionOut)

    @extend_schema(
        operation_id="idle_exemptions_add", request=ExemptionIn, responses={201: ExemptionOut},
        parameters=[IDEMPOTENCY_KEY],
    )  # fmt: skip
    @idempotent
    def post(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.STEER)
        asked = self.read(ExemptionIn)
        workload = workload_for(self.actor, asked["workload"]) if asked["workload"] else None
        if workload is not None and workload.department_id != where.pk:
            raise NotVisible
        row = exemptions.exempt(
            actor=self.actor, department=where, workload=workload, why=asked["why"], until=asked["until"]
        )
        data = dict(ExemptionOut(row).data)
        location = reverse("api:idle-exemption", args=[row.public_id])
        return Response(data, status=201, headers={"Location": location})


class ExemptionView(ApiView):
    def exemption(self, public_id: str) -> IdleExemption:
        rows = visible(self.actor, IdleExemption.objects.select_related("department", "workload", "author"))
        row = rows.filter(public_id=public_id).first()
        if row is None:
            raise NotVisible
        return row

    @extend_schema(operation_id="idle_exemptions_read", responses=ExemptionOut)
    def get(self, request: Request, exemption: str) -> Response:
        return Response(ExemptionOut(self.exemption(exemption)).data)

    @extend_schema(operation_id="idle_exemptions_end", responses={204: None})
    def delete(self, request: Request, exemption: str) -> Response:
        """Ends the exemption early."""
        exemptions.end(actor=self.actor, row=self.exemption(exemption))
        return Response(status=204)
