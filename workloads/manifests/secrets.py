"""What a run must know and nobody may read in its pod: the user's secret variables and the portal's tokens."""

from __future__ import annotations

import hashlib
from typing import Any

from workloads.clusters.base import RunSpec, secrets_of
from workloads.manifests.labels import DEPARTMENT, INSTANCE, MANAGED_BY, PREFIX, USER, label, labels
from workloads.manifests.options import Options

Json = dict[str, Any]
READY_TOKEN = "PORTAL_READY_TOKEN"  # noqa: S105 its name


def common_secret(spec: RunSpec, options: Options) -> Json | None:
    """The one Secret of all jobs of an author in a department, made before the first of them and kept.

    None for a run that has secrets of its own."""
    if not _is_common(spec):
        return None
    marks = {
        INSTANCE: label(options.instance),
        MANAGED_BY: PREFIX,
        DEPARTMENT: label(spec.department),
        USER: label(spec.user),
    }
    return _secret({"name": _name(spec), "namespace": spec.ref.namespace, "labels": marks}, spec)


def _is_common(spec: RunSpec) -> bool:
    """It knows nothing but the ready token, which is its author's (workloads/specs.py)."""
    return spec.kind == "job" and set(secrets_of(spec)) == {READY_TOKEN}


def _name(spec: RunSpec) -> str:
    """A common one is named by its token: another token is another Secret."""
    return f"ready-{hashlib.sha256(spec.ready_token.encode()).hexdigest()[:24]}" if _is_common(spec) else spec.ref.name


def secret(spec: RunSpec, owner: Json, options: Options) -> Json:
    """Named as the run, made after the object that owns it (so that it goes with it): a container waits for it.

    Immutable, so that the kubelet need not watch it.
    """
    meta = {"name": spec.ref.name, "namespace": spec.ref.namespace, "labels": labels(spec, options)}
    return _secret(meta | {"ownerReferences": [owner]}, spec)


def _secret(meta: Json, spec: RunSpec) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": meta,
        "immutable": True,
        "stringData": secrets_of(spec),
    }


def variables(spec: RunSpec, env: Json) -> list[Json]:
    """A container's `env`: plain values as they are, secret ones by reference."""
    hidden = secrets_of(spec)

    def one(name: str, value: str) -> Json:
        if name in hidden and hidden[name] == value:
            return {"name": name, "valueFrom": {"secretKeyRef": {"name": _name(spec), "key": name}}}
        return {"name": name, "value": value}

    return [one(name, value) for name, value in sorted(env.items())]
