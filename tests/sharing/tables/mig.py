from tests.sharing.table import Found, Live, Stopped, Table, node
from workloads.sharing import Held, PodPatch

A40, A80 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB"
SINGLE = f"{A40}-MIG-1g.5gb"
CUSTOM = {"1g.5gb": 9, "2g.10gb": 4, "3g.20gb": 3}

TABLE = Table(
    system="mig",
    found=(
        Found(
            node="dgx-a100-40-mig-single",
            product=SINGLE,
            unit="slice",
            units_per_card=8,
            cards=8,
            instances={"1g.5gb": 56},
            because=f"its product is {SINGLE}",
        ),
        Found(
            node="dgx-a100-80-mig-mixed",
            product=A80,
            unit="slice",
            units_per_card=8,
            cards=8,
            instances={"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8},
            because="it advertises nvidia.com/mig-1g.10gb, nvidia.com/mig-2g.20gb, nvidia.com/mig-3g.40gb",
        ),
        Found(
            node="dgx-a100-40-mig-custom",
            product=A40,
            unit="slice",
            units_per_card=8,
            cards=4,
            instances=CUSTOM,
            because="it advertises nvidia.com/mig-1g.5gb, nvidia.com/mig-2g.10gb, nvidia.com/mig-3g.20gb",
            beside=(("whole", "card", 4),),
        ),
        Found(
            node="h100-mig-mixed-docs",
            product="NVIDIA-H100-80GB-HBM3",
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
            because="it advertises nvidia.com/mig-1g.10gb, nvidia.com/mig-2g.20gb, nvidia.com/mig-3g.40gb",
        ),
        Found(
            node="dgx-a100-40-mig-pending",
            product=A40,
            unit="slice",
            units_per_card=8,
            cards=8,
            healthy=0,
            because="its mig.config.state is pending",
            held_back="mig.config.state is pending",
        ),
        *(
            Found(
                node=node("dgx-a100-80-mig-mixed", labels={"nvidia.com/mig.config.state": state}),
                product=A80,
                unit="slice",
                units_per_card=8,
                cards=8,
                instances={"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8},
                because="it advertises nvidia.com/mig-1g.10gb, nvidia.com/mig-2g.20gb, nvidia.com/mig-3g.40gb",
                held_back=f"mig.config.state is {state}",
            )
            for state in ("failed", "rebooting")
        ),
        Found(
            node=node(
                "dgx-a100-40-mig-single",
                labels={"nvidia.com/gpu.product": f"{A40}-MIG-INVALID", "nvidia.com/gpu.count": "0"},
                amounts={"nvidia.com/gpu": "0"},
            ),
            product=f"{A40}-MIG-INVALID",
            unit="slice",
            units_per_card=8,
            cards=0,
            because=f"its product is {A40}-MIG-INVALID",
            held_back=f"its cards are partitioned differently: {A40}-MIG-INVALID",
        ),
        Found(
            node=node("dgx-a100-80-mig-mixed", labels={"nvidia.com/gpu.product": "NVIDIA-X9"}),
            product="NVIDIA-X9",
            unit="slice",
            units_per_card=8,
            cards=8,
            instances={"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8},
            because="it advertises nvidia.com/mig-1g.10gb, nvidia.com/mig-2g.20gb, nvidia.com/mig-3g.40gb; "
            "slices derived from the names of the profiles: 1g.10gb = 1/8, 2g.20gb = 2/8, 3g.40gb = 4/8",
        ),
        Found(
            node=node(
                "h100-mig-mixed-docs", labels={"nvidia.com/gpu.product": "NVIDIA-X9", "nvidia.com/gpu.memory": "48000"}
            ),
            product="NVIDIA-X9",
            unit="slice",
            cards=1,
            instances={"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
            because="it advertises nvidia.com/mig-1g.10gb, nvidia.com/mig-2g.20gb, nvidia.com/mig-3g.40gb",
            held_back="the MIG profiles of NVIDIA-X9 are not known",
        ),
        Found(
            node=node("h100-mig-mixed-docs", amounts={"nvidia.com/mig-3g.40gb": "2"}),
            product="NVIDIA-H100-80GB-HBM3",
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 2},
            because="it advertises nvidia.com/mig-1g.10gb, nvidia.com/mig-2g.20gb, nvidia.com/mig-3g.40gb",
            held_back="its instances cover 12 slices, but its 1 partitioned cards have 8",
        ),
        Found(
            node=node("h100-mig-mixed-docs", amounts={"nvidia.com/mig-1g.5gb": "1"}),
            product="NVIDIA-H100-80GB-HBM3",
            unit="slice",
            units_per_card=8,
            cards=1,
            instances={"1g.10gb": 2, "1g.5gb": 1, "2g.20gb": 1, "3g.40gb": 1},
            because="it advertises nvidia.com/mig-1g.10gb, nvidia.com/mig-1g.5gb, nvidia.com/mig-2g.20gb, "
            "nvidia.com/mig-3g.40gb",
            held_back="H100-80GB has no profile 1g.5gb",
        ),
    ),
    asked=(
        (
            {"product": SINGLE, "units": 1, "profile": "1g.5gb"},
            PodPatch(limits={"nvidia.com/gpu": "1"}, node_selector={"nvidia.com/gpu.product": SINGLE}),
        ),
        (
            {"product": A80, "units": 4, "profile": "3g.40gb"},
            PodPatch(limits={"nvidia.com/mig-3g.40gb": "1"}, node_selector={"nvidia.com/gpu.product": A80}),
        ),
        (
            {"product": A80, "units": 1, "profile": "1g.10gb+me"},
            PodPatch(limits={"nvidia.com/mig-1g.10gb.me": "1"}, node_selector={"nvidia.com/gpu.product": A80}),
        ),
    ),
    refused=(
        ({"product": A80, "units": 1, "profile": "1g.5gb"}, ("profile", "no_such_profile")),
        ({"product": SINGLE, "units": 2, "profile": "2g.10gb"}, ("profile", "no_such_profile")),
        ({"product": "NVIDIA-X9", "units": 1, "profile": "1g.5gb"}, ("profile", "no_such_product")),
        ({"product": A80, "units": 3, "profile": "3g.40gb"}, ("units_per_pod", "wrong_size")),
        ({"product": A80, "units": 4, "profile": "3g.40gb", "pods": 2}, ("pods", "no_peers")),
        ({"product": A80, "units": 4, "profile": "3g.40gb", "cores": 5}, ("cores_per_pod", "no_cores")),
    ),
    read=(
        (
            {
                "status": {
                    "containerStatuses": [{"allocatedResourcesStatus": [{"resources": [{"resourceID": "MIG-1"}]}]}]
                }
            },
            (Held("MIG-1"),),
        ),
    ),
    live=(
        Live(
            node="dgx-a100-40-mig-single",
            body={"profile": "1g.5gb"},
            limits={"nvidia.com/gpu": "1"},
            plays={"devices": ["MIG-9"]},
            cards=("MIG-9",),
            bad={"profile": "2g.10gb"},
            blamed="profile",
            said="it has 1g.5gb.",
        ),
        Live(
            node="dgx-a100-80-mig-mixed",
            body={"profile": "3g.40gb"},
            limits={"nvidia.com/mig-3g.40gb": "1"},
            plays={"devices": ["MIG-3"]},
            cards=("MIG-3",),
            bad={"profile": "1g.5gb"},
            blamed="profile",
            said="has no profile 1g.5gb here; it has 1g.10gb, 1g.10gb+me",
        ),
        Live(
            node="dgx-a100-40-mig-custom",
            body={"profile": "2g.10gb"},
            limits={"nvidia.com/mig-2g.10gb": "1"},
            bad={"units_per_pod": 1},
            blamed="profile",
            said="it has 1g.5gb, ",
        ),
        Live(
            node="dgx-a100-40-mig-custom",
            system="whole",
            body={"units_per_pod": 4},
            limits={"nvidia.com/gpu": "4"},
            bad={"profile": "1g.5gb", "units_per_pod": 1},
            blamed="profile",
            said="has no MIG profiles",
        ),
        Live(
            node="h100-mig-mixed-docs",
            body={"profile": "1g.10gb"},
            limits={"nvidia.com/mig-1g.10gb": "1"},
            bad={"profile": "7g.40gb"},
            blamed="profile",
            said="has no profile 7g.40gb here",
        ),
    ),
    held=(
        Stopped(
            node="dgx-a100-40-mig-pending",
            body={"profile": "2g.10gb"},
            said="mig.config.state is pending",
            mended={
                "metadata": {"labels": {"nvidia.com/mig.config.state": "success"}},
                "status": {
                    "capacity": {"nvidia.com/gpu": "0", "nvidia.com/mig-2g.10gb": "24"},
                    "allocatable": {"nvidia.com/gpu": "0", "nvidia.com/mig-2g.10gb": "24"},
                },
            },
        ),
    ),
)
