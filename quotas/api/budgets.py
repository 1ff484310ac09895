"""`budgets/` and `departments/{d}/budgets/`: GPU-hours that a department or a person may use, and how much is used."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Right, department_for
from portal.api.base import ApiView, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import CONFIRM, DRY_RUN, IDEMPOTENCY_KEY, IF_MATCH, either, page_of
from portal.errors import N_, Invalid
from portal.infra import confirm
from portal.infra.versions import check_fresh
from portal.models import Department, User
from quotas.api.quotas import PreviewOut, pool_for, preview_answer
from quotas.budgets import actions as budgets
from quotas.budgets.actions import Limits
from quotas.budgets.states import BudgetState, Stage, states_of
from quotas.models import Budget, BudgetAction, BudgetCounts, Pool
from quotas.previews.budgets import preview_budget

BY_POOL = {
    "type": "object",
    "additionalProperties": {"type": "integer"},
    "description": "{pool: whole seconds times units of the pool}: as in the usage report of the same time.",
}


@extend_schema_field(BY_POOL)
class ByPool(serializers.DictField):
    pass


class BudgetOut(serializers.ModelSerializer[Budget]):
    id = serializers.CharField(source="public_id")
    department = serializers.CharField(source="department.slug", help_text="With all teams below it.")
    person = serializers.CharField(
        source="person.username", default=None, allow_null=True, help_text="null: the whole department."
    )
    pool = serializers.CharField(source="pool.slug", default=None, allow_null=True, help_text="null: all pools.")
    zone = serializers.SerializerMethodField(help_text="The installation's: in it months and days begin.")
    stage = serializers.SerializerMethodField()
    start = serializers.SerializerMethodField(help_text="Of the present period; null: its term is not running.")
    resets_at = serializers.SerializerMethodField(help_text="The end of the present period.")
    used = serializers.SerializerMethodField(
        help_text="GPU-hours in the present period, without what was not used up before."
    )
    unit_seconds = serializers.SerializerMethodField()
    expected = serializers.SerializerMethodField(
        help_text="GPU-hours at the end of the period, at the rate of the last 24 hours; null: too little is known."
    )
    used_up_at = serializers.SerializerMethodField(help_text="At that rate, if it is before the end.")
    holds = serializers.SerializerMethodField(help_text="Whether it keeps somebody from starting now.")

    class Meta:
        model = Budget
        fields = [
            "id", "department", "person", "pool", "hours", "counts", "action", "starts_on", "ends_on", "zone", "stage",
            "start", "resets_at", "used", "unit_seconds", "expected", "used_up_at", "holds", "version",
        ]  # fmt: skip

    def state(self, row: Budget) -> BudgetState:
        state: BudgetState = self.context["states"][row.pk]
        return state

    def get_zone(self, row: Budget) -> str:
        return settings.TIME_ZONE

    @extend_schema_field(serializers.ChoiceField([stage.value for stage in Stage]))
    def get_stage(self, row: Budget) -> str:
        return self.state(row).stage.value

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_start(self, row: Budget) -> Any:
        spent = self.state(row).spent
        return spent.start if spent else None

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_resets_at(self, row: Budget) -> Any:
        spent = self.state(row).spent
        return spent.resets_at if spent else None

    def get_used(self, row: Budget) -> float:
        return self.state(row).used

    @extend_schema_field(ByPool())
    def get_unit_seconds(self, row: Budget) -> dict[str, int]:
        spent = self.state(row).spent
        return {self.context["pools"][pool]: seconds for pool, seconds in spent.unit_seconds.items()} if spent else {}

    def get_expected(self, row: Budget) -> float | None:
        return self.state(row).expected

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_used_up_at(self, row: Budget) -> Any:
        return self.state(row).used_up_at

    def get_holds(self, row: Budget) -> bool:
        return self.state(row).holds


BUDGET_PAGE = page_of(BudgetOut)


class LimitsIn(Strict):
    hours = serializers.IntegerField(
        min_value=1, max_value=budgets.MOST_HOURS, help_text="GPU-hours; a part of a card counts in proportion."
    )
    counts = serializers.ChoiceField(BudgetCounts.choices, default=BudgetCounts.ALL)
    action = serializers.ChoiceField(
        BudgetAction.choices, default=BudgetAction.NO_BORROWING, help_text="What it does when it is used up."
    )
    starts_on = serializers.DateField(allow_null=True, default=None, help_text="null, both: every calendar month.")
    ends_on = serializers.DateField(allow_null=True, default=None, help_text="The last day of a term.")


class BudgetIn(LimitsIn):
    person = serializers.CharField(
        max_length=150, allow_null=True, default=None, help_text="A user name; null: the whole department."
    )
    pool = serializers.SlugField(allow_null=True, default=None, help_text="null: all pools.")


def person_of(username: str | None, department: Department) -> User | None:
    """The user with this name. Raises Invalid (person)."""
    if username is None:
        return None
    user = User.objects.filter(username=username).first()
    if user is None:
        raise Invalid(
            N_("%(person)s is not a member of %(department)s or of a team below it."), field="person",
            person=username, department=department.name,
        )  # fmt: skip
    return user


class BudgetsView(ApiView):
    def context_of(self, rows: list[Budget]) -> dict[str, Any]:
        states = states_of(self.actor, rows)
        pools = dict(Pool.objects.values_list("pk", "slug"))
        return {"states": {state.budget.pk: state for state in states}, "pools": pools}

    def answer(self, row: Budget, status: int = 200) -> Response:
        row = budgets.budget_for(self.actor, row.public_id)
        headers = {"ETag": f'"{row.version}"'}
        if status == 201:
            headers["Location"] = reverse("api:budget", args=[row.public_id])
        return Response(BudgetOut(row, context=self.context_of([row])).data, status=status, headers=headers)


class Budgets(BudgetsView):
    """Budgets of departments that you may see, your own, and those of people in departments that you own."""

    @extend_schema(operation_id="budgets_list", responses=BUDGET_PAGE,
                   parameters=[OpenApiParameter("mine", bool, description="Only your own budgets.")])  # fmt: skip
    def get(self, request: Request) -> Response:
        rows = budgets.visible_budgets(self.actor)
        if self.flag("mine"):
            rows = rows.filter(person=self.user)
        return self.page(rows, BudgetOut, self.context_of)


class DepartmentBudgets(BudgetsView):
    dry_runs = frozenset({"post"})

    @extend_schema(operation_id="department_budgets_list", responses=BUDGET_PAGE)
    def get(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department)
        return self.page(budgets.visible_budgets(self.actor).filter(department=where), BudgetOut, self.context_of)

    @extend_schema(
        operation_id="budgets_create",
        request=BudgetIn,
        responses={201: BudgetOut, 200: PreviewOut},
        parameters=[DRY_RUN, CONFIRM, IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.STEER)
        values = self.read(BudgetIn)
        slug, name = values.pop("pool"), values.pop("person")
        person, pool = person_of(name, where), pool_for(slug) if slug is not None else None
        limits = Limits(**values)
        asked: dict[str, Any] = {"actor": self.actor, "department": where, "person": person, "pool": pool}
        budgets.check_new(**asked, limits=limits)
        foreseen = preview_budget(
            actor=self.actor, department=where, instead_of=None,
            budget=Budget(department=where, person=person, pool=pool, **limits.columns()),
        )  # fmt: skip
        if self.flag("dry_run"):
            return preview_answer(foreseen, pool)
        confirm.require(foreseen.breaks, self.confirmed)
        return self.answer(budgets.create_budget(**asked, limits=limits), 201)


class BudgetView(BudgetsView):
    dry_runs = frozenset({"put", "delete"})

    @extend_schema(operation_id="budgets_read", responses=BudgetOut)
    def get(self, request: Request, budget: str) -> Response:
        return self.answer(budgets.budget_for(self.actor, budget))

    @extend_schema(
        operation_id="budgets_set",
        request=LimitsIn,
        responses=either(BudgetOut, PreviewOut),
        parameters=[IF_MATCH, DRY_RUN, CONFIRM],
    )
    def put(self, request: Request, budget: str) -> Response:
        """Sets all limits; absent ones get their defaults. Department, person and pool do not change."""
        row = budgets.budget_for(self.actor, budget)
        budgets.require_setter(self.actor, row.department, row.person)
        limits, version = Limits(**self.read(LimitsIn)), self.version()
        check_fresh(row.version, version)
        budgets.check_changed(row, limits)
        changed = limits.instead_of(row)
        foreseen = preview_budget(actor=self.actor, department=row.department, instead_of=row, budget=changed)
        if self.flag("dry_run"):
            return preview_answer(foreseen, row.pool)
        confirm.require(foreseen.breaks, self.confirmed)
        return self.answer(budgets.change_budget(actor=self.actor, budget=row, limits=limits, expected_version=version))

    @extend_schema(
        operation_id="budgets_remove",
        responses={204: None, 200: PreviewOut},
        parameters=[IF_MATCH, DRY_RUN, CONFIRM],
    )
    def delete(self, request: Request, budget: str) -> Response:
        """Workloads that the budget kept waiting may start, possibly by reclaiming from present borrowers."""
        row = budgets.budget_for(self.actor, budget)
        budgets.require_setter(self.actor, row.department, row.person)
        version = self.version()
        check_fresh(row.version, version)
        foreseen = preview_budget(actor=self.actor, department=row.department, instead_of=row, budget=None)
        if self.flag("dry_run"):
            return preview_answer(foreseen, row.pool)
        confirm.require(foreseen.breaks, self.confirmed)
        budgets.remove_budget(actor=self.actor, budget=row, expected_version=version)
        return Response(status=204)
