"""The page of a node's health, and the same by API."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from quotas.models import Claim, ClaimState, Node, Pool, Quarantine
from tests import builders as make
from tests.clients import person
from tests.quotas.views.test_confirmations import confirmed

pytestmark = pytest.mark.django_db
WHY = {
    "message": "node condition %(condition)s is %(status)s",
    "params": {"condition": "GpuMemWatch", "status": "True"},
}


@pytest.fixture
def world() -> tuple[Node, Pool, Claim]:
    pool = make.pool("a100", cards=4, notice=600, grace=60)
    vision = make.department("vision")
    make.quota(vision, pool, 4)
    place = [{"pod": 0, "node": "a100-n1", "cards": [0]}]
    claim = make.holding(vision, pool, own=1, placement=place, notice=600, grace=60, name="train")
    return Node.objects.get(), pool, claim


@pytest.fixture
def root() -> Any:
    return make.user("root", is_operator=True)


@pytest.fixture
def page(client: Client, root: Any) -> Client:
    client.force_login(root, backend="django.contrib.auth.backends.ModelBackend")
    return client


def test_node_can_be_quarantined_and_put_back_on_its_page(page: Client, world: tuple[Node, Pool, Claim]) -> None:
    node, _pool, claim = world
    address = reverse("quotas:node_health", args=[node.pk])
    assert "Nothing here is quarantined" in page.get(address).content.decode()
    response = confirmed(page, address, {"card": "", "why": "XID 79", "hours": "24"}, "train", "would have to")
    assert response.status_code == 302
    shown = page.get(address).content.decode()
    assert "XID 79" in shown
    assert "train" in shown
    row = Quarantine.objects.get()
    assert (row.until is not None, Claim.objects.get(pk=claim.pk).state) == (True, ClaimState.LEAVING)
    assert "quarantined: XID 79" in page.get(reverse("quotas:operator_nodes")).content.decode()
    assert "quarantined: XID 79" in page.get(reverse("quotas:pool", args=["a100"])).content.decode()
    assert "quarantined: XID 79" in page.get(reverse("quotas:operator_system")).content.decode()
    second = page.post(address, {"card": "", "why": "again", "hours": ""})
    assert (second.status_code, "already quarantined" in second.content.decode()) == (422, True)
    assert page.post(reverse("quotas:quarantine_end", args=[node.pk, row.public_id])).status_code == 302
    assert Claim.objects.get(pk=claim.pk).state == ClaimState.HOLDING
    assert "XID 79" in page.get(address).content.decode(), "in the history"
    assert page.post(reverse("quotas:quarantine_end", args=[node.pk, row.public_id])).status_code == 409


@pytest.mark.parametrize(
    "data", [{"why": ""}, {"why": "x", "card": "77"}, {"why": "x", "hours": "5"}, {"why": "x" * 501}]
)
def test_invalid_form_is_refused(page: Client, world: Any, data: dict[str, str]) -> None:
    response = page.post(reverse("quotas:node_health", args=[world[0].pk]), data)
    assert response.status_code == 422
    assert not Quarantine.objects.exists()


def test_preview_counts_the_workloads_that_have_to_leave(page: Client, world: Any) -> None:
    node = world[0]
    address = reverse("quotas:quarantine_preview", args=[node.pk])
    assert "1 workload has to leave by" in page.get(address, {"card": "0"}).content.decode()
    assert "No workload has to leave" in page.get(address, {"card": "3"}).content.decode()


def test_a_rule_is_shown_in_the_readers_language(page: Client, world: Any, root: Any) -> None:
    Quarantine.objects.create(node=world[0], sign="node/condition/GpuMemWatch", reason=WHY)
    type(root).objects.update(language="zh-hans")
    shown = page.get(reverse("quotas:node_health", args=[world[0].pk])).content.decode()
    assert "节点状况 GpuMemWatch 为 True" in shown


def test_node_can_be_quarantined_and_put_back_by_api(world: Any, root: Any) -> None:
    node, _pool, claim = world
    api = person(root)
    body = {"node": node.pk, "card": 0, "why": "ECC errors"}
    preview = api.post("/api/v1/quarantines/?dry_run=1", body).json()
    assert [each["kind"] for each in preview["breaks"]] == ["stopped", "short"]
    unconfirmed = api.post("/api/v1/quarantines/", body)
    assert (unconfirmed.status_code, unconfirmed.json()["code"]) == (409, "needs_confirmation")
    created = api.post(f"/api/v1/quarantines/?confirm={unconfirmed.json()['confirm']}", body)
    assert created.status_code == 201, created.json()
    row = created.json()
    assert (row["card"], row["reason"], row["by"], row["notices"][0]["claim"]) == (
        0,
        "ECC errors",
        "root",
        claim.public_id,
    )
    assert api.get(f"/api/v1/nodes/{node.pk}/").json()["cards"][0]["quarantined"]
    assert api.get(f"/api/v1/quarantines/?node={node.pk}&card=0&in_force=1").json()["results"][0]["id"] == row["id"]
    assert api.post("/api/v1/quarantines/", body).json()["code"] == "already_quarantined"
    assert api.delete(f"/api/v1/quarantines/{row['id']}/").status_code == 204
    assert api.delete(f"/api/v1/quarantines/{row['id']}/").json()["code"] == "has_ended"
    assert api.get(f"/api/v1/quarantines/{row['id']}/").json()["ended_by"] == "root"
    assert api.get("/api/v1/quarantines/?in_force=1").json()["results"] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"why": ""}, "why"), ({"card": -1}, "card"), ({"card": 9}, "card"), ({"until": "2020-01-01T00:00:00Z"}, "until"),
        ({"until": "2020-01-01T00:00:00"}, "until"), ({"node": 2**40}, "node"), ({"x": 1}, "x"),
    ],
)  # fmt: skip
def test_invalid_request_is_refused_with_its_field(world: Any, root: Any, change: dict[str, Any], field: str) -> None:
    response = person(root).post("/api/v1/quarantines/", {"node": world[0].pk, "why": "ECC"} | change)
    assert response.status_code == 422
    assert field in str(response.json())


def test_non_operators_get_404(world: Any) -> None:
    stranger = person(make.member(make.department("nlp")))
    assert stranger.get("/api/v1/quarantines/").status_code == 404
    assert stranger.post("/api/v1/quarantines/", {"node": world[0].pk, "why": "mine"}).status_code == 404
