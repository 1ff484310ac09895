"""Objects in a department's namespace beside its runs: a ResourceQuota for GPUs, defaults, and network isolation.
The ResourceQuota must never refuse what the plan admitted. So it limits a resource only where the amount that pods request
is in a fixed proportion to the units that the plan counts (`proportions`), in every pool of the cluster that uses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from workloads import sharing
from workloads.kubernetes.manifests.labels import DEPARTMENT, INSTANCE, MANAGED_BY, PREFIX, ROLE, label
from workloads.kubernetes.manifests.options import Options
from workloads.runtime.base import Home

Json = dict[str, Any]
NAME = PREFIX
PRIORITY_CLASS = PREFIX
SAMPLES = (1, 1024, 256)  # units to try with a sharing system, besides its step and a whole card


def proportions(request: sharing.Request, settings: sharing.Settings, key: str) -> Mapping[str, Fraction | None]:
    """Extended resource → its amount for each unit; None where the proportion is not fixed.
    Of `request` the product, profile and units_per_card are used, and its units if it has a profile.
    """
    system = sharing.SYSTEMS[key]

    def asking(units: int) -> sharing.Request:
        return replace(request, units=units, cores=100 if system.ABOUT.cores == "must" else None, name="w")

    wanted = (request.units,) if request.profile else (system.ABOUT.step, request.units_per_card, *SAMPLES)
    units = next((each for each in wanted if each and not system.validate(asking(each), settings)), None)
    if units is None:
        return {}
    one, two = _limits(system, asking(units), settings), None
    if not system.validate(asking(2 * units), settings):
        two = _limits(system, asking(2 * units), settings)
    fixed = {name: amount is not None and (two is None or two.get(name) == 2 * amount) for name, amount in one.items()}
    return {name: Fraction(amount or 0, units) if fixed[name] else None for name, amount in one.items()}


def _limits(system: sharing.System, request: sharing.Request, settings: sharing.Settings) -> dict[str, int | None]:
    limits = system.manifest(request, settings).limits
    return {name: int(text) if str(text).isdigit() else None for name, text in limits.items() if "/" in name}


def hard(parts: Iterable[tuple[Mapping[str, Fraction | None], int]]) -> dict[str, int]:
    """The `hard` values of a ResourceQuota, from (proportions, most units) of each pool."""
    totals: dict[str, Fraction] = {}
    without: set[str] = set()
    for proportion, units in parts:
        for name, each in proportion.items():
            if each is None and units:
                without.add(name)
            totals[name] = totals.get(name, Fraction(0)) + (each or 0) * units
    return {f"requests.{name}": math.ceil(amount) for name, amount in sorted(totals.items()) if name not in without}


def marks(home: Home, options: Options) -> dict[str, str]:
    return {MANAGED_BY: PREFIX, INSTANCE: label(options.instance), DEPARTMENT: label(home.department)}


def namespace_objects(home: Home, options: Options) -> tuple[Json, ...]:
    """The objects that the namespace has whatever runs in it."""
    return (
        quota(home, options),
        _object(home, options, "v1", "LimitRange", {"limits": [_DEFAULTS]}),
        _object(home, options, "networking.k8s.io/v1", "NetworkPolicy", _isolation(home, options)),
        _object(home, options, "networking.k8s.io/v1", "NetworkPolicy", _NO_NETWORK, f"{NAME}-files"),
    )


def quota(home: Home, options: Options) -> Json:
    hard = {name: str(most) for name, most in home.hard.items()}
    return _object(home, options, "v1", "ResourceQuota", {"hard": hard})


def _object(home: Home, options: Options, version: str, kind: str, spec: Json, name: str = NAME) -> Json:
    meta = {"name": name, "namespace": home.namespace, "labels": marks(home, options)}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


# For pods of others in the namespace: the portal's own pods state what they need.
_DEFAULTS: Json = {
    "type": "Container",
    "default": {"cpu": "1", "memory": "1Gi"},
    "defaultRequest": {"cpu": "100m", "memory": "128Mi"},
}

# The pods that show files are reached through exec only.
_NO_NETWORK: Json = {"podSelector": {"matchLabels": {ROLE: "files"}}, "policyTypes": ["Ingress", "Egress"]}


METADATA = tuple(
    map(ip_network, ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "fe80::/10", "fd00:ec2::254/128"))
)
"""Metadata servers of clouds, which hand out a node's credentials: closed to every workload, whatever is opened."""

PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")))
"""Private networks, of the cluster and of the organisation: closed except for the option `egress_addresses`."""

_DNS: Json = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}


def _isolation(home: Home, options: Options) -> Json:
    """The spec of the NetworkPolicy.
    Inbound: the department's own pods, the portal (notebooks) and what the operator allows. Outbound: the same, name
    servers, addresses outside of private networks, and what the operator allows.
    """
    friends = [options.portal_namespace, *options.ingress_namespaces]
    own = {INSTANCE: label(options.instance), DEPARTMENT: label(home.department)}  # both of its namespaces
    sources: list[Json] = [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": own}}]
    sources += [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}} for name in friends if name
    ]
    sources += [{"ipBlock": {"cidr": cidr}} for cidr in options.portal_addresses]
    world = [_block(cidr, (*PRIVATE, *METADATA)) for cidr in ("0.0.0.0/0", "::/0")]
    opened = [_block(cidr, METADATA) for cidr in options.egress_addresses]
    return {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": sources}],
        "egress": [_DNS, {"to": [*sources, *world, *opened]}],
    }


def _block(cidr: str, closed: Iterable[IPv4Network | IPv6Network]) -> Json:
    """All addresses of `cidr` except those of the closed networks; Kubernetes accepts only exceptions inside of
    `cidr`."""
    inside = [net for net in closed if net.version == ip_network(cidr).version and net.subnet_of(ip_network(cidr))]  # type: ignore[arg-type]
    outer = [str(net) for net in inside if not any(net != other and net.subnet_of(other) for other in inside)]  # type: ignore[arg-type]
    return {"ipBlock": {"cidr": cidr, **({"except": outer} if outer else {})}}


def priority_class(options: Options) -> Json:
    """The PriorityClass of the portal's pods. They preempt none: only the portal preempts, and with notice."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS, "labels": {MANAGED_BY: PREFIX}},
        "value": options.priority,
        "preemptionPolicy": "Never",
        "description": "Workloads of the GPU quota portal. They displace nobody: the portal decides who goes, and when.",
    }
