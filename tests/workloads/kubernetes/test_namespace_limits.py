"""The limits of a namespace never refuse what the plan admits, and refuse what exceeds it."""

from __future__ import annotations

import math
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import sharing
from workloads.kubernetes.manifests import Options, namespace_limits
from workloads.runtime.base import Home

A100 = "NVIDIA-A100-SXM4-80GB"
POOLS = {
    "whole": sharing.Request(A100, 0, units_per_card=1),
    "timeslicing": sharing.Request("Tesla-T4-SHARED", 0, units_per_card=4),
    "memory": sharing.Request("Tesla-T4", 0, units_per_card=15360),
    "mig": sharing.Request(A100, 4, profile="3g.40gb", units_per_card=8),
}
SETTINGS = sharing.Settings()


def limits(key: str, units: int) -> dict[str, int]:
    pool = POOLS[key]
    request = sharing.Request(pool.product, units, profile=pool.profile, units_per_card=pool.units_per_card)
    if sharing.SYSTEMS[key].validate(request, SETTINGS):
        return {}
    resources = sharing.SYSTEMS[key].manifest(request, SETTINGS).limits
    return {name: int(amount) for name, amount in resources.items() if "/" in name}


@settings(max_examples=200)
@given(
    st.dictionaries(st.sampled_from(sorted(POOLS)), st.integers(1, 64), min_size=1),
    st.lists(st.tuples(st.sampled_from(sorted(POOLS)), st.integers(1, 16)), max_size=40),
)
def test_resource_quota_admits_everything_within_the_ceilings_of_all_pools(
    ceilings: dict[str, int], requests: list[tuple[str, int]]
) -> None:
    """Pods come and go: at every moment those that exist, terminating ones included, are within their ceiling."""
    unit = {"memory": 1024, "mig": 4}
    most = {key: amount * unit.get(key, 1) for key, amount in ceilings.items()}
    quota = namespace_limits.hard(
        (namespace_limits.proportions(POOLS[key], SETTINGS, key), units) for key, units in most.items()
    )
    assert quota
    used: dict[str, int] = {}
    admitted = dict.fromkeys(ceilings, 0)
    for key, amount in requests:
        units = unit["mig"] if key == "mig" else amount * unit.get(key, 1)
        if admitted.get(key, 0) + units > most.get(key, -1):
            continue  # the plan refuses it
        admitted[key] += units
        for name, count in limits(key, units).items():
            used[f"requests.{name}"] = used.get(f"requests.{name}", 0) + count
    assert all(used[name] <= quota.get(name, math.inf) for name in used)


@pytest.mark.parametrize("key", ["whole", "memory", "mig"])
def test_resource_quota_refuses_what_exceeds_the_ceiling(key: str) -> None:
    step = {"memory": 1024, "mig": 4}.get(key, 1)
    quota = namespace_limits.hard([(namespace_limits.proportions(POOLS[key], SETTINGS, key), 3 * step)])
    ((name, one),) = limits(key, step).items()
    assert 4 * one > quota[f"requests.{name}"] >= 3 * one


def test_resource_without_a_fixed_proportion_in_one_pool_is_not_limited() -> None:
    fixed, free = namespace_limits.proportions(POOLS["whole"], SETTINGS, "whole"), {"nvidia.com/gpu": None}
    assert namespace_limits.hard([(fixed, 4), (free, 4)]) == {}
    assert namespace_limits.hard([(fixed, 4), (free, 0)]) == {
        "requests.nvidia.com/gpu": 4
    }  # the department can use none of that pool


def test_proportions_can_be_computed_for_every_sharing_system() -> None:
    for key in sharing.SYSTEMS:
        namespace_limits.proportions(sharing.Request(A100, 0, units_per_card=100), SETTINGS, key)


def test_network_policy_admits_only_the_department_and_the_portal() -> None:
    home = Home("gqp-vision", "vision", {"requests.nvidia.com/gpu": 4})
    _quota, _limits, policy, silent = namespace_limits.namespace_objects(home, Options())
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    (rule,) = policy["spec"]["ingress"]
    assert rule["from"] == [
        {"podSelector": {}},
        {
            "namespaceSelector": {
                "matchLabels": {"app.kubernetes.io/instance": "portal", "gpu-quota-portal/department": "vision"}
            }
        },
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gpu-quota-portal"}}},
    ]
    dns, outgoing = policy["spec"]["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    assert outgoing["to"][:3] == rule["from"]
    assert "ingress" not in silent["spec"]
    assert "egress" not in silent["spec"]


def reaches(options: Options, address: str) -> bool:
    """Whether a workload can open a connection to an address outside of the cluster's pods, by the rules of Kubernetes."""
    target = ip_address(address)
    policy = namespace_limits.namespace_objects(Home("gqp-vision", "vision", {}), options)[2]["spec"]
    return any(
        target in ip_network(block["cidr"]) and not any(target in ip_network(net) for net in block.get("except", ()))
        for rule in policy["egress"]
        for block in [to["ipBlock"] for to in rule.get("to", ()) if "ipBlock" in to]
    )


@pytest.mark.parametrize("opened", [(), ("10.1.2.0/24",), ("0.0.0.0/0", "::/0"), ("100.64.0.0/10", "169.254.0.0/16")])
@pytest.mark.parametrize(
    "metadata", ["169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fe80::1"]
)
def test_workloads_cannot_reach_the_metadata_addresses_of_clouds(opened: tuple[str, ...], metadata: str) -> None:
    assert not reaches(Options(egress_addresses=opened), metadata)


def test_workloads_reach_the_internet_and_only_opened_private_networks() -> None:
    assert reaches(Options(), "151.101.0.223")
    assert reaches(Options(), "2a04:4e42::223")
    closed = ["10.1.2.3", "172.18.0.5", "192.168.1.1", "fd12::1"]
    assert not any(reaches(Options(), address) for address in closed)
    opened = Options(egress_addresses=("10.1.2.0/24", "fd12::/64"))
    assert [address for address in closed if reaches(opened, address)] == ["10.1.2.3", "fd12::1"]


def test_invalid_network_is_rejected_with_its_option() -> None:
    with pytest.raises(ValueError, match=r"option egress_addresses\[0\]: '10\.0\.0\.300/24'"):
        Options.from_json({"egress_addresses": ["10.0.0.300/24"]})
