"""What an operator may set for one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from workloads.kubernetes.manifests.option_values import CHOICES, check_forms, check_network, one_of, typed
from workloads.sharing import SYSTEMS, Settings
from workloads.sharing.nodes import MOST_CARDS, NAMED, WRONG_PRODUCT

# Conditions that mean faulty GPU hardware: those of NVSentinel (one for each check, True: unhealthy), of AKS's node
# problem detector, and of the EKS node monitoring agent.
FAULTY = {
    "Gpu*Watch": "True", "SysLogsXIDError": "True", "SysLogsSXIDError": "True", "SysLogsGPUFallenOff": "True",
    "GPUMissing": "True", "NVLinkStatusInactive": "True", "AcceleratedHardwareReady": "False",
}  # fmt: skip

# Errors of the NVIDIA driver after which a GPU has to be reset or replaced (memory, NVLink, bus, firmware), and those that
# programs cause.
XIDS = (46, 48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143)
OF_PROGRAMS = (13, 31, 43, 45)


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator may set for one cluster. `instance` is the portal's name there, which tells the pods of portals apart."""

    instance: str = "portal"
    namespace_prefix: str = "gqp-"
    volume: str = "pvc"  # pvc: one claim a workload, survives its attempts | emptyDir: lost with the pod
    storage_class: str = ""  # empty: the cluster's default
    volume_size: str = "50Gi"
    access_mode: str = "ReadWriteOnce"
    # Volumes that outlive workloads, mounted by those that ask for them; the size of each, empty: none is offered.
    department_volume: str = ""  # one for each department
    user_volume: str = ""  # one for each person in each department
    shared_storage_class: str = ""  # of both; empty: the cluster's default
    shared_access_mode: str = "ReadWriteMany"
    run_as: int = 1000  # uid and gid in the container
    ready_probe_seconds: int = 5  # s between two checks for PORTAL_READY_FILE in the container; 0: never checked
    give_up_after: int = 600  # s that a pod may fail to start before its claim is given back
    priority: int = 1000  # of the portal's pods, for the cluster's scheduler
    portal_namespace: str = "gpu-quota-portal"  # may reach every pod of the portal; "": it is outside of the cluster
    portal_addresses: tuple[str, ...] = ()  # CIDRs that may reach the pods too, for a portal outside of the cluster
    egress_addresses: tuple[str, ...] = ()  # CIDRs of private networks that workloads may reach: storage, mirrors
    ingress_namespaces: tuple[str, ...] = ()  # may reach the pods too: those of the ingress controllers
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    runtime_class: str = ""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    admission: bool = False  # whether the portal admits what others submit in tied namespaces (docs/kubectl.md)
    user_prefix: str = ""  # prefix of the cluster's user names that the portal's do not have, such as oidc:
    lost_after: int = 0  # s that its node is silent before a run is given up; 0: not until the node is removed
    # Which conditions and taints of a node quarantine it, because its hardware is faulty: types of conditions (with * for any
    # letters) with their bad status, and keys of taints likewise; {} and []: none.
    health_conditions: Mapping[str, str] = field(default_factory=lambda: dict(FAULTY))
    health_taints: tuple[str, ...] = ("AggregatedNodeHealth",)  # NVSentinel's
    health_xids: tuple[int, ...] = XIDS  # errors of the NVIDIA driver that quarantine the node; []: none
    new_pools: str = "make"  # make: the portal makes pools of new cards | ask: an operator does (nodes/pools.py)
    # The ConfigMap that a change of a node's mode writes, as namespace/name, and the pods that read it, as namespace/selector.
    plugin_config: str = "gpu-operator/device-plugin-config"
    plugin_pods: str = "gpu-operator/app=nvidia-device-plugin-daemonset"
    mig_config: str = ""  # empty: only the configurations that mig-manager brings along
    mig_manager_pods: str = "gpu-operator/app=nvidia-mig-manager"
    # How services are reached from outside, at <workload id>.<service_domain>; empty: through the portal's own proxy.
    service_domain: str = ""
    service_scheme: str = "https"  # of the addresses that the portal shows
    ingress_class: str = ""  # an Ingress of this class, or
    gateway: str = ""  # an HTTPRoute at this Gateway, as namespace/name
    tls_secret: str = ""  # of the Ingress; a Gateway has its own
    rdma_resource: str = ""  # such as rdma/hca_shared_devices_a; empty: none is offered
    sharing: Settings = field(default_factory=Settings)  # its keys are given beside the others
    files_image: str = "python:3.11-slim"  # any with python3 of 3.8 or newer; shows the files of working directories

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Options:
        """Raises ValueError that names the key and the place within its value, because an operator typed it."""
        own, systems = OF_CLUSTER, OF_SHARING
        known = own | systems
        if unknown := sorted(set(data) - set(known)):
            raise ValueError(f"unknown option {unknown[0]}; known: {', '.join(sorted(known))}")
        values = {key: typed(key, value, known[key]) for key, value in data.items()}
        settings = Settings(**{key: value for key, value in values.items() if key in systems})
        options = cls(**{key: value for key, value in values.items() if key in own}, sharing=settings)
        one_of("volume", options.volume, CHOICES["volume"])  # with any other value there would be no volume at all
        if options.service_domain and bool(options.ingress_class) == bool(options.gateway):
            raise ValueError("option service_domain needs one of ingress_class and gateway")
        for key in ("portal_addresses", "egress_addresses"):
            for at, cidr in enumerate(getattr(options, key)):
                check_network(f"{key}[{at}]", cidr)
        _health(options)
        check(settings)
        return options

    @classmethod
    def from_operator(cls, data: Mapping[str, Any]) -> Options:
        """As from_json, but also checks that every value has the form that the API server accepts."""
        options = cls.from_json(data)
        check_forms({key: value for key, value in data.items() if key != "sharing"})
        return options


def types_of(settings: type[Any]) -> dict[str, Any]:
    """The type of each key that an operator may set."""
    hints = get_type_hints(settings)
    return {each.name: hints[each.name] for each in fields(settings) if each.name != "sharing"}


OF_CLUSTER, OF_SHARING = types_of(Options), types_of(Settings)


def check(settings: Settings) -> None:
    """Raises ValueError that names the key."""
    one_of("gpu_mem_unit", settings.gpu_mem_unit, ("GiB", "MiB"))
    if settings.volcano_memory_factor < 1:
        raise ValueError("option volcano_memory_factor must be from 1 to 1000000")
    for node, system in settings.pins.items():
        one_of(f"pins.{node}", system, tuple(SYSTEMS))
    for node, product in settings.products.items():
        if not NAMED.fullmatch(product):
            raise ValueError(f"option products.{node}: {WRONG_PRODUCT}")
    for node, cards in settings.cards.items():
        if not 1 <= cards <= MOST_CARDS:
            raise ValueError(f"option cards.{node}: give a number of cards from 1 to {MOST_CARDS}")


def _health(options: Options) -> None:
    for kind, status in options.health_conditions.items():
        if kind.strip("*") in ("", "Ready"):
            raise ValueError(
                f"option health_conditions: {kind!r} would quarantine every node: name a condition of GPUs"
            )
        if status not in ("True", "False", "Unknown"):
            raise ValueError(
                f"option health_conditions.{kind}: give the bad status as True, False or Unknown, in quotes"
            )
    for at, xid in enumerate(options.health_xids):
        if not 1 <= xid <= 999:
            raise ValueError(f"option health_xids[{at}]: {xid!r} is not the number of an XID error, such as 79")
        if xid in OF_PROGRAMS:
            raise ValueError(
                f"option health_xids[{at}]: XID {xid} is caused by programs, and would empty the node for a bug"
            )
    for at, key in enumerate(options.health_taints):
        if not key.strip("*"):
            raise ValueError(
                f"option health_taints[{at}]: {key!r} is not the key of a taint, such as AggregatedNodeHealth"
            )
