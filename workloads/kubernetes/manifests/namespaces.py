"""A department's namespaces."""

from __future__ import annotations

from typing import Any

from workloads.kubernetes.manifests.labels import DEPARTMENT, INSTANCE, LEVEL, MANAGED_BY, PREFIX, label
from workloads.kubernetes.manifests.options import Options

Json = dict[str, Any]
RESTRICTED, UNRESTRICTED = "restricted", "privileged"


def namespace(name: str, department: str, options: Options, *, unrestricted: bool = False) -> Json:
    """A department has one namespace, and a second one where an operator allows it more than `restricted`. IPC_LOCK exceeds
    `baseline` too, so the level there is `privileged`; no pod of the portal needs more than IPC_LOCK."""
    level = UNRESTRICTED if unrestricted else RESTRICTED
    marks = marks_of(department, options, unrestricted=unrestricted)
    security = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks | security}}


def marks_of(department: str, options: Options, *, unrestricted: bool = False) -> dict[str, str]:
    """Labels that identify the department's namespace, and which of its two it is."""
    marks = {MANAGED_BY: PREFIX, INSTANCE: label(options.instance), DEPARTMENT: label(department)}
    return marks | ({LEVEL: UNRESTRICTED} if unrestricted else {})
