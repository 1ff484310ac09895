from tests.sharing.table import Found, Live, Stopped, Table, node
from workloads.sharing import Held, PodPatch
from workloads.sharing.whole import NOT_SHARED

GUEST = {"nvidia.com/vgpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-A10-12Q"}

TABLE = Table(
    system="vgpu",
    found=(
        Found(
            node="kubevirt-vgpu-a10x2",
            product="A10-12Q",
            unit="card",
            cards=0,
            because="its nvidia.com/gpu.workload.config is vm-vgpu",
            held_back="not used: its GPUs serve virtual machines (vm-vgpu)",
        ),
        Found(
            node=node("kubevirt-vgpu-a10x2", labels={"nvidia.com/gpu.workload.config": "vm-passthrough"}),
            product="A10-12Q",
            unit="card",
            cards=0,
            because="its nvidia.com/gpu.workload.config is vm-passthrough",
            held_back="not used: its GPUs serve virtual machines (vm-passthrough)",
        ),
        Found(
            node=node("dgx-a100-80-whole-0", labels=GUEST, amounts={"nvidia.com/gpu": "1"}),
            product="NVIDIA-A10-12Q",
            unit="card",
            cards=1,
            because="its nvidia.com/vgpu.present is true",
        ),
    ),
    asked=(
        (
            {"product": "NVIDIA-A10-12Q", "units": 1},
            PodPatch(
                limits={"nvidia.com/gpu": "1"},
                node_selector={"nvidia.com/gpu.product": "NVIDIA-A10-12Q"},
                node_rules=(NOT_SHARED,),
            ),
        ),
    ),
    refused=(
        ({"product": "NVIDIA-A10-12Q", "units": 1, "pods": 2}, ("pods", "no_peers")),
        ({"product": "NVIDIA-A10-12Q", "units": 1, "cores": 50}, ("cores_per_pod", "no_cores")),
    ),
    read=(
        (
            {
                "status": {
                    "containerStatuses": [{"allocatedResourcesStatus": [{"resources": [{"resourceID": "GPU-1"}]}]}]
                }
            },
            (Held("GPU-1"),),
        ),
    ),
    held=(Stopped(node="kubevirt-vgpu-a10x2", pool=False, said="not used"),),
    live=(
        Live(
            node=node("dgx-a100-80-whole-0", labels=GUEST, amounts={"nvidia.com/gpu": "1"}),
            body={"units_per_pod": 1},
            limits={"nvidia.com/gpu": "1"},
            plays={"devices": ["GPU-1"]},
            cards=("GPU-1",),
            bad={"units_per_pod": 1, "kind": "distributed", "pods": 2, "setup": {"template": "torch"}},
            blamed="pool",
            said="Distributed jobs need whole cards",
        ),
    ),
)
