"""Reserved environment variables: requests cannot set those that give a program more devices than requested, or lift its
limits."""

from __future__ import annotations

import pytest

from tests.sharing.table import tables
from tests.workloads.kubernetes.test_manifests import OPTIONS, env, spec
from workloads.kubernetes import manifests
from workloads.sharing import SYSTEMS, Request
from workloads.sharing.checks import NOTHING_MORE

TABLES = tables()
EVERYWHERE = [
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_IMEX_CHANNELS", "NVIDIA_GDS",
    "NVIDIA_MOFED", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_WHATEVER_COMES_NEXT",
    "CUDA_VISIBLE_DEVICES", "CUDA_DISABLE_CONTROL", "LD_PRELOAD", "LD_AUDIT",
]  # fmt: skip
OWN = [
    *(("hami", name) for name in ("CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_3", "CUDA_DEVICE_MEMORY_SHARED_CACHE",
                                  "CUDA_DEVICE_SM_LIMIT", "CUDA_OVERSUBSCRIBE", "CUDA_TASK_PRIORITY", "ACTIVE_OOM_KILLER")),
    ("volcano-vgpu", "CUDA_DEVICE_MEMORY_LIMIT_0"), ("mps", "CUDA_MPS_PIPE_DIRECTORY"), ("ack", "CGPU_DISABLE"),
    ("mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), ("ack-core", "CGPU_DISABLE"), ("iqiyi", "ALIYUN_COM_GPU_MEM_CONTAINER"),
    ("vcuda", "VCUDA_X"), ("kubeshare", "POD_MANAGER_PORT"), ("kai", "RUNAI_NUM_OF_GPUS"),
]  # fmt: skip


def blamed(key: str, name: str) -> list[str]:
    fields, _ = TABLES[key].asked[0]
    request = Request(**{**fields, "env": {name: "all"}})
    return [problem.field for problem in SYSTEMS[key].validate(request, TABLES[key].settings)]


@pytest.mark.parametrize("key", list(SYSTEMS))
def test_variable_that_gives_access_to_devices_is_refused_by_every_system(key: str) -> None:
    for name in EVERYWHERE:
        assert blamed(key, name) == ["env"], name


@pytest.mark.parametrize(("key", "name"), OWN)
def test_variable_by_which_a_system_enforces_limits_is_refused_there(key: str, name: str) -> None:
    assert blamed(key, name) == ["env"]
    assert blamed("whole", name) == []


@pytest.mark.parametrize(
    "name", ["NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING", "NCCL_DEBUG", "MY_NVIDIA_CARDS", "LD_LIBRARY_PATH"]
)
@pytest.mark.parametrize("key", list(SYSTEMS))
def test_unrelated_variable_is_allowed(key: str, name: str) -> None:
    assert blamed(key, name) == []


def test_device_variables_of_the_image_are_overridden_in_the_pod() -> None:
    """An image's own NVIDIA_IMEX_CHANNELS=0 would give each of its pods a channel: the empty value of the pod takes
    precedence."""
    variables = env(manifests.pod(spec(), OPTIONS))
    assert NOTHING_MORE.items() <= variables.items()
    assert "NVIDIA_VISIBLE_DEVICES" not in variables, "the device plugin sets it"
    assert env(manifests.pod(spec(units_per_pod=0), OPTIONS))["NVIDIA_VISIBLE_DEVICES"] == "void"
