"""The amount that a pod from outside the portal requests from a pool."""

from __future__ import annotations

from typing import Any

import pytest

from workloads.requests.pod_amounts import Amount, amount_of
from workloads.sharing import Settings
from workloads.sharing.outside import Offered

WHOLE, GPUSHARE, MIG = Offered("whole", 1), Offered("memory", 80 * 1024), Offered("mig", 7, "A100-80GB")
HAMI = Offered("hami", 80 * 1024)


def pod(**limits: Any) -> dict[str, Any]:
    named = {name.replace("__", "/").replace("_", "."): str(value) for name, value in limits.items()}
    return {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {"limits": named}}]}}


def pod_with(resource: str, amount: object, **more: object) -> dict[str, Any]:
    limits = {resource: str(amount)} | {name: str(value) for name, value in more.items()}
    return {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]}}


def test_each_requested_card_counts_as_one_unit() -> None:
    assert amount_of(pod_with("nvidia.com/gpu", 3), WHOLE, Settings()) == Amount(3)
    assert amount_of(pod_with("nvidia.com/gpu", 0), WHOLE, Settings()) is None
    assert amount_of(pod_with("cpu", 3), WHOLE, Settings()) is None


def test_mig_instance_is_read_as_its_profile_and_two_in_one_pod_are_not_supported() -> None:
    amount = amount_of(pod_with("nvidia.com/mig-3g.40gb", 1), MIG, Settings())
    assert amount is not None
    assert amount.profile == "3g.40gb"
    assert amount_of(pod_with("nvidia.com/mig-3g.40gb", 2), MIG, Settings()) is None


def test_memory_is_read_only_by_the_sharing_system_of_its_resource() -> None:
    gpushare, hami = pod_with("aliyun.com/gpu-mem", 6), {**pod_with("nvidia.com/gpu", 1, **{"nvidia.com/gpumem": 4000})}
    assert amount_of(gpushare, GPUSHARE, Settings()) == Amount(6 * 1024)
    assert amount_of(gpushare, HAMI, Settings()) is None
    assert amount_of(hami, HAMI, Settings()) == Amount(4000)
    assert amount_of(hami, GPUSHARE, Settings()) is None


@pytest.mark.parametrize(("offer", "pod"), [
    (WHOLE, pod_with("nvidia.com/gpu", 1, **{"nvidia.com/mig-1g.10gb": 7})),
    (WHOLE, pod_with("nvidia.com/gpu", 1, **{"volcano.sh/gpu-memory": 4000})),
    (MIG, pod_with("nvidia.com/mig-3g.40gb", 1, **{"nvidia.com/gpu": 4})),
    (Offered("timeslicing", 4), pod_with("nvidia.com/gpu.shared", 1, **{"aliyun.com/gpu-mem": 8})),
    (WHOLE, {"metadata": {}, "spec": {**pod_with("nvidia.com/gpu", 1)["spec"], "resourceClaims": [{"name": "more"}]}}),
])  # fmt: skip
def test_pod_with_resources_of_another_system_is_not_counted(offer: Offered, pod: dict[str, Any]) -> None:
    assert amount_of(pod, offer, Settings()) is None


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_replicas_can_be_requested_by_either_resource_name(resource: str) -> None:
    assert amount_of(pod_with(resource, 1), Offered("timeslicing", 4), Settings()) == Amount(1)


@pytest.mark.parametrize("system", ["dra", "dra-mig", "unknown"])
def test_amount_of_systems_with_resource_claims_cannot_be_read(system: str) -> None:
    assert amount_of(pod_with("nvidia.com/gpu", 1), Offered(system, 1), Settings()) is None
