"""`decisions/` and `loans/`: the decision log and the ledger, as far as each reader may see them."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Actor, NotVisible, department_for
from portal.api.base import ApiView
from portal.api.schema import DEPARTMENT, page_of
from quotas.api.quotas import BY_DEPARTMENT, POOL, pool_for
from quotas.api.reasons import REASONS, Reader, SideOut
from quotas.models import Decision, LedgerEntry
from quotas.wording import named_claims


def reader_of(actor: Actor, rows: list[Decision]) -> Reader:
    named: set[str] = set()
    for row in rows:
        named |= named_claims(row.data.get("reasons", ())) | set(row.data.get("waiting_on", ()))
    return Reader(actor, named)


class DecisionOut(serializers.ModelSerializer[Decision]):
    id = serializers.CharField(source="public_id")
    plan_pass = serializers.CharField(source="plan_pass.public_id", help_text="For `manage.py plan --replay`.")
    claim = serializers.SerializerMethodField(help_text="Whom it was about.")
    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")
    own = serializers.SerializerMethodField()
    borrowed = serializers.SerializerMethodField()
    borrowed_from = serializers.SerializerMethodField(help_text="Empty for the other side.")
    reasons = serializers.SerializerMethodField(help_text="Empty for the other side.")
    victims = serializers.SerializerMethodField(help_text="The claims that were recalled for it.")

    class Meta:
        model = Decision
        fields = [
            "id", "at", "kind", "plan_pass", "claim", "pool", "unit", "own", "borrowed", "borrowed_from", "reasons", "victims",
        ]  # fmt: skip

    @property
    def reader(self) -> Reader:
        reader: Reader = self.context["reader"]
        return reader

    def asked(self, row: Decision) -> bool:
        """Whether the reader may see the requesting claim. A victim's department sees only its department and amount."""
        return row.department_id in self.reader.seen

    @extend_schema_field(SideOut)
    def get_claim(self, row: Decision) -> dict[str, Any]:
        return self.reader.side(row.claim)

    def get_own(self, row: Decision) -> int:
        return int(row.data.get("own", 0))

    def get_borrowed(self, row: Decision) -> int:
        return int(row.data.get("borrowed", 0))

    @extend_schema_field(BY_DEPARTMENT)
    def get_borrowed_from(self, row: Decision) -> dict[str, int]:
        return dict(row.data.get("from", {})) if self.asked(row) else {}

    @extend_schema_field(REASONS)
    def get_reasons(self, row: Decision) -> list[dict[str, Any]]:
        return self.reader.reasons(row.data.get("reasons", ()), row.pool) if self.asked(row) else []

    @extend_schema_field(SideOut(many=True))
    def get_victims(self, row: Decision) -> list[dict[str, Any]]:
        return [self.reader.side(claim) for claim in row.victims.all()]


def decisions_of(actor: Actor) -> QuerySet[Decision]:
    """Decisions whose requesting claim or victims belong to the actor's departments."""
    rows = Decision.objects.select_related("claim__department", "claim__pool", "pool", "plan_pass")
    rows = rows.prefetch_related("victims__department", "victims__pool")
    if actor.sees_all:
        return rows
    given = Decision.victims.through.objects.filter(claim__department__in=actor.seen).values("decision")
    return rows.filter(Q(department__in=actor.seen) | Q(pk__in=given))


class Decisions(ApiView):
    @extend_schema(
        operation_id="decisions_list",
        responses=page_of(DecisionOut),
        parameters=[
            DEPARTMENT,
            POOL,
            OpenApiParameter(
                "kind",
                str,
                enum=["admit", "reclaim", "wait", "impossible", "withdraw"],
                description="Only decisions of this kind.",
            ),
            OpenApiParameter("workload", str, description="Only decisions about this workload, by its `id`."),
        ],
    )
    def get(self, request: Request) -> Response:
        rows = decisions_of(self.actor)
        if self.text("department"):
            rows = rows.filter(department=department_for(self.actor, self.text("department")))
        if self.text("pool"):
            rows = rows.filter(pool=pool_for(self.text("pool")))
        if self.text("kind"):
            rows = rows.filter(kind=self.text("kind"))
        if self.text("workload"):
            visible_departments = Q(department__in=self.actor.seen)
            rows = rows.filter(visible_departments, claim__workload=self.text("workload"))
        return self.page(rows, DecisionOut, lambda page: {"reader": reader_of(self.actor, page)})


class DecisionView(ApiView):
    @extend_schema(operation_id="decisions_read", responses=DecisionOut)
    def get(self, request: Request, decision: str) -> Response:
        row = decisions_of(self.actor).filter(public_id=decision).first()
        if row is None:
            raise NotVisible
        context = {"actor": self.actor, "reader": reader_of(self.actor, [row])}
        return Response(DecisionOut(row, context=context).data)


class LoanOut(serializers.ModelSerializer[LedgerEntry]):
    id = serializers.CharField(source="pk")
    borrower = serializers.CharField(source="department.slug")
    lender = serializers.CharField(
        source="lender.slug", default=None, allow_null=True, help_text="null: the pool's unassigned capacity"
    )
    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")
    since = serializers.DateTimeField(source="started_at")
    until = serializers.SerializerMethodField(help_text="When it ended or has to end; null: not known.")
    workload = serializers.SerializerMethodField(help_text="Only in your own departments.")

    class Meta:
        model = LedgerEntry
        fields = ["id", "borrower", "lender", "pool", "unit", "units", "since", "until", "workload"]

    def get_until(self, entry: LedgerEntry) -> str | None:
        until = entry.ended_at or entry.claim.leave_by
        return until.isoformat().replace("+00:00", "Z") if until else None

    def get_workload(self, entry: LedgerEntry) -> str | None:
        seen = entry.department_id in self.context["reader"].seen
        return entry.claim.workload or None if seen else None


class Loans(ApiView):
    """Who has borrowed from whom, newest first. Outside your departments, workloads are not named."""

    @extend_schema(
        operation_id="loans_list",
        responses=page_of(LoanOut),
        parameters=[
            OpenApiParameter("department", str, description="Only loans from or to this department, by its `id`."),
            POOL,
            OpenApiParameter("running", bool, description="Only loans that have not ended."),
        ],
    )
    def get(self, request: Request) -> Response:
        rows = LedgerEntry.objects.filter(own=False).select_related("claim", "department", "lender", "pool")
        if not self.actor.departments.exists():
            rows = rows.none()
        if self.text("department"):
            side = department_for(self.actor, self.text("department"))
            rows = rows.filter(Q(department=side) | Q(lender=side))
        if self.text("pool"):
            rows = rows.filter(pool=pool_for(self.text("pool")))
        if self.flag("running"):
            rows = rows.filter(ended_at=None)
        return self.page(rows, LoanOut, lambda page: {"reader": Reader(self.actor)})
