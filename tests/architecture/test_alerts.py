"""Alerts, dashboards and documents name only metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.architecture import sources

METRIC = re.compile(r"\bportal_[a-z_]+\b")


def exported() -> set[str]:
    collectors = [next(sources.ROOT.glob(f"{app}/**/metrics.py")) for app in ("portal", "quotas", "workloads")]
    collectors.append(sources.ROOT / "portal/server/answers.py")
    names = {name for path in collectors for name in re.findall(r"\"(portal_[a-z_]+)\"", path.read_text())} | {
        "portal_info"
    }
    return names | {f"{name}_{suffix}" for name in names for suffix in ("total", "bucket", "count", "sum")}


CHART = sources.ROOT / "deploy/helm/gpu-quota-portal"
RULES = yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"][0]["rules"]
RUNBOOKS = "docs/runbooks.md"
NAMING = [CHART / "alerts.yaml", *(CHART / "dashboards").glob("*.json"), sources.ROOT / "docs/operations.md"]


@pytest.mark.parametrize("file", NAMING, ids=lambda file: file.name)
def test_every_named_metric_is_exported(file: Path) -> None:
    named = set(METRIC.findall(file.read_text()))
    assert named
    assert named - exported() == set()


def test_every_exported_metric_is_documented() -> None:
    named = set(METRIC.findall((sources.ROOT / "docs/operations.md").read_text()))
    named |= {name.removesuffix("_total") for name in named}
    assert {name for name in exported() if not name.endswith(("_total", "_bucket", "_count", "_sum"))} - named == set()


def test_alerts_have_the_fields_of_prometheus_rules() -> None:
    for rule in RULES:
        assert {"alert", "expr", "labels", "annotations"} <= set(rule)
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_every_alert_links_to_its_runbook_section_and_every_section_has_an_alert() -> None:
    sections = re.findall(r"^## (\w+)$", (sources.ROOT / RUNBOOKS).read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in RULES]
    for rule in RULES:
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}#{rule['alert'].lower()}"


def test_every_runbook_section_has_the_parts_means_look_and_do() -> None:
    _, *parts = (sources.ROOT / RUNBOOKS).read_text().split("\n## ")
    for part in parts:
        assert re.findall(r"^\*\*(\w+)\*\*", part, re.MULTILINE) == ["Means", "Look", "Do"], part[:40]
