"""`tokens/` and `departments/{d}/service_accounts/`: access for programs."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Actor, NotVisible, Right, department_for
from portal.accounts import tokens as actions
from portal.api.base import ApiView, Moment, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import IDEMPOTENCY_KEY, page_of
from portal.models import ApiToken, Role, TokenPeriod, User

SCOPES = [right.value for right in Right]


class TokenOut(serializers.ModelSerializer[ApiToken]):
    id = serializers.CharField(source="prefix")
    holder = serializers.SlugRelatedField[Any](slug_field="username", read_only=True)
    department = serializers.CharField(
        source="department.slug", default=None, allow_null=True, help_text="null: the whole installation"
    )
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES))
    addresses = serializers.ListField(child=serializers.CharField())
    made_by = serializers.CharField(source="made_by.username", default=None, allow_null=True)
    parent = serializers.CharField(  # type: ignore[assignment]
        source="parent.prefix",
        default=None,
        allow_null=True,
        help_text="The token that made it, and that it ends with.",
    )

    class Meta:
        model = ApiToken
        fields = [
            "id", "name", "holder", "department", "scopes", "addresses", "gpu_hours", "gpu_hours_per", "made_by", "parent",
            "created_at", "expires_at", "last_used_at", "revoked_at",
        ]  # fmt: skip


class NewTokenOut(TokenOut):
    token = serializers.CharField(help_text="The whole token; shown this once.", read_only=True)

    class Meta(TokenOut.Meta):
        fields = [*TokenOut.Meta.fields, "token"]


class TokenIn(Strict):
    department = serializers.SlugField(
        allow_null=True, help_text="null: the whole installation, for operators; any other acts in its department only."
    )
    name = serializers.CharField(max_length=80)
    scopes = serializers.ListField(child=serializers.CharField(), allow_empty=False, help_text=", ".join(SCOPES))
    expires_at = Moment(help_text="At most one year ahead.")
    addresses = serializers.ListField(child=serializers.CharField(), default=list, help_text="Networks; empty: any.")
    gpu_hours = serializers.IntegerField(
        min_value=1, max_value=actions.MOST_GPU_HOURS, allow_null=True, default=None,
        help_text="GPU-hours that its workloads may use, a part of a card in proportion; null: no such limit.",
    )  # fmt: skip
    gpu_hours_per = serializers.ChoiceField(TokenPeriod.choices, default=TokenPeriod.MONTH.value)
    holder = serializers.CharField(required=False, help_text="A service account of the department; absent: yourself.")


class ServiceAccountIn(Strict):
    name = serializers.RegexField(r"^[a-z0-9][a-z0-9-]{0,39}$")
    role = serializers.ChoiceField(Role.values, default=Role.MEMBER.value, help_text="Not owner.")


class ServiceAccountOut(serializers.Serializer[User]):
    username = serializers.CharField()
    role = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField(source="date_joined")
    tokens = serializers.SerializerMethodField(help_text="How many live tokens it has.")

    def get_role(self, account: User) -> str:
        return next((row.role for row in account.memberships.all()), "")

    def get_tokens(self, account: User) -> int:
        now = timezone.now()
        return sum(token.is_live(now) for token in account.tokens.all())


class Tokens(ApiView):
    """Your own tokens; with `department` also those of its service accounts and members, for its owners.

    Making one with a token takes the scope `tokens`: it then has no more than that token, and ends with it.
    """

    def rows(self) -> QuerySet[ApiToken]:
        rows = ApiToken.objects.select_related("holder", "department", "made_by", "parent")
        if self.text("department"):
            department = department_for(self.actor, self.text("department"))
            readable = Q() if self.actor.may(Right.STEER, department) else Q(holder=self.user)
            return rows.filter(readable, department=department)
        own = rows.filter(holder=self.user)
        return own if self.actor.bound is None else own.filter(department=self.actor.bound)

    @extend_schema(
        operation_id="tokens_list",
        responses=page_of(TokenOut),
        parameters=[
            OpenApiParameter(
                "department",
                str,
                description="Only tokens of this department, by its `id`; by default your own in all departments.",
            )
        ],
    )
    def get(self, request: Request) -> Response:
        return self.page(self.rows(), TokenOut)

    @extend_schema(
        operation_id="tokens_create", request=TokenIn, responses={201: NewTokenOut}, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request) -> Response:
        values = self.read(TokenIn)
        slug = values.pop("department")
        department = None if slug is None else department_for(self.actor, slug)
        holder = None
        if name := values.pop("holder", None):
            accounts = User.objects.filter(username=name, service_of__isnull=False)
            holder = accounts.filter(service_of=department).first()
            if holder is None and name != self.user.username:
                raise serializers.ValidationError({"holder": "There is no such service account."})
        created: dict[str, Any] = {}

        def store_answer(token: ApiToken, secret: str) -> None:
            created["data"] = TokenOut(token).data | {"token": secret}
            created["headers"] = {"Location": reverse("api:token", args=[token.prefix])}
            self.keep(201, created["data"], created["headers"])

        actions.create_token(
            actor=self.actor, department=department, holder=holder, on_commit_row=store_answer, **values
        )
        return Response(created["data"], status=201, headers=created["headers"])


def token_for(actor: Actor, prefix: str) -> ApiToken:
    """A token of the actor, or of a department that they may manage. Raises NotVisible."""
    rows = ApiToken.objects.select_related("holder", "department", "made_by", "parent")
    token = rows.filter(prefix=prefix).first()
    if token is None:
        raise NotVisible
    narrowed = actor.bound not in {None, token.department_id}
    if narrowed or not (token.holder == actor.user or actor.may(Right.STEER, token.department)):
        raise NotVisible
    return token


class TokenView(ApiView):
    @extend_schema(operation_id="tokens_read", responses=TokenOut)
    def get(self, request: Request, prefix: str) -> Response:
        return Response(TokenOut(token_for(self.actor, prefix)).data)

    @extend_schema(operation_id="tokens_revoke", responses={204: None})
    def delete(self, request: Request, prefix: str) -> Response:
        actions.revoke_token(actor=self.actor, token=token_for(self.actor, prefix))
        return Response(status=204)


class ServiceAccounts(ApiView):
    def rows(self, slug: str) -> QuerySet[User]:
        department = department_for(self.actor, slug)
        accounts = User.objects.filter(service_of=department, is_active=True)
        return accounts.prefetch_related("memberships", "tokens")

    @extend_schema(operation_id="service_accounts_list", responses=page_of(ServiceAccountOut))
    def get(self, request: Request, department: str) -> Response:
        return self.page(self.rows(department), ServiceAccountOut)

    @extend_schema(
        operation_id="service_accounts_create",
        request=ServiceAccountIn,
        responses={201: ServiceAccountOut},
        parameters=[IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.STEER)
        account = actions.create_service_account(actor=self.actor, department=where, **self.read(ServiceAccountIn))
        return Response(ServiceAccountOut(account).data, status=201)


class ServiceAccountView(ApiView):
    @extend_schema(operation_id="service_accounts_remove", responses={204: None})
    def delete(self, request: Request, department: str, username: str) -> Response:
        where = department_for(self.actor, department, Right.STEER)
        account = User.objects.filter(username=username, service_of=where, is_active=True).first()
        if account is None:
            raise NotVisible
        actions.remove_service_account(actor=self.actor, account=account)
        return Response(status=204)
