"""Nodes' labels and the plugins' configurations on a Kubernetes cluster. Needs the rights that
`rbac.nodeChanges` of deploy/helm grants; without them the portal shows the API server's refusal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from workloads.kubernetes.api import MERGE_PATCH, Answer, Api
from workloads.kubernetes.manifests import Options
from workloads.runtime.base import Refused, Unreachable


class NodeKeeper:
    """`which` is "plugin" (NVIDIA's device plugin) or "mig" (its mig-manager)."""

    def __init__(self, api: Api, options: Options) -> None:
        self._api, self._options = api, options

    def labels(self, node: str) -> dict[str, str]:
        answer = self._done(self._api.call("GET", f"/api/v1/nodes/{node}"))
        return dict(answer.body["metadata"].get("labels") or {})

    def set_labels(self, node: str, labels: Mapping[str, str | None]) -> None:
        self._done(self._api.call("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}}, MERGE_PATCH))

    def may_write(self, which: str) -> bool:
        return bool(self._place(which))

    def config(self, which: str) -> dict[str, str]:
        answer = self._api.call("GET", self._path(which))
        return {} if answer.status == 404 else dict(self._done(answer).body.get("data") or {})

    def write_config(self, which: str, data: Mapping[str, str]) -> None:
        """Write these keys and leave the others as they are."""
        answer = self._api.call("PATCH", self._path(which), {"data": data}, MERGE_PATCH)
        if answer.status == 404:
            namespace, name = self._place(which).split("/")
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}
            answer = self._api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)
        self._done(answer)

    def restarted(self, which: str, node: str, since: dt.datetime) -> bool:
        """Whether the pods on the node have restarted since then. A pod reads the ConfigMap only as it was mounted: older pods
        are deleted, and their DaemonSet creates new ones."""
        namespace, _, selector = (
            self._options.plugin_pods if which == "plugin" else self._options.mig_manager_pods
        ).partition("/")
        path = f"/api/v1/namespaces/{namespace}/pods"
        pods, _version = self._api.list(path, labelSelector=selector, fieldSelector=f"spec.nodeName={node}")
        if not pods:
            return not self._expects(since)
        fresh = [pod for pod in pods if _created(pod) >= since.replace(microsecond=0)]
        for pod in pods:
            if pod not in fresh and not pod["metadata"].get("deletionTimestamp"):
                body = {"preconditions": {"uid": pod["metadata"]["uid"]}}
                answer = self._api.call("DELETE", f"{path}/{pod['metadata']['name']}", body)
                if answer.status not in (404, 409):
                    self._done(answer)
        return len(fresh) == len(pods) and all(_is_ready(pod) for pod in fresh)

    def _expects(self, since: dt.datetime) -> bool:
        """Whether a new pod may still be created, soon after the old one was deleted; later it is clear that none runs here."""
        return dt.datetime.now(dt.UTC) < since + dt.timedelta(seconds=20)

    def _place(self, which: str) -> str:
        return self._options.plugin_config if which == "plugin" else self._options.mig_config

    def _path(self, which: str) -> str:
        namespace, _, name = self._place(which).partition("/")
        if not name:
            raise Refused(f"the cluster's options name no ConfigMap for {which}", code="no_config_map")
        return f"/api/v1/namespaces/{namespace}/configmaps/{name}"

    def _done(self, answer: Answer) -> Answer:
        if answer.ok:
            return answer
        if answer.status in (404, 409):
            raise Unreachable(answer.message)  # it is being deleted or changed just now
        raise Refused(answer.message)


def _created(pod: Mapping[str, Any]) -> dt.datetime:
    return dt.datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
