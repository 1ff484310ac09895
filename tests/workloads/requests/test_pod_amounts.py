"""What a pod that somebody else wrote asks of a pool."""

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


def asking(resource: str, amount: object, **more: object) -> dict[str, Any]:
    limits = {resource: str(amount)} | {name: str(value) for name, value in more.items()}
    return {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]}}


def test_whole_cards_are_as_many_units() -> None:
    assert amount_of(asking("nvidia.com/gpu", 3), WHOLE, Settings()) == Amount(3)
    assert amount_of(asking("nvidia.com/gpu", 0), WHOLE, Settings()) is None
    assert amount_of(asking("cpu", 3), WHOLE, Settings()) is None


def test_an_instance_is_its_profile_and_two_in_one_pod_are_nothing_that_can_be_asked() -> None:
    got = amount_of(asking("nvidia.com/mig-3g.40gb", 1), MIG, Settings())
    assert got is not None
    assert got.profile == "3g.40gb"
    assert amount_of(asking("nvidia.com/mig-3g.40gb", 2), MIG, Settings()) is None


def test_memory_is_read_by_the_system_whose_resource_it_is() -> None:
    gpushare, hami = asking("aliyun.com/gpu-mem", 6), {**asking("nvidia.com/gpu", 1, **{"nvidia.com/gpumem": 4000})}
    assert amount_of(gpushare, GPUSHARE, Settings()) == Amount(6 * 1024)
    assert amount_of(gpushare, HAMI, Settings()) is None
    assert amount_of(hami, HAMI, Settings()) == Amount(4000)
    assert amount_of(hami, GPUSHARE, Settings()) is None


@pytest.mark.parametrize(("offer", "pod"), [
    (WHOLE, asking("nvidia.com/gpu", 1, **{"nvidia.com/mig-1g.10gb": 7})),
    (WHOLE, asking("nvidia.com/gpu", 1, **{"volcano.sh/gpu-memory": 4000})),
    (MIG, asking("nvidia.com/mig-3g.40gb", 1, **{"nvidia.com/gpu": 4})),
    (Offered("timeslicing", 4), asking("nvidia.com/gpu.shared", 1, **{"aliyun.com/gpu-mem": 8})),
    (WHOLE, {"metadata": {}, "spec": {**asking("nvidia.com/gpu", 1)["spec"], "resourceClaims": [{"name": "more"}]}}),
])  # fmt: skip
def test_what_asks_for_more_than_the_system_counts_is_not_its(offer: Offered, pod: dict[str, Any]) -> None:
    assert amount_of(pod, offer, Settings()) is None


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_replicas_of_cards_are_asked_for_by_either_name(resource: str) -> None:
    assert amount_of(asking(resource, 1), Offered("timeslicing", 4), Settings()) == Amount(1)


@pytest.mark.parametrize("system", ["dra", "dra-mig", "unknown"])
def test_devices_that_are_only_claimed_later_cannot_be_read(system: str) -> None:
    assert amount_of(asking("nvidia.com/gpu", 1), Offered(system, 1), Settings()) is None
