"""Cards join the pool of their product; cards of an unknown product join none until a label or an operator names it."""

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
    """A driver whose cluster has the given nodes, which are discovered like those of a Kubernetes cluster."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def nodes(self) -> tuple[Any, ...]:
        said = Options.from_json(Cluster.objects.get().options).sharing
        return tuple(info for info in (sharing.discover(each, said) for each in self.found) if info is not None)


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    machines = Machines()
    make.cluster("gpu")
    Cluster.objects.update(kind=ClusterKind.KUBERNETES)
    monkeypatch.setattr(inventory, "driver_for", lambda _cluster: machines)
    return machines


@pytest.fixture
def operator() -> Actor:
    return Actor(make.user("op", is_operator=True))


def refresh(machines: Machines, *found: dict[str, Any]) -> None:
    machines.found = [*found] or machines.found
    inventory.refresh(Cluster.objects.get())


def in_pools() -> dict[str, set[str]]:
    """Product of the pool → nodes with cards in it; "–": cards without a pool."""
    found: dict[str, set[str]] = {}
    for card in Card.objects.select_related("node", "pool"):
        found.setdefault(card.pool.product if card.pool else "–", set()).add(card.node.name)
    return found


def test_each_product_has_its_pool_and_unknown_products_have_none(machines: Machines) -> None:
    refresh(
        machines, node(8, "a", **{TYPE: "p4d.24xlarge"}), node(4, "b", **{TYPE: "g4dn.12xlarge"}), node(8, "c"),
        node(4, "d", **{"nvidia.com/gpu.product": "Tesla-T4"}), gke(48, accelerator="nvidia-tesla-t4"),
    )  # fmt: skip
    assert in_pools() == {"NVIDIA-A100-SXM4-40GB": {"a"}, "Tesla-T4": {"b", "d"}, "nvidia-tesla-t4": {"n1"}, "–": {"c"}}
    assert (Node.objects.get(name="c").held_back, Node.objects.get(name="b").held_back) == (UNKNOWN, "")
    assert unpooled(Node.objects.prefetch_related("cards")) == [], "no pool can be created for an unknown product"


def test_operator_can_name_the_product_of_a_node_and_revoke_it(machines: Machines, operator: Actor) -> None:
    refresh(machines, node(8, "c"))
    cluster_registry.pin_node(actor=operator, node=Node.objects.get(), product="NVIDIA-L20")
    row = Node.objects.get()
    assert (row.product, row.held_back, row.takes_pods) == ("NVIDIA-L20", "", True)
    pool = Pool.objects.get()
    assert (pool.product, pool.nominal) == ("NVIDIA-L20", 8)
    entry = AuditEntry.objects.get(action="node.pinned")
    assert (entry.before, entry.after) == ({"system": "", "product": ""}, {"system": "", "product": "NVIDIA-L20"})
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    claim = make.claim(vision, pool, 2)
    run_pass(group_id=pool.group_id)
    claim.refresh_from_db()
    assert claim.state == "holding", "the planning pass allocates them"
    cluster_registry.pin_node(actor=operator, node=Node.objects.get(), product="")
    assert Node.objects.get().held_back == UNKNOWN


@pytest.mark.parametrize("product", ["NVIDIA L20", "Tesla-T4-SHARED", "x" * 64, "-x", "NVIDIA-A100-MIG-1g.5gb", "é"])
def test_product_names_that_no_label_could_have_are_refused(machines: Machines, operator: Actor, product: str) -> None:
    refresh(machines, node(8, "c"))
    with pytest.raises(Invalid) as error:
        cluster_registry.pin_node(actor=operator, node=Node.objects.get(), product=product)
    assert error.value.field == "product"
    with pytest.raises(ValueError, match="products"):
        Options.from_json({"products": {"c": product}})


def test_only_operators_can_name_the_product(machines: Machines) -> None:
    refresh(machines, node(8, "c"))
    with pytest.raises(NotVisible):
        cluster_registry.pin_node(actor=Actor(make.user("eve")), node=Node.objects.get(), product="NVIDIA-L20")


def test_product_can_be_named_by_api(machines: Machines, operator: Actor) -> None:
    refresh(machines, node(8, "c"))
    row = Node.objects.get()
    assert operator.user is not None
    api = person(operator.user)
    response = api.put(f"/api/v1/nodes/{row.pk}/pin/", {"product": "NVIDIA-L20"})
    assert (response.status_code, response.json()["product"]) == (200, "NVIDIA-L20")
    wrong = api.put(f"/api/v1/nodes/{row.pk}/pin/", {"product": "two words"})
    assert (wrong.status_code, wrong.json()["errors"][0]["attr"]) == (422, "product")
    api.put(f"/api/v1/nodes/{row.pk}/pin/", {"system": "kai"})
    options = Cluster.objects.get().options
    assert (options["products"], options["pins"]) == ({"c": "NVIDIA-L20"}, {"c": "kai"}), (
        "a field that is not sent stays unchanged"
    )


def test_pool_without_a_product_takes_the_first_known_product_of_its_cards(machines: Machines) -> None:
    """Older installations have such pools, with quotas."""
    refresh(machines, node(8, "a", **{TYPE: "p4d.24xlarge"}))
    pool = Pool.objects.get()
    Pool.objects.update(product="", name="GPU (whole)")
    Node.objects.update(product="")
    Quota.objects.create(department=make.department("vision"), pool=pool, guaranteed=8)
    refresh(machines, node(8, "a"), node(8, "new"))
    assert in_pools() == {"": {"a"}, "–": {"new"}}, "held back, but it stays in its pool; no other node joins it"
    refresh(machines, node(8, "a", **{TYPE: "p4d.24xlarge"}), node(4, "t", **{TYPE: "g4dn.12xlarge"}))
    assert {product: names for product, names in in_pools().items() if product != "–"} == {
        "NVIDIA-A100-SXM4-40GB": {"a"}, "Tesla-T4": {"t"},
    }  # fmt: skip
    pool.refresh_from_db()
    assert (pool.product, pool.nominal, pool.quotas.get().guaranteed) == ("NVIDIA-A100-SXM4-40GB", 8, 8)


class TestPodManifest:
    def terms(self, options: Options, product: str) -> list[dict[str, Any]]:
        manifest = manifests.pod(spec(product=product, units_per_pod=1), options)
        assert "nvidia.com/gpu.product" not in manifest["spec"].get("nodeSelector", {})
        affinity = manifest["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        return [
            {rule["key"]: (rule["operator"], rule.get("values")) for rule in term["matchExpressions"]}
            for term in affinity["nodeSelectorTerms"]
        ]

    def test_accepts_nodes_with_the_matching_product_label_or_without_any(self) -> None:
        labelled, other = self.terms(Options(), "NVIDIA-A100-SXM4-40GB")
        assert labelled["nvidia.com/gpu.product"] == ("In", ["NVIDIA-A100-SXM4-40GB"])
        assert other["nvidia.com/gpu.product"] == ("DoesNotExist", None)
        assert labelled["nvidia.com/gpu.sharing-strategy"] == other["nvidia.com/gpu.sharing-strategy"]

    def test_requires_no_product_label_when_an_operator_named_the_product(self) -> None:
        said = Options.from_json({"products": {"n1": "NVIDIA-L20"}})
        assert all("nvidia.com/gpu.product" not in term for term in self.terms(said, "NVIDIA-L20"))

    def test_requires_the_gke_label_for_gke_product_names(self) -> None:
        manifest = manifests.pod(spec(product="nvidia-tesla-t4", units_per_pod=1), Options())
        assert manifest["spec"]["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}


def mig_node(name: str, profile: str, count: int) -> dict[str, Any]:
    """A node with one MIG card of a product for which there is no table."""
    found = node(
        0,
        name,
        **{"nvidia.com/gpu.product": "NVIDIA-X9", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "98304"},
    )
    for of in ("capacity", "allocatable"):
        found["status"][of][f"nvidia.com/mig-{profile}"] = str(count)
    return found


def test_cards_with_differently_derived_slices_are_in_different_pools(machines: Machines) -> None:
    """From 1g.24gb alone, a card of 96 GB can have eight slices or four; with 4g.96gb it has four."""
    refresh(machines, mig_node("a", "1g.24gb", 4), mig_node("b", "4g.96gb", 1), mig_node("c", "1g.12gb", 7))
    assert {pool.mig: (pool.units_per_card, pool.nominal) for pool in Pool.objects.all()} == {
        "derived-96GB-8": (8, 16), "derived-96GB-4": (4, 4),
    }  # fmt: skip
    assert dict(Card.objects.values_list("node__name", "pool__units_per_card")) == {
        "a": 8, "b": 4, "c": 8,
    }  # fmt: skip
