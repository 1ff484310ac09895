"""A node whose taint the portal's pods do not tolerate is held back: otherwise the plan allocates cards that no pod reaches."""

from __future__ import annotations

from typing import Any

import pytest

from workloads.kubernetes.manifests import Options, not_tolerated
from workloads.kubernetes.manifests.tolerations import tolerations
from workloads.sharing.nodes import Facts

DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}


def untolerated(taints: Any, *tolerated: dict[str, str]) -> list[Any]:
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
def test_taint_that_keeps_pods_away_is_reported(taint: dict[str, str], text: str) -> None:
    assert untolerated([taint]) == [text]


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "dedicated", "value": "ml", "effect": "PreferNoSchedule"},  # only a preference
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},  # every pod of the portal tolerates it
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},  # cordoned, which is reported elsewhere
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    ],
)
def test_taint_that_keeps_no_pod_away_or_is_reported_elsewhere_is_omitted(taint: dict[str, str]) -> None:
    assert untolerated([taint]) == []


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "operator": "Equal", "value": "ml"}, True),
        ({"key": "dedicated", "value": "ml"}, True),  # Equal is the default
        ({"key": "dedicated", "value": "web"}, False),
        ({"key": "dedicated"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_match_taints_as_in_kubernetes(toleration: dict[str, str], tolerates: bool) -> None:
    assert (untolerated([DEDICATED], toleration) == []) is tolerates


@pytest.mark.parametrize("taints", [None, "x", [None], [{}], [{"effect": "NoSchedule"}], {"key": "a"}])
def test_malformed_taints_raise_no_error(taints: Any) -> None:
    untolerated(taints)


def test_every_taint_is_reported_and_every_pod_tolerates_the_gpu_taint() -> None:
    assert len(untolerated([DEDICATED, {"key": "b", "effect": "NoExecute"}])) == 2
    assert tolerations(Options(), [{"key": "x"}])[0]["key"] == "nvidia.com/gpu"
