"""The declared nodes of the demo. They have no real devices.

Labels, card counts, memory sizes and MIG geometry are those that NVIDIA's GPU feature discovery and device plugins write
on such machines: DGX A100 80GB (gpu-operator, mig.config all-disabled and all-balanced), AWS g4dn.12xlarge with Aliyun's
gpushare plugin. Sources: NVIDIA/k8s-device-plugin internal/lm, NVIDIA/gpu-operator mig-manager's config.yaml,
AliyunContainerService/gpushare-device-plugin, Project-HAMi/HAMi. CPU and memory of the hosts are the vendors' data sheets.
"""

from __future__ import annotations

import json
from typing import Any

A100 = "NVIDIA-A100-SXM4-80GB"
A100_40 = "NVIDIA-A100-SXM4-40GB"
T4 = "Tesla-T4"
DRIVER = {
    "nvidia.com/cuda.driver-version.full": "580.126.20",
    "nvidia.com/cuda.driver-version.major": "580",
    "nvidia.com/cuda.runtime-version.full": "13.0",
}


def dgx_a100(name: str) -> dict[str, Any]:
    """A node with eight whole cards."""
    return {
        "name": name,
        "sharing": "whole",
        "product": A100,
        "unit": "card",
        "cards": 8,
        "cpu_milli": 256_000,
        "memory_mib": 2_063_815,
        "domain": name,  # one NVLink domain a machine
        "labels": DRIVER
        | {
            "nvidia.com/gpu.product": A100,
            "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.memory": "81920",
            "nvidia.com/mig.config": "all-disabled",
        },
    }


def t4_shared(name: str) -> dict[str, Any]:
    """A node with four T4 whose memory is shared in MiB; the plugin counts whole GiB, 15 a card."""
    return {
        "name": name,
        "sharing": "memory",
        "product": T4,
        "unit": "MiB",
        "units_per_card": 15 * 1024,
        "cards": 4,
        "cpu_milli": 48_000,
        "memory_mib": 192_973,
        "labels": DRIVER
        | {
            "nvidia.com/gpu.product": T4,
            "nvidia.com/gpu.count": "4",
            "nvidia.com/gpu.memory": "15360",
            "gpushare": "true",
        },
    }


def dgx_a100_mig(name: str) -> dict[str, Any]:
    """A node with eight cards, each cut by mig-manager's `all-balanced` into two 1g.10gb, one 2g.20gb and one 3g.40gb."""
    return {
        "name": name,
        "sharing": "mig",
        "product": A100,
        "unit": "slice",
        "units_per_card": 8,
        "cards": 8,
        "mig": "A100-80GB",
        "instances": {"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8},
        "cpu_milli": 256_000,
        "memory_mib": 2_063_815,
        "labels": DRIVER
        | {
            "nvidia.com/gpu.product": A100,
            "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.memory": "81920",
            "nvidia.com/mig.config": "all-balanced",
            "nvidia.com/mig.config.state": "success",
            "nvidia.com/mig.strategy": "mixed",
        },
    }


def a100_hami(name: str) -> dict[str, Any]:
    """A node with two cards whose memory (MiB) and compute (percent) HAMi shares."""
    return {
        "name": name,
        "sharing": "hami",
        "product": A100_40,
        "unit": "MiB",
        "units_per_card": 40_960,
        "cards": [{"units": 40_960, "cores": 100}] * 2,
        "cpu_milli": 64_000,
        "memory_mib": 515_000,
        "labels": DRIVER
        | {
            "nvidia.com/gpu.product": A100_40,
            "nvidia.com/gpu.count": "2",
            "nvidia.com/gpu.memory": "40960",
            "gpu": "on",
        },
    }


def a100_two_systems(name: str) -> dict[str, Any]:
    """A node with both HAMi and time-slicing: it is not used until one of them is removed."""
    card = {"count": 10, "devmem": 40_960, "devcore": 100, "type": A100_40.replace("-", " ", 1), "health": True}
    registered = [{"id": f"GPU-{name}-{index}", "index": index, **card} for index in range(2)]
    has = {"cpu": "64", "memory": "515000Mi", "pods": "110", "nvidia.com/gpu": "20"}
    return {
        "object": {
            "metadata": {
                "name": name,
                "annotations": {"hami.io/node-nvidia-register": json.dumps(registered)},
                "labels": DRIVER
                | {
                    "nvidia.com/gpu.product": f"{A100_40}-SHARED",
                    "nvidia.com/gpu.count": "2",
                    "nvidia.com/gpu.memory": "40960",
                    "nvidia.com/gpu.replicas": "10",
                    "nvidia.com/gpu.sharing-strategy": "time-slicing",
                    "gpu": "on",
                },
            },
            "status": {
                "capacity": has,
                "allocatable": has,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    }


NODES = [
    dgx_a100("dgx-1"),
    dgx_a100("dgx-2"),
    t4_shared("t4-1"),
    t4_shared("t4-2"),
    dgx_a100_mig("mig-1"),
    a100_hami("hami-1"),
    a100_two_systems("hami-2"),
]
