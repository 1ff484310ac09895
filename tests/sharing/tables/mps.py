from tests.sharing.table import Found, Live, Table, node
from workloads.sharing import Held, PodPatch

H100 = "NVIDIA-H100-80GB-HBM3-SHARED"
BECAUSE = "its nvidia.com/gpu.sharing-strategy is mps"

TABLE = Table(
    system="mps",
    found=(
        Found(node="h100x8-mps-10", product=H100, unit="replica", units_per_card=10, cards=8, because=BECAUSE),
        Found(
            node=node("h100x8-mps-10", amounts={"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "80"}),
            product=H100,
            unit="replica",
            units_per_card=10,
            cards=8,
            because=BECAUSE,
        ),
        Found(
            node=node("h100x8-mps-10", usable={"nvidia.com/gpu": "0"}),
            product=H100,
            unit="replica",
            units_per_card=10,
            cards=8,
            healthy=0,
            because=BECAUSE,
            held_back="its device plugin offers none of its 8 cards",
        ),
    ),
    asked=(
        (
            {"product": H100, "units": 1},
            PodPatch(limits={"nvidia.com/gpu": "1"}, node_selector={"nvidia.com/gpu.product": H100}),
        ),
    ),
    refused=(
        ({"product": H100, "units": 3, "units_per_card": 10}, ("units_per_pod", "too_many")),
        ({"product": H100, "units": 1, "env": {"CUDA_MPS_PIPE_DIRECTORY": "/tmp"}}, ("env", "reserved_variable")),
    ),
    read=(
        (
            {
                "status": {
                    "containerStatuses": [{"allocatedResourcesStatus": [{"resources": [{"resourceID": "GPU-1::9"}]}]}]
                }
            },
            (Held("GPU-1"),),
        ),
    ),
    live=(
        Live(
            node="h100x8-mps-10",
            body={"units_per_pod": 1},
            limits={"nvidia.com/gpu": "1"},
            plays={"devices": ["GPU-5::9"]},
            cards=("GPU-5",),
            bad={"units_per_pod": 1, "env": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}},
            blamed="env",
            said="CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is reserved: it could change which cards",
        ),
    ),
)
