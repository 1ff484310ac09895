"""Services: a name for what listens."""

from __future__ import annotations

from typing import Any

from workloads.clusters.base import RunSpec
from workloads.manifests.labels import SUBMISSION, label, labels
from workloads.manifests.options import Options

Json = dict[str, Any]


def service(spec: RunSpec, pod_uid: str, options: Options) -> Json:
    """A name for what listens in the pod; owned by the pod, so that it goes with it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": spec.ref.name, "uid": pod_uid}
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
            "clusterIP": "None",
            "selector": {SUBMISSION: label(spec.ref.submission_id)},
            "ports": [{"name": "http", "port": spec.port, "targetPort": spec.port}],
        },
    }
