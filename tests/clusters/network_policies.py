"""Evaluates which connections the NetworkPolicies of rendered manifests allow, by the specification of networking.k8s.io/v1.
The test cluster's network does not enforce them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class End:
    """An end of a connection: a pod, with its named ports; or, with an address, something outside of the cluster."""

    labels: Json = field(default_factory=dict, hash=False)
    ports: Json = field(default_factory=dict, hash=False)  # name → number
    namespace: Json = field(default_factory=dict, hash=False)  # its namespace's labels; {}: the release's own
    address: str = ""


def of_template(template: Json) -> End:
    ports = [port for container in template["spec"]["containers"] for port in container.get("ports", [])]
    return End(template["metadata"]["labels"], {port["name"]: port["containerPort"] for port in ports})


def may_reach(policies: list[Json], source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    ways = (("Egress", "egress", "to", source, target), ("Ingress", "ingress", "from", target, source))
    return all(
        _permits(policies, kind, rules, peers, own, other, target, port, protocol)
        for kind, rules, peers, own, other in ways
    )


def _permits(
    policies: list[Json], kind: str, rules: str, peers: str, own: End, other: End, target: End, port: int, protocol: str
) -> bool:  # fmt: skip
    if own.address or own.namespace:
        return True  # these policies do not apply to it
    about = [each["spec"] for each in policies if kind in each["spec"]["policyTypes"]]
    about = [each for each in about if matches(each["podSelector"], own.labels)]
    return not about or any(
        (not rule.get(peers) or any(_is(peer, other) for peer in rule[peers]))
        and (not rule.get("ports") or any(_at(each, target, port, protocol) for each in rule["ports"]))
        for each in about
        for rule in each.get(rules) or ()
    )


def _is(peer: Json, end: End) -> bool:
    if "ipBlock" in peer:
        return bool(end.address) and ipaddress.ip_address(end.address) in ipaddress.ip_network(peer["ipBlock"]["cidr"])
    if end.address:
        return False
    if "namespaceSelector" in peer:
        if not matches(peer["namespaceSelector"], end.namespace):
            return False
    elif end.namespace:
        return False
    return matches(peer.get("podSelector", {}), end.labels)


def _at(rule: Json, target: End, port: int, protocol: str) -> bool:
    wanted = rule.get("port", port)
    return rule.get("protocol", "TCP") == protocol and port == target.ports.get(wanted, wanted)


def matches(selector: Json, labels: Json) -> bool:
    expressions = selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in expressions)
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in expressions
    )
