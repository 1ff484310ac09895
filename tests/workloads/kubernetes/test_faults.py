"""Which conditions and taints of a node quarantine it. The names are those that the agents write: NVSentinel (one condition
for each check, True while it fails, and the taint AggregatedNodeHealth), AKS's node problem detector, the EKS node
monitoring agent (AcceleratedHardwareReady, False while it fails)."""

from __future__ import annotations

from typing import Any

import pytest

from workloads.kubernetes.manifests import Options, faults
from workloads.sharing.nodes import Facts


def names(*conditions: tuple[str, str], taints: Any = (), **options: Any) -> list[str]:
    listed = [{"type": kind, "status": status, "message": "m"} for kind, status in conditions]
    node = {"status": {"conditions": listed}, "spec": {"taints": taints}}
    return [fault.name for fault in faults(Facts(node), Options.from_json(options))]


@pytest.mark.parametrize(
    ("kind", "bad", "good"),
    [
        ("GpuMemWatch", "True", "False"),
        ("GpuNvswitchFatalWatch", "True", "False"),
        ("SysLogsXIDError", "True", "False"),
        ("SysLogsGPUFallenOff", "True", "False"),
        ("GPUMissing", "True", "False"),
        ("AcceleratedHardwareReady", "False", "True"),
    ],
)
def test_failing_conditions_of_the_known_agents_are_faults(kind: str, bad: str, good: str) -> None:
    assert names((kind, bad)) == [f"node/condition/{kind}"]
    assert names((kind, good)) == names((kind, "Unknown")) == []


def test_conditions_that_do_not_concern_hardware_are_ignored() -> None:
    assert names(("Ready", "False"), ("MemoryPressure", "True"), ("GpuDcgmConnectivityFailure", "True")) == []


def test_health_taints_are_faults() -> None:
    taint = {"key": "AggregatedNodeHealth", "value": "False", "effect": "NoSchedule"}
    assert names(taints=[taint]) == ["node/taint/AggregatedNodeHealth"]
    assert names(taints=[taint], health_taints=[]) == []
    assert names(taints=[{"key": "example.org/sick-gpu"}], health_taints=["example.org/*"]) == [
        "node/taint/example.org/sick-gpu"
    ]


def test_operator_can_configure_other_conditions() -> None:
    assert names(("XIDErrors", "True"), ("GpuMemWatch", "True"), health_conditions={"XID*": "True"}) == [
        "node/condition/XIDErrors"
    ]
    assert names(("GpuMemWatch", "True"), health_conditions={}) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"health_conditions": {"*": "True"}}, "would quarantine every node"),
        ({"health_conditions": {"Ready": "False"}}, "would quarantine every node"),
        ({"health_conditions": {"Gpu*": True}}, "in quotes"),
        ({"health_conditions": {"Gpu*": "yes"}}, "True, False or Unknown"),
        ({"health_conditions": ["GpuMemWatch"]}, "must be an object"),
        ({"health_taints": ["*"]}, "not the key of a taint"),
        ({"health_taints": [3]}, r"health_taints\[0\] must be a string"),
        ({"health_taints": "AggregatedNodeHealth"}, "must be a list"),
    ],
)
def test_invalid_options_are_rejected_with_a_reason(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Options.from_json(options)


@pytest.mark.parametrize("conditions", [None, "x", [None], [{}], {"a": 1}, [{"type": 3, "status": True}]])
def test_malformed_conditions_and_taints_are_ignored(conditions: Any) -> None:
    assert list(faults(Facts({"status": {"conditions": conditions}, "spec": {"taints": conditions}}), Options())) == []


def test_reason_of_a_fault_is_one_short_line() -> None:
    long = {"type": "GpuMemWatch", "status": "True", "message": "XID\n48\x00 " + "x" * 5000}
    [fault] = faults(Facts({"status": {"conditions": [long]}}), Options())
    assert str(fault.reason).startswith("node condition GpuMemWatch is True: XID 48 xxx")
    assert len(str(fault.reason)) < 300
