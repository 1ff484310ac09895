"""Services, which give names to listening pods, and references to owners."""

from __future__ import annotations

from typing import Any

from workloads.kubernetes.manifests.labels import SUBMISSION, label, labels
from workloads.kubernetes.manifests.options import Options
from workloads.runtime.base import RunSpec
from workloads.runtime.rank_environment import PORT

Json = dict[str, Any]


def owner_of(owner: Json) -> Json:
    """The owner reference by which an object is deleted together with `owner`."""
    meta = owner["metadata"]
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}


def service(spec: RunSpec, owner: Json, options: Options) -> Json:
    """The Service of a run, deleted together with its owner. For a service workload it has a cluster IP, which stays; for
    others it is headless, and its name resolves to each pod as soon as the pod has an address, ready or not."""
    port: Json = (
        {"name": "rendezvous", "port": PORT} if spec.kind == "distributed" else {"name": "http", "port": spec.port}
    )
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
            "ports": [port | {"targetPort": port["port"]}],
        },
    }
