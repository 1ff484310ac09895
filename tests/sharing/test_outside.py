"""Use outside the quota: what pods that the portal did not start take of a node, for each way to request a GPU."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.sharing import SYSTEMS, Settings
from workloads.sharing.api import Held
from workloads.sharing.outside import Offered, Part, Slot, occupies_node, parts, put_on_cards, requests, wants_a_gpu

UUID = "GPU-11111111-2222"


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    spec = {
        "nodeName": "n1",
        "containers": [{"resources": {"limits": each}} for each in containers],
        "initContainers": list(init),
        **more.pop("spec", {}),
    }
    return {"metadata": {"name": "p", **more}, "spec": spec, "status": {"phase": "Running"}}


def taken(requesting: dict[str, Any], *offers: Offered, **options: Any) -> list[tuple[str, Part]]:
    held = {offer.sharing: SYSTEMS[offer.sharing].read_back(requesting) for offer in offers}
    return list(parts(requesting, offers, held, Settings(**options)))


def test_requests_are_counted_as_the_kubernetes_scheduler_does() -> None:
    init: tuple[dict[str, Any], ...] = (
        {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"resources": {"requests": {"cpu": "7", "nvidia.com/gpu": "1"}}},
    )
    requesting = pod({"cpu": "2"}, {"cpu": "500m", "memory": "1Gi"}, init=init, spec={"overhead": {"cpu": "250m"}})
    assert requests(requesting) == {"cpu": 8.25, "memory": 2**30, "nvidia.com/gpu": 1}
    whole = pod({"cpu": "2"}, spec={"resources": {"requests": {"cpu": "5"}}})
    assert requests(whole)["cpu"] == 5


def test_request_takes_precedence_over_limit_and_invalid_amounts_do_not_count() -> None:
    both = {"spec": {"containers": [{"resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "1"}}}]}}
    assert requests(both) == {"cpu": 1}
    assert requests({"spec": {"containers": [{"resources": {"limits": {"cpu": "much", "x": None}}}, 7]}}) == {}
    assert requests({}) == {}


@pytest.mark.parametrize(
    ("phase", "node", "occupies"),
    [
        ("Running", "n1", True),
        ("Pending", "n1", True),
        ("Pending", "", False),
        ("Succeeded", "n1", False),
        ("Failed", "n1", False),
    ],
)
def test_pod_occupies_its_node_from_binding_until_it_has_ended(phase: str, node: str, occupies: bool) -> None:
    assert occupies_node({"spec": {"nodeName": node}, "status": {"phase": phase}}) is occupies


A100, SHARED, MEMORY = Offered("whole", 1), Offered("timeslicing", 10), Offered("memory", 15_360)
HAMI, VCUDA, KAI, SHARE = (
    Offered("hami", 24_576),
    Offered("vcuda", 16_384),
    Offered("kai", 100),
    Offered("kubeshare", 100),
)
MIG = Offered("mig", 8, "A100-80GB", {"1g.10gb": 16, "3g.40gb": 8})


@pytest.mark.parametrize(
    ("requesting", "offer", "expected"),
    [
        (pod({"nvidia.com/gpu": "2"}), A100, [Part(1), Part(1)]),
        (pod({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}), A100, [Part(1), Part(1)]),
        (pod({"volcano.sh/gpu-number": "1"}), Offered("volcano-number", 1), [Part(1)]),
        (pod({"nvidia.com/gpu.shared": "2"}), SHARED, [Part(1), Part(1)]),
        (pod({"nvidia.com/gpu": "1"}), Offered("mps", 4), [Part(1)]),
        (pod({"aliyun.com/gpu-mem": "4"}), MEMORY, [Part(4_096)]),
        (pod({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}), HAMI, [Part(3_000, 30)] * 2),
        (pod({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}), HAMI, [Part(12_288)]),
        (pod({"nvidia.com/gpu": "1"}), HAMI, [Part(24_576)]),
        (pod({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}), Offered("volcano-vgpu", 9_000), [Part(1_000)]),
        (pod({"volcano.sh/gpu-memory": "1000"}), Offered("volcano", 9_000), [Part(1_000)]),
        (pod({"tencent.com/vcuda-core": "30", "tencent.com/vcuda-memory": "8"}), VCUDA, [Part(2_048, 30)]),
        (pod({"tencent.com/vcuda-core": "30"}), VCUDA, [Part(16_384, 30)]),
        (pod({"tencent.com/vcuda-core": "200"}), VCUDA, [Part(16_384, 100)] * 2),
        (pod({"tencent.com/vcuda-core": "200", "tencent.com/vcuda-memory": "128"}), VCUDA, [Part(16_384, 100)] * 2),
        (pod({}, annotations={"gpu-fraction": "0.25"}), KAI, [Part(25)]),
        (pod({}, annotations={"gpu-memory": "2000"}), KAI, [Part(100)]),
        (pod({"nvidia.com/gpu": "1"}), KAI, [Part(100)]),
        (pod({}, annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "3"}), KAI, [Part(50)] * 3),
        (pod({}, annotations={"gpu-memory": "2000", "gpu-fraction-num-devices": "2"}), KAI, [Part(100)] * 2),
        (pod({}, labels={"sharedgpu/gpu_request": "2"}), SHARE, [Part(100)] * 2),
        (pod({}, labels={"sharedgpu/gpu_request": "1.0"}), SHARE, [Part(100)]),
        (pod({}, labels={"sharedgpu/gpu_request": "0.5"}), SHARE, [Part(50)]),
        (pod({"nvidia.com/mig-3g.40gb": "2"}), MIG, [Part(4, profile="3g.40gb")] * 2),
        (pod({"nvidia.com/gpu": "1"}), Offered("mig", 8, "A100-80GB", {"1g.10gb": 7}), [Part(1, profile="1g.10gb")]),
        (pod({"nvidia.com/unheard-of": "3"}), A100, [Part(1)] * 3),
        (pod({"cpu": "3"}), A100, []),
    ],
)  # fmt: skip
def test_every_way_to_request_a_gpu_is_understood(
    requesting: dict[str, Any], offer: Offered, expected: list[Part]
) -> None:
    assert [part for _, part in taken(requesting, offer)] == expected
    assert wants_a_gpu(requesting) is bool(expected)


def test_nvidia_com_gpu_is_a_whole_card_beside_mig_instances() -> None:
    requesting = pod({"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"})
    assert sorted(taken(requesting, MIG, A100)) == [("mig", Part(1, profile="1g.10gb")), ("whole", Part(1))]


def test_allocation_written_on_the_pod_takes_precedence_over_its_request() -> None:
    notes = {"hami.io/vgpu-devices-allocated": f"{UUID},NVIDIA,5000,40:;"}
    assert taken(pod({"nvidia.com/gpu": "1"}, annotations=notes), HAMI) == [("hami", Part(5_000, 40, UUID))]


def test_dra_device_is_found_by_its_resource_claim() -> None:
    devices = [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": UUID}}}]
    slices = [{"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}, "devices": devices}}]
    result = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
    claim = {"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": [result]}}}}
    requesting = pod({}, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]})
    requesting |= {"resourceClaims": [claim], "resourceSlices": slices}
    assert wants_a_gpu(requesting)
    assert taken(requesting, Offered("dra", 1)) == [("dra", Part(1, device=UUID))]


def claimed(*results: dict[str, Any]) -> dict[str, Any]:
    """A pod with a ResourceClaim of these devices of node n1: gpu-0, a card, and gpu-1-1g and gpu-1-3g, instances of another
    card."""
    attributes: dict[str, dict[str, str]] = {
        "gpu-0": {"type": "gpu", "uuid": UUID},
        "gpu-1-1g": {"type": "mig", "uuid": "MIG-1", "parentUUID": "GPU-1", "profile": "1g.10gb"},
        "gpu-1-3g": {"type": "mig", "uuid": "MIG-3", "parentUUID": "GPU-1", "profile": "3g.40gb"},
    }
    devices = [
        {"name": name, "attributes": {key: {"string": value} for key, value in each.items()}}
        for name, each in attributes.items()
    ]
    slices = [{"spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}, "devices": devices}}]
    allocated = [{"driver": "gpu.nvidia.com", "pool": "n1"} | result for result in results]
    claim = {"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": allocated}}}}
    requesting = pod({}, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]})
    return requesting | {"resourceClaims": [claim], "resourceSlices": slices}


def test_cards_and_instances_of_one_resource_claim_count_in_their_own_pools() -> None:
    offers = (Offered("dra", 1), Offered("dra-mig", 8, "A100-80GB", {"1g.10gb": 2, "3g.40gb": 1}))
    assert taken(claimed({"device": "gpu-0"}), *offers) == [("dra", Part(1, device=UUID))]
    small = Part(1, device="MIG-1", profile="1g.10gb")
    assert taken(claimed({"device": "gpu-1-1g"}), *offers) == [("dra-mig", small)]
    assert taken(claimed({"device": "gpu-0"}, {"device": "gpu-1-1g"}), *offers) == [
        ("dra", Part(1, device=UUID)), ("dra-mig", small),
    ]  # fmt: skip


def test_resource_claim_with_admin_access_takes_no_cards() -> None:
    watching = claimed({"device": "gpu-0", "adminAccess": True}, {"device": "gpu-1-3g", "adminAccess": True})
    assert taken(watching, Offered("dra", 1), Offered("dra-mig", 8, "A100-80GB", {"3g.40gb": 1})) == []


@pytest.mark.parametrize("label", ["runai-gpu-group", "runai-gpu-group/7f"])
def test_kai_reservation_pod_does_not_count_beside_its_tenants(label: str) -> None:
    """KAI's binder creates it for the fractions that the portal starts, too."""
    reservation = pod({"nvidia.com/gpu": "1"}, labels={"app": "kai-resource-reservation", label: "7f"})
    assert taken(reservation, KAI) == []
    assert taken(reservation, A100) == [("whole", Part(1))], "on a node without KAI it counts as any pod"
    tenant = pod({}, annotations={"gpu-fraction": "0.25"}, labels={label: "7f"})
    assert [part.units for _, part in taken(tenant, KAI)] == [25]


def test_mig_instance_of_unknown_profile_counts_as_the_largest_on_its_node() -> None:
    instances = {"1g.10gb": 2, "3g.40gb": 1}
    held = {"dra-mig": (Held(device="gpu-0-mig-9-4-4"),)}
    taken_parts = list(parts(pod({}), [Offered("dra-mig", 8, "A100-80GB", instances)], held, Settings()))
    assert taken_parts == [("dra-mig", Part(4, device="gpu-0-mig-9-4-4", profile="3g.40gb"))]


def test_known_card_is_taken_and_others_where_the_portals_work_leaves_room() -> None:
    slots = [Slot(0, "GPU-a", 1), Slot(1, "GPU-b", 1, ours=1), Slot(2, "GPU-c", 1), Slot(3, "GPU-d", 1)]
    put_on_cards(slots, [Part(1), Part(1, device="GPU-a::3")])
    assert [slot.outside for slot in slots] == [1, 0, 0, 1]
    put_on_cards(slots, [Part(1), Part(1), Part(1)])
    assert [slot.outside for slot in slots] == [1, 1, 1, 1], "never more than the card has"


def test_part_of_a_card_is_put_where_the_least_is_left_over() -> None:
    slots = [Slot(0, "", 10), Slot(1, "", 10, ours=6), Slot(2, "", 10, ours=8)]
    put_on_cards(slots, [Part(3), Part(10)])
    assert [slot.outside for slot in slots] == [10, 3, 0]


def test_on_a_node_without_cards_nothing_is_taken() -> None:
    slots: list[Slot] = []
    put_on_cards(slots, [Part(1), Part(1, device="0")])
    assert slots == []


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100)
@given(anything, anything, anything, st.sampled_from(sorted(SYSTEMS)))
def test_malformed_pod_is_read_without_an_exception(spec: Any, status: Any, meta: Any, key: str) -> None:
    odd = {"metadata": meta, "spec": {"containers": spec, "initContainers": spec, "resources": meta}, "status": status}
    for each in (odd, {"metadata": meta, "spec": spec, "status": status}):
        occupies_node(each)
        wants_a_gpu(each)
        list(taken(each, Offered(key, 8, "A100-80GB", {"1g.10gb": 7})))
