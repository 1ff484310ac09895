import json

from tests.sharing.table import NODES, Found, Live, Table, node
from workloads.sharing import Held, PodPatch

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
REGISTER = "hami.io/node-nvidia-register"
A100 = "NVIDIA-A100-SXM4-40GB"
EIGHT = "its annotation hami.io/node-nvidia-register: 8 cards"
CARDS = json.loads(NODES["hami-a100-40"]["metadata"]["annotations"][REGISTER])


def registered(*changes: dict[str, object]) -> dict[str, object]:
    return node(
        "hami-a100-40",
        notes={REGISTER: json.dumps([card | change for card, change in zip(CARDS, changes, strict=False)])},
    )


SICK = {key: value for key, value in CARDS[1].items() if key != "health"}  # false is left out
OLD = "GPU-{0},10,40960,100,NVIDIA-NVIDIA A100-SXM4-40GB,0,{1}"  # HAMi to 2.7: pkg/util/util.go, EncodeNodeDevices
OF_7 = f"{OLD.format(0, 'true')}:{OLD.format(1, 'false')}:"
OF_8 = f"{OLD.format(0, 'true')},0:{OLD.format(1, 'false')},1:"
OF_9 = f"{OLD.format(0, 'true')},0,hami-core:{OLD.format(1, 'false')},1,hami-core:"


TABLE = Table(
    system="hami",
    found=(
        Found(node="hami-a100-40", product=A100, unit="MiB", units_per_card=40960, cards=8, cores=100, because=EIGHT),
        Found(
            node=node("hami-a100-40", notes={REGISTER: json.dumps([CARDS[0], SICK])}),
            product=A100,
            unit="MiB",
            units_per_card=40960,
            cards=2,
            healthy=1,
            cores=100,
            because="its annotation hami.io/node-nvidia-register: 2 cards",
        ),
        Found(
            node=node("hami-a100-40", notes={"hami.io/node-handshake": "Deleted_2026-11-21 00:00:00"}),
            product=A100,
            unit="MiB",
            units_per_card=40960,
            cards=8,
            cores=100,
            because=EIGHT,
            held_back="its device plugin offers none of its 8 cards",
        ),
        Found(
            node=registered({}, {"type": "NVIDIA A30"}),
            product=A100,
            unit="MiB",
            units_per_card=40960,
            cards=2,
            cores=100,
            because="its annotation hami.io/node-nvidia-register: 2 cards",
            held_back="it has cards of different products: NVIDIA-A100-SXM4-40GB, NVIDIA-A30",
        ),
        Found(
            node=registered({}, {"index": 0}),
            product=A100,
            unit="MiB",
            cards=0,
            because="its annotation hami.io/node-nvidia-register: 0 cards",
            held_back="hami.io/node-nvidia-register lists a card twice",
        ),
        Found(
            node=node("hami-a100-40", notes={REGISTER: "[{"}),
            unit="MiB",
            cards=0,
            because="its annotation hami.io/node-nvidia-register: 0 cards",
            held_back="hami.io/node-nvidia-register cannot be read; hami.io/node-nvidia-register lists no card",
        ),
        *(
            Found(
                node=node("hami-a100-40", notes={REGISTER: text}),
                product=A100,
                unit="MiB",
                units_per_card=40960,
                cards=2,
                healthy=1,
                cores=100,
                because="its annotation hami.io/node-nvidia-register: 2 cards",
            )
            for text in (OF_7, OF_8, OF_9, OF_9.replace(":", ": ").replace(",", ", "))
        ),
        *(
            Found(
                node=node("hami-a100-40", notes={REGISTER: OF_9 + wrong}),
                product=A100,
                unit="MiB",
                units_per_card=40960,
                cards=2,
                healthy=1,
                cores=100,
                because="its annotation hami.io/node-nvidia-register: 2 cards",
                held_back=f"{REGISTER} lists a card that does not exist",
            )
            for wrong in (
                "GPU-2,10,40960,100,NVIDIA-NVIDIA A100-SXM4-40GB,0:",
                "GPU-2,10,-1,100,NVIDIA-NVIDIA A100-SXM4-40GB,0,true,2,hami-core:",
                "GPU-2,10,40960,much,NVIDIA-NVIDIA A100-SXM4-40GB,0,true,2,hami-core:",
                "GPU-2,10,99999999999,100,NVIDIA-NVIDIA A100-SXM4-40GB,0,true,2,hami-core,what,else:",
                "GPU-2",
            )
        ),
        Found(
            node=node("hami-a100-40", notes={REGISTER: OF_9.replace("1,hami-core", "1,mig")}),
            product=A100,
            unit="MiB",
            units_per_card=40960,
            cards=2,
            healthy=1,
            cores=100,
            because="its annotation hami.io/node-nvidia-register: 2 cards",
            held_back="its cards are partitioned on demand, which is not supported",
        ),
    ),
    asked=(
        (
            {"product": A100, "units": 3000, "cores": 30, "units_per_card": 40960},
            PodPatch(limits={GPU: "1", MEMORY: "3000", CORES: "30"}, scheduler="hami-scheduler"),
        ),
        (
            {"product": A100, "units": 81920, "units_per_card": 40960},
            PodPatch(limits={GPU: "2", MEMORY: "40960"}, scheduler="hami-scheduler"),
        ),
    ),
    refused=(
        ({"product": A100, "units": 3000, "env": {"CUDA_DISABLE_CONTROL": "true"}}, ("env", "reserved_variable")),
        ({"product": A100, "units": 3000, "env": {"CUDA_DEVICE_MEMORY_LIMIT_0": "9g"}}, ("env", "reserved_variable")),
        ({"product": A100, "units": 3000, "cores": 0}, ("cores_per_pod", "cores_out_of_range")),
        ({"product": A100, "units": 50000, "units_per_card": 40960}, ("units_per_pod", "whole_cards")),
        ({"product": A100, "units": 3000, "pods": 2}, ("pods", "no_peers")),
    ),
    read=(
        (
            {
                "metadata": {
                    "annotations": {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,30:GPU-2,NVIDIA,3000,30:;"}
                }
            },
            (Held("GPU-1", 3000, 30), Held("GPU-2", 3000, 30)),
        ),
        ({"metadata": {"annotations": {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,x,30:;:;"}}}, ()),
    ),
    live=(
        Live(
            node="hami-a100-40",
            body={"units_per_pod": 3000, "cores_per_pod": 30},
            limits={GPU: "1", MEMORY: "3000", CORES: "30"},
            scheduler="hami-scheduler",
            plays={"annotations": {"hami.io/vgpu-devices-allocated": f"{CARDS[6]['id']},NVIDIA,3000,30:;"}},
            cards=(CARDS[6]["id"],),
            bad={"units_per_pod": 50000},
            blamed="units_per_pod",
            said="Above one card, only whole cards are possible: request a multiple of 40960 MiB, not 50000.",
        ),
    ),
)
