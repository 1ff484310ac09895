"""`pools/` and `nodes/`: capacity, how much of it is free, and operators' rules for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.conf import settings
from django.db.models import Prefetch, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import NotVisible
from portal.api.base import ApiView, Strict
from portal.api.schema import CONFIRM, DRY_RUN, IF_MATCH, either, page_of
from portal.infra import confirm
from portal.infra.versions import check_fresh
from quotas.api.quotas import MOST, PreviewOut, pool_for, preview_answer
from quotas.board.balances import balances_of
from quotas.board.card_map import PoolOverview, pool_overview
from quotas.board.usage_now import read
from quotas.models import Card, Node, Pool, PoolPrice
from quotas.previews.drain import preview_drain, preview_nominal
from quotas.previews.effects import Preview
from quotas.previews.policy import preview_rules
from quotas.rules import capacity, policies, prices


class DepartmentShareOut(serializers.Serializer[Any]):
    """Amounts are null where the reader may not see them."""

    department = serializers.CharField(source="department.slug")
    guaranteed = serializers.IntegerField(allow_null=True)
    own = serializers.IntegerField(allow_null=True)
    borrowed = serializers.IntegerField(allow_null=True)
    held = serializers.IntegerField(allow_null=True)


class BalanceOut(serializers.Serializer[Any]):
    """GPU-hours, halved after each half-life."""

    department = serializers.CharField(source="department.slug")
    lent = serializers.FloatField()
    borrowed = serializers.FloatField()
    balance = serializers.FloatField(source="more_lent", help_text="What is lent more than borrowed.")
    place = serializers.IntegerField(help_text="Among the departments of one parent: 1 borrows first.")


class PoolOut(serializers.Serializer[Any]):
    id = serializers.CharField(source="pool.slug")
    name = serializers.CharField(source="pool.name")
    cluster = serializers.CharField(source="pool.group.cluster.name")
    product = serializers.CharField(source="pool.product")
    sharing = serializers.CharField(source="pool.sharing")
    unit = serializers.CharField(source="pool.unit")
    units_per_card = serializers.IntegerField(source="pool.units_per_card")
    nominal = serializers.IntegerField(source="pool.nominal", help_text="What may be promised.")
    present = serializers.IntegerField(help_text="What is there and healthy.")
    promised = serializers.IntegerField(help_text="The sum of all guarantees.")
    short_by = serializers.IntegerField()
    own = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    held = serializers.IntegerField()
    free = serializers.IntegerField()
    outside = serializers.IntegerField(help_text="Units that pods have which the portal did not start; nobody's usage.")
    largest = serializers.IntegerField(help_text="The largest request that fits now.")
    queue_units = serializers.IntegerField()
    queue_len = serializers.IntegerField()
    notice = serializers.IntegerField(source="pool.notice", help_text="s")
    grace = serializers.IntegerField(source="pool.grace", help_text="s")
    min_runtime = serializers.IntegerField(source="pool.min_runtime", help_text="s")
    max_reclaims = serializers.IntegerField(source="pool.max_reclaims")
    beside_percent = serializers.IntegerField(
        source="pool.beside_percent",
        help_text="Percent of an even share of its node's CPU and memory that come with a card.",
    )
    cpu_milli_per_card = serializers.SerializerMethodField(
        help_text="Who asks for more is charged for it; 0: nobody is."
    )
    memory_mib_per_card = serializers.SerializerMethodField()
    balance_half_life = serializers.IntegerField(
        source="pool.balance_half_life", allow_null=True, help_text="s, of fairness over time; null: it is off."
    )
    fair_sharing = serializers.BooleanField(
        source="pool.group.fair_sharing", allow_null=True, help_text="null: as the installation is set."
    )
    starvation_after = serializers.IntegerField(source="pool.group.starvation_after", allow_null=True, help_text="s")
    restart_cost = serializers.IntegerField(source="pool.group.restart_cost", allow_null=True, help_text="s")
    version = serializers.IntegerField(source="pool.version")
    shares = DepartmentShareOut(many=True)
    balances = serializers.SerializerMethodField(help_text="Empty without fairness over time.")

    @extend_schema_field(BalanceOut(many=True))
    def get_balances(self, view: PoolOverview) -> Any:
        balances = balances_of(view.pool, now=timezone.now())
        return BalanceOut(balances.rows if balances else (), many=True).data

    def get_cpu_milli_per_card(self, view: PoolOverview) -> int:
        return view.pool.with_a_card[0]

    def get_memory_mib_per_card(self, view: PoolOverview) -> int:
        return view.pool.with_a_card[1]


class PoolsOut(serializers.Serializer[Any]):
    results = PoolOut(many=True)
    next = serializers.CharField(allow_null=True)


def _rule(name: str, **more: Any) -> serializers.IntegerField:
    least, most = policies.BOUNDS[name]
    return serializers.IntegerField(min_value=least, max_value=most, required=False, **more)


class PoolChange(Strict):
    """Notice and grace apply to workloads admitted from now on: they are frozen at admission. Fair sharing, starvation and
    restart cost apply to all pools that share nodes; null: as in the installation's settings. With `balance_half_life`,
    departments that lent more than they borrowed lately borrow first in this pool, and fair sharing does not apply; null: off."""

    notice = _rule("notice")
    grace = _rule("grace")
    min_runtime = _rule("min_runtime")
    max_reclaims = _rule("max_reclaims")
    beside_percent = _rule("beside_percent")
    balance_half_life = _rule("balance_half_life", allow_null=True)
    fair_sharing = serializers.BooleanField(required=False, allow_null=True)
    starvation_after = _rule("starvation_after", allow_null=True)
    restart_cost = _rule("restart_cost", allow_null=True)


class Pools(ApiView):
    @extend_schema(operation_id="pools_read_all", responses=PoolsOut)
    def get(self, request: Request) -> Response:
        return Response({"results": PoolOut(pool_overview(read(), seen=self.actor.seen), many=True).data, "next": None})


class PoolView(ApiView):
    dry_runs = frozenset({"patch"})

    def answer(self, pool: Pool) -> Response:
        overview = pool_overview(read([pool]))[0]
        return Response(PoolOut(overview).data, headers={"ETag": f'"{pool.version}"'})

    @extend_schema(operation_id="pools_read", responses=PoolOut)
    def get(self, request: Request, pool: str) -> Response:
        return self.answer(pool_for(pool))

    @extend_schema(
        operation_id="pools_change",
        request=PoolChange,
        responses=either(PoolOut, PreviewOut),
        parameters=[IF_MATCH, DRY_RUN, CONFIRM],
    )
    def patch(self, request: Request, pool: str) -> Response:
        self.actor.require_operator()
        row = pool_for(pool)
        rules = replace(policies.PoolRules.of(row), **self.read(PoolChange))
        version = self.version() or 0
        check_fresh(row.version, version)
        foreseen = preview_rules(actor=self.actor, pool=row, rules=rules)
        if self.flag("dry_run"):
            return preview_answer(foreseen, row)
        confirm.require(foreseen.breaks, self.confirmed)
        policies.set_pool_rules(actor=self.actor, pool=row, rules=rules, expected_version=version)
        return self.answer(pool_for(pool))


class CapacityIn(Strict):
    nominal = serializers.IntegerField(
        min_value=0, max_value=MOST, help_text="What may be promised, in the pool's unit."
    )


class PoolCapacity(ApiView):
    dry_runs = frozenset({"put"})

    @extend_schema(
        operation_id="pools_set_capacity",
        request=CapacityIn,
        responses=either(PoolOut, PreviewOut),
        parameters=[DRY_RUN, CONFIRM],
    )
    def put(self, request: Request, pool: str) -> Response:
        """Sets the nominal capacity. For operators."""
        self.actor.require_operator()
        row, nominal = pool_for(pool), self.read(CapacityIn)["nominal"]
        capacity.check_nominal(row, nominal)
        foreseen = preview_nominal(actor=self.actor, pool=row, nominal=nominal)
        if self.flag("dry_run"):
            return preview_answer(foreseen, row)
        confirm.require(foreseen.breaks, self.confirmed)
        capacity.set_nominal(actor=self.actor, pool=row, nominal=nominal)
        return Response(PoolOut(pool_overview(read([pool_for(pool)]))[0]).data)


class PriceOut(serializers.ModelSerializer[PoolPrice]):
    """What an hour costs, for each card, GiB, slice, replica or (percent) whole card. null: no charge."""

    class Meta:
        model = PoolPrice
        fields = ["number", "own", "borrowed", "since", "set_by"]
        extra_kwargs = {name: {"allow_null": True} for name in ("since", "own", "borrowed")}


class PricesOut(PriceOut):
    currency = serializers.SerializerMethodField()
    history = serializers.SerializerMethodField(help_text="The newest first, at most 100.")

    class Meta(PriceOut.Meta):
        fields = [*PriceOut.Meta.fields, "currency", "history"]

    def get_currency(self, price: PoolPrice) -> str:
        return settings.CURRENCY

    @extend_schema_field(PriceOut(many=True))
    def get_history(self, price: PoolPrice) -> Any:
        return PriceOut(price.pool.prices.order_by("-number")[:100], many=True).data


class PriceIn(Strict):
    own = serializers.DecimalField(14, 6, min_value=0, max_value=prices.HIGHEST, allow_null=True)
    borrowed = serializers.DecimalField(14, 6, min_value=0, max_value=prices.HIGHEST, allow_null=True)


class PoolPriceView(ApiView):
    def answer(self, price: PoolPrice) -> Response:
        return Response(PricesOut(price).data, headers={"ETag": f'"{price.number}"'})

    @extend_schema(operation_id="pools_price", responses=PricesOut)
    def get(self, request: Request, pool: str) -> Response:
        return self.answer(prices.price_of(pool_for(pool)))

    @extend_schema(operation_id="pools_set_price", request=PriceIn, responses=PricesOut, parameters=[IF_MATCH])
    def put(self, request: Request, pool: str) -> Response:
        """The price applies from now on. The ETag is the number of the price; `"0"` before the first."""
        self.actor.require_operator()
        row, values = pool_for(pool), self.read(PriceIn)
        return self.answer(prices.set_price(actor=self.actor, pool=row, **values, expected_version=self.version() or 0))


class CardOut(serializers.ModelSerializer[Card]):
    pool = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)

    class Meta:
        model = Card
        fields = ["index", "pool", "units", "cores", "healthy", "quarantined"]


class NodeOut(serializers.ModelSerializer[Node]):
    id = serializers.CharField(source="pk")
    cluster = serializers.SlugRelatedField[Any](slug_field="name", read_only=True)
    cards = CardOut(many=True)
    instances = serializers.DictField(child=serializers.IntegerField(), help_text="A fixed MIG geometry.")
    devices = serializers.DictField(child=serializers.IntegerField(), help_text="What else pods may ask of it: RDMA.")
    takes_pods = serializers.BooleanField()

    class Meta:
        model = Node
        fields = [
            "id", "name", "cluster", "product", "sharing", "because", "held_back", "drained", "quarantined", "present",
            "takes_pods", "lost_since", "domain", "cpu_milli", "memory_mib", "pods", "devices", "instances", "cards", "seen_at",
        ]  # fmt: skip


class NodeChange(Strict):
    drained = serializers.BooleanField(help_text="Nothing new starts there; what runs stays.")


def nodes() -> QuerySet[Node]:
    cards = Prefetch("cards", Card.objects.select_related("pool").order_by("index"))
    return Node.objects.select_related("cluster").prefetch_related(cards)


class Nodes(ApiView):
    ordering = ("name", "pk")

    @extend_schema(
        operation_id="nodes_list",
        responses=page_of(NodeOut),
        parameters=[
            OpenApiParameter("pool", str, description="Only nodes with cards of this pool, by its `id`."),
            OpenApiParameter("cluster", str, description="Only nodes of this cluster, by its `id`."),
        ],
    )
    def get(self, request: Request) -> Response:
        rows = nodes()
        if self.text("pool"):
            rows = rows.filter(cards__pool=pool_for(self.text("pool"))).distinct()
        if self.text("cluster"):
            rows = rows.filter(cluster__name=self.text("cluster"))
        return self.page(rows, NodeOut)


class NodeView(ApiView):
    dry_runs = frozenset({"patch"})

    def node(self, pk: int) -> Node:
        row = nodes().filter(pk=pk).first()
        if row is None:
            raise NotVisible
        return row

    @extend_schema(operation_id="nodes_read", responses=NodeOut)
    def get(self, request: Request, node: int) -> Response:
        return Response(NodeOut(self.node(node)).data)

    @extend_schema(
        operation_id="nodes_drain",
        request=NodeChange,
        responses=either(NodeOut, PreviewOut),
        parameters=[DRY_RUN, CONFIRM],
    )
    def patch(self, request: Request, node: int) -> Response:
        self.actor.require_operator()
        row, drained = self.node(node), self.read(NodeChange)["drained"]
        if drained and not row.drained:
            foreseen = preview_drain(actor=self.actor, node=row)
        else:
            foreseen = Preview((), None, _("No workload is affected now."))
        if self.flag("dry_run"):
            return preview_answer(foreseen, None)
        confirm.require(foreseen.breaks, self.confirmed)
        capacity.set_drained(actor=self.actor, node=row, drained=drained)
        return Response(NodeOut(self.node(node)).data)
