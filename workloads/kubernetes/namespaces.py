"""Keep a department's namespace on Kubernetes, and the portal's objects in it, in their desired state. By server-side apply:
an object in that state is not written again, and what others added stays.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from workloads.kubernetes import manifests
from workloads.kubernetes.api import Api
from workloads.kubernetes.manifests import PREFIX, Options, namespace_limits
from workloads.kubernetes.manifests.labels import LEVEL
from workloads.kubernetes.manifests.namespaces import marks_of
from workloads.runtime.base import Home, Refused, Unreachable

Json = dict[str, Any]
APPLY = "application/apply-patch+yaml"
MANAGER = PREFIX
COUNTED = 10.0  # s between two recounts of a quota, at least
REMEMBERED = 60.0  # s that this process trusts what it wrote: another process may have written since
PLURALS = {"ResourceQuota": "resourcequotas", "LimitRange": "limitranges", "NetworkPolicy": "networkpolicies"}


@dataclass(slots=True)
class Homes:
    api: Api
    options: Options
    _kept: dict[str, tuple[Home, float]] = field(default_factory=dict)
    _open: set[tuple[str, str, bool]] = field(default_factory=set)  # name, department, unrestricted
    _counted: dict[str, float] = field(default_factory=dict)
    _classes: bool = False

    def keep(self, home: Home, *, fresh: bool = False) -> None:
        """Apply the namespace and its objects; with `fresh` even if they are known to be up to date, because the quota
        refused a pod.

        Raises Unreachable, or Refused("name_taken") for a namespace that is not the portal's.
        """
        known = self._kept.get(home.namespace)
        if known and known[0] == home and not fresh and time.monotonic() - known[1] < REMEMBERED:
            return
        self.open(home.namespace, home.department, unrestricted=home.unrestricted)
        if fresh:
            self._count_anew(home)
        for obj in namespace_limits.namespace_objects(home, self.options):
            self._apply(obj)
        self._kept[home.namespace] = (home, time.monotonic())

    def _count_anew(self, home: Home) -> None:
        """Make the API server recount the ResourceQuota by changing its limits for a moment.
        Otherwise a pod whose creation was aborted stays counted until the next recount, up to five minutes later.
        """
        if time.monotonic() - self._counted.get(home.namespace, -COUNTED) < COUNTED:
            return
        self._counted[home.namespace] = time.monotonic()
        more = {name: most + 1 for name, most in home.hard.items()}
        self._apply(namespace_limits.quota(replace(home, hard=more), self.options))

    def forget(self, name: str) -> None:
        """Forgets a namespace that is gone or being deleted."""
        self._open = {place for place in self._open if place[0] != name}
        self._kept.pop(name, None)

    def open(self, name: str, department: str, *, unrestricted: bool = False) -> None:
        """Creates the namespace and the priority class if they do not exist."""
        if (name, department, unrestricted) in self._open:
            return
        wanted = manifests.namespace(name, department, self.options, unrestricted=unrestricted)
        namespace = self.api.get(f"/api/v1/namespaces/{name}")
        if namespace is None:
            answer = self.api.call("POST", "/api/v1/namespaces", wanted)
            if not answer.ok and answer.status != 409:
                raise Refused(answer.message)
            namespace = answer.body if answer.ok else (self.api.get(f"/api/v1/namespaces/{name}") or {"metadata": {}})
        marks = namespace["metadata"].get("labels") or {}
        own = marks_of(department, self.options, unrestricted=unrestricted)
        if any(marks.get(name) != value for name, value in (own | {LEVEL: own.get(LEVEL)}).items()):
            raise Refused(f"the namespace {name} is not the portal's for {department}", code="name_taken")
        self._classify()
        self._open.add((name, department, unrestricted))

    def _classify(self) -> None:
        if self._classes:
            return
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        if self.api.get(f"{path}/{namespace_limits.PRIORITY_CLASS}") is None:
            answer = self.api.call("POST", path, namespace_limits.priority_class(self.options))
            if not answer.ok and answer.status != 409:
                raise Refused(answer.message)
        self._classes = True

    def _apply(self, obj: Json) -> None:
        base = "/api/v1" if obj["apiVersion"] == "v1" else f"/apis/{obj['apiVersion']}"
        meta = obj["metadata"]
        path = f"{base}/namespaces/{meta['namespace']}/{PLURALS[obj['kind']]}/{meta['name']}"
        answer = self.api.call("PATCH", path, obj, APPLY, fieldManager=MANAGER, force="true")
        if not answer.ok:
            self.forget(meta["namespace"])
            raise Unreachable(f"{obj['kind']} of {meta['namespace']}: {answer.message}")
