"""`backtests/`: what the last weeks would have been under a draft. Request one, read it until it is done, cancel it."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Actor, NotVisible
from portal.api.base import ApiView, FreeText, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import IDEMPOTENCY_KEY, page_of
from portal.text.words import stored_sentence
from quotas.models import Pool
from workloads.backtests import draft, runs
from workloads.backtests.pages import backtest_for
from workloads.models import Backtest


class BacktestIn(Strict):
    pool = serializers.SlugField(help_text="One of the pools that are planned together.")
    days = serializers.IntegerField(min_value=1, max_value=runs.MOST_DAYS, default=30)
    configuration = FreeText(
        max_length=draft.LONGEST,
        help_text="What would be different, as a piece of a configuration file (YAML): `departments` with `quotas`, `user_caps`,"
        " `weight` and `policy`; `pools` with `notice`, `grace`, `min_runtime`, `max_reclaims`, `balance_half_life`,"
        " `fair_sharing`, `starvation_after`, `restart_cost` and `policy`.",
    )


class ChangeShown(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="Such as departments.vision.quotas.a100.guaranteed.")
    before = serializers.CharField(allow_null=True)
    after = serializers.CharField(allow_null=True)


class BacktestOut(serializers.ModelSerializer[Backtest]):
    id = serializers.CharField(source="public_id")
    pools = serializers.SerializerMethodField()
    by = serializers.SerializerMethodField(help_text="For whoever asked, and operators; else null.")
    changes = serializers.SerializerMethodField()
    why = serializers.SerializerMethodField(help_text="Why it failed; else empty.")

    class Meta:
        model = Backtest
        fields = ["id", "pools", "by", "begin", "end", "changes", "state", "percent", "why", "asked_at", "ended_at"]

    def get_pools(self, row: Backtest) -> list[str]:
        return sorted(pool.slug for pool in row.group.pools.all())

    def get_by(self, row: Backtest) -> str | None:
        author = runs.author_for(self.context["actor"], row)
        return author.username if author else None

    @extend_schema_field(ChangeShown(many=True))
    def get_changes(self, row: Backtest) -> list[dict[str, Any]]:
        return [dict(zip(("path", "before", "after"), change, strict=True)) for change in row.changes]

    def get_why(self, row: Backtest) -> str:
        return stored_sentence(row.why) if row.why else ""


class BacktestDetailOut(BacktestOut):
    configuration = serializers.CharField(source="draft")
    now = serializers.SerializerMethodField(
        help_text="Figures under the rules as they were when it was played: `all` departments together, and `departments` by"
        " name, only those of which the caller is the owner. GPU-hours are of whole cards, waits in seconds. Null until it is"
        " done."
    )
    draft = serializers.SerializerMethodField(help_text="The same under the draft.")

    class Meta(BacktestOut.Meta):
        fields = [*BacktestOut.Meta.fields, "configuration", "now", "draft"]

    @extend_schema_field({"type": ["object", "null"], "additionalProperties": True})
    def get_now(self, row: Backtest) -> Any:
        return self._figures(row, "now")

    @extend_schema_field({"type": ["object", "null"], "additionalProperties": True})
    def get_draft(self, row: Backtest) -> Any:
        return self._figures(row, "draft")

    def _figures(self, row: Backtest, name: str) -> Any:
        actor: Actor = self.context["actor"]
        return runs.figures_for(actor, row).get(name)


class Backtests(ApiView):
    @extend_schema(operation_id="backtests_list", responses=page_of(BacktestOut))
    def get(self, request: Request) -> Response:
        rows = runs.seen(self.actor).defer("result", "draft").prefetch_related("group__pools")
        return self.page(rows, BacktestOut)

    @extend_schema(
        operation_id="backtests_ask", request=BacktestIn, responses={201: BacktestOut}, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Requests a backtest: a worker simulates the last days under the present rules and under the draft. One at a time for
        each person."""
        values = self.read(BacktestIn)
        pool = Pool.objects.select_related("group").filter(slug=values["pool"]).first()
        if pool is None:
            raise NotVisible
        answer: dict[str, Any] = {}

        def store(row: Backtest) -> None:
            answer.update(
                data=BacktestOut(row, context={"actor": self.actor}).data,
                headers={"Location": reverse("api:backtest", args=[row.public_id])},
            )
            self.keep(201, answer["data"], answer["headers"])

        runs.ask(actor=self.actor, group=pool.group, text=values["configuration"], days=values["days"], also=store)
        return Response(status=201, **answer)


class BacktestView(ApiView):
    @extend_schema(operation_id="backtests_read", responses=BacktestDetailOut)
    def get(self, request: Request, backtest: str) -> Response:
        return Response(BacktestDetailOut(backtest_for(self.actor, backtest), context={"actor": self.actor}).data)

    @extend_schema(operation_id="backtests_cancel", responses={204: None})
    def delete(self, request: Request, backtest: str) -> Response:
        """Cancels a backtest that waits or runs; one that has ended is kept."""
        runs.cancel(actor=self.actor, row=backtest_for(self.actor, backtest))
        return Response(status=204)
