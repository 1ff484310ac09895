"""Cards find the pool of their product; what nobody knows finds none, until a label or the operator says what it is."""

from __future__ import annotations

from typing import Any

import pytest

from portal.access import Actor, NotVisible
from portal.errors import Invalid
from portal.models import AuditEntry
from quotas.models import Card, Cluster, ClusterKind, Node, Pool, Quota
from quotas.planning.run_pass import run_pass
from tests import builders as make
from tests.clients import person
from tests.sharing.test_clouds import TYPE, UNKNOWN, gke, node
from tests.workloads.kubernetes.test_manifests import spec
from workloads import sharing
from workloads.kubernetes import manifests
from workloads.kubernetes.manifests import Options
from workloads.nodes import cluster_registry, inventory
from workloads.nodes.pools import unpooled

pytestmark = pytest.mark.django_db


class Machines:
    """A driver whose cluster has these nodes, discovered as a Kubernetes cluster's are."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def nodes(self) -> tuple[Any, ...]:
        said = Options.from_json(Cluster.objects.get().options).sharing
        return tuple(info for info in (sharing.discover(each, said) for each in self.found) if info is not None)


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    there = Machines()
    make.cluster("gpu")
    Cluster.objects.update(kind=ClusterKind.KUBERNETES)
    monkeypatch.setattr(inventory, "driver_for", lambda _cluster: there)
    return there


@pytest.fixture
def operator() -> Actor:
    return Actor(make.user("op", is_operator=True))


def look(machines: Machines, *found: dict[str, Any]) -> None:
    machines.found = [*found] or machines.found
    inventory.refresh(Cluster.objects.get())


def in_pools() -> dict[str, set[str]]:
    """Product of the pool → nodes with cards in it; "–": cards without a pool."""
    found: dict[str, set[str]] = {}
    for card in Card.objects.select_related("node", "pool"):
        found.setdefault(card.pool.product if card.pool else "–", set()).add(card.node.name)
    return found


def test_each_product_has_its_pool_and_what_nobody_knows_has_none(machines: Machines) -> None:
    look(
        machines, node(8, "a", **{TYPE: "p4d.24xlarge"}), node(4, "b", **{TYPE: "g4dn.12xlarge"}), node(8, "c"),
        node(4, "d", **{"nvidia.com/gpu.product": "Tesla-T4"}), gke(48, accelerator="nvidia-tesla-t4"),
    )  # fmt: skip
    assert in_pools() == {"NVIDIA-A100-SXM4-40GB": {"a"}, "Tesla-T4": {"b", "d"}, "nvidia-tesla-t4": {"n1"}, "–": {"c"}}
    assert (Node.objects.get(name="c").held_back, Node.objects.get(name="b").held_back) == (UNKNOWN, "")
    assert unpooled(Node.objects.prefetch_related("cards")) == [], "no pool can be made of what nobody knows"


def test_an_operator_says_what_they_are_and_takes_it_back(machines: Machines, operator: Actor) -> None:
    look(machines, node(8, "c"))
    cluster_registry.pin_node(actor=operator, node=Node.objects.get(), product="NVIDIA-L20")
    row = Node.objects.get()
    assert (row.product, row.held_back, row.takes_pods) == ("NVIDIA-L20", "", True)
    pool = Pool.objects.get()
    assert (pool.product, pool.nominal) == ("NVIDIA-L20", 8)
    said = AuditEntry.objects.get(action="node.pinned")
    assert (said.before, said.after) == ({"system": "", "product": ""}, {"system": "", "product": "NVIDIA-L20"})
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    claim = make.claim(vision, pool, 2)
    run_pass(group_id=pool.group_id)
    claim.refresh_from_db()
    assert claim.state == "holding", "the plan gives them out"
    cluster_registry.pin_node(actor=operator, node=Node.objects.get(), product="")
    assert Node.objects.get().held_back == UNKNOWN


@pytest.mark.parametrize("product", ["NVIDIA L20", "Tesla-T4-SHARED", "x" * 64, "-x", "NVIDIA-A100-MIG-1g.5gb", "é"])
def test_what_no_label_could_say_is_refused(machines: Machines, operator: Actor, product: str) -> None:
    look(machines, node(8, "c"))
    with pytest.raises(Invalid) as refused:
        cluster_registry.pin_node(actor=operator, node=Node.objects.get(), product=product)
    assert refused.value.field == "product"
    with pytest.raises(ValueError, match="products"):
        Options.from_json({"products": {"c": product}})


def test_nobody_else_says_it(machines: Machines) -> None:
    look(machines, node(8, "c"))
    with pytest.raises(NotVisible):
        cluster_registry.pin_node(actor=Actor(make.user("eve")), node=Node.objects.get(), product="NVIDIA-L20")


def test_the_api_and_the_page_say_it(machines: Machines, operator: Actor) -> None:
    look(machines, node(8, "c"))
    row = Node.objects.get()
    assert operator.user is not None
    api = person(operator.user)
    answer = api.put(f"/api/v1/nodes/{row.pk}/pin/", {"product": "NVIDIA-L20"})
    assert (answer.status_code, answer.json()["product"]) == (200, "NVIDIA-L20")
    wrong = api.put(f"/api/v1/nodes/{row.pk}/pin/", {"product": "two words"})
    assert (wrong.status_code, wrong.json()["errors"][0]["attr"]) == (422, "product")
    api.put(f"/api/v1/nodes/{row.pk}/pin/", {"system": "kai"})
    options = Cluster.objects.get().options
    assert (options["products"], options["pins"]) == ({"c": "NVIDIA-L20"}, {"c": "kai"}), "what is not said stays"


def test_a_pool_without_a_product_becomes_that_of_the_first_that_is_known(machines: Machines) -> None:
    """As installations of before have them, with quotas."""
    look(machines, node(8, "a", **{TYPE: "p4d.24xlarge"}))
    pool = Pool.objects.get()
    Pool.objects.update(product="", name="GPU (whole)")
    Node.objects.update(product="")
    Quota.objects.create(department=make.department("vision"), pool=pool, guaranteed=8)
    look(machines, node(8, "a"), node(8, "new"))
    assert in_pools() == {"": {"a"}, "–": {"new"}}, "held back, but it keeps its place; nothing joins it"
    look(machines, node(8, "a", **{TYPE: "p4d.24xlarge"}), node(4, "t", **{TYPE: "g4dn.12xlarge"}))
    assert {product: names for product, names in in_pools().items() if product != "–"} == {
        "NVIDIA-A100-SXM4-40GB": {"a"}, "Tesla-T4": {"t"},
    }  # fmt: skip
    pool.refresh_from_db()
    assert (pool.product, pool.nominal, pool.quotas.get().guaranteed) == ("NVIDIA-A100-SXM4-40GB", 8, 8)


class TestThePod:
    def terms(self, options: Options, product: str) -> list[dict[str, Any]]:
        made = manifests.pod(spec(product=product, units_per_pod=1), options)
        assert "nvidia.com/gpu.product" not in made["spec"].get("nodeSelector", {})
        affinity = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        return [
            {rule["key"]: (rule["operator"], rule.get("values")) for rule in term["matchExpressions"]}
            for term in affinity["nodeSelectorTerms"]
        ]

    def test_wants_the_product_where_a_label_says_one_and_runs_where_none_does(self) -> None:
        labelled, other = self.terms(Options(), "NVIDIA-A100-SXM4-40GB")
        assert labelled["nvidia.com/gpu.product"] == ("In", ["NVIDIA-A100-SXM4-40GB"])
        assert other["nvidia.com/gpu.product"] == ("DoesNotExist", None)
        assert labelled["nvidia.com/gpu.sharing-strategy"] == other["nvidia.com/gpu.sharing-strategy"]

    def test_asks_no_label_for_what_its_operator_said(self) -> None:
        said = Options.from_json({"products": {"n1": "NVIDIA-L20"}})
        assert all("nvidia.com/gpu.product" not in term for term in self.terms(said, "NVIDIA-L20"))

    def test_asks_gkes_label_for_gkes_names(self) -> None:
        made = manifests.pod(spec(product="nvidia-tesla-t4", units_per_pod=1), Options())
        assert made["spec"]["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}


def cut(name: str, profile: str, count: int) -> dict[str, Any]:
    """One card of a product that nobody has a table of."""
    found = node(
        0,
        name,
        **{"nvidia.com/gpu.product": "NVIDIA-X9", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "98304"},
    )
    for of in ("capacity", "allocatable"):
        found["status"][of][f"nvidia.com/mig-{profile}"] = str(count)
    return found


def test_cards_whose_slices_are_derived_differently_are_not_counted_in_one_pool(machines: Machines) -> None:
    """By 1g.24gb alone a card of 96 GB may have eight slices or four; one of 4g.96gb has four."""
    look(machines, cut("a", "1g.24gb", 4), cut("b", "4g.96gb", 1), cut("c", "1g.12gb", 7))
    assert {pool.mig: (pool.units_per_card, pool.nominal) for pool in Pool.objects.all()} == {
        "derived-96GB-8": (8, 16), "derived-96GB-4": (4, 4),
    }  # fmt: skip
    assert dict(Card.objects.values_list("node__name", "pool__units_per_card")) == {
        "a": 8, "b": 4, "c": 8,
    }  # fmt: skip
