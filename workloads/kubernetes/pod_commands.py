"""What the driver does to one pod: announce the reclaim time, stop it, remove it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from workloads.kubernetes import pod_status
from workloads.kubernetes.api import MERGE_PATCH, Api
from workloads.kubernetes.manifests import FINALIZER, RECLAIM_AT, STOPPED_AT
from workloads.runtime.base import Unreachable

Json = dict[str, Any]
UNHEARD = dt.timedelta(seconds=20)  # beyond the pod's grace; after that its kubelet has missed the deadline
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


def path_of(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class Orders:
    """Each command may be repeated, and does nothing to a pod that is gone or to another one with that name (other uid)."""

    api: Api

    def announce(self, pod: Json, reclaim_at: dt.datetime | None) -> None:
        text = written(reclaim_at)
        self.patch(path_of(pod), {"metadata": {"uid": pod["metadata"]["uid"], "annotations": {RECLAIM_AT: text}}})

    def stop(self, pod: Json, grace: int) -> None:
        """Stop by a deadline, which keeps exit code and log; by a delete if the pod is on no node, the grace is shorter than the
        pod's own, or the deadline had no effect."""
        if pod_status.is_over(pod):
            return
        meta, spec = pod["metadata"], pod["spec"]
        stopped_at, at = meta["annotations"].get(STOPPED_AT) or now(), dt.datetime.fromisoformat
        heeded_by = at(stopped_at) + dt.timedelta(seconds=spec["terminationGracePeriodSeconds"]) + UNHEARD
        patch: Json = {"metadata": {"uid": meta["uid"], "annotations": {STOPPED_AT: stopped_at}}}
        in_time = max(1, grace) >= spec["terminationGracePeriodSeconds"] and at(now()) < heeded_by
        by_deadline = spec.get("nodeName") and in_time
        if by_deadline:
            patch["spec"] = {"activeDeadlineSeconds": 1}
        self.patch(path_of(pod), patch)
        if not by_deadline:
            self.delete(path_of(pod), meta["uid"], max(1, grace))

    def remove(self, pod: Json) -> None:
        """Delete the pod. Only the portal's finalizer is removed: a controller may be removing its own at this moment."""
        uid = pod["metadata"]["uid"]
        without = {"uid": uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}
        self.patch(path_of(pod), {"metadata": without}, STRATEGIC_PATCH)
        self.delete(path_of(pod), uid, 0)

    def create_secret(self, secret: Json | None) -> None:
        """Creates the Secret without reading it first: the portal's account may create secrets but not read them."""
        if secret is None:
            return
        answer = self.api.call("POST", f"/api/v1/namespaces/{secret['metadata']['namespace']}/secrets", secret)
        if not answer.ok and answer.status != 409:
            raise Unreachable(answer.message)

    def patch(self, path: str, patch: Json, content_type: str = MERGE_PATCH) -> None:
        answer = self.api.call("PATCH", path, patch, content_type)
        if not answer.ok and answer.status not in (404, 409, 422):
            raise Unreachable(answer.message)

    def delete(self, path: str, uid: str, grace: int | None = None, **options: Any) -> None:
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}, **options}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        answer = self.api.call("DELETE", path, body)
        if not answer.ok and answer.status not in (404, 409):
            raise Unreachable(answer.message)


def written(at: dt.datetime | None) -> str | None:
    """The time as Kubernetes writes it: in UTC, to the second."""
    return None if at is None else at.astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
