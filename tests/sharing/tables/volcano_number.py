from tests.sharing.table import Found, Live, Table, node
from workloads.sharing import Held, PodPatch

NUMBER = "volcano.sh/gpu-number"

TABLE = Table(
    system="volcano-number",
    found=(
        Found(
            product="NVIDIA-GeForce-GTX-1080-Ti",
            node=node("volcano-gpushare-1080tix8", amounts={"volcano.sh/gpu-memory": None}),
            unit="card",
            cards=8,
            because="it advertises volcano.sh/gpu-number",
        ),
        Found(
            product="NVIDIA-GeForce-GTX-1080-Ti",
            node=node("volcano-gpushare-1080tix8", amounts={"volcano.sh/gpu-memory": "0"}, usable={NUMBER: "0"}),
            unit="card",
            cards=8,
            healthy=0,
            because="it advertises volcano.sh/gpu-number",
            held_back="its device plugin offers none of its 8 cards",
        ),
    ),
    asked=(({"product": "", "units": 2, "pods": 4}, PodPatch(limits={NUMBER: "2"}, scheduler="volcano")),),
    refused=(({"product": "", "units": 1, "cores": 10}, ("cores_per_pod", "no_cores")),),
    read=(({"metadata": {"annotations": {"volcano.sh/gpu-index": "0,1"}}}, (Held("0"), Held("1"))),),
    live=(
        Live(
            node=node("volcano-gpushare-1080tix8", amounts={"volcano.sh/gpu-memory": None}),
            body={"units_per_pod": 2},
            limits={NUMBER: "2"},
            scheduler="volcano",
            plays={"annotations": {"volcano.sh/gpu-index": "4,6"}},
            cards=("4", "6"),
            bad={"units_per_pod": 9},
            blamed="units_per_pod",
            said="The largest request that can run is 8 cards",
        ),
    ),
)
