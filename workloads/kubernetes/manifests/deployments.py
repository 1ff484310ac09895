"""A service is a Deployment of one pod, a Service in front of it, and an Ingress or HTTPRoute where the cluster has one.
`Recreate`: two pods never request the card at the same time. The pods have no finalizer: they come and go with the Deployment.
"""

from __future__ import annotations

from typing import Any

from workloads.kubernetes.manifests.labels import SUBMISSION, label
from workloads.kubernetes.manifests.options import Options
from workloads.kubernetes.manifests.pods import pod
from workloads.runtime.base import RunSpec

Json = dict[str, Any]
PORT_NAME = "http"


def deployment(spec: RunSpec, options: Options) -> Json:
    """The Deployment of a service. Raises Unsupported."""
    made = pod(spec, options)
    meta, body = made["metadata"], made["spec"]
    body["restartPolicy"] = "Always"
    body["containers"][0]["readinessProbe"] = probe(spec) | {"periodSeconds": 5, "timeoutSeconds": 2}
    selector = {SUBMISSION: label(spec.ref.submission_id)}
    named = {name: meta[name] for name in ("labels", "annotations")}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": spec.ref.name, "namespace": spec.ref.namespace, **named},
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": {"metadata": named, "spec": body},
        },
    }


def probe(spec: RunSpec) -> Json:
    if spec.setup.ready_path:
        return {"httpGet": {"path": spec.setup.ready_path, "port": PORT_NAME}}
    return {"tcpSocket": {"port": PORT_NAME}}


def route(spec: RunSpec, owner: Json, options: Options) -> Json | None:
    """The Ingress or HTTPRoute to the Service, depending on the cluster's options; None without either."""
    host = host_of(spec.workload_id, options)
    if not host:
        return None
    meta = {
        "name": spec.ref.name,
        "namespace": spec.ref.namespace,
        "labels": pod(spec, options)["metadata"]["labels"],
        "ownerReferences": [owner],
    }
    if options.gateway:
        namespace, _slash, name = options.gateway.rpartition("/")
        parent = {"name": name} | ({"namespace": namespace} if namespace else {})
        rule = {"backendRefs": [{"name": spec.ref.name, "port": spec.port}]}
        body: Json = {"parentRefs": [parent], "hostnames": [host], "rules": [rule]}
        return {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": meta,
            "spec": body,
        }
    backend = {"service": {"name": spec.ref.name, "port": {"name": PORT_NAME}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    body = {"ingressClassName": options.ingress_class, "rules": [{"host": host, "http": {"paths": paths}}]}
    if options.tls_secret:
        body["tls"] = [{"hosts": [host], "secretName": options.tls_secret}]
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta, "spec": body}


def host_of(workload_id: str, options: Options) -> str:
    """The host name of the service; the same for all attempts."""
    return f"{workload_id}.{options.service_domain}" if options.service_domain else ""


def url_of(workload_id: str, options: Options) -> str:
    """The service's public address; "" if the cluster has no ingress and the portal's proxy is used."""
    host = host_of(workload_id, options)
    return f"{options.service_scheme}://{host}/" if host else ""
