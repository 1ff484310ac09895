"""Dynamic resource allocation: ResourceSlices of nodes, ResourceClaims of pods, and objects beside pods.

A cluster without the API group (before Kubernetes 1.34), or where the portal may not read it, counts as having none of them.
"""

from __future__ import annotations

from typing import Any

from workloads import sharing
from workloads.kubernetes.api import PAGE, Api
from workloads.runtime.base import Refused, Unreachable

GROUP = "/apis/resource.k8s.io/v1"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PLURALS = {"ResourceClaim": "resourceclaims", "ResourceClaimTemplate": "resourceclaimtemplates"}

Json = dict[str, Any]


def slices(api: Api) -> list[Json]:
    path = f"{GROUP}/resourceslices"
    answer = api.call("GET", path, limit=PAGE)
    if not answer.ok:
        return []
    return api.list(path)[0] if answer.body["metadata"].get("continue") else list(answer.body["items"])


def with_slices(api: Api, nodes: list[Json]) -> list[Json]:
    return sharing.with_slices(nodes, slices(api))


def with_claims(api: Api, pods: list[Json]) -> list[Json]:
    """The pods; to those that name claims, the ResourceClaims of their namespace and all ResourceSlices are added."""
    namespaces = {pod["metadata"]["namespace"] for pod in pods if pod["spec"].get("resourceClaims")}
    if not namespaces:
        return pods
    known = slices(api)
    claims = {name: api.list(f"{GROUP}/namespaces/{name}/resourceclaims")[0] for name in sorted(namespaces)}
    return [
        pod | {"resourceClaims": claims[pod["metadata"]["namespace"]], "resourceSlices": known}
        if pod["spec"].get("resourceClaims")
        else pod
        for pod in pods
    ]


def ensure(api: Api, wanted: Json, owner: Json) -> None:
    """Create an object owned by `owner`, or add the owner to a shared one, which is deleted with its last owner.

    Raises Refused, Unreachable.
    """
    collection = f"{GROUP}/namespaces/{wanted['metadata']['namespace']}/{PLURALS[wanted['kind']]}"
    path = f"{collection}/{wanted['metadata']['name']}"
    existing = api.get(path)
    if existing is None:
        body = {**wanted, "metadata": {**wanted["metadata"], "ownerReferences": [owner]}}
        answer = api.call("POST", collection, body)
        if answer.ok:
            return
        if answer.status != 409:
            raise Refused(answer.message)
        existing = api.get(path) or {}
    if existing.get("metadata", {}).get("deletionTimestamp"):
        raise Unreachable(f"{path} is being deleted")  # a pod that uses it would wait forever
    owners = existing.get("metadata", {}).get("ownerReferences") or ()
    if any(one["uid"] == owner["uid"] for one in owners):
        return
    if wanted["kind"] != "ResourceClaim":
        raise Unreachable(f"{path} belongs to an older run that is going away")
    answer = api.call("PATCH", path, {"metadata": {"ownerReferences": [owner]}}, STRATEGIC_PATCH)
    if not answer.ok:
        raise Unreachable(answer.message)
