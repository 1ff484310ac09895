"""The NVIDIA cards of this machine, as reported by the driver's own library (NVML); none where it does not load.
Source: NVML API reference (nvml.h): every function returns 0 for success, NVML_ERROR_INSUFFICIENT_SIZE and others otherwise.
"""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from dataclasses import dataclass
from typing import Any

from workloads.runtime.base import CardInfo, NodeInfo

LIBRARY = "libnvidia-ml.so.1"
MIB = 2**20


class Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, in percent of the last second or less."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


@dataclass(frozen=True, slots=True)
class CardUse:
    """The use of a card now. None: not reported."""

    gpu: float | None  # share of time, 0 to 1
    used_mib: float | None
    watts: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """One card. If `memory_mib` is None or `mig` is set, it cannot be allocated as a whole card."""

    index: int
    name: str
    uuid: str
    memory_mib: int | None
    mig: bool


def machine(library: str = LIBRARY) -> tuple[NodeInfo, ...]:
    """This machine as nodes with whole cards, one node for each product; () without cards."""
    with _open(library) as nvml:
        if nvml is None:
            return ()
        cards, driver = [_card(nvml, index) for index in range(_count(nvml))], _text(nvml.nvmlSystemGetDriverVersion)
    name = socket.gethostname().split(".")[0].lower()
    nodes: list[NodeInfo] = []
    products = list(dict.fromkeys(card.name for card in cards if card.name))
    for product in products:
        lost = not nodes  # cards that no longer report anything are counted with the first product
        of_product = [card for card in cards if card.name == product or (lost and not card.name)]
        nodes.append(
            NodeInfo(
                name=name if not nodes else f"{name}-{len(nodes) + 1}",
                sharing="whole",
                product=product,
                unit="card",
                units_per_card=1,
                cards=tuple(
                    CardInfo(card.index, 1, uuid=card.uuid, healthy=card.memory_mib is not None and not card.mig)
                    for card in of_product
                ),
                because=f"this machine's NVIDIA library lists {len(of_product)} of them",
                labels={
                    "nvidia.com/gpu.product": product,
                    "nvidia.com/gpu.count": str(len(of_product)),
                    "nvidia.com/gpu.memory": str(next((c.memory_mib for c in of_product if c.memory_mib), 0)),
                    "nvidia.com/cuda.driver-version.full": driver,
                    "nvidia.com/cuda.driver-version.major": driver.partition(".")[0],
                },
            )
        )
    return tuple(nodes)


def usage(library: str = LIBRARY) -> dict[int, CardUse]:
    """Index → use of each card of this machine now; empty where the library does not load. Cards with MIG are left out,
    because they do not report the use of their instances."""
    with _open(library) as nvml:
        if nvml is None:
            return {}
        return {index: use for index in range(_count(nvml)) if (use := _use(nvml, index)) is not None}


def _use(nvml: Any, index: int) -> CardUse | None:
    device = c_void_p()
    now, pending = c_uint(), c_uint()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, byref(device)) != 0:
        return None
    if nvml.nvmlDeviceGetMigMode(device, byref(now), byref(pending)) == 0 and now.value == 1:
        return None
    rates, memory, milliwatts = Utilization(), Memory(), c_uint()
    busy = nvml.nvmlDeviceGetUtilizationRates(device, byref(rates)) == 0
    readable = nvml.nvmlDeviceGetMemoryInfo(device, byref(memory)) == 0
    powered = nvml.nvmlDeviceGetPowerUsage(device, byref(milliwatts)) == 0
    return CardUse(
        rates.gpu / 100 if busy else None,
        memory.used / MIB if readable else None,
        milliwatts.value / 1000 if powered else None,
    )


@contextmanager
def _open(library: str) -> Iterator[Any]:
    """The initialised library; None if there is none or its driver does not respond."""
    try:
        nvml = ctypes.CDLL(library)
        nvml.nvmlDeviceGetHandleByIndex_v2.argtypes = [c_uint, c_void_p]
        ready = nvml.nvmlInit_v2() == 0
    except (OSError, AttributeError):
        yield None
        return
    if not ready:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _count(nvml: Any) -> int:
    count = c_uint()
    return count.value if nvml.nvmlDeviceGetCount_v2(byref(count)) == 0 else 0


def _card(nvml: Any, index: int) -> Found:
    """A card that has fallen off the bus stays in the list as unhealthy, so that the others keep their indexes."""
    device = c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, byref(device)) != 0:
        return Found(index, "", "", None, mig=False)
    memory, now, pending = Memory(), c_uint(), c_uint()
    readable = nvml.nvmlDeviceGetMemoryInfo(device, byref(memory)) == 0
    cut = nvml.nvmlDeviceGetMigMode(device, byref(now), byref(pending)) == 0 and now.value == 1
    name = _text(lambda text, size: nvml.nvmlDeviceGetName(device, text, size)).replace(" ", "-")
    uuid = _text(lambda text, size: nvml.nvmlDeviceGetUUID(device, text, size))
    return Found(index, name, uuid, memory.total // MIB if readable else None, mig=cut)


def _text(ask: Any) -> str:
    text = create_string_buffer(96)
    return text.value.decode("ascii", "replace") if ask(text, c_int(96)) == 0 else ""
