"""Cluster options typed by operators: values that cannot work are refused with the name of their key, and nothing is stored."""

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
    ("options", "problem"),
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
def test_invalid_cluster_options_are_refused_and_not_stored(root: User, options: Any, problem: str) -> None:
    make.cluster("here", options={"nodes": [NODE]})
    response = change(root, options)
    assert (response.status_code, [error["attr"] for error in response.json()["errors"]]) == (422, ["options"])
    assert problem in response.json()["detail"]
    assert Cluster.objects.get().options == {"nodes": [NODE]}


WRONG = [
    ({"tolerations": [1, 2]}, "option tolerations[0] must be an object"),
    ({"tolerations": [{"key": 5}]}, "option tolerations[0].key must be a string"),
    ({"image_pull_secrets": [7]}, "option image_pull_secrets[0] must be a string"),
    ({"health_conditions": {"Gpu*": ["True"]}}, "option health_conditions.Gpu* must be a string"),
    ({"ingress_namespaces": [{"name": "a"}]}, "option ingress_namespaces[0] must be a string"),
    ({"volume_size": "50 gigabytes"}, "option volume_size must be a size such as 50Gi"),
]


@pytest.mark.parametrize(("options", "problem"), WRONG)
def test_list_elements_of_the_wrong_type_are_named_by_position_on_page_and_api(
    root: User, options: Any, problem: str
) -> None:
    """Options are checked before the cluster is contacted: none exists here."""
    response = person(root).post("/api/v1/clusters/", {"name": "far", "options": options}, format="json")
    assert (response.status_code, [error["attr"] for error in response.json()["errors"]]) == (422, ["options"])
    assert problem in response.json()["detail"]
    browser = Client()
    browser.force_login(root)
    for button in ({}, {"try": "1"}):
        form = {"name": "far", "kubeconfig": "", "options": json.dumps(options)} | button
        page = browser.post("/operator/clusters/", form)
        assert page.status_code == 422
        assert problem in unescape(page.content.decode())
    assert not Cluster.objects.exists()
    make.cluster("here", options={})
    Cluster.objects.update(kind=ClusterKind.KUBERNETES)
    changed = change(root, options)
    assert (changed.status_code, [error["attr"] for error in changed.json()["errors"]]) == (422, ["options"])
    assert (problem in changed.json()["detail"], Cluster.objects.get().options) == (True, {})


@pytest.mark.parametrize(
    "typed",
    ["[" * 20_000, '{"a":' * 5_000 + "1" + "}" * 5_000, '{"priority": ' + "9" * 5_000 + "}", r'{"storage_class": "\ud800"}', "{"],
    ids=["unclosed brackets", "nested too deeply", "too many digits", "lone surrogate", "unclosed object"],
)  # fmt: skip
def test_options_that_are_not_valid_json_are_shown_again_as_typed(root: User, typed: str) -> None:
    browser = Client(raise_request_exception=False)
    browser.force_login(root)
    page = browser.post("/operator/clusters/", {"name": "far", "kubeconfig": "", "options": typed})
    assert page.status_code == 422
    text = unescape(page.content.decode())
    assert "Enter valid JSON, nested at most" in text
    assert typed in text


def test_valid_options_are_stored(root: User, settings: Any, tmp_path: Any) -> None:
    settings.DEBUG, settings.DATA_DIR = True, tmp_path  # an embedded cluster starts only in debug mode
    make.cluster("here", options={})
    for options in ({"nodes": [NODE | {"cards": [{"cores": 100}, {}], "labels": {"a": "b"}}]}, {"nodes": []}, {}):
        response = change(root, options)
        assert response.status_code == 200, response.content
        assert Cluster.objects.get().options == options


def test_kubernetes_cluster_can_be_set_to_ask_before_creating_pools() -> None:
    assert Options.from_operator({"new_pools": "ask"}).new_pools == "ask"
    with pytest.raises(ValueError, match="option new_pools"):
        Options.from_operator({"new_pools": "no"})
