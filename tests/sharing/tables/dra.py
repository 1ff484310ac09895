from copy import deepcopy
from typing import Any

from tests.sharing.table import NODES, Found, Live, Table
from workloads.sharing import Held, PodPatch

A100 = "NVIDIA-A100-SXM4-80GB"
NAME = "dra-a100-80"
DRIVER = "gpu.nvidia.com"
SPEAKS = "listed in a ResourceSlice of gpu.nvidia.com"
SLICE = NODES[NAME]["resourceSlices"][0]
CEL = (
    "device.attributes['gpu.nvidia.com'].type == 'gpu' && "
    "device.attributes['gpu.nvidia.com'].productName.replace(' ', '-') == 'NVIDIA-A100-SXM4-80GB'"
)


def devices(count: int) -> dict[str, Any]:
    exactly = {"deviceClassName": DRIVER, "count": count, "selectors": [{"cel": {"expression": CEL}}]}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def sliced(**changes: Any) -> dict[str, Any]:
    """The node, with a changed spec of its ResourceSlice."""
    changed = deepcopy(NODES[NAME])
    changed["resourceSlices"][0]["spec"].update(changes)
    return changed


def tainted() -> dict[str, Any]:
    changed = sliced()
    changed["resourceSlices"][0]["spec"]["devices"][3]["taints"] = [{"key": "sick", "effect": "NoSchedule"}]
    return changed


POOL = SLICE["spec"]["pool"]
CLAIM = {
    "metadata": {"name": "w-1-gpu-x2x"},
    "status": {
        "allocation": {"devices": {"results": [{"driver": DRIVER, "pool": NAME, "device": "gpu-5", "request": "gpu"}]}}
    },
}


def by_another_driver() -> dict[str, Any]:
    """The claim, with a device that is not a GPU, such as a network card."""
    changed = deepcopy(CLAIM)
    changed["status"]["allocation"]["devices"]["results"][0]["driver"] = "dra.net"
    return changed


OWN = {
    "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "w-1-gpu-x2x"}]},
    "resourceClaims": [CLAIM],
}

TABLE = Table(
    system="dra",
    found=(
        Found(node=NAME, product=A100, unit="card", cards=8, because=SPEAKS),
        Found(node=tainted(), product=A100, unit="card", cards=8, healthy=7, because=SPEAKS),
        Found(
            node=sliced(pool=POOL | {"resourceSliceCount": 2}),
            product=A100,
            unit="card",
            cards=8,
            because=SPEAKS,
            held_back="1 of 2 ResourceSlices exist",
        ),
        Found(
            node=sliced(devices=SLICE["spec"]["devices"] * 60),
            product=A100,
            unit="card",
            cards=0,
            because=SPEAKS,
            held_back="it reports 480 cards",
        ),
    ),
    asked=(
        (
            {"product": A100, "units": 2, "name": "w-1"},
            PodPatch(
                claims=({"name": "gpu", "resourceClaimTemplateName": "w-1"},),
                objects=(
                    {
                        "apiVersion": "resource.k8s.io/v1",
                        "kind": "ResourceClaimTemplate",
                        "metadata": {"name": "w-1"},
                        "spec": {"spec": devices(2)},
                    },
                ),
            ),
        ),
        (
            {"product": A100, "units": 1, "name": "w-1", "extra": {"share": "lab"}},
            PodPatch(
                claims=({"name": "gpu", "resourceClaimName": "share-lab"},),
                objects=(
                    {
                        "apiVersion": "resource.k8s.io/v1",
                        "kind": "ResourceClaim",
                        "metadata": {"name": "share-lab"},
                        "spec": devices(1),
                    },
                ),
                follows_claim=True,
            ),
        ),
    ),
    refused=(
        ({"product": A100, "units": 2, "extra": {"share": "lab"}}, ("units_per_pod", "one_card")),
        ({"product": A100, "units": 1, "extra": {"share": "Our Card"}}, ("share", "bad_name")),
        ({"product": A100, "units": 1, "pods": 2, "extra": {"share": "lab"}}, ("pods", "no_peers")),
        ({"product": A100, "units": 1, "cores": 10}, ("cores_per_pod", "no_cores")),
    ),
    read=(
        (OWN, (Held(f"{NAME}/gpu-5"),)),
        (OWN | {"resourceSlices": [SLICE]}, (Held("GPU-00000005-0000-4000-8000-000000000005", 81920),)),
        ({"resourceClaims": [CLAIM]}, ()),
        (OWN | {"resourceClaims": [by_another_driver()]}, ()),
    ),
    live=(
        Live(
            node=NAME,
            body={"units_per_pod": 1},
            claims=CEL,
            cards=("GPU-00000000-0000-4000-8000-000000000000",),
            bad={"units_per_pod": 1, "cores_per_pod": 10},
            blamed="cores_per_pod",
            said="Compute cannot be limited here",
        ),
    ),
)
