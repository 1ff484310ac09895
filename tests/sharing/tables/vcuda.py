from tests.sharing.table import Found, Live, Table, node
from workloads.sharing import Held, PodPatch

CORES, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
CARD = 15104

TABLE = Table(
    system="vcuda",
    found=(
        Found(
            product="Tesla-T4",
            node="gpumanager-t4x4",
            unit="MiB",
            units_per_card=CARD,
            cards=4,
            cores=100,
            because="it advertises 400 of tencent.com/vcuda-core: 4 cards of 15104 MiB",
        ),
        Found(
            product="Tesla-T4",
            node=node("gpumanager-t4x4", usable={CORES: "300"}),
            unit="MiB",
            units_per_card=CARD,
            cards=4,
            healthy=3,
            cores=100,
            because="it advertises 400 of tencent.com/vcuda-core: 4 cards of 15104 MiB",
        ),
        Found(
            node=node("gpumanager-t4x4", amounts={CORES: "450"}, labels={"gaia.tencent.com/gpu-model": "T4"}),
            product="T4",
            unit="MiB",
            units_per_card=CARD,
            cards=4,
            cores=100,
            because="it advertises 450 of tencent.com/vcuda-core: 4 cards of 15104 MiB",
            held_back="450 of tencent.com/vcuda-core is not a whole number of cards",
        ),
        Found(
            product="Tesla-T4",
            node=node("gpumanager-t4x4", usable={CORES: "0"}),
            unit="MiB",
            units_per_card=CARD,
            cards=4,
            healthy=0,
            cores=100,
            because="it advertises 400 of tencent.com/vcuda-core: 4 cards of 15104 MiB",
            held_back="its device plugin offers none of its 4 cards",
        ),
        Found(
            product="Tesla-T4",
            node=node("gpumanager-t4x4", amounts={MEMORY: None}),
            unit="MiB",
            cards=4,
            healthy=0,
            cores=100,
            because="it advertises 400 of tencent.com/vcuda-core: 4 cards of 0 MiB",
            held_back="tencent.com/vcuda-memory is missing: the size of a card is unknown",
        ),
    ),
    asked=(
        (
            {"product": "", "units": 7680, "cores": 30, "units_per_card": CARD},
            PodPatch(limits={CORES: "30", MEMORY: "30"}),
        ),
        (
            {"product": "", "units": 2 * CARD, "cores": 100, "units_per_card": CARD},
            PodPatch(limits={CORES: "200", MEMORY: "118"}),
        ),
        (
            {"product": "", "units": 7680, "cores": 30, "extra": {"core_limit": "50"}},
            PodPatch(limits={CORES: "30", MEMORY: "30"}, annotations={"tencent.com/vcuda-core-limit": "50"}),
        ),
    ),
    refused=(
        ({"product": "", "units": 7681, "cores": 30}, ("units_per_pod", "not_a_multiple")),
        ({"product": "", "units": 7680}, ("cores_per_pod", "cores_missing")),
        ({"product": "", "units": 7680, "cores": 150}, ("cores_per_pod", "cores_out_of_range")),
        ({"product": "", "units": CARD + 256, "cores": 100, "units_per_card": CARD}, ("units_per_pod", "whole_cards")),
        (
            {"product": "", "units": 256, "cores": 30, "extra": {"core_limit": "20"}},
            ("core_limit", "cores_out_of_range"),
        ),
        (
            {"product": "", "units": 256, "cores": 30, "extra": {"core_limit": "all"}},
            ("core_limit", "cores_out_of_range"),
        ),
    ),
    read=(
        ({"metadata": {"annotations": {"tencent.com/predicate-gpu-idx-0": "1,3"}}}, (Held("1"), Held("3"))),
        ({"metadata": {"annotations": {"tencent.com/predicate-gpu-idx-0": "?"}}}, ()),
    ),
    live=(
        Live(
            node="gpumanager-t4x4",
            body={"units_per_pod": 7680, "cores_per_pod": 30},
            limits={CORES: "30", MEMORY: "30"},
            plays={"annotations": {"tencent.com/predicate-gpu-idx-0": "3", "tencent.com/gpu-assigned": "true"}},
            cards=("3",),
            bad={"units_per_pod": 7000, "cores_per_pod": 30},
            blamed="units_per_pod",
            said="The amount must be a multiple of 256 MiB; 7000 is not.",
        ),
    ),
)
