"""Changing a node's mode through the API: options, preview, start, progress, cancellation; and pinning its sharing system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from portal.models import AuditEntry
from quotas.models import Cluster, ClusterKind, Node, Pool
from tests import builders as make
from tests.clients import person
from workloads.models import ModeChange
from workloads.nodes import cluster_registry, inventory
from workloads.nodes.modes import changes

pytestmark = pytest.mark.django_db
CHANGES = "/api/v1/mode_changes/"
A100 = "NVIDIA-A100-SXM4-80GB"


@pytest.fixture
def node(settings: Any, tmp_path: Path) -> Node:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True
    declared = {
        "name": "dgx-1", "sharing": "whole", "product": A100, "unit": "card", "cards": 2,
        "labels": {"nvidia.com/gpu.memory": "81920"},
    }  # fmt: skip
    cluster = make.cluster("here", options={"nodes": [declared]})
    inventory.refresh(cluster)
    return Node.objects.get()


@pytest.fixture
def operator() -> Any:
    return person(make.user("op", is_operator=True))


def url_of(node: Node, part: str = "mode") -> str:
    return f"/api/v1/nodes/{node.pk}/{part}/"


def test_supported_modes_and_sharing_systems_of_a_node_are_listed(node: Node, operator: Any) -> None:
    body = operator.get(url_of(node)).json()
    assert (body["node"], body["name"], body["sharing"], body["change"]) == (str(node.pk), "dgx-1", "whole", None)
    assert "mig" in body["modes"]
    assert body["configs"]["all-balanced"] == {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
    assert "kai" in body["systems"]


def test_preview_lists_workloads_to_preempt_and_pending_changes_without_applying_them(
    node: Node, operator: Any
) -> None:
    vision, pool = make.department("vision"), Pool.objects.get()
    make.quota(vision, pool, 2)
    place = [{"pod": 0, "node": "dgx-1", "cards": [0]}]
    make.holding(vision, pool, own=1, workload="w1", name="train", notice=600, placement=place)
    answer = operator.post(url_of(node), {"mode": "timeslicing", "replicas": 4})
    body = answer.json()
    assert answer.status_code == 200, body
    (leaver,) = body["leavers"]
    assert (leaver["workload"], leaver["department"], leaver["units"]) == ("w1", "vision", 1)
    assert leaver["by"] <= body["empty_by"]
    assert body["losses"] == [{"pool": pool.slug, "before": 2, "after": 0, "short": 2}]
    assert body["labels"] == {"nvidia.com/device-plugin.config": "timeslicing-4-renamed"}
    assert "+    failRequestsGreaterThanOne: true" in body["diff"]
    assert not ModeChange.objects.exists()
    assert not Node.objects.get().drained


def test_mode_change_can_be_started_tracked_and_listed(node: Node, operator: Any) -> None:
    proposal = operator.post(url_of(node), {"mode": "mig", "config": "best-each"}).json()["target"]
    assert len(proposal["layouts"]) == 2
    layouts = [{"1g.10gb": 7}, {"3g.40gb": 2}]
    answer = operator.post(CHANGES, {"node": node.pk, "mode": "mig", "layouts": layouts})
    assert answer.status_code == 202, answer.json()
    assert (answer.json()["stage"], answer.json()["target"]["layouts"]) == ("draining", layouts)
    assert [row["id"] for row in operator.get(CHANGES, {"live": "1"}).json()["results"]] == [answer.json()["id"]]
    changes.advance_all()
    change = operator.get(answer["Location"]).json()
    assert (change["stage"], change["final"], change["message"]) == ("done", True, "")
    node.refresh_from_db()
    assert (node.sharing, node.instances) == ("mig", {"1g.10gb": 7, "3g.40gb": 2})
    assert operator.get(CHANGES, {"live": "1"}).json()["results"] == []
    assert len(operator.get(CHANGES, {"node": node.pk}).json()["results"]) == 1


def test_mode_change_needs_confirmation_and_can_be_cancelled_while_draining(node: Node, operator: Any) -> None:
    vision, pool = make.department("vision"), Pool.objects.get()
    make.quota(vision, pool, 2)
    place = [{"pod": 0, "node": "dgx-1", "cards": [0]}]
    make.holding(vision, pool, own=1, workload="w1", notice=600, placement=place)
    request = {"node": node.pk, "mode": "timeslicing", "replicas": 4}
    refused = operator.post(CHANGES, request)
    refusal = refused.json()
    assert (refused.status_code, refusal["code"]) == (409, "needs_confirmation")
    assert {each["kind"] for each in refusal["breaks"]} == {"stopped", "short"}
    preview = operator.post(url_of(node), {name: request[name] for name in ("mode", "replicas")}).json()
    assert (preview["breaks"], preview["confirm"]) == (refusal["breaks"], refusal["confirm"])
    assert not ModeChange.objects.exists()
    started = operator.post(f"{CHANGES}?confirm={refusal['confirm']}", request)
    again = operator.post(CHANGES, {"node": node.pk, "mode": "whole"})
    assert (again.status_code, again.json()["code"]) == (409, "change_under_way")
    assert again["Content-Type"] == "application/problem+json"
    assert operator.get(started["Location"]).json()["still_there"] == ["w1"]
    assert operator.get(url_of(node)).json()["change"] == started.json()["id"]
    assert operator.delete(started["Location"]).status_code == 202
    changes.advance_all()
    assert operator.get(started["Location"]).json()["stage"] == "cancelled"
    late = operator.delete(started["Location"])
    assert (late.status_code, late.json()["code"]) == (409, "too_late")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "mode"),
        ({"mode": "nonsense"}, "mode"),
        ({"mode": "timeslicing"}, "replicas"),
        ({"mode": "timeslicing", "replicas": 1000}, "replicas"),
        ({"mode": "mig"}, "config"),
        ({"mode": "mig", "config": "all-9g"}, "config"),
        ({"mode": "mig", "layouts": [{"1g.10gb": 7}]}, "layouts"),
        ({"mode": "mig", "layouts": [{"4g.40gb": 2}, {"1g.10gb": 7}]}, "layouts"),
        ({"mode": "mig", "layouts": "7"}, "layouts"),
        ({"mode": "whole", "colour": "red"}, "colour"),
    ],
)
def test_invalid_mode_change_is_rejected_with_its_field_and_not_started(
    body: dict[str, Any], field: str, node: Node, operator: Any
) -> None:
    for answer in (operator.post(url_of(node), body), operator.post(CHANGES, {"node": node.pk, **body})):
        assert answer.status_code == 422, answer.json()
        assert answer["Content-Type"] == "application/problem+json"
        assert [error["attr"] for error in answer.json()["errors"]] == [field]
    assert not ModeChange.objects.exists()


def test_mode_endpoints_are_hidden_from_users_who_are_not_operators(node: Node) -> None:
    eve = person(make.user("eve"))
    for address in (url_of(node), url_of(node, "pin"), CHANGES, f"{CHANGES}nothing/"):
        assert eve.get(address).status_code in (404, 405), address
        assert eve.post(address, {}).status_code in (404, 405), address
    assert eve.put(url_of(node, "pin"), {"system": "kai"}).status_code == 404


class TestPinning:
    def test_sets_the_sharing_system_of_a_node_until_it_is_removed(
        self, node: Node, operator: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Cluster.objects.update(kind=ClusterKind.KUBERNETES)
        refreshed: list[dict[str, str]] = []
        monkeypatch.setattr(cluster_registry, "refresh", lambda cluster: refreshed.append(cluster.options["pins"]))
        assert operator.put(url_of(node, "pin"), {"system": "kai"}).status_code == 200
        assert Cluster.objects.get().options["pins"] == {"dgx-1": "kai"}
        assert operator.put(url_of(node, "pin"), {"system": ""}).status_code == 200
        assert Cluster.objects.get().options["pins"] == {}
        assert refreshed == [{"dgx-1": "kai"}, {}], "the nodes are read again"
        entries = AuditEntry.objects.filter(action="node.pinned").order_by("pk").values_list("before", "after")
        assert [(b["system"], a["system"]) for b, a in entries] == [("", "kai"), ("kai", "")]

    def test_is_rejected_for_an_unknown_system_or_a_declared_node(self, node: Node, operator: Any) -> None:
        declared = operator.put(url_of(node, "pin"), {"system": "kai"})
        assert (declared.status_code, declared.json()["errors"][0]["attr"]) == (422, "system")
        Cluster.objects.update(kind=ClusterKind.KUBERNETES)
        answer = operator.put(url_of(node, "pin"), {"system": "kay"})
        assert answer.status_code == 422
        assert "There is no sharing system kay." in answer.json()["errors"][0]["detail"]
        assert "pins" not in Cluster.objects.get().options
