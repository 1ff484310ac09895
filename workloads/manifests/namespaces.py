"""A department's namespace."""

from __future__ import annotations

from typing import Any

from workloads.manifests.labels import DEPARTMENT, INSTANCE, MANAGED_BY, PREFIX, label
from workloads.manifests.options import Options

Json = dict[str, Any]


def namespace(name: str, department: str, options: Options) -> Json:
    """One a department. Whoever enters it, `restricted` holds."""
    marks = {MANAGED_BY: PREFIX, INSTANCE: label(options.instance), DEPARTMENT: label(department)}
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks | level}}
