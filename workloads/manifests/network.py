"""Services: a name for what listens."""

from __future__ import annotations

from typing import Any

from workloads.clusters.base import RunSpec
from workloads.manifests.labels import SUBMISSION, label, labels
from workloads.manifests.options import Options

Json = dict[str, Any]


def owner_of(found: Json) -> Json:
    """The reference that makes an object go with the one that was `found`."""
    meta = found["metadata"]
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "name": meta["name"], "uid": meta["uid"]}


def service(spec: RunSpec, owner: Json, options: Options) -> Json:
    """A name for what listens in the pod; it goes with its owner. A service's has an address of its own, which stays."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": spec.ref.name,
            "namespace": spec.ref.namespace,
            "labels": labels(spec, options),
            "ownerReferences": [owner],
        },
        "spec": {
            **({} if spec.kind == "service" else {"clusterIP": "None", "publishNotReadyAddresses": True}),
            "selector": {SUBMISSION: label(spec.ref.submission_id)},
            "ports": [{"name": "http", "port": spec.port, "targetPort": spec.port}],
        },
    }
