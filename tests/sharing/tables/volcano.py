from tests.sharing.table import Found, Live, Table, node
from workloads.sharing import Held, PodPatch, Settings

MEMORY = "volcano.sh/gpu-memory"

TABLE = Table(
    system="volcano",
    found=(
        Found(
            product="NVIDIA-GeForce-GTX-1080-Ti",
            node="volcano-gpushare-1080tix8",
            unit="MiB",
            units_per_card=11178,
            cards=8,
            because="it advertises volcano.sh/gpu-memory: 89424 MiB on 8 cards",
        ),
        Found(
            product="NVIDIA-GeForce-GTX-1080-Ti",
            node=node("volcano-gpushare-1080tix8", amounts={MEMORY: "8944"}),
            settings=Settings(volcano_memory_factor=10),
            unit="MiB",
            units_per_card=11180,
            cards=8,
            because="it advertises volcano.sh/gpu-memory: 89440 MiB on 8 cards",
        ),
        Found(
            product="NVIDIA-GeForce-GTX-1080-Ti",
            node=node("volcano-gpushare-1080tix8", amounts={"volcano.sh/gpu-number": None}),
            unit="MiB",
            cards=0,
            because="it advertises volcano.sh/gpu-memory: 89424 MiB on 0 cards",
            held_back="volcano.sh/gpu-memory without volcano.sh/gpu-number: the size of a card is unknown",
        ),
        Found(
            product="NVIDIA-GeForce-GTX-1080-Ti",
            node=node("volcano-gpushare-1080tix8", amounts={MEMORY: "89425"}),
            unit="MiB",
            units_per_card=11178,
            cards=8,
            because="it advertises volcano.sh/gpu-memory: 89425 MiB on 8 cards",
            held_back="89425 of volcano.sh/gpu-memory cannot be divided evenly among 8 cards",
        ),
        Found(
            product="NVIDIA-GeForce-GTX-1080-Ti",
            node=node("volcano-gpushare-1080tix8", usable={MEMORY: "11177"}),
            unit="MiB",
            units_per_card=11178,
            cards=8,
            healthy=0,
            because="it advertises volcano.sh/gpu-memory: 89424 MiB on 8 cards",
            held_back="its device plugin offers none of its 8 cards",
        ),
    ),
    asked=(
        (
            {"product": "", "units": 1024, "units_per_card": 11178},
            PodPatch(limits={MEMORY: "1024"}, scheduler="volcano"),
        ),
    ),
    refused=(
        ({"product": "", "units": 11179, "units_per_card": 11178}, ("units_per_pod", "one_card")),
        ({"product": "", "units": 1024, "pods": 3}, ("pods", "no_peers")),
    ),
    read=(
        ({"metadata": {"annotations": {"volcano.sh/gpu-index": "5"}}}, (Held("5"),)),
        ({"metadata": {"annotations": {"volcano.sh/gpu-index": ""}}}, ()),
    ),
    live=(
        Live(
            node="volcano-gpushare-1080tix8",
            body={"units_per_pod": 1024},
            limits={MEMORY: "1024"},
            scheduler="volcano",
            plays={"annotations": {"volcano.sh/gpu-index": "5"}},
            cards=("5",),
            bad={"units_per_pod": 11179},
            blamed="units_per_pod",
            said="A card has 11178 MiB",
        ),
    ),
)
