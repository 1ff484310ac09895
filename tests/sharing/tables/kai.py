from tests.sharing.table import Found, Live, Table, node
from workloads.sharing import Held, PodPatch, Settings

A100 = "NVIDIA-A100-SXM4-80GB"
PIN = Settings(pins={"kai-a100-80": "kai"})
ON = {"nvidia.com/gpu.product": A100}

TABLE = Table(
    system="kai",
    found=(
        Found(
            node="kai-a100-80",
            settings=PIN,
            product=A100,
            unit="percent",
            units_per_card=100,
            cards=8,
            because="pinned by an operator",
        ),
        Found(
            node=node("kai-a100-80", usable={"nvidia.com/gpu": "6"}),
            settings=PIN,
            product=A100,
            unit="percent",
            units_per_card=100,
            cards=8,
            healthy=6,
            because="pinned by an operator",
        ),
        Found(
            node=node("kai-a100-80", labels={"nvidia.com/gpu.memory": None}),
            settings=PIN,
            product=A100,
            unit="percent",
            units_per_card=100,
            cards=8,
            because="pinned by an operator",
            held_back="KAI needs the labels nvidia.com/gpu.memory, nvidia.com/gpu.count",
        ),
    ),
    asked=(
        (
            {"product": A100, "units": 50, "units_per_card": 100, "department": "vision"},
            PodPatch(
                annotations={"gpu-fraction": "0.5"},
                labels={"kai.scheduler/queue": "vision"},
                node_selector=ON,
                scheduler="kai-scheduler",
            ),
        ),
        (
            {"product": A100, "units": 200, "units_per_card": 100, "department": "vision"},
            PodPatch(
                limits={"nvidia.com/gpu": "2"},
                labels={"kai.scheduler/queue": "vision"},
                node_selector=ON,
                scheduler="kai-scheduler",
            ),
        ),
    ),
    refused=(
        ({"product": A100, "units": 150, "units_per_card": 100}, ("units_per_pod", "whole_cards")),
        ({"product": A100, "units": 50, "cores": 50}, ("cores_per_pod", "no_cores")),
    ),
    read=(
        ({"metadata": {"labels": {"runai-gpu-group": "7f1c"}}}, (Held("7f1c"),)),
        (
            {
                "status": {
                    "containerStatuses": [{"allocatedResourcesStatus": [{"resources": [{"resourceID": "GPU-1"}]}]}]
                }
            },
            (Held("GPU-1"),),
        ),
    ),
    live=(
        Live(
            node="kai-a100-80",
            options={"pins": {"kai-a100-80": "kai"}},
            body={"units_per_pod": 50},
            annotations={"gpu-fraction": "0.5"},
            scheduler="kai-scheduler",
            plays={"labels": {"runai-gpu-group": "7f1c"}},
            cards=("7f1c",),
            bad={"units_per_pod": 150},
            blamed="units_per_pod",
            said="request a multiple of 100 %, not 150.",
        ),
    ),
)
