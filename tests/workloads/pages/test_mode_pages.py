"""The operator's pages for mode changes, on declared nodes: choose, preview, start, follow and cancel."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from quotas.models import Card, Cluster, ClusterKind, Node, Pool
from tests import builders as make
from tests.clients import confirmed
from workloads.demo.nodes import dgx_a100
from workloads.models import ModeChange
from workloads.nodes import cluster_registry, inventory
from workloads.nodes.modes import changes

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(settings: Any, tmp_path: Any) -> Node:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True
    cluster = make.cluster("here", options={"nodes": [dgx_a100("dgx-1")]})
    inventory.refresh(cluster)
    return Node.objects.get(name="dgx-1")


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(make.user("op", is_operator=True), backend="django.contrib.auth.backends.ModelBackend")
    return client


def address(node: Node) -> str:
    return f"/operator/nodes/{node.pk}/mode/"


def test_preview_shows_the_effects_and_changes_nothing(node: Node, operator: Client) -> None:
    vision = make.department("vision")
    pool = Pool.objects.get()
    make.quota(vision, pool, 4)
    make.holding(
        vision, pool, own=2, name="train", workload="w1", placement=[{"pod": 0, "node": "dgx-1", "cards": [0, 1]}]
    )
    text = operator.get(address(node), {"mode": "timeslicing", "replicas": "4", "rename": "on"}).content.decode()
    assert "train" in text
    assert "timeslicing-4-renamed" in text
    assert "That is 4 cards less than guaranteed to departments" in text
    assert "failRequestsGreaterThanOne: true" in text, "the configuration is shown as a difference"
    assert not ModeChange.objects.exists()
    assert not Node.objects.get(pk=node.pk).drained


def test_declared_node_changes_through_all_modes_and_back(node: Node, operator: Client) -> None:
    for choice, sharing, per_card in (
        ({"mode": "mig", "config": "all-balanced"}, "mig", 8),
        ({"mode": "mig", "config": "best-each"}, "mig", 8),
        ({"mode": "timeslicing", "replicas": "4", "rename": "on"}, "timeslicing", 4),
        ({"mode": "hami"}, "hami", 81920),
        ({"mode": "memory"}, "memory", 81920),
        ({"mode": "whole"}, "whole", 1),
    ):
        response = operator.post(address(node), choice)
        assert response.status_code == 302, response.content.decode()
        changes.advance_all()
        change = ModeChange.objects.latest("pk")
        assert (change.stage, change.message) == ("done", "")
        node.refresh_from_db()
        assert (node.sharing, node.drained) == (sharing, False)
        assert set(Card.objects.filter(node=node).values_list("units", "pool__sharing")) == {(per_card, sharing)}
        assert "done" in operator.get(response["Location"]).content.decode()
    assert Cluster.objects.get().options["nodes"][0]["cards"] == 8
    assert Pool.objects.get(sharing="whole").nominal == 8


def test_invalid_mode_is_refused_with_its_field(node: Node, operator: Client) -> None:
    response = operator.post(address(node), {"mode": "timeslicing", "replicas": ""})
    assert response.status_code == 422
    assert "Enter the number of shares per card." in response.content.decode()
    assert operator.post(address(node), {"mode": "nonsense"}).status_code == 422
    assert operator.post(address(node), {}).status_code == 422


def test_change_can_be_cancelled_while_workloads_still_run_on_the_node(node: Node, operator: Client) -> None:
    vision, pool = make.department("vision"), Pool.objects.get()
    make.quota(vision, pool, 4)
    place = [{"pod": 0, "node": "dgx-1", "cards": [0]}]
    claim = make.holding(vision, pool, own=1, workload="w1", notice=600, placement=place)
    change_url = confirmed(operator, address(node), {"mode": "mig", "config": "all-balanced"})["Location"]
    text = operator.get(change_url).content.decode()
    assert "Still running" in text
    assert operator.post(change_url).status_code == 302
    changes.advance_all()
    claim.refresh_from_db()
    assert (ModeChange.objects.get().stage, claim.state) == ("cancelled", "holding")


def test_only_operators_can_open_the_mode_pages(node: Node) -> None:
    client = Client()
    client.force_login(make.user("eve"), backend="django.contrib.auth.backends.ModelBackend")
    assert client.get(address(node)).status_code == 404
    assert client.get("/operator/nodes/unpooled/").status_code == 404
    assert client.post(f"/operator/nodes/{node.pk}/pin/").status_code == 404


def test_cards_without_a_pool_can_be_given_one(node: Node, operator: Client) -> None:
    Card.objects.update(pool=None)
    Pool.objects.all().delete()
    text = operator.get("/operator/nodes/unpooled/").content.decode()
    assert "8 cards NVIDIA-A100-SXM4-80GB (Whole cards) on dgx-1" in text
    form = {"kind": "here/NVIDIA-A100-SXM4-80GB/whole/0", "name": "A100", "slug": "a100"}
    assert operator.post("/operator/nodes/unpooled/", form).status_code == 302
    inventory.refresh(Cluster.objects.get())
    assert Pool.objects.get(slug="a100").nominal == 8
    assert operator.post("/operator/nodes/unpooled/", form).status_code == 404


def test_node_can_be_pinned_to_a_system_that_is_not_detectable(
    node: Node, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cluster.objects.update(kind=ClusterKind.KUBERNETES)
    monkeypatch.setattr(cluster_registry, "refresh", lambda cluster: 0)
    assert '<option value="kai">' in operator.get(address(node)).content.decode()
    assert operator.post(f"/operator/nodes/{node.pk}/pin/", {"system": "kai"}).status_code == 302
    assert Cluster.objects.get().options["pins"] == {"dgx-1": "kai"}
    assert '<option value="kai" selected>' in operator.get(address(node)).content.decode()
