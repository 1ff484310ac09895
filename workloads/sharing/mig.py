"""MIG: a card cut by hardware into instances of fixed profiles; one unit is one memory slice.

| | |
|---|---|
| recognised by | resources `nvidia.com/mig-*`, a product label with `-MIG-`, or a `mig.config.state` other than |
| | success |
| asked for by | strategy mixed: `limits: {nvidia.com/mig-<profile>: 1}` (`+` becomes `.`); single: |
| | `nvidia.com/gpu: 1` and the |
| | product label `…-MIG-<profile>`; always with the product, since 1g.10gb exists on several |
| unit | slice: a memory slice, 8 a card (A30: 4); a profile is charged the memory slices it covers, 3g = 4 |
| isolation | full: memory, compute, bandwidth and faults, by hardware |
| errors | `-MIG-INVALID` (cards cut unevenly under strategy single) and mig.config.state pending, rebooting or |
| | failed: the |
| | node is held back |
| limits | one instance a pod: several are not several GPUs to one process; no NCCL between instances |
| beside | under strategy mixed whole cards of the node stay whole cards: those in `nvidia.com/gpu`, never |
| | `gpu.count` |
| read back | `allocatedResourcesStatus` of the container (Kubernetes 1.36) |
| source | NVIDIA/k8s-device-plugin internal/rm/rm.go, internal/lm/mig-strategy.go; NVIDIA/gpu-operator |
| | mig-manager; MIG guide |
"""

from __future__ import annotations

from collections.abc import Mapping

from quotas.engine.mig import PRODUCTS, Profile
from workloads.clusters.base import CardInfo, NodeInfo, Offer
from workloads.sharing import timeslicing, whole
from workloads.sharing.api import FULL, N_, About, Held, Json, Note, PodPatch, Problem, Request, Settings
from workloads.sharing.checks import peers, reserved_env
from workloads.sharing.nodes import Facts, allocated_devices, entry, even_cards

PREFIX, SINGLE, SHARED = "nvidia.com/mig-", "-MIG-", "shared"
STATE = "nvidia.com/mig.config.state"

ABOUT = About(
    key="mig",
    order=100,
    title=N_("MIG instances"),
    unit="slice",
    gives=N_("An instance cut out of a card by hardware: its own memory, compute and cache."),
    risks=N_("One instance is one small GPU: several of them cannot work as one, nor talk to each other."),
    isolation=N_("Full, by hardware: memory, compute and faults."),
    memory=FULL,
    compute=FULL,
    faults=FULL,
    beside=frozenset({"whole"}),
)

# nvidia.com/gpu.product → the table of profiles; old drivers leave out the vendor
TABLES = {
    "NVIDIA-A30": "A30",
    "A100-SXM4-40GB": "A100-40GB",
    "A100-PCIE-40GB": "A100-40GB",
    "NVIDIA-A100-SXM4-40GB": "A100-40GB",
    "NVIDIA-A100-PCIE-40GB": "A100-40GB",
    "A100-SXM4-80GB": "A100-80GB",
    "NVIDIA-A100-SXM4-80GB": "A100-80GB",
    "NVIDIA-A100-80GB-PCIe": "A100-80GB",
    "NVIDIA-H100-80GB-HBM3": "H100-80GB",
    "NVIDIA-H100-PCIe": "H100-80GB",
    "NVIDIA-H200": "H200-141GB",
    "NVIDIA-H200-NVL": "H200-141GB",
    "NVIDIA-B200": "B200-180GB",
}


def slices(table: str) -> int:
    """Memory slices of a card: 8, of an A30 4."""
    return max(profile.size + max(profile.starts) for profile in PRODUCTS[table].values())


def most_of(profile: Profile) -> int:
    """Instances of one profile on one card."""
    return 1 if profile.media else len(profile.starts)


def applies(node: Facts) -> Note | None:
    if SINGLE in node.product:
        return Note(N_("its product is %(product)s"), {"product": node.product})
    if offered := node.offered(PREFIX):
        return Note(N_("it advertises %(resource)s"), {"resource": ", ".join(offered)[:100]})
    if (state := node.labels.get(STATE, "success")) != "success":
        return Note(N_("its mig.config.state is %(state)s"), {"state": state[:40]})
    return None


def discover(node: Facts, settings: Settings) -> NodeInfo:
    base, single = parts(node.product)
    table = TABLES.get(base)
    instances = _instances(node, single)
    units = slices(table) if table else 1
    beside = () if single else _whole_beside(node)
    first = len(beside[0].cards) if beside else 0
    count = timeslicing.settings_cards(node, settings)
    if not count:
        count = node.number(whole.COUNT)
        if single and table and single in PRODUCTS[table]:
            count = -(-count // most_of(PRODUCTS[table][single]))  # here the label counts instances
    cut = even_cards(node, count, units, count * units if instances else 0)[first:]
    return entry(
        node,
        ABOUT,
        product=node.product,
        units_per_card=units,
        cards=cut,
        instances=instances,
        mig=table,
        beside=beside,
        because=applies(node) or Note(N_("its mig.config.state is %(state)s"), {"state": "success"}),
        held_back=_held(node, single, table, instances, cut),
    )


def parts(product: str) -> tuple[str, str]:
    """The card's product and, under strategy single, the profile that the label names: ("…-40GB", "1g.5gb+me")."""
    base, _, single = product.partition(SINGLE)
    return base, _profile(single)


def _held(
    node: Facts, single: str, table: str | None, instances: dict[str, int], cut: tuple[CardInfo, ...]
) -> Note | None:
    state = node.labels.get(STATE, "success")
    if state != "success":
        return Note(N_("mig.config.state is %(state)s"), {"state": state[:40]})
    if single == "INVALID":
        return Note(N_("its cards are cut unevenly: %(product)s"), {"product": node.product})
    if table is None:
        return Note(N_("no MIG profiles are known of %(product)s"), {"product": node.product or "?"})
    if single.endswith(timeslicing.SUFFIX) or any(name.endswith(SHARED) for name in instances):
        return Note(N_("its instances are shared by time-slicing, which is not served"))
    if not cut and instances:
        return Note(N_("how many cards are cut, its labels do not say"))
    if (wrong := misfit(table, instances, len(cut))) is not None:
        return wrong
    if not instances:
        return Note(N_("its device plugin offers no instance"))
    return _half_changed(node, single)


def _half_changed(node: Facts, single: str) -> Note | None:
    """Labels and resources that speak of different cuts: one of the two is from before the change."""
    labels = [name for name in node.labels if name.startswith(PREFIX) and name.endswith(".count")]
    told = {name.removesuffix(".count"): node.number(name) for name in labels}
    if single:
        told = {whole.RESOURCE: node.number(whole.COUNT)}
    for resource, count in sorted(told.items()):
        if count != (offered := node.capacity(resource)):
            numbers = {"label": count, "resource": resource, "offered": offered}
            return Note(
                N_("half changed: its labels count %(label)s of %(resource)s, it advertises %(offered)s"), numbers
            )
    return None


def misfit(table: str, instances: Mapping[str, int], cards: int) -> Note | None:
    """Why these instances cannot be what stands on so many cut cards; None: they may be."""
    if unknown := sorted(set(instances) - set(PRODUCTS[table])):
        return Note(N_("%(table)s has no profile %(profile)s"), {"table": table, "profile": unknown[0][:40]})
    for name, amount in sorted(instances.items()):
        most = cards * most_of(PRODUCTS[table][name])
        if amount > most:
            numbers: dict[str, str | int] = {"amount": amount, "profile": name, "cards": cards, "most": most}
            return Note(N_("it has %(amount)s of %(profile)s; %(cards)s cut cards hold %(most)s at most"), numbers)
    taken = sum(PRODUCTS[table][name].size * amount for name, amount in instances.items())
    if taken > cards * slices(table):
        numbers = {"taken": taken, "cards": cards, "slices": cards * slices(table)}
        return Note(N_("its instances cover %(taken)s slices, but its %(cards)s cut cards have %(slices)s"), numbers)
    return None


def _whole_beside(node: Facts) -> tuple[Offer, ...]:
    """Whole cards of a mixed node: `nvidia.com/gpu` counts only those that are not cut."""
    total = node.capacity(whole.RESOURCE) if node.offered(PREFIX) else 0
    if not total:
        return ()
    cards = whole.cards(node, total, node.allocatable(whole.RESOURCE))
    return (Offer(whole.ABOUT.key, node.product, whole.ABOUT.unit, 1, cards),) if cards else ()


def _instances(node: Facts, single: str) -> dict[str, int]:
    if single:
        count = node.allocatable(whole.RESOURCE)
        return {single: count} if count and single != "INVALID" else {}
    return {_profile(name.removeprefix(PREFIX)): count for name, count in node.offered(PREFIX).items() if count}


def _profile(name: str) -> str:
    """The profile of a resource's name: 1g.10gb.me → 1g.10gb+me."""
    head, dot, tail = name.partition("gb.")
    return f"{head}gb+{tail}" if dot else name


def validate(request: Request, settings: Settings) -> tuple[Problem, ...]:
    problems = [*reserved_env(request, ABOUT), *peers(request, ABOUT)]
    base, single = parts(request.product)
    table = TABLES.get(base)
    if table is None:
        message = N_("No MIG profiles are known of %(product)s.")
        problems.append(Problem("profile", "no_such_product", message, {"product": request.product}))
    elif request.profile not in PRODUCTS[table] or (single and request.profile != single):
        numbers = {"product": base, "profile": request.profile or "–", "has": single or ", ".join(PRODUCTS[table])}
        message = N_("%(product)s has no profile %(profile)s here; it has %(has)s.")
        problems.append(Problem("profile", "no_such_profile", message, numbers))
    elif request.units != PRODUCTS[table][request.profile].size:
        size = PRODUCTS[table][request.profile].size
        message = N_("One instance of %(profile)s takes %(size)s slices, not %(asked)s.")
        sizes = {"profile": request.profile, "size": size, "asked": request.units}
        problems.append(Problem("units_per_pod", "wrong_size", message, sizes))
    if request.cores is not None:
        message = N_("Compute cannot be limited here; leave it empty.")
        problems.append(Problem("cores_per_pod", "no_cores", message, {"asked": request.cores}))
    return tuple(problems)


def manifest(request: Request, settings: Settings) -> PodPatch:
    """Exactly one instance: several would not be several GPUs to one process. The profile's name alone does not name
    the card (1g.10gb exists on three products), hence the selector."""
    selector = {"nvidia.com/gpu.product": request.product} if request.product else {}
    if SINGLE in request.product or request.profile is None:
        return PodPatch(limits={whole.RESOURCE: "1"}, node_selector=selector)
    return PodPatch(limits={PREFIX + request.profile.replace("+", "."): "1"}, node_selector=selector)


def read_back(pod: Json) -> tuple[Held, ...]:
    return allocated_devices(pod)
