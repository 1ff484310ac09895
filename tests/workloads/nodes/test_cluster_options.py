"""Options of clusters as operators type them: what cannot work is refused by its key, and nothing is stored."""

from __future__ import annotations

import json
from html import unescape
from typing import Any

import pytest
from django.test import Client

from portal.models import User
from quotas.models import Cluster, ClusterKind
from tests import builders as make
from tests.clients import person
from workloads.kubernetes.manifests.options import Options

pytestmark = pytest.mark.django_db
NODE = {"name": "n1", "sharing": "whole", "product": "A100", "unit": "card", "cards": 8}


@pytest.fixture
def root(db: None) -> User:
    return make.user("root", is_operator=True)


def change(root: User, options: Any) -> Any:
    client = person(root)
    client.raise_request_exception = False
    return client.patch("/api/v1/clusters/here/", {"options": options}, format="json")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nodes": "x"}, "option nodes must be of type list"),
        ({"nodes": None}, "option nodes must be of type list"),
        ({"nodes": {"n1": NODE}}, "option nodes must be of type list"),
        ({"nodes": [1]}, "node 1 must be an object"),
        ({"nodes": [NODE, {"name": "n2"}]}, "node 2 has no sharing"),
        ({"nodes": [NODE | {"cards": -1}]}, "node 1: cards cannot be -1"),
        ({"nodes": [NODE | {"cards": 10**9}]}, "at most 256 cards"),
        ({"nodes": [NODE | {"cards": [3]}]}, "node 1 cannot be read"),
        ({"nodes": [NODE | {"cards": True}]}, "node 1: cards cannot be True"),
        ({"nodes": [NODE | {"units_per_card": 0}]}, "node 1: units_per_card cannot be 0"),
        ({"nodes": [NODE | {"labels": []}]}, "node 1: labels cannot be []"),
        ({"nodes": [NODE | {"sharing": "magic"}]}, "there is no sharing system"),
        ({"nodes": [NODE | {"name": "a\nb"}]}, "a name of one line"),
        ({"nodes": [NODE | {"name": ""}]}, "a name of one line"),
        ({"nodes": [NODE | {"card": 8}]}, "node 1: unknown key"),
        ({"nodes": [NODE, NODE]}, "two nodes have the same name"),
        ({"nodes": [{"object": {"metadata": 5}}]}, "node 1 cannot be read"),
        ({"node": []}, "unknown option"),
        ({"\0": "\0"}, "unknown option"),
        ({"namespace_prefix": 5}, "option namespace_prefix must be of type str"),
        ({"namespace_prefix": "A b"}, "option namespace_prefix must be lowercase"),
        ({"configurations": {"x": {}}}, "option configurations.x is not known"),
        ({"configurations": {"plugin": None}}, "option configurations.plugin must be an object"),
        ({"configurations": {"mig": {"config.yaml": 7}}}, "option configurations.mig.config.yaml must be a string"),
    ],
)
def test_options_of_declared_nodes_that_cannot_work_are_refused_and_not_stored(
    root: User, options: Any, says: str
) -> None:
    make.cluster("here", options={"nodes": [NODE]})
    answer = change(root, options)
    assert (answer.status_code, [error["attr"] for error in answer.json()["errors"]]) == (422, ["options"])
    assert says in answer.json()["detail"]
    assert Cluster.objects.get().options == {"nodes": [NODE]}


WRONG = [
    ({"tolerations": [1, 2]}, "option tolerations[0] must be an object"),
    ({"tolerations": [{"key": 5}]}, "option tolerations[0].key must be a string"),
    ({"image_pull_secrets": [7]}, "option image_pull_secrets[0] must be a string"),
    ({"health_conditions": {"Gpu*": ["True"]}}, "option health_conditions.Gpu* must be a string"),
    ({"ingress_namespaces": [{"name": "a"}]}, "option ingress_namespaces[0] must be a string"),
    ({"volume_size": "50 gigabytes"}, "option volume_size must be a size such as 50Gi"),
]


@pytest.mark.parametrize(("options", "says"), WRONG)
def test_elements_of_another_type_are_named_by_their_place_on_the_page_and_by_api(
    root: User, options: Any, says: str
) -> None:
    """Before the cluster is asked: none is there."""
    answer = person(root).post("/api/v1/clusters/", {"name": "far", "options": options}, format="json")
    assert (answer.status_code, [error["attr"] for error in answer.json()["errors"]]) == (422, ["options"])
    assert says in answer.json()["detail"]
    browser = Client()
    browser.force_login(root)
    for button in ({}, {"try": "1"}):
        form = {"name": "far", "kubeconfig": "", "options": json.dumps(options)} | button
        page = browser.post("/operator/clusters/", form)
        assert page.status_code == 422
        assert says in unescape(page.content.decode())
    assert not Cluster.objects.exists()
    make.cluster("here", options={})
    Cluster.objects.update(kind=ClusterKind.KUBERNETES)
    changed = change(root, options)
    assert (changed.status_code, [error["attr"] for error in changed.json()["errors"]]) == (422, ["options"])
    assert (says in changed.json()["detail"], Cluster.objects.get().options) == (True, {})


@pytest.mark.parametrize(
    "typed",
    ["[" * 20_000, '{"a":' * 5_000 + "1" + "}" * 5_000, '{"priority": ' + "9" * 5_000 + "}", r'{"storage_class": "\ud800"}', "{"],
    ids=["open", "deep", "digits", "surrogate", "broken"],
)  # fmt: skip
def test_options_that_are_no_json_that_could_be_stored_come_back_as_they_were_typed(root: User, typed: str) -> None:
    browser = Client(raise_request_exception=False)
    browser.force_login(root)
    page = browser.post("/operator/clusters/", {"name": "far", "kubeconfig": "", "options": typed})
    assert page.status_code == 422
    text = unescape(page.content.decode())
    assert "Enter valid JSON, nested at most" in text
    assert typed in text


def test_options_that_work_are_stored(root: User, settings: Any, tmp_path: Any) -> None:
    settings.DEBUG, settings.DATA_DIR = True, tmp_path  # an embedded cluster starts nowhere else
    make.cluster("here", options={})
    for options in ({"nodes": [NODE | {"cards": [{"cores": 100}, {}], "labels": {"a": "b"}}]}, {"nodes": []}, {}):
        answer = change(root, options)
        assert answer.status_code == 200, answer.content
        assert Cluster.objects.get().options == options


def test_a_kubernetes_cluster_may_ask_before_it_makes_pools() -> None:
    assert Options.from_operator({"new_pools": "ask"}).new_pools == "ask"
    with pytest.raises(ValueError, match="option new_pools"):
        Options.from_operator({"new_pools": "no"})
