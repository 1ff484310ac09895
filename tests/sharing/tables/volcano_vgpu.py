from tests.sharing.table import Found, Live, Table, node
from workloads.sharing import Held, PodPatch
from workloads.sharing.nodes import MOST_CARDS

NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
REGISTER = "volcano.sh/node-vgpu-register"
MODE = {"volcano.sh/vgpu-mode": "hami-core"}
T4 = "GPU-1,10,15360,Tesla T4,true,hami-core"
FOUR = "its annotation volcano.sh/node-vgpu-register: 4 cards"

TABLE = Table(
    system="volcano-vgpu",
    found=(
        Found(
            node="volcano-vgpu-t4x4",
            product="Tesla-T4",
            unit="MiB",
            units_per_card=15360,
            cards=4,
            cores=100,
            because=FOUR,
        ),
        Found(
            node=node(
                "volcano-vgpu-t4x4",
                notes={REGISTER: "GPU-1,10,15360,Tesla T4,false,hami-core:GPU-2,10,15360,Tesla T4,true,:"},
            ),
            product="Tesla-T4",
            unit="MiB",
            units_per_card=15360,
            cards=2,
            healthy=1,
            cores=100,
            because="its annotation volcano.sh/node-vgpu-register: 2 cards",
        ),
        Found(
            node=node("volcano-vgpu-t4x4", amounts={MEMORY: "0"}),
            product="Tesla-T4",
            unit="MiB",
            units_per_card=15360,
            cards=4,
            cores=100,
            because=FOUR,
            held_back="volcano.sh/vgpu-memory reads 0: its plugin needs a larger memory factor",
        ),
        Found(
            node=node("volcano-vgpu-t4x4", notes={REGISTER: None}),
            unit="MiB",
            cards=0,
            because="its annotation volcano.sh/node-vgpu-register: 0 cards",
            held_back="volcano.sh/node-vgpu-register lists no card",
        ),
        Found(
            node=node("volcano-vgpu-t4x4", notes={REGISTER: f"{T4}:GPU-2,10,81920,NVIDIA-A100,true,hami-core:"}),
            product="NVIDIA-A100",
            unit="MiB",
            units_per_card=81920,
            cards=2,
            cores=100,
            because="its annotation volcano.sh/node-vgpu-register: 2 cards",
            held_back="it has cards of different products: NVIDIA-A100, Tesla-T4",
        ),
        Found(
            node=node("volcano-vgpu-t4x4", usable={NUMBER: "0"}),
            product="Tesla-T4",
            unit="MiB",
            units_per_card=15360,
            cards=4,
            cores=100,
            because=FOUR,
            held_back="its device plugin offers none of its 4 cards",
        ),
        Found(
            node=node("volcano-vgpu-t4x4", amounts={CORES: None}),
            product="Tesla-T4",
            unit="MiB",
            units_per_card=15360,
            cards=4,
            cores=100,
            because=FOUR,
            held_back="volcano.sh/vgpu-cores is missing",
        ),
        Found(
            node=node("volcano-vgpu-t4x4", notes={REGISTER: ":".join([T4] * (MOST_CARDS + 1))}),
            unit="MiB",
            cards=0,
            because="its annotation volcano.sh/node-vgpu-register: 0 cards",
            held_back=f"it reports {MOST_CARDS + 1} cards; volcano.sh/node-vgpu-register lists no card",
        ),
        *(
            Found(
                node=node("volcano-vgpu-t4x4", notes={REGISTER: f"{wrong}:{T4}"}),
                product="Tesla-T4",
                unit="MiB",
                units_per_card=15360,
                cards=1,
                cores=100,
                because="its annotation volcano.sh/node-vgpu-register: 1 cards",
                held_back="volcano.sh/node-vgpu-register lists a card that does not exist",
            )
            for wrong in ("GPU-2,10,15360", "GPU-2,10,much,Tesla T4,true,", "GPU-2,10,0,Tesla T4,true,")
        ),
        Found(
            node=node("volcano-vgpu-t4x4", notes={REGISTER: T4.replace("hami-core", "mig")}),
            product="Tesla-T4",
            unit="MiB",
            units_per_card=15360,
            cards=1,
            cores=100,
            because="its annotation volcano.sh/node-vgpu-register: 1 cards",
            held_back="its cards are partitioned on demand, which is not supported",
        ),
    ),
    asked=(
        (
            {"product": "", "units": 3000, "cores": 50, "units_per_card": 15360},
            PodPatch(limits={NUMBER: "1", MEMORY: "3000", CORES: "50"}, annotations=MODE, scheduler="volcano"),
        ),
        (
            {"product": "", "units": 30720, "units_per_card": 15360},
            PodPatch(limits={NUMBER: "2", MEMORY: "15360"}, annotations=MODE, scheduler="volcano"),
        ),
    ),
    refused=(
        ({"product": "", "units": 3000, "env": {"CUDA_DISABLE_CONTROL": "true"}}, ("env", "reserved_variable")),
        ({"product": "", "units": 3000, "cores": 101}, ("cores_per_pod", "cores_out_of_range")),
    ),
    read=(
        (
            {"metadata": {"annotations": {"volcano.sh/vgpu-ids-new": "GPU-2,NVIDIA,3000,50:;"}}},
            (Held("GPU-2", 3000, 50),),
        ),
    ),
    live=(
        Live(
            node="volcano-vgpu-t4x4",
            body={"units_per_pod": 3000, "cores_per_pod": 50},
            limits={NUMBER: "1", MEMORY: "3000", CORES: "50"},
            annotations=MODE,
            scheduler="volcano",
            plays={
                "annotations": {"volcano.sh/vgpu-ids-new": "GPU-00000002-0000-4000-8000-000000000002,NVIDIA,3000,50:;"}
            },
            cards=("GPU-00000002-0000-4000-8000-000000000002",),
            bad={"units_per_pod": 3000, "env": {"CUDA_DISABLE_CONTROL": "true"}},
            blamed="env",
            said="CUDA_DISABLE_CONTROL is reserved: it could change which cards",
        ),
    ),
)
