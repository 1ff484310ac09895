"""Changing a node's mode by REST: look, ask what it would mean, start, follow, call off; and pin its system."""

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


def where(node: Node, what: str = "mode") -> str:
    return f"/api/v1/nodes/{node.pk}/{what}/"


def test_it_is_told_what_the_node_could_be(node: Node, operator: Any) -> None:
    told = operator.get(where(node)).json()
    assert (told["node"], told["name"], told["sharing"], told["change"]) == (str(node.pk), "dgx-1", "whole", None)
    assert "mig" in told["modes"]
    assert told["configs"]["all-balanced"] == {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
    assert "kai" in told["systems"]


def test_a_preview_tells_who_would_leave_and_what_would_be_written_and_writes_nothing(
    node: Node, operator: Any
) -> None:
    vision, pool = make.department("vision"), Pool.objects.get()
    make.quota(vision, pool, 2)
    place = [{"pod": 0, "node": "dgx-1", "cards": [0]}]
    make.holding(vision, pool, own=1, workload="w1", name="train", notice=600, placement=place)
    answer = operator.post(where(node), {"mode": "timeslicing", "replicas": 4})
    told = answer.json()
    assert answer.status_code == 200, told
    (leaver,) = told["leavers"]
    assert (leaver["workload"], leaver["department"], leaver["units"]) == ("w1", "vision", 1)
    assert leaver["by"] <= told["empty_by"]
    assert told["losses"] == [{"pool": pool.slug, "before": 2, "after": 0, "short": 2}]
    assert told["labels"] == {"nvidia.com/device-plugin.config": "timeslicing-4-renamed"}
    assert "+    failRequestsGreaterThanOne: true" in told["diff"]
    assert not ModeChange.objects.exists()
    assert not Node.objects.get().drained


def test_a_change_is_started_followed_and_listed(node: Node, operator: Any) -> None:
    proposal = operator.post(where(node), {"mode": "mig", "config": "best-each"}).json()["target"]
    assert len(proposal["layouts"]) == 2
    cut = [{"1g.10gb": 7}, {"3g.40gb": 2}]
    answer = operator.post(CHANGES, {"node": node.pk, "mode": "mig", "layouts": cut})
    assert answer.status_code == 202, answer.json()
    assert (answer.json()["stage"], answer.json()["target"]["layouts"]) == ("draining", cut)
    assert [row["id"] for row in operator.get(CHANGES, {"live": "1"}).json()["results"]] == [answer.json()["id"]]
    changes.advance_all()
    told = operator.get(answer["Location"]).json()
    assert (told["stage"], told["final"], told["message"]) == ("done", True, "")
    node.refresh_from_db()
    assert (node.sharing, node.instances) == ("mig", {"1g.10gb": 7, "3g.40gb": 2})
    assert operator.get(CHANGES, {"live": "1"}).json()["results"] == []
    assert len(operator.get(CHANGES, {"node": node.pk}).json()["results"]) == 1


def test_a_change_is_called_off_while_somebody_is_there_and_only_once_begun(node: Node, operator: Any) -> None:
    vision, pool = make.department("vision"), Pool.objects.get()
    make.quota(vision, pool, 2)
    place = [{"pod": 0, "node": "dgx-1", "cards": [0]}]
    make.holding(vision, pool, own=1, workload="w1", notice=600, placement=place)
    asked = {"node": node.pk, "mode": "timeslicing", "replicas": 4}
    refused = operator.post(CHANGES, asked)
    told = refused.json()
    assert (refused.status_code, told["code"]) == (409, "needs_confirmation")
    assert {each["kind"] for each in told["breaks"]} == {"stopped", "short"}
    shown = operator.post(where(node), {name: asked[name] for name in ("mode", "replicas")}).json()
    assert (shown["breaks"], shown["confirm"]) == (told["breaks"], told["confirm"])
    assert not ModeChange.objects.exists()
    started = operator.post(f"{CHANGES}?confirm={told['confirm']}", asked)
    again = operator.post(CHANGES, {"node": node.pk, "mode": "whole"})
    assert (again.status_code, again.json()["code"]) == (409, "change_under_way")
    assert again["Content-Type"] == "application/problem+json"
    assert operator.get(started["Location"]).json()["still_there"] == ["w1"]
    assert operator.get(where(node)).json()["change"] == started.json()["id"]
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
def test_what_cannot_be_is_refused_with_its_field_before_anything_is_begun(
    body: dict[str, Any], field: str, node: Node, operator: Any
) -> None:
    for answer in (operator.post(where(node), body), operator.post(CHANGES, {"node": node.pk, **body})):
        assert answer.status_code == 422, answer.json()
        assert answer["Content-Type"] == "application/problem+json"
        assert [error["attr"] for error in answer.json()["errors"]] == [field]
    assert not ModeChange.objects.exists()


def test_nobody_else_learns_that_there_is_anything(node: Node) -> None:
    eve = person(make.user("eve"))
    for address in (where(node), where(node, "pin"), CHANGES, f"{CHANGES}nothing/"):
        assert eve.get(address).status_code in (404, 405), address
        assert eve.post(address, {}).status_code in (404, 405), address
    assert eve.put(where(node, "pin"), {"system": "kai"}).status_code == 404


class TestPinning:
    def test_says_which_system_a_node_runs_until_it_is_taken_back(
        self, node: Node, operator: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Cluster.objects.update(kind=ClusterKind.KUBERNETES)
        looked: list[dict[str, str]] = []
        monkeypatch.setattr(cluster_registry, "refresh", lambda cluster: looked.append(cluster.options["pins"]))
        assert operator.put(where(node, "pin"), {"system": "kai"}).status_code == 200
        assert Cluster.objects.get().options["pins"] == {"dgx-1": "kai"}
        assert operator.put(where(node, "pin"), {"system": ""}).status_code == 200
        assert Cluster.objects.get().options["pins"] == {}
        assert looked == [{"dgx-1": "kai"}, {}], "the nodes are looked at anew"
        told = AuditEntry.objects.filter(action="node.pinned").order_by("pk").values_list("before", "after")
        assert [(b["system"], a["system"]) for b, a in told] == [("", "kai"), ("kai", "")]

    def test_to_what_is_no_system_or_of_a_declared_node_is_refused(self, node: Node, operator: Any) -> None:
        declared = operator.put(where(node, "pin"), {"system": "kai"})
        assert (declared.status_code, declared.json()["errors"][0]["attr"]) == (422, "system")
        Cluster.objects.update(kind=ClusterKind.KUBERNETES)
        answer = operator.put(where(node, "pin"), {"system": "kay"})
        assert answer.status_code == 422
        assert "There is no sharing system kay." in answer.json()["errors"][0]["detail"]
        assert "pins" not in Cluster.objects.get().options
