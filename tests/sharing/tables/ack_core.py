from tests.sharing.table import Found, Live, Table, node
from workloads.sharing import Held, PodPatch

MEMORY, CORES = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
NOTE = "scheduler.framework.gpushare.allocation"

TABLE = Table(
    system="ack-core",
    found=(
        Found(
            product="Tesla-V100-SXM2-16GB",
            node="ack-cgpu-core-mem-v100x4",
            unit="MiB",
            units_per_card=15360,
            cards=4,
            cores=100,
            because="it advertises aliyun.com/gpu-mem: 60 GiB on 4 cards",
        ),
        Found(
            product="Tesla-V100-SXM2-16GB",
            node=node("ack-cgpu-core-mem-v100x4", labels={"ack.node.gpu.schedule": None}),
            unit="MiB",
            units_per_card=15360,
            cards=4,
            cores=100,
            because="it advertises aliyun.com/gpu-mem: 60 GiB on 4 cards",
        ),
    ),
    asked=(
        (
            {"product": "", "units": 3072, "cores": 30, "units_per_card": 15360},
            PodPatch(limits={MEMORY: "3", CORES: "30"}),
        ),
        (
            {"product": "", "units": 30720, "cores": 100, "units_per_card": 15360},
            PodPatch(limits={MEMORY: "30", CORES: "200"}, labels={"aliyun.com/gpu-count": "2"}),
        ),
    ),
    refused=(
        ({"product": "", "units": 1024}, ("cores_per_pod", "cores_missing")),
        ({"product": "", "units": 1024, "cores": 101}, ("cores_per_pod", "cores_out_of_range")),
        ({"product": "", "units": 30720, "cores": 50, "units_per_card": 15360}, ("cores_per_pod", "whole_cards")),
    ),
    read=(({"metadata": {"annotations": {NOTE: '{"0":{"2":4,"3":4}}'}}}, (Held("2"), Held("3"))),),
    live=(
        Live(
            node="ack-cgpu-core-mem-v100x4",
            body={"units_per_pod": 4096, "cores_per_pod": 30},
            limits={MEMORY: "4", CORES: "30"},
            plays={"annotations": {NOTE: '{"0":{"2":4}}'}},
            cards=("2",),
            bad={"units_per_pod": 4096},
            blamed="cores_per_pod",
            said="Enter the share of the card's compute",
        ),
    ),
)
