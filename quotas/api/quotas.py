"""`departments/{d}/quotas/`, `…/user_caps/` and `…/usage/`: a department's quotas and caps, and what it uses."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible, Right, department_for
from portal.api.base import ApiView, Strict
from portal.api.schema import CONFIRM, DRY_RUN, IF_MATCH, either, page_of
from portal.infra import confirm
from portal.models import Department
from quotas.api.windows import LimitChangeOut, WindowShape, window_in, window_out
from quotas.board.usage import department_usage
from quotas.lending.windows import schedule_of
from quotas.models import Pool, Quota, UserCap
from quotas.previews.effects import Preview
from quotas.previews.quota import preview_cap, preview_quota
from quotas.rules import quotas

MOST = 2**31 - 1
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    {"type": "string", "enum": ["*"]},
    OpenApiParameter.HEADER,
    description="`*`, instead of `If-Match`, to create what does not exist yet.",
)
POOL = OpenApiParameter("pool", str, description="Only those of this pool, by its `id`.")


def pool_for(slug: str) -> Pool:
    """The pool with this slug; everybody may see pools. Raises NotVisible."""
    pool = Pool.objects.select_related("group__cluster").filter(slug=slug).first()
    if pool is None:
        raise NotVisible
    return pool


class QuotaOut(serializers.ModelSerializer[Quota]):
    department = serializers.CharField(source="department.slug")
    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")
    windows = serializers.SerializerMethodField(help_text="Times at which another lend limit holds.")
    lend_limit_now = serializers.SerializerMethodField(help_text="As the windows have it at this moment; null: all.")
    lend_limit_next = serializers.SerializerMethodField(help_text="The next change; null: there is none.")

    class Meta:
        model = Quota
        fields = [
            "department", "pool", "unit", "guaranteed", "borrow_limit", "lend_limit", "windows", "zone",
            "lend_limit_now", "lend_limit_next", "version", "updated_at",
        ]  # fmt: skip

    @extend_schema_field(WindowShape(many=True))
    def get_windows(self, row: Quota) -> list[dict[str, Any]]:
        return [window_out(window) for window in schedule_of(row).windows]

    def get_lend_limit_now(self, row: Quota) -> int | None:
        return schedule_of(row).at(timezone.now())

    @extend_schema_field(LimitChangeOut(allow_null=True))
    def get_lend_limit_next(self, row: Quota) -> dict[str, Any] | None:
        change = schedule_of(row).next_change(timezone.now())
        return dict(LimitChangeOut({"at": change[0], "lend_limit": change[1]}).data) if change else None


IN_UNITS = "In the pool's unit: MiB where it counts memory (6 GiB is 6144)."


class QuotaIn(Strict):
    guaranteed = serializers.IntegerField(min_value=0, max_value=MOST, help_text=IN_UNITS)
    borrow_limit = serializers.IntegerField(min_value=0, max_value=MOST, allow_null=True, help_text="null: no limit")
    lend_limit = serializers.IntegerField(min_value=0, max_value=MOST, allow_null=True, help_text="null: all")
    windows = WindowShape(many=True, required=False, help_text="Absent: they stay as they are.")
    zone = serializers.CharField(
        max_length=50, required=False, help_text="Of the windows' clock, such as Asia/Shanghai."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Windows need their time zone: both or neither."""
        if ("windows" in attrs) != ("zone" in attrs) and attrs.get("windows") != []:
            missing = "zone" if "windows" in attrs else "windows"
            raise serializers.ValidationError({missing: serializers.Field.default_error_messages["required"]})
        if "windows" in attrs:
            rows = tuple(window_in(each) for each in attrs.pop("windows"))
            attrs["lending"] = quotas.Lending(rows, attrs.pop("zone", ""))
        return attrs


class QuotaInWithReason(QuotaIn):
    why = serializers.CharField(max_length=300, default="", allow_blank=True, help_text="For the history.")


class StoppedOut(serializers.Serializer[Any]):
    """A workload or recall that would have to release capacity, as far as the reader may see it."""

    department = serializers.CharField(source="department.slug")
    pool = serializers.CharField(source="pool.slug")
    units = serializers.IntegerField()
    own = serializers.BooleanField(help_text="In a department that you see.")
    workload = serializers.CharField(help_text="Empty outside your own departments.")
    name = serializers.CharField(help_text="Empty outside your own departments.")


class BreakOut(serializers.Serializer[Any]):
    """One thing that the change takes away."""

    kind = serializers.ChoiceField(
        [
            "stopped",
            "waits",
            "late",
            "impossible",
            "recallable",
            "called_back",
            "guarantee",
            "protection",
            "over",
            "held",
            "short",
        ]
    )
    detail = serializers.CharField()


class PreviewOut(serializers.Serializer[Any]):
    """What the change would do. Nothing has been changed."""

    unit = serializers.CharField(allow_null=True, help_text="null: several pools are concerned.")
    stopped = StoppedOut(many=True)
    promised_at = serializers.DateTimeField(allow_null=True, help_text="By when all would be back.")
    sentence = serializers.CharField()
    lines = serializers.ListField(child=serializers.CharField(), help_text="What else is to be said.")
    breaks = BreakOut(many=True, help_text="What it takes from somebody; the first 100.")
    confirm = serializers.CharField(
        allow_null=True, help_text="Send it as `confirm` with the change itself; null: nothing needs to be confirmed."
    )


def preview_answer(preview: Preview, pool: Pool | None, facts: Any = None) -> Response:
    """The preview as a response. `pool` None: several pools are affected, and each of `stopped` names its own."""
    data = {
        "unit": pool.unit if pool else None, "stopped": preview.stopped, "promised_at": preview.promised_at,
        "sentence": preview.sentence, "lines": preview.lines, "breaks": confirm.as_json(preview.breaks),
        "confirm": confirm.mark_of(preview.breaks, facts) if preview.breaks else None,
    }  # fmt: skip
    return Response(PreviewOut(data).data)


class Quotas(ApiView):
    ordering = "pool__slug"

    @extend_schema(operation_id="quotas_list", responses=page_of(QuotaOut))
    def get(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department)
        return self.page(Quota.objects.filter(department=where).select_related("department", "pool"), QuotaOut)


class QuotaView(ApiView):
    dry_runs = frozenset({"put"})

    @extend_schema(operation_id="quotas_read", responses=QuotaOut)
    def get(self, request: Request, department: str, pool: str) -> Response:
        where = department_for(self.actor, department)
        row = Quota.objects.filter(department=where, pool=pool_for(pool)).select_related("department", "pool").first()
        if row is None:
            raise NotVisible
        return answer(row)

    @extend_schema(
        operation_id="quotas_set",
        request=QuotaInWithReason,
        responses={200: either(QuotaOut, PreviewOut), 201: QuotaOut},
        parameters=[IF_MATCH, IF_NONE_MATCH, DRY_RUN, CONFIRM],
    )
    def put(self, request: Request, department: str, pool: str) -> Response:
        where, of = department_for(self.actor, department, Right.STEER), pool_for(pool)
        values = self.read(QuotaInWithReason)
        why = values.pop("why")
        expected = self.version()
        asked = {"actor": self.actor, "department": where, "pool": of, "expected_version": expected, **values}
        quotas.check_quota(**asked)
        foreseen = preview_quota(**asked)
        if self.flag("dry_run"):
            return preview_answer(foreseen, of)
        confirm.require(foreseen.breaks, self.confirmed)
        row = quotas.set_quota(**asked, why=why)
        return answer(row, status=201 if expected is None else 200)


def answer(row: Quota, *, status: int = 200) -> Response:
    headers = {"ETag": f'"{row.version}"'}
    if status == 201:
        headers["Location"] = reverse("api:quota", args=[row.department.slug, row.pool.slug])
    return Response(QuotaOut(row).data, status=status, headers=headers)


class UserCapOut(serializers.ModelSerializer[UserCap]):
    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")

    class Meta:
        model = UserCap
        fields = ["pool", "unit", "units"]


class UserCapIn(Strict):
    units = serializers.IntegerField(min_value=0, max_value=MOST, help_text=IN_UNITS)


class UserCaps(ApiView):
    ordering = "pool__slug"

    @extend_schema(operation_id="user_caps_list", responses=page_of(UserCapOut))
    def get(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department)
        return self.page(UserCap.objects.filter(department=where).select_related("pool"), UserCapOut)


class UserCapView(ApiView):
    dry_runs = frozenset({"put"})

    @extend_schema(
        operation_id="user_caps_set",
        request=UserCapIn,
        responses=either(UserCapOut, PreviewOut),
        parameters=[DRY_RUN, CONFIRM],
    )
    def put(self, request: Request, department: str, pool: str) -> Response:
        where, of = department_for(self.actor, department, Right.STEER), pool_for(pool)
        values = self.read(UserCapIn)
        asked: dict[str, Any] = {"actor": self.actor, "department": where, "pool": of, "units": values["units"]}
        foreseen = preview_cap(**asked)
        if self.flag("dry_run"):
            return preview_answer(foreseen, of)
        confirm.require(foreseen.breaks, self.confirmed)
        quotas.set_user_cap(**asked)
        return Response({"pool": of.slug, "unit": of.unit, **values})

    @extend_schema(operation_id="user_caps_lift", responses={204: None})
    def delete(self, request: Request, department: str, pool: str) -> Response:
        where, of = department_for(self.actor, department, Right.STEER), pool_for(pool)
        quotas.set_user_cap(actor=self.actor, department=where, pool=of, units=None)
        return Response(status=204)


class UserUsageOut(serializers.Serializer[Any]):
    user = serializers.CharField(source="user.username", default=None, allow_null=True)
    own = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    cap = serializers.IntegerField(allow_null=True)


BY_DEPARTMENT = {
    "type": "object",
    "additionalProperties": {"type": "integer"},
    "description": "{department: units}; the empty name is the pool's unassigned capacity.",
}


@extend_schema_field(BY_DEPARTMENT)
class ByDepartment(serializers.DictField):
    pass


class UsageOut(serializers.Serializer[Any]):
    department = serializers.CharField(source="department.slug")
    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")
    guaranteed = serializers.IntegerField()
    ceiling = serializers.IntegerField()
    own = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    borrowed_from = ByDepartment()
    lent = serializers.IntegerField()
    lent_to = ByDepartment()
    held = serializers.IntegerField()
    leaving = serializers.IntegerField()
    idle = serializers.IntegerField()
    free_now = serializers.IntegerField(help_text="What it could start now without recalling anyone.")
    queue_units = serializers.IntegerField()
    queue_len = serializers.IntegerField()
    per_user = UserUsageOut(many=True, help_text="Of the departments you see; the use of other teams has no names.")


class UsagesOut(serializers.Serializer[Any]):
    results = UsageOut(many=True)
    next = serializers.CharField(allow_null=True)


class Usage(ApiView):
    """One row for each pool: use of the department and all below it."""

    @extend_schema(operation_id="usage_read", responses=UsagesOut, parameters=[POOL])
    def get(self, request: Request, department: str) -> Response:
        where: Department = department_for(self.actor, department)
        pools = [pool_for(self.text("pool"))] if self.text("pool") else None
        rows = department_usage(where, pools, seen=self.actor.seen)
        return Response({"results": UsageOut(rows, many=True).data, "next": None})
