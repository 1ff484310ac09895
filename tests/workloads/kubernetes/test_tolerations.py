"""A node whose taint the portal's pods do not tolerate is held back: else the plan gives out cards that no pod reaches."""

from __future__ import annotations

from typing import Any

import pytest

from workloads.kubernetes.manifests import Options, not_tolerated
from workloads.kubernetes.manifests.tolerations import tolerations
from workloads.sharing.nodes import Facts

DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


def taints_said(taints: Any, *tolerated: dict[str, str]) -> list[Any]:
    node = Facts({"spec": {"taints": taints}})
    return [note.params["taint"] for note in not_tolerated(node, Options(tolerations=tolerated))]


@pytest.mark.parametrize(
    ("taint", "text"),
    [
        (DEDICATED, "dedicated=ml:NoSchedule"),
        ({"key": "maintenance", "effect": "NoExecute"}, "maintenance:NoExecute"),
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoExecute"}, "nvidia.com/gpu=present:NoExecute"),
        ({"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}, "node.kubernetes.io/disk-pressure:NoSchedule"),
    ],
)  # fmt: skip
def test_a_taint_that_keeps_pods_away_is_named(taint: dict[str, str], text: str) -> None:
    assert taints_said([taint]) == [text]


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "dedicated", "value": "ml", "effect": "PreferNoSchedule"},  # only a wish
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},  # every pod of ours tolerates it
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},  # cordoned, which is said already
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    ],
)
def test_a_taint_that_keeps_no_pod_away_or_is_said_already_is_not(taint: dict[str, str]) -> None:
    assert taints_said([taint]) == []


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "operator": "Equal", "value": "ml"}, True),
        ({"key": "dedicated", "value": "ml"}, True),  # Equal, where nothing is said
        ({"key": "dedicated", "value": "web"}, False),
        ({"key": "dedicated"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_are_read_as_kubernetes_does(toleration: dict[str, str], tolerates: bool) -> None:
    assert (taints_said([DEDICATED], toleration) == []) is tolerates


@pytest.mark.parametrize("taints", [None, "x", [None], [{}], [{"effect": "NoSchedule"}], {"key": "a"}])
def test_what_is_no_taint_raises_nothing(taints: Any) -> None:
    taints_said(taints)


def test_every_taint_is_named_and_every_pod_tolerates_the_taint_of_gpus() -> None:
    assert len(taints_said([DEDICATED, {"key": "b", "effect": "NoExecute"}])) == 2
    assert tolerations(Options(), [{"key": "x"}])[0]["key"] == "nvidia.com/gpu"
