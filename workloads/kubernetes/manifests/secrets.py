"""The Secret of a run: the user's secret variables, and the token that opens a notebook."""

from __future__ import annotations

from typing import Any

from workloads.kubernetes.manifests.labels import labels
from workloads.kubernetes.manifests.options import Options
from workloads.runtime.base import RunSpec, secrets_of
from workloads.runtime.expansion import escaped

Json = dict[str, Any]


def secret(spec: RunSpec, owner: Json, options: Options) -> Json | None:
    """Has the name of the run. It is created after its owner, so that it is deleted together with it; the container waits
    for it. None for a run without secrets, as most are.

    Immutable, so that the kubelet need not watch it.
    """
    hidden = secrets_of(spec)
    if not hidden:
        return None
    meta = {"name": spec.ref.name, "namespace": spec.ref.namespace, "labels": labels(spec, options)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": meta | {"ownerReferences": [owner]},
        "immutable": True,
        "stringData": hidden,
    }


def variables(spec: RunSpec, env: Json) -> list[Json]:
    """A container's `env`: plain values as they are (Kubernetes would rewrite some), secret ones by reference."""
    hidden = secrets_of(spec)

    def one(name: str, value: str) -> Json:
        if name in hidden and hidden[name] == value:
            return {"name": name, "valueFrom": {"secretKeyRef": {"name": spec.ref.name, "key": name}}}
        return {"name": name, "value": escaped(value)}

    return [one(name, value) for name, value in sorted(env.items())]
