"""`departments/{d}/webhooks/`: where a department's notices are sent, and the result of each delivery."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Right, department_for
from portal.api.base import ApiView, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import IDEMPOTENCY_KEY, IF_MATCH, page_of
from portal.models import Webhook, WebhookDelivery, WebhookShape
from portal.notify import notices, outbox, safe_http
from portal.notify import webhooks as actions
from portal.notify.webhooks import webhook_for
from portal.text.numbers import natural

STATES = ["waiting", "delivered", "failed"]


class WebhookOut(serializers.ModelSerializer[Webhook]):
    host = serializers.SerializerMethodField(
        help_text="Of the address. The rest of it is not shown: chat services put their key into it."
    )
    signed = serializers.SerializerMethodField(help_text="Whether it has a secret, which is never shown again.")
    paused_until = serializers.DateTimeField(
        source="open_until", allow_null=True, help_text="After several failures in a row; null: nothing is held back."
    )

    class Meta:
        model = Webhook
        fields = [
            "id", "name", "host", "shape", "signed", "language", "kinds", "active", "version", "created_at", "failures",
            "failing_since", "paused_until",
        ]  # fmt: skip

    def get_host(self, webhook: Webhook) -> str:
        return safe_http.host_of(webhook.url)

    def get_signed(self, webhook: Webhook) -> bool:
        return bool(webhook.secret)


class NewWebhookOut(WebhookOut):
    secret = serializers.CharField(
        read_only=True, help_text="Made for signed JSON that came without, and shown this once; else empty."
    )

    class Meta(WebhookOut.Meta):
        fields = [*WebhookOut.Meta.fields, "secret"]


class WebhookChange(Strict):
    name = serializers.CharField(max_length=80, required=False)
    url = serializers.CharField(max_length=500, required=False)
    shape = serializers.ChoiceField(WebhookShape.choices, required=False)
    secret = serializers.CharField(
        max_length=200,
        allow_blank=True,
        required=False,
        help_text="Signs the messages. A different host needs it again.",
    )
    language = serializers.ChoiceField(settings.LANGUAGES, required=False, help_text="Of the messages.")
    kinds = serializers.ListField(
        child=serializers.CharField(max_length=40), max_length=200, required=False,
        help_text="Empty: all of " + ", ".join(sorted(kind for kind, known in notices.KINDS.items() if known.for_webhooks)),
    )  # fmt: skip
    active = serializers.BooleanField(required=False)


class WebhookIn(WebhookChange):
    name = serializers.CharField(max_length=80)
    url = serializers.CharField(max_length=500, help_text="At one of the hosts that the operator allows.")
    shape = serializers.ChoiceField(WebhookShape.choices, default=WebhookShape.GENERIC.value)
    active = None  # type: ignore[assignment]


class SecretIn(Strict):
    secret = serializers.CharField(
        max_length=200, default="", allow_blank=True, help_text="Absent: one is made. Feishu and DingTalk make theirs."
    )


class SecretOut(serializers.Serializer[Any]):
    secret = serializers.CharField(help_text="Shown this once.")


class DeliveryOut(serializers.ModelSerializer[WebhookDelivery]):
    state = serializers.SerializerMethodField()
    status = serializers.IntegerField(allow_null=True, help_text="HTTP status of the last try.")
    next_try_at = serializers.SerializerMethodField(help_text="null: none follows.")

    class Meta:
        model = WebhookDelivery
        fields = ["id", "kind", "state", "tries", "status", "error", "created_at", "next_try_at", "sent_at"]

    @extend_schema_field(serializers.ChoiceField(STATES))
    def get_state(self, row: WebhookDelivery) -> str:
        if row.sent_at is not None:
            return "delivered"
        return "failed" if row.due_at >= outbox.FAR else "waiting"

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_next_try_at(self, row: WebhookDelivery) -> Any:
        return row.due_at if self.get_state(row) == "waiting" else None


class Webhooks(ApiView):
    """For owners of the department."""

    @extend_schema(operation_id="webhooks_list", responses=page_of(WebhookOut))
    def get(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.STEER)
        return self.page(Webhook.objects.filter(department=where), WebhookOut)

    @extend_schema(
        operation_id="webhooks_add", request=WebhookIn, responses={201: NewWebhookOut}, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request, department: str) -> Response:
        where = department_for(self.actor, department, Right.STEER)
        values = self.read(WebhookIn)
        made = actions.generated_secret(values["shape"], values.get("secret", ""))
        created: dict[str, Any] = {}

        def store_answer(row: Webhook) -> None:
            location = reverse("api:webhook", args=[where.slug, row.pk])
            created["data"] = WebhookOut(row).data | {"secret": made}
            created["headers"] = {"Location": location, "ETag": f'"{row.version}"'}
            self.keep(201, created["data"], created["headers"])

        values["secret"] = values.get("secret") or made
        actions.add_webhook(actor=self.actor, department=where, on_commit_row=store_answer, **values)
        return Response(created["data"], status=201, headers=created["headers"])


def answer(row: Webhook) -> Response:
    return Response(WebhookOut(row).data, headers={"ETag": f'"{row.version}"'})


class WebhookView(ApiView):
    @extend_schema(operation_id="webhooks_read", responses=WebhookOut)
    def get(self, request: Request, department: str, webhook: str) -> Response:
        return answer(webhook_for(self.actor, department, natural(webhook) or 0))

    @extend_schema(operation_id="webhooks_change", request=WebhookChange, responses=WebhookOut, parameters=[IF_MATCH])
    def patch(self, request: Request, department: str, webhook: str) -> Response:
        """What is absent stays as it is. Messages that wait go to the new address; `active` tries them at once."""
        row = webhook_for(self.actor, department, natural(webhook) or 0)
        changes, version = cast(actions.Changes, self.read(WebhookChange)), self.version() or 0
        return answer(actions.change_webhook(actor=self.actor, webhook=row, expected_version=version, **changes))

    @extend_schema(operation_id="webhooks_remove", responses={204: None}, parameters=[IF_MATCH])
    def delete(self, request: Request, department: str, webhook: str) -> Response:
        """With its deliveries; what waits is not sent."""
        row = webhook_for(self.actor, department, natural(webhook) or 0)
        actions.remove_webhook(actor=self.actor, webhook=row, expected_version=self.version() or 0)
        return Response(status=204)


class WebhookSecret(ApiView):
    @extend_schema(
        operation_id="webhooks_rotate_secret", request=SecretIn, responses=SecretOut, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request, department: str, webhook: str) -> Response:
        """Replaces the secret, and shows the new one this once. What the receiver refuses meanwhile is tried again."""
        row = webhook_for(self.actor, department, natural(webhook) or 0)
        secret = actions.rotate_secret(actor=self.actor, webhook=row, **self.read(SecretIn))
        return Response({"secret": secret})


class WebhookTest(ApiView):
    without_body = frozenset({"post"})

    @extend_schema(
        operation_id="webhooks_test", request=None, responses={202: DeliveryOut}, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request, department: str, webhook: str) -> Response:
        """Sends a test message, once, also to a webhook that is off. `deliveries/` says what became of it."""
        row = webhook_for(self.actor, department, natural(webhook) or 0)
        return Response(DeliveryOut(actions.try_webhook(actor=self.actor, webhook=row)).data, status=202)


class WebhookDeliveries(ApiView):
    @extend_schema(operation_id="webhook_deliveries_list", responses=page_of(DeliveryOut))
    def get(self, request: Request, department: str, webhook: str) -> Response:
        """The latest first."""
        return self.page(webhook_for(self.actor, department, natural(webhook) or 0).deliveries.all(), DeliveryOut)
