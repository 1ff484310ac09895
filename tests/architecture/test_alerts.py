"""Alerts and documents speak of metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.architecture import sources

METRIC = re.compile(r"\bportal_[a-z_]+\b")


def exported() -> set[str]:
    names: set[str] = set()
    for app in ("portal", "quotas", "workloads"):
        names |= set(re.findall(r"\"(portal_[a-z_]+)\"", next(sources.ROOT.glob(f"{app}/**/metrics.py")).read_text()))
    return names | {f"{name}_total" for name in names}


@pytest.mark.parametrize("file", ["deploy/helm/gpu-quota-portal/alerts.yaml", "docs/operations.md"])
def test_every_metric_that_is_named_is_exported(file: str) -> None:
    named = set(METRIC.findall((sources.ROOT / file).read_text()))
    assert named
    assert named - exported() == set()


def test_alerts_are_rules_as_prometheus_reads_them() -> None:
    groups = yaml.safe_load(Path(sources.ROOT / "deploy/helm/gpu-quota-portal/alerts.yaml").read_text())["groups"]
    for rule in groups[0]["rules"]:
        assert {"alert", "expr", "labels", "annotations"} <= set(rule)
        assert rule["labels"]["severity"] in {"critical", "warning"}
