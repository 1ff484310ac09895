from tests.sharing.table import Found, Live, Table, node
from workloads.sharing import Held, PodPatch

MODE, CORES = "ack.node.gpu.schedule", "aliyun.com/gpu-core.percentage"
BASE = "ack-cgpu-core-mem-v100x4"

TABLE = Table(
    system="ack",
    found=(
        *(
            Found(
                product="Tesla-V100-SXM2-16GB",
                node=node(BASE, labels={MODE: mode}, amounts={CORES: "0"}),
                unit="MiB",
                units_per_card=15360,
                cards=4,
                because="it advertises aliyun.com/gpu-mem: 60 GiB on 4 cards",
            )
            for mode in ("cgpu", "share", "mps")
        ),
        Found(
            product="Tesla-V100-SXM2-16GB",
            node=node(BASE, labels={MODE: "topology"}, amounts={CORES: None, "aliyun.com/gpu-mem": None}),
            unit="MiB",
            cards=0,
            because="its ack.node.gpu.schedule is topology",
            held_back="ACK's topology-aware mode is not supported: set the node to another mode",
        ),
    ),
    asked=(
        ({"product": "", "units": 3072, "units_per_card": 15360}, PodPatch(limits={"aliyun.com/gpu-mem": "3"})),
        (
            {"product": "", "units": 30720, "units_per_card": 15360},
            PodPatch(limits={"aliyun.com/gpu-mem": "30"}, labels={"aliyun.com/gpu-count": "2"}),
        ),
    ),
    refused=(
        ({"product": "", "units": 20480, "units_per_card": 15360}, ("units_per_pod", "whole_cards")),
        ({"product": "", "units": 1024, "cores": 10}, ("cores_per_pod", "no_cores")),
    ),
    read=(
        ({"metadata": {"annotations": {"scheduler.framework.gpushare.allocation": '{"0":{"1":3}}'}}}, (Held("1"),)),
        ({"metadata": {"annotations": {"scheduler.framework.gpushare.allocation": "{"}}}, ()),
    ),
    live=(
        Live(
            node=node(BASE, labels={MODE: "cgpu"}, amounts={CORES: "0"}),
            body={"units_per_pod": 30720},
            limits={"aliyun.com/gpu-mem": "30"},
            labels={"aliyun.com/gpu-count": "2"},
            plays={"annotations": {"scheduler.framework.gpushare.allocation": '{"0":{"1":15,"3":15}}'}},
            cards=("1", "3"),
            bad={"units_per_pod": 20480},
            blamed="units_per_pod",
            said="Above one card, only whole cards are possible: request a multiple of 15360 MiB, not 20480.",
        ),
    ),
)
