"""Clients that request pods and watch for them: the cluster's administrator, Kueue, and the portal by its REST API."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import urllib3

from bench._installation import ROOT, Installation, wait

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
THREADS, SMALL = 16, 32  # SMALL: cards of each small pool, for the reclaims
SMALLS = {"portal": "Pretended-Small", "kueue": "Pretended-Kueue"}
Pod = str  # the name of the job or workload that it belongs to


class Requests:
    """The cluster's administrator with persistent connections, and when a watch has first reported each pod (`seen`)."""

    def __init__(self, made: Installation) -> None:
        import ssl

        self.server, self.seen, self.over = made.admin.server, dict[Pod, float](), threading.Event()
        tls: ssl.SSLContext = made.admin.tls
        self.pool = urllib3.PoolManager(num_pools=2, maxsize=40, block=True, ssl_context=tls, retries=False)
        self.plain, self.etcd = urllib3.PoolManager(), _option(made.info["pids"]["etcd"], "--listen-client-urls")

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body)
        answer = self.pool.request(
            method, self.server + path, body=data, headers={"Content-Type": "application/json"},
            retries=False if method == "POST" else 2,  # the server closes idle connections
        )  # fmt: skip
        if answer.status not in (200, 201, 202, 409, 504):  # after 504 the server goes on with the request
            raise SystemExit(f"{method} {path}: {answer.status} {answer.data[:500]!r}")
        return json.loads(answer.data)

    def watch(self) -> None:
        """Watches until `over`. A broken stream (the server closes slow readers) is resumed where it ended."""
        version = self.call("GET", "/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
        while not self.over.is_set():
            rest = b""
            with contextlib.suppress(urllib3.exceptions.HTTPError, OSError):
                path = f"{self.server}/api/v1/pods?watch=1&resourceVersion={version}"
                patience = urllib3.Timeout(connect=5, read=3600)
                answer = self.pool.request("GET", path, preload_content=False, timeout=patience)
                for chunk in answer.stream(65536):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for event in map(orjson.loads, lines):
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] == "ADDED":
                            self.note(event["object"]["metadata"], time.time())
            time.sleep(0.05)

    def note(self, meta: dict[str, Any], now: float) -> None:
        labels = meta.get("labels") or {}
        self.seen.setdefault(labels.get("gpu-quota-portal/workload") or labels.get("job-name") or meta["name"], now)

    def count(self) -> int:
        """The number of pods that exist, counted by etcd itself, so without the delay of a watch or cache."""
        first, behind = (base64.b64encode(key).decode() for key in (b"/registry/pods/", b"/registry/pods0"))
        body = json.dumps({"key": first, "range_end": behind, "count_only": True})
        return int(json.loads(self.plain.request("POST", self.etcd + "/v3/kv/range", body=body).data).get("count", 0))

    def await_pods(self, names: Iterable[Pod], seconds: float = 300) -> float:
        """Waits for these pods; the time at which the last of them was seen."""
        names = list(names)
        try:
            wait(f"{len(names)} pods", lambda: all(name in self.seen for name in names), seconds)
        except SystemExit:
            show_missing([name for name in names if name not in self.seen])
            raise
        return max(self.seen[name] for name in names)


def _option(pid: int, name: str) -> str:
    """The value of an option with which a process was started."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return next(word.partition("=")[2] for word in words if word.startswith(name + "="))


def job(namespace: str, name: str, product: str) -> dict[str, Any]:
    container = {"name": "main", "image": "python:3.11", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    spec["nodeSelector"] = {"nvidia.com/gpu.product": product}
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"suspend": True, "parallelism": 1, "completions": 1, "backoffLimit": 0, "template": {"spec": spec}},
    }


class Kueue:
    def __init__(self, made: Installation, api: Requests) -> None:
        sys.path.insert(0, str(ROOT / "tests/cluster/operators"))
        import up

        self.api = api
        up.start_kueue(Path(made.info["state"]), made.admin.call)

    def queue(self, name: str, cohort: str, units: int) -> None:
        flavors = [{"name": "default", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": str(units)}]}]
        spec = {
            "cohortName": cohort,
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}],
        }
        version, meta = "kueue.x-k8s.io/v1beta2", {"name": name}
        self.api.call(
            "POST", f"{KUEUE}/clusterqueues",
            {"apiVersion": version, "kind": "ClusterQueue", "metadata": meta, "spec": spec},
        )  # fmt: skip
        self.api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        local = {"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": "q", "namespace": name}}
        self.api.call("POST", f"{KUEUE}/namespaces/{name}/localqueues", local | {"spec": {"clusterQueue": name}})

    def submit(self, queue: str, name: str, product: str = "Pretended-GPU") -> Pod:
        self.api.call("POST", f"/apis/batch/v1/namespaces/{queue}/jobs", job(queue, name, product))
        return name

    def clear(self, queue: str) -> None:
        path = f"/apis/batch/v1/namespaces/{queue}/jobs"
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}

        def gone() -> bool:
            told = self.api.call("DELETE", path, body)
            return told["kind"] != "Status" and not told["items"]

        wait("Kueue's jobs gone", gone, 300)
        wait("Kueue's pods gone", lambda: not self.api.call("GET", f"/api/v1/namespaces/{queue}/pods?limit=1")["items"])


class Portal:
    """Client of the portal's REST API, with the departments vision and nlp and a token of a member of each."""

    def __init__(self, made: Installation) -> None:
        from quotas.models import Pool
        from tests import builders as make
        from tests.clients import token_of
        from workloads.models import Image

        self.made, self.local = made, threading.local()
        Image.objects.create(name="python:3.11", title="Python")
        self.tokens: dict[str, str] = {}
        self.pools = {pool.product: pool.slug for pool in Pool.objects.all()}
        Pool.objects.update(notice=0, grace=0)
        for name in ("vision", "nlp"):
            department = make.department(name)
            for pool in Pool.objects.all():
                make.quota(department, pool, pool.nominal // 2)
            self.tokens[name] = token_of(make.member(department), department, ["read", "submit"])[1]
        self.http = urllib3.PoolManager(num_pools=2, maxsize=40, block=True, retries=False)

    def submit(self, department: str, name: str, product: str = "Pretended-GPU") -> Pod:
        body = {"kind": "job", "image": "python:3.11", "command": ["python", "train.py"], "units_per_pod": 1}
        body |= {"pool": self.pools[product], "name": name}
        answer = self.http.request(
            "POST", f"{self.made.base}/departments/{department}/workloads/", body=json.dumps(body),
            headers={"Authorization": f"Bearer {self.tokens[department]}", "Content-Type": "application/json"},
        )  # fmt: skip
        if answer.status != 202:
            raise SystemExit(f"{answer.status}: {answer.data[:500]!r}")
        return str(json.loads(answer.data)["id"])


def show_missing(names: list[Pod]) -> None:
    """Prints the states of the workloads of which no pod was seen."""
    from django.db.models import Count

    from workloads.models import Attempt

    rows = Attempt.objects.filter(workload__public_id__in=names)
    columns = ("workload__state", "claim__state", "claim__decision", "reason")
    for *where, count in rows.values_list(*columns).annotate(Count("pk")):
        print(f"    missing: {count} of {len(names)}: {where}", flush=True)
