"""`tokens/{id}/use/`: how much of a token's GPU-hours is used."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible
from portal.api.base import ApiView
from portal.api.tokens import token_for
from portal.models import TokenPeriod
from workloads.requests.token_budgets import TokenUse, use_of


class TokenUseOut(serializers.Serializer[TokenUse]):
    gpu_hours = serializers.IntegerField(source="limit")
    gpu_hours_per = serializers.ChoiceField(TokenPeriod.choices, source="token.gpu_hours_per")
    used = serializers.FloatField(source="hours", help_text="By its workloads and those of tokens that it made.")
    left = serializers.FloatField()
    start = serializers.DateTimeField()
    resets_at = serializers.DateTimeField(allow_null=True, help_text="null: never.")
    used_up = serializers.BooleanField(source="is_used_up", help_text="Whether it submits nothing more.")
    text = serializers.CharField(source="sentence")


class TokenUseView(ApiView):
    """The use of a token's GPU-hours; 404 for a token without a limit."""

    @extend_schema(operation_id="tokens_use", responses=TokenUseOut)
    def get(self, request: Request, prefix: str) -> Response:
        use = use_of(token_for(self.actor, prefix), now=timezone.now())
        if use is None:
            raise NotVisible
        return Response(TokenUseOut(use).data)
