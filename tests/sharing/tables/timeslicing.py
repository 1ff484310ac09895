from tests.sharing.table import Found, Live, Table, node
from workloads.sharing import Held, PodPatch

STATUS = {"containerStatuses": [{"allocatedResourcesStatus": [{"resources": [{"resourceID": "GPU-7::3"}]}]}]}
STRATEGY = "its nvidia.com/gpu.sharing-strategy is time-slicing"
TWO = "Request at most 1: more shares do not give more of the card."

TABLE = Table(
    system="timeslicing",
    found=(
        Found(
            node="t4x4-timeslice-shared",
            product="Tesla-T4-SHARED",
            unit="replica",
            units_per_card=4,
            cards=4,
            because=STRATEGY,
        ),
        Found(
            node="t4x4-timeslice-renamed",
            product="Tesla-T4",
            unit="replica",
            units_per_card=4,
            cards=4,
            because=STRATEGY,
        ),
        Found(
            node=node("t4x4-timeslice-renamed", labels={"nvidia.com/gpu.sharing-strategy": None}),
            product="Tesla-T4",
            unit="replica",
            units_per_card=4,
            cards=4,
            because="it advertises nvidia.com/gpu.shared",
        ),
        Found(
            node=node("t4x4-timeslice-shared", usable={"nvidia.com/gpu": "11"}),
            product="Tesla-T4-SHARED",
            unit="replica",
            units_per_card=4,
            cards=4,
            healthy=2,
            because=STRATEGY,
        ),
        Found(
            node=node("t4x4-timeslice-shared", labels={"nvidia.com/gpu.product": "Tesla-T4"}),
            product="Tesla-T4",
            unit="replica",
            units_per_card=4,
            cards=4,
            because=STRATEGY,
            held_back="its product label does not end in -SHARED although its cards are shared",
        ),
        Found(
            node=node("t4x4-timeslice-shared", labels={"nvidia.com/gpu.count": None}),
            product="Tesla-T4-SHARED",
            unit="replica",
            cards=0,
            because=STRATEGY,
            held_back="16 of nvidia.com/gpu: its labels do not say on how many cards",
        ),
        Found(
            node=node("t4x4-timeslice-shared", amounts={"nvidia.com/gpu": "15"}),
            product="Tesla-T4-SHARED",
            unit="replica",
            units_per_card=3,
            cards=4,
            because=STRATEGY,
            held_back="15 of nvidia.com/gpu cannot be divided evenly among 4 cards",
        ),
    ),
    asked=(
        (
            {"product": "Tesla-T4-SHARED", "units": 1},
            PodPatch(limits={"nvidia.com/gpu": "1"}, node_selector={"nvidia.com/gpu.product": "Tesla-T4-SHARED"}),
        ),
        (
            {"product": "Tesla-T4", "units": 1},
            PodPatch(limits={"nvidia.com/gpu.shared": "1"}, node_selector={"nvidia.com/gpu.product": "Tesla-T4"}),
        ),
    ),
    refused=(
        ({"product": "Tesla-T4", "units": 2, "units_per_card": 4}, ("units_per_pod", "too_many")),
        ({"product": "Tesla-T4", "units": 1, "pods": 2}, ("pods", "no_peers")),
        ({"product": "Tesla-T4", "units": 1, "cores": 25}, ("cores_per_pod", "no_cores")),
    ),
    read=(({"status": STATUS}, (Held("GPU-7"),)), ({}, ())),
    live=(
        Live(
            node="t4x4-timeslice-shared",
            body={"units_per_pod": 1},
            limits={"nvidia.com/gpu": "1"},
            plays={"devices": ["GPU-2::1"]},
            cards=("GPU-2",),
            bad={"units_per_pod": 2},
            blamed="units_per_pod",
            said=TWO,
        ),
        Live(
            node="t4x4-timeslice-renamed",
            body={"units_per_pod": 1},
            limits={"nvidia.com/gpu.shared": "1"},
            bad={"units_per_pod": 2},
            blamed="units_per_pod",
            said=TWO,
        ),
    ),
)
