from tests.sharing.table import Found, Live, Stopped, Table, node
from workloads.sharing import Held, PodPatch
from workloads.sharing.whole import NOT_SHARED

A100 = "NVIDIA-A100-SXM4-80GB"
STATUS = {
    "containerStatuses": [
        {"allocatedResourcesStatus": [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-7"}]}]}
    ]
}

TABLE = Table(
    system="whole",
    found=(
        Found(
            node="dgx-a100-80-whole-0",
            product=A100,
            unit="card",
            cards=8,
            because="it advertises 8 of nvidia.com/gpu, not shared",
        ),
        Found(
            node="dgx-a100-80-whole-1gpu-lost",
            product=A100,
            unit="card",
            cards=8,
            healthy=7,
            because="it advertises 8 of nvidia.com/gpu, not shared",
        ),
        Found(
            node="dgx-a100-80-plugin-down",
            product=A100,
            unit="card",
            cards=8,
            healthy=0,
            because="it advertises 8 of nvidia.com/gpu, not shared",
            held_back="its device plugin offers none of its 8 cards",
        ),
        Found(
            node="kai-a100-80",
            product=A100,
            unit="card",
            cards=8,
            because="it advertises 8 of nvidia.com/gpu, not shared",
        ),
        Found(
            node=node("dgx-a100-80-whole-0", labels={"nvidia.com/gpu.product": None}),
            unit="card",
            cards=8,
            because="it advertises 8 of nvidia.com/gpu, not shared",
            held_back="no label names the product of its cards: set nvidia.com/gpu.product on the node, or pin the "
            "product",
        ),
    ),
    asked=(
        (
            {"product": A100, "units": 4},
            PodPatch(
                limits={"nvidia.com/gpu": "4"}, node_selector={"nvidia.com/gpu.product": A100}, node_rules=(NOT_SHARED,)
            ),
        ),
        ({"product": "", "units": 1}, PodPatch(limits={"nvidia.com/gpu": "1"}, node_rules=(NOT_SHARED,))),
        (
            {"product": "", "units": 1, "pods": 8, "env": {"EPOCHS": "3"}},
            PodPatch(limits={"nvidia.com/gpu": "1"}, node_rules=(NOT_SHARED,)),
        ),
    ),
    refused=(
        ({"product": A100, "units": 1, "env": {"NVIDIA_VISIBLE_DEVICES": "all"}}, ("env", "reserved_variable")),
        ({"product": A100, "units": 1, "env": {"LD_PRELOAD": "x.so"}}, ("env", "reserved_variable")),
        ({"product": A100, "units": 0}, ("units_per_pod", "too_little")),
        ({"product": A100, "units": 1, "cores": 50}, ("cores_per_pod", "no_cores")),
        ({"product": A100, "units": 1, "extra": {"share": "x"}}, ("extra", "unknown_option")),
    ),
    read=(({"status": STATUS}, (Held("GPU-7"),)), ({}, ())),
    live=(
        Live(
            node="dgx-a100-80-whole-0",
            body={"units_per_pod": 4},
            limits={"nvidia.com/gpu": "4"},
            plays={"devices": ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]},
            cards=("GPU-0", "GPU-1", "GPU-2", "GPU-3"),
            bad={"units_per_pod": 1, "env": {"NVIDIA_VISIBLE_DEVICES": "all"}},
            blamed="env",
            said="NVIDIA_VISIBLE_DEVICES is reserved: it could change which cards",
        ),
        Live(
            node="dgx-a100-80-whole-1gpu-lost",
            body={"units_per_pod": 7},
            limits={"nvidia.com/gpu": "7"},
            bad={"units_per_pod": 1, "cores_per_pod": 50},
            blamed="cores_per_pod",
            said="Compute cannot be limited here",
        ),
    ),
    held=(
        Stopped(
            node="dgx-a100-80-plugin-down",
            said="its device plugin offers none of its 8 cards",
            mended={"status": {"allocatable": {"nvidia.com/gpu": "8"}}},
        ),
    ),
)
