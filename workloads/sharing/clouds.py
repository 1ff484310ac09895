"""Labels that clouds set on their nodes instead of NVIDIA's: the product, and how GKE shares cards.
If no label of NVIDIA's names the product, it comes from, in this order,

    cloud.google.com/gke-accelerator       GKE; its value is the product: nvidia-tesla-t4, nvidia-h100-80gb
    labels with NVML's name                ACK, VKE, CoreWeave, TKE: Tesla-V100-SXM2-32GB
    eks.amazonaws.com/instance-gpu-name    EKS Auto Mode, and karpenter.k8s.aws/… of Karpenter, with the memory beside it
    node.kubernetes.io/instance-type       the types of AWS, Azure and Oracle that have cards: one product each
    k8s.amazonaws.com/accelerator          what an operator of EKS set for the cluster autoscaler

An unknown instance type, or one with a part of a card, names no product, so that different products never look the same.

Sources: cloud.google.com/kubernetes-engine/docs (GPU sharing, multi-instance GPUs), docs.aws.amazon.com/eks (Auto Mode labels),
karpenter.sh/docs/reference/instance-types, AWS EC2 accelerated instances, learn.microsoft.com
virtual-machines/sizes/gpu-accelerated, docs.oracle.com compute shapes, help.aliyun.com ACK GPU labels; names as NVML gives them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PRODUCT, COUNT, REPLICAS = "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.replicas"
STRATEGY = "nvidia.com/gpu.sharing-strategy"
GKE = "cloud.google.com/gke-"
ACCELERATOR, ACCELERATORS = f"{GKE}accelerator", f"{GKE}accelerator-count"
SHARING, CLIENTS, PARTITION = (
    f"{GKE}gpu-sharing-strategy",
    f"{GKE}max-shared-clients-per-gpu",
    f"{GKE}gpu-partition-size",
)
STRATEGIES = {"time-sharing": "time-slicing", "mps": "mps"}

NAMES = (
    "aliyun.accelerator/nvidia_name", "machine.cluster.vke.volcengine.com/gpu-name", "gpu.nvidia.com/model",
    "gaia.tencent.com/gpu-model",
)  # fmt: skip
EKS = ("eks.amazonaws.com/instance-gpu-", "karpenter.k8s.aws/instance-gpu-")  # name, memory (MiB)
TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
OF_AUTOSCALER = "k8s.amazonaws.com/accelerator"
NO_NAMES = ("true", "false", "nvidia", "gpu", "vgpu", "none")  # values that are not products

T4, A10, A10G, L4, L40S = "Tesla-T4", "NVIDIA-A10", "NVIDIA-A10G", "NVIDIA-L4", "NVIDIA-L40S"
V100, V100_32, V100_PCIE = "Tesla-V100-SXM2-16GB", "Tesla-V100-SXM2-32GB", "Tesla-V100-PCIE-16GB"
A100, A100_80, A100_PCIE = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"
H100, H100_NVL, H200 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-NVL", "NVIDIA-H200"
B200, B300, GB200, GB300 = "NVIDIA-B200", "NVIDIA-B300-SXM6-AC", "NVIDIA-GB200", "NVIDIA-GB300"
RTX_PRO = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"

INSTANCE_TYPES: tuple[tuple[str, str], ...] = (
    # AWS
    (r"p2\..*", "Tesla-K80"), (r"p3\..*", V100), (r"p3dn\..*", V100_32), (r"p4d\..*", A100), (r"p4de\..*", A100_80),
    (r"p5\..*", H100), (r"p5en?\..*", H200), (r"p6-b200\..*", B200), (r"p6-b300\..*", B300), (r"p6e-gb200\..*", GB200),
    (r"p6e-gb300\..*", GB300), (r"g3s?\..*", "Tesla-M60"), (r"g4dn\..*", T4), (r"g5\..*", A10G), (r"g5g\..*", "NVIDIA-T4G"),
    (r"gr?6\..*", L4), (r"g6e\..*", L40S), (r"g7e\..*", RTX_PRO),
    # Azure
    (r"standard_nc\d+r?s_v2", "Tesla-P100-PCIE-16GB"), (r"standard_nd\d+r?s", "Tesla-P40"),
    (r"standard_nc\d+r?s_v3", V100_PCIE), (r"standard_nd40rs_v2", V100_32), (r"standard_nc\d+as_t4_v3", T4),
    (r"standard_nc\d+ads_a100_v4", A100_PCIE), (r"standard_nd96asr(_a100)?_v4", A100), (r"standard_nd96amsr_a100_v4", A100_80),
    (r"standard_nv(36|72)ad?ms?_a10_v5|standard_nv(36|72)ads_a10_v5|standard_nv36adms_a10_v5", A10),
    (r"standard_nc(40|80)adis?_h100_v5|standard_nc(40|80)ads_h100_v5", H100_NVL), (r"standard_nd96isr_h100_v5", H100),
    (r"standard_nd96isrf?_h200_v5", H200), (r"standard_nd128isrf?(_ndr)?_gb200_v6", GB200),
    (r"standard_nd128isrf?(_ndr)?_gb300_v6", GB300),
    # Oracle
    (r"(vm|bm)\.gpu2\..*", "Tesla-P100-SXM2-16GB"), (r"(vm|bm)\.gpu3\..*", V100), (r"bm\.gpu4\.8", A100),
    (r"(vm|bm)\.gpu\.a10\..*", A10), (r"(vm|bm)\.gpu\.a100-v2\..*", A100_80), (r"bm\.gpu\.a100\.8", A100_80),
    (r"(vm|bm)\.gpu\.l40s\..*", L40S), (r"bm\.gpu\.h100\..*", H100), (r"bm\.gpu\.h200\..*", H200),
    (r"bm\.gpu\.b200\..*", B200), (r"bm\.gpu\.b300\..*", B300), (r"bm\.gpu\.gb200.*", GB200), (r"bm\.gpu\.gb300.*", GB300),
)  # fmt: skip
OF_TYPE = tuple((re.compile(pattern), product) for pattern, product in INSTANCE_TYPES)
OF_NAME: dict[str, dict[int, str]] = {  # name in EKS and Karpenter → memory in GB (0: any) → product
    "t4": {0: T4}, "t4g": {0: "NVIDIA-T4G"}, "a10g": {0: A10G}, "l4": {0: L4}, "l40s": {0: L40S}, "k80": {0: "Tesla-K80"},
    "v100": {16: V100, 32: V100_32}, "a100": {40: A100, 80: A100_80}, "h100": {0: H100}, "h200": {0: H200},
    "b200": {0: B200}, "b300": {0: B300}, "gb200": {0: GB200}, "m60": {0: "Tesla-M60"},
}  # fmt: skip


def product_of(labels: Mapping[str, str]) -> str:
    """The product by a cloud's own labels; "" if they do not name it."""
    product = labels.get(ACCELERATOR, "").strip()
    product = product or next((_spelled(labels[name]) for name in NAMES if labels.get(name, "").strip()), "")
    product = product or next((_of_eks(labels, prefix) for prefix in EKS if f"{prefix}name" in labels), "")
    product = product or next((_of_type(labels[name]) for name in TYPES if name in labels), "")
    if not product and labels.get(OF_AUTOSCALER, "").strip().lower() not in ("", *NO_NAMES):
        name = labels[OF_AUTOSCALER].strip().lower().removeprefix("nvidia-").removeprefix("tesla-")
        product = OF_NAME.get(name, {}).get(0) or _spelled(f"NVIDIA-{name.upper()}")
    return product[:80]


def _spelled(name: str) -> str:
    """The product as feature discovery spells it. Only GKE's products begin with nvidia in lowercase letters."""
    return re.sub(r"^nvidia-", "NVIDIA-", re.sub(r"[\s_]+", "-", name.strip()))


def _of_eks(labels: Mapping[str, str], prefix: str) -> str:
    by_memory = OF_NAME.get(labels[f"{prefix}name"].strip().lower(), {})
    text = labels.get(f"{prefix}memory", "")
    gb = round(int(text) / 1024) if text.isascii() and text.isdecimal() and len(text) <= 8 else 0
    return by_memory.get(0) or by_memory.get(gb, "")


def _of_type(name: str) -> str:
    text = name.strip().lower().removeprefix("ml.")
    return next((product for pattern, product in OF_TYPE if pattern.fullmatch(text)), "")


def with_nvidia_labels(labels: Mapping[str, str], offered: int) -> dict[str, str]:
    """A node's labels, with the meaning of a cloud's labels added as NVIDIA's. `offered`: its capacity of nvidia.com/gpu.
    If GKE shares or partitions the cards, its own device plugin runs, so its labels override those of feature discovery."""
    translated = dict(labels)
    if not translated.get(PRODUCT, "").strip() and (product := product_of(labels)):
        translated[PRODUCT] = product
    base = labels.get(ACCELERATOR) or translated.get(PRODUCT, "")
    if partition := labels.get(PARTITION, ""):
        translated |= {PRODUCT: f"{base}-MIG-{partition.replace('+', '.')}", COUNT: str(offered)}
        translated.pop("nvidia.com/gpu.memory", None)
    strategy = STRATEGIES.get(labels.get(SHARING, ""))
    if strategy is None:
        return translated
    clients, cards = labels.get(CLIENTS, ""), labels.get(ACCELERATORS) or labels.get(COUNT)
    product = translated.get(PRODUCT, base) if partition else base
    translated |= {STRATEGY: strategy, REPLICAS: clients, PRODUCT: f"{product}-SHARED"}
    if cards is None and clients.isascii() and clients.isdecimal() and 0 < len(clients) <= 4 and int(clients):
        cards = str(offered // int(clients))
    return translated | ({COUNT: cards} if cards is not None else {})
