from tests.sharing.table import Found, Live, Table
from workloads.sharing import PodPatch

CORES, MEMORY = "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"
CARD = 14336

TABLE = Table(
    system="qgpu",
    found=(
        Found(
            product="Tesla-T4",
            node="qgpu-t4x4",
            unit="MiB",
            units_per_card=CARD,
            cards=4,
            cores=100,
            because=f"it advertises 400 of {CORES}: 4 cards of 14336 MiB",
        ),
    ),
    asked=(
        (
            {"product": "", "units": 5120, "cores": 35, "units_per_card": CARD},
            PodPatch(limits={CORES: "35", MEMORY: "5"}),
        ),
        (
            {"product": "", "units": 2 * CARD, "cores": 100, "units_per_card": CARD},
            PodPatch(limits={CORES: "200", MEMORY: "28"}),
        ),
    ),
    refused=(
        ({"product": "", "units": 5120, "cores": 33}, ("cores_per_pod", "cores_out_of_range")),
        ({"product": "", "units": 5120, "cores": 4}, ("cores_per_pod", "cores_out_of_range")),
        ({"product": "", "units": 5000, "cores": 35}, ("units_per_pod", "not_a_multiple")),
        ({"product": "", "units": 5120}, ("cores_per_pod", "cores_missing")),
    ),
    read=(({}, ()),),
    live=(
        Live(
            node="qgpu-t4x4",
            body={"units_per_pod": 5120, "cores_per_pod": 35},
            limits={CORES: "35", MEMORY: "5"},
            plays={"devices": ["GPU-1"]},
            cards=("GPU-1",),
            bad={"units_per_pod": 5120, "cores_per_pod": 33},
            blamed="cores_per_pod",
            said="in steps of 5; 33 is not valid.",
        ),
    ),
)
