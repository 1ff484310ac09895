from tests.sharing.table import Found, Live, Table, node
from workloads.sharing import Held, PodPatch, Settings

TABLE = Table(
    system="memory",
    found=(
        Found(
            product="Tesla-V100-SXM2-16GB",
            node="gpushare-v100x4",
            unit="MiB",
            units_per_card=15360,
            cards=4,
            because="it advertises aliyun.com/gpu-mem: 60 GiB on 4 cards",
        ),
        Found(
            product="Tesla-V100-SXM2-16GB",
            node=node("gpushare-v100x4", amounts={"aliyun.com/gpu-mem": "61440"}),
            settings=Settings(gpu_mem_unit="MiB"),
            unit="MiB",
            units_per_card=15360,
            cards=4,
            because="it advertises aliyun.com/gpu-mem: 61440 MiB on 4 cards",
        ),
        Found(
            product="Tesla-V100-SXM2-16GB",
            node=node("gpushare-v100x4", usable={"aliyun.com/gpu-mem": "44"}),
            unit="MiB",
            units_per_card=15360,
            cards=4,
            healthy=2,
            because="it advertises aliyun.com/gpu-mem: 60 GiB on 4 cards",
        ),
        Found(
            product="Tesla-V100-SXM2-16GB",
            node=node("gpushare-v100x4", amounts={"aliyun.com/gpu-count": None}),
            unit="MiB",
            cards=0,
            because="it advertises aliyun.com/gpu-mem: 60 GiB on 0 cards",
            held_back="aliyun.com/gpu-mem without aliyun.com/gpu-count: the size of a card is unknown",
        ),
        Found(
            product="Tesla-V100-SXM2-16GB",
            node=node("gpushare-v100x4", usable={"aliyun.com/gpu-mem": "0"}),
            unit="MiB",
            units_per_card=15360,
            cards=4,
            healthy=0,
            because="it advertises aliyun.com/gpu-mem: 60 GiB on 4 cards",
            held_back="its device plugin offers none of its 4 cards",
        ),
    ),
    asked=(
        ({"product": "", "units": 4096, "units_per_card": 15360}, PodPatch(limits={"aliyun.com/gpu-mem": "4"})),
        (
            {"product": "Tesla-V100", "units": 1024},
            PodPatch(limits={"aliyun.com/gpu-mem": "1"}, node_selector={"nvidia.com/gpu.product": "Tesla-V100"}),
        ),
    ),
    refused=(
        ({"product": "", "units": 1500, "units_per_card": 15360}, ("units_per_pod", "not_a_multiple")),
        ({"product": "", "units": 16384, "units_per_card": 15360}, ("units_per_pod", "one_card")),
        ({"product": "", "units": 30720, "units_per_card": 15360}, ("units_per_pod", "one_card")),
        ({"product": "", "units": 1024, "pods": 2}, ("pods", "no_peers")),
        ({"product": "", "units": 1024, "cores": 10}, ("cores_per_pod", "no_cores")),
    ),
    read=(
        ({"metadata": {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "2"}}}, (Held("2"),)),
        ({"metadata": {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "-1"}}}, ()),
        ({"metadata": {}}, ()),
    ),
    live=(
        Live(
            node="gpushare-v100x4",
            body={"units_per_pod": 4096},
            limits={"aliyun.com/gpu-mem": "4"},
            plays={"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "2", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}},
            cards=("2",),
            bad={"units_per_pod": 1500},
            blamed="units_per_pod",
            said="The amount must be a multiple of 1024 MiB; 1500 is not.",
        ),
    ),
)
