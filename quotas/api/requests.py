"""`quota_requests/` and `departments/{d}/quota_requests/`: request more quota, and decide requests."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Right, department_for, visible
from portal.api.base import ApiView, Empty, Moment, Paragraph, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import CONFIRM, IDEMPOTENCY_KEY, page_of
from portal.errors import N_, Invalid, Problem
from portal.infra import confirm
from quotas.amounts import LONGEST, units_of
from quotas.api.quotas import IN_UNITS, MOST, pool_for
from quotas.models import Pool, QuotaRequest, RequestComment, RequestState, Wanted
from quotas.requests import actions as quota_requests
from quotas.requests.previews import preview_of_grant


class CommentOut(serializers.ModelSerializer[RequestComment]):
    author = serializers.CharField(source="author.username", default=None, allow_null=True)

    class Meta:
        model = RequestComment
        fields = ["author", "text", "at"]


class QuotaRequestOut(serializers.ModelSerializer[QuotaRequest]):
    id = serializers.CharField(source="public_id")
    department = serializers.CharField(source="department.slug")
    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")
    author = serializers.CharField(source="author.username", default=None, allow_null=True)
    decided_by = serializers.CharField(source="decided_by.username", default=None, allow_null=True)
    renews = serializers.CharField(
        source="renews.public_id", default=None, allow_null=True, help_text="The grant that it would prolong."
    )
    comments = CommentOut(many=True)

    class Meta:
        model = QuotaRequest
        fields = [
            "id", "department", "pool", "unit", "wanted", "units", "before", "why", "starts_at", "ends_at", "state",
            "author", "created_at", "granted", "decided_by", "decided_at", "note", "applied_at", "ended_at", "renews",
            "comments", "version",
        ]  # fmt: skip


REQUEST_PAGE = page_of(QuotaRequestOut)


class QuotaRequestIn(Strict):
    pool = serializers.SlugField()
    wanted = serializers.ChoiceField(Wanted.choices, default=Wanted.GUARANTEED)
    units = serializers.IntegerField(
        min_value=0, max_value=MOST, allow_null=True, required=False,
        help_text=f"The new total; null: no borrow limit. {IN_UNITS}",
    )  # fmt: skip
    amount = serializers.CharField(
        max_length=LONGEST, required=False, help_text="The new total in words, such as 6 GiB or 12; instead of units."
    )
    why = Paragraph(max_length=1000)
    starts_at = Moment(allow_null=True, default=None, help_text="null: on approval.")
    ends_at = Moment(allow_null=True, default=None, help_text="null: for good.")


class DecisionIn(Strict):
    approve = serializers.BooleanField()
    units = serializers.IntegerField(
        min_value=0,
        max_value=MOST,
        allow_null=True,
        required=False,
        help_text="The approved total; absent: as requested.",
    )
    amount = serializers.CharField(
        max_length=LONGEST,
        required=False,
        help_text="The approved total in words, such as 6 GiB or 12; instead of units.",
    )
    ends_at = Moment(allow_null=True, required=False, help_text="Absent: as requested; null: for good.")
    note = Paragraph(max_length=1000, default="", allow_blank=True, help_text="Required to deny.")
    version = serializers.IntegerField(min_value=1, max_value=MOST, help_text="Of the request, as you have read it.")


class CommentIn(Strict):
    text = Paragraph(max_length=1000)


def rows() -> Any:
    related = ("department__parent", "pool__group", "author", "decided_by", "renews")
    return QuotaRequest.objects.select_related(*related).prefetch_related("comments__author")


def answer(row: QuotaRequest, status: int = 200) -> Response:
    headers = {"Location": reverse("api:quota-request", args=[row.public_id])} if status == 201 else {}
    return Response(QuotaRequestOut(rows().get(pk=row.pk)).data, status=status, headers=headers)


def read_amount(values: dict[str, Any], pool: Pool) -> None:
    """Replace an `amount` in words by `units`. Raises Invalid (amount)."""
    if "amount" in values:
        try:
            values["units"] = units_of(values.pop("amount"), pool, least=0)
        except Invalid as error:
            error.field = "amount"
            raise


class QuotaRequests(ApiView):
    @extend_schema(
        operation_id="quota_requests_list",
        responses=REQUEST_PAGE,
        parameters=[
            OpenApiParameter("state", str, enum=list(RequestState.values), description="Only requests in this state."),
            OpenApiParameter("to_decide", bool, description="Only open requests that you may decide."),
        ],
    )
    def get(self, request: Request) -> Response:
        matches = visible(self.actor, rows())
        if self.flag("to_decide"):
            matches = matches.filter(pk__in=quota_requests.to_decide(self.actor))
        if state := self.text("state"):
            if state not in RequestState.values:
                raise Invalid(N_("There is no state %(state)s."), field="state", state=state)
            matches = matches.filter(state=state)
        return self.page(matches, QuotaRequestOut)


class DepartmentQuotaRequests(ApiView):
    @extend_schema(operation_id="department_quota_requests_list", responses=REQUEST_PAGE)
    def get(self, request: Request, department: str) -> Response:
        return self.page(rows().filter(department=department_for(self.actor, department)), QuotaRequestOut)

    @extend_schema(
        operation_id="quota_requests_ask",
        request=QuotaRequestIn,
        responses={201: QuotaRequestOut},
        parameters=[IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.SUBMIT)
        values = self.read(QuotaRequestIn)
        pool = pool_for(values.pop("pool"))
        if ("units" in values) == ("amount" in values):
            raise Invalid(N_("Give either units or amount."), field="units")
        read_amount(values, pool)
        return answer(quota_requests.ask_for_quota(actor=self.actor, department=where, pool=pool, **values), 201)


class QuotaRequestView(ApiView):
    @extend_schema(operation_id="quota_requests_read", responses=QuotaRequestOut)
    def get(self, request: Request, quota_request: str) -> Response:
        return answer(quota_requests.request_for(self.actor, quota_request))

    @extend_schema(operation_id="quota_requests_withdraw", responses={200: QuotaRequestOut}, request=None)
    def delete(self, request: Request, quota_request: str) -> Response:
        """The request stays in the history, as withdrawn."""
        row = quota_requests.request_for(self.actor, quota_request)
        return answer(quota_requests.withdraw(actor=self.actor, request=row))


class QuotaRequestDecision(ApiView):
    @extend_schema(
        operation_id="quota_requests_decide",
        request=DecisionIn,
        responses=QuotaRequestOut,
        parameters=[CONFIRM, IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request, quota_request: str) -> Response:
        row = quota_requests.request_for(self.actor, quota_request)
        quota_requests.require_decider(self.actor, row)
        values = self.read(DecisionIn)
        if "units" in values and "amount" in values:
            raise Invalid(N_("Give either units or amount."), field="units")
        read_amount(values, row.pool)
        seen: dict[str, Any] = {"actor": self.actor, "request": row, "expected_version": values["version"]}
        if not values["approve"]:
            return answer(quota_requests.deny(**seen, note=values["note"]))
        units, ends_at = values.get("units", row.units), values.get("ends_at", row.ends_at)
        try:
            preview = preview_of_grant(self.actor, row, units) if row.is_open else None
            if preview is not None:
                confirm.require(preview.breaks, self.confirmed)
            return answer(quota_requests.approve(**seen, units=units, ends_at=ends_at, note=values["note"]))
        except Problem as problem:
            problem.field = "units" if problem.field == row.wanted else problem.field
            raise


class QuotaRequestComments(ApiView):
    @extend_schema(
        operation_id="quota_requests_comment",
        request=CommentIn,
        responses={201: QuotaRequestOut},
        parameters=[IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request, quota_request: str) -> Response:
        row = quota_requests.request_for(self.actor, quota_request)
        quota_requests.require_voice(self.actor, row)
        quota_requests.comment(actor=self.actor, request=row, text=self.read(CommentIn)["text"])
        return answer(row, 201)


class QuotaRequestRenewal(ApiView):
    @extend_schema(
        operation_id="quota_requests_renew",
        request=None,
        responses={201: QuotaRequestOut},
        parameters=[IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request, quota_request: str) -> Response:
        """Requests the same amount for another term of the same length."""
        self.read(Empty)
        row = quota_requests.request_for(self.actor, quota_request)
        return answer(quota_requests.renew(actor=self.actor, request=row), 201)
