from tests.sharing.table import Found, Live, Table
from workloads.sharing import Held, PodPatch, Settings

MARK = "its SharedGPU is true"

TABLE = Table(
    system="kubeshare",
    found=(
        Found(
            product="Tesla-V100-SXM2-16GB",
            node="kubeshare-v100x4",
            unit="percent",
            units_per_card=100,
            cards=0,
            because=MARK,
            held_back="the node does not report its number of cards: set the cluster option “cards”",
        ),
        Found(
            product="Tesla-V100-SXM2-16GB",
            node="kubeshare-v100x4",
            settings=Settings(cards={"SharedGPU=true": 4}),
            unit="percent",
            units_per_card=100,
            cards=4,
            because=MARK,
        ),
    ),
    asked=(
        (
            {"product": "", "units": 50, "units_per_card": 100},
            PodPatch(
                labels={"sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "0.5", "sharedgpu/priority": "1"},
                scheduler="kubeshare-scheduler",
            ),
        ),
        (
            {"product": "", "units": 200, "units_per_card": 100},
            PodPatch(
                labels={"sharedgpu/gpu_request": "2", "sharedgpu/gpu_limit": "2", "sharedgpu/priority": "1"},
                scheduler="kubeshare-scheduler",
            ),
        ),
    ),
    refused=(
        ({"product": "", "units": 150, "units_per_card": 100}, ("units_per_pod", "whole_cards")),
        ({"product": "", "units": 50, "env": {"LD_PRELOAD": "x"}}, ("env", "reserved_variable")),
    ),
    read=(
        (
            {"metadata": {"annotations": {"sharedgpu/gpu_uuid": "GPU-3", "sharedgpu/gpu_mem": "8589934592"}}},
            (Held("GPU-3", 8192),),
        ),
        ({"metadata": {"annotations": {"sharedgpu/gpu_uuid": "GPU-1,GPU-2"}}}, (Held("GPU-1"), Held("GPU-2"))),
    ),
    live=(
        Live(
            node="kubeshare-v100x4",
            options={"cards": {"SharedGPU=true": 4}},
            body={"units_per_pod": 50},
            labels={"sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "0.5"},
            scheduler="kubeshare-scheduler",
            plays={"annotations": {"sharedgpu/gpu_uuid": "GPU-3", "sharedgpu/gpu_mem": "8589934592"}},
            cards=("GPU-3",),
            bad={"units_per_pod": 150},
            blamed="units_per_pod",
            said="request a multiple of 100 %, not 150.",
        ),
    ),
)
