from copy import deepcopy
from typing import Any

from tests.sharing.table import NODES, Found, Live, Table
from tests.sharing.tables.dra import SLICE, SPEAKS
from workloads.sharing import Held, PodPatch, Settings

A100 = "NVIDIA-A100-SXM4-80GB"
NAME = "dra-a100-80"
CEL = (
    "device.attributes['gpu.nvidia.com'].type == 'mig' && device.attributes['gpu.nvidia.com'].profile == '3g.40gb' && "
    "device.attributes['gpu.nvidia.com'].productName.replace(' ', '-') == 'NVIDIA-A100-SXM4-80GB'"
)
EXACTLY = {"deviceClassName": "mig.nvidia.com", "count": 1, "selectors": [{"cel": {"expression": CEL}}]}


def instance(number: int, profile: str, parent: str, product: str = "NVIDIA A100-SXM4-80GB") -> dict[str, Any]:
    said = {
        "type": "mig",
        "uuid": f"MIG-{number}",
        "parentUUID": parent,
        "profile": profile,
        "productName": product,
    }
    attributes = {name: {"string": value} for name, value in said.items()}
    return {"name": f"instance-{number}", "attributes": attributes, "capacity": {"memory": {"value": "40192Mi"}}}


def cut(*devices: dict[str, Any], whole: int = 0) -> dict[str, Any]:
    changed = deepcopy(NODES[NAME])
    changed["resourceSlices"][0]["spec"]["devices"] = [*SLICE["spec"]["devices"][:whole], *devices]
    return changed


TWO = (instance(0, "3g.40gb", "GPU-x"), instance(1, "3g.40gb", "GPU-x"))
PARENT = SLICE["spec"]["devices"][0]["attributes"]["uuid"]["string"]

TABLE = Table(
    system="dra-mig",
    found=(
        Found(
            node=cut(),
            product=A100,
            unit="slice",
            units_per_card=8,
            cards=0,
            because="pinned by an operator",
            held_back="its ResourceSlices name no MIG instance",
            settings=Settings(pins={NAME: "dra-mig"}),
        ),
        Found(
            node=cut(instance(0, "3g.40gb", "GPU-x", product="NVIDIA X1")),
            product="NVIDIA-X1",
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"3g.40gb": 1},
            because=f"{SPEAKS}; slices derived from the names of the profiles: 3g.40gb = 4/8",
        ),
        Found(
            node=cut(instance(0, "3.40", "GPU-x", product="NVIDIA X1")),
            product="NVIDIA-X1",
            unit="slice",
            cards=1,
            instances={"3.40": 1},
            because=SPEAKS,
            held_back="the MIG profiles of NVIDIA-X1 are not known",
        ),
        Found(
            node=cut(*TWO, instance(2, "3g.40gb", "")),
            product=A100,
            unit="slice",
            units_per_card=8,
            cards=2,
            instances={"3g.40gb": 3},
            because=SPEAKS,
            held_back="its ResourceSlices do not say which card a MIG instance belongs to",
        ),
        Found(
            node=cut(*TWO),
            product=A100,
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"3g.40gb": 2},
            because=SPEAKS,
        ),
        Found(
            node=cut(*TWO, whole=7),
            product=A100,
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"3g.40gb": 2},
            because=SPEAKS,
            beside=(("dra", "card", 7),),
        ),
        Found(
            node=cut(instance(0, "3g.40gb", PARENT), whole=1),
            product=A100,
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"3g.40gb": 1},
            because=SPEAKS,
        ),
        Found(
            node=cut(instance(0, "3g.40gb", PARENT), whole=8),
            product=A100,
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"3g.40gb": 1},
            because=SPEAKS,
            beside=(("dra", "card", 7),),
        ),
        Found(
            node=cut(
                instance(0, "3g.40gb", PARENT) | {"consumesCounters": [{"counterSet": "gpu-0-counters"}]}, whole=1
            ),
            product=A100,
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"3g.40gb": 1},
            because=SPEAKS,
            held_back="its cards are partitioned on demand, which is not supported",
        ),
        Found(
            node=cut(*TWO, instance(2, "1g.10gb", "GPU-x")),
            product=A100,
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"1g.10gb": 1, "3g.40gb": 2},
            because=SPEAKS,
            held_back="its instances cover 9 slices, but its 1 partitioned cards have 8",
        ),
        Found(
            node=cut(*TWO, instance(2, "3g.40gb", "GPU-y", "NVIDIA H100 80GB HBM3")),
            product=A100,
            unit="slice",
            units_per_card=8,
            cards=2,
            instances={"3g.40gb": 3},
            because=SPEAKS,
            held_back="it has cards of different products: NVIDIA-A100-SXM4-80GB, NVIDIA-H100-80GB-HBM3",
        ),
        Found(
            node=cut(instance(0, "1g.5gb", "GPU-x")),
            product=A100,
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"1g.5gb": 1},
            because=SPEAKS,
            held_back="A100-80GB has no profile 1g.5gb",
        ),
    ),
    asked=(
        (
            {"product": A100, "units": 4, "profile": "3g.40gb", "name": "w-1"},
            PodPatch(
                claims=({"name": "gpu", "resourceClaimTemplateName": "w-1"},),
                objects=(
                    {
                        "apiVersion": "resource.k8s.io/v1",
                        "kind": "ResourceClaimTemplate",
                        "metadata": {"name": "w-1"},
                        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": EXACTLY}]}}},
                    },
                ),
            ),
        ),
    ),
    refused=(
        ({"product": A100, "units": 4, "profile": "5g.50gb"}, ("profile", "no_such_profile")),
        ({"product": A100, "units": 1, "profile": "3g.40gb"}, ("units_per_pod", "wrong_size")),
    ),
    read=(
        (
            {
                "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
                "resourceClaims": [
                    {
                        "metadata": {"name": "c"},
                        "status": {
                            "allocation": {
                                "devices": {
                                    "results": [{"driver": "gpu.nvidia.com", "pool": NAME, "device": "instance-1"}]
                                }
                            }
                        },
                    }
                ],
                "resourceSlices": cut(*TWO)["resourceSlices"],
            },
            (Held("MIG-1", 40_192, profile="3g.40gb"),),
        ),
    ),
    live=(
        Live(
            node=cut(instance(0, "2g.20gb", "GPU-x"), instance(1, "3g.40gb", "GPU-x"), whole=7),
            body={"profile": "3g.40gb"},
            claims=CEL,
            cards=("MIG-1",),
            bad={"profile": "5g.50gb"},
            blamed="profile",
            said="has no profile 5g.50gb here; it has 1g.10gb, 1g.10gb+me",
        ),
    ),
)
