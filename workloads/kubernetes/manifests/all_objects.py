"""All Kubernetes objects of a run, for display."""

from __future__ import annotations

from typing import Any

from workloads.kubernetes.manifests.deployments import deployment, route
from workloads.kubernetes.manifests.gangs import job, pin
from workloads.kubernetes.manifests.network import owner_of, service
from workloads.kubernetes.manifests.options import Options
from workloads.kubernetes.manifests.pods import pod
from workloads.runtime.base import RunSpec

Json = dict[str, Any]


def objects(spec: RunSpec, options: Options) -> list[Json]:
    """All objects that the driver creates for a run, in that order, then the patch of each rank of a gang. Raises
    Unsupported."""
    if spec.kind == "distributed":
        made = job(spec, options)
        pins = [pin(spec, rank, options) for rank in range(spec.pods)]
        return [made, service(spec, _owner(made), options), *pins]
    if spec.kind == "service":
        made = deployment(spec, options)
        way = route(spec, _owner(made), options)
        return [made, service(spec, _owner(made), options), *([way] if way else [])]
    made = pod(spec, options)
    return [made, *([service(spec, _owner(made), options)] if spec.port is not None else [])]


def _owner(made: Json) -> Json:
    return owner_of(made | {"metadata": made["metadata"] | {"uid": "(given by the cluster)"}})
