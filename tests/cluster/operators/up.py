"""Kueue as a plain process beside a cluster of the kit, for comparisons. CRDs and webhooks come from its own module; the
webhooks are pointed at a URL instead of a service. The binary is built into the kit's cache when first asked for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from devcluster import alone, cache_root  # noqa: E402
from processes import Processes, free_port, sh, wait  # noqa: E402

METRICS = Path("/etc/kueue/metrics/certs")  # Kueue ends without a certificate there, though no metrics are served
CONFIGURATION = """apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
health: {{healthProbeBindAddress: "127.0.0.1:{health}"}}
metrics: {{bindAddress: "0"}}
webhook: {{host: 127.0.0.1, port: {webhook}, certDir: {folder}}}
leaderElection: {{leaderElect: false}}
controller:
  groupKindConcurrency: {{Job.batch: 5, Pod: 5, Workload.kueue.x-k8s.io: 10, LocalQueue.kueue.x-k8s.io: 5,
    Cohort.kueue.x-k8s.io: 1, ClusterQueue.kueue.x-k8s.io: 5, ResourceFlavor.kueue.x-k8s.io: 1}}
clientConnection: {{qps: 300, burst: 500}}
internalCertManagement: {{enable: false}}
integrations: {{frameworks: ["batch/job"]}}
"""


def binary() -> Path:
    """Built from the module's fixed versions unless the cache has it: 20 s with a warm Go cache, minutes without."""
    digest = hashlib.sha256((HERE / "go.mod").read_bytes() + (HERE / "go.sum").read_bytes()).hexdigest()[:12]
    target = cache_root() / f"kueue-{digest}" / "kueue"
    with alone("build-kueue"):
        if not target.exists():
            if not shutil.which("go"):
                raise SystemExit("missing: Go 1.26 or newer (https://go.dev/dl/), which builds Kueue")
            environment = os.environ | {
                "CGO_ENABLED": "0",
                "GOTOOLCHAIN": "local",
                "GOFLAGS": "-trimpath -mod=readonly",
            }
            command = ["go", "build", "-ldflags", "-s -w", "-o", str(target), "sigs.k8s.io/kueue/cmd/kueue"]
            subprocess.run(command, cwd=HERE, env=environment, check=True, stdout=sys.stderr)
    return target


def sources() -> Path:
    """Kueue's own files, as the Go module cache has them."""
    command = ["go", "mod", "download", "-json", "sigs.k8s.io/kueue"]
    told = subprocess.run(command, cwd=HERE, capture_output=True, check=True).stdout
    return Path(json.loads(told)["Dir"]) / "config/components"


def certificate(pki: Path) -> str:
    """Of the webhooks, signed by the cluster's authority; gives the authority in base64."""
    folder = pki / "webhook"
    folder.mkdir()
    (pki / "webhook.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    request = pki / "webhook.csr"
    sh("openssl", "req", "-new", *key, "-keyout", folder / "tls.key", "-out", request, "-subj", "/CN=kueue-webhook")
    sign = ("-CA", pki / "ca.crt", "-CAkey", pki / "ca.key", "-CAcreateserial", "-days", "30")
    sh("openssl", "x509", "-req", "-in", request, "-out", folder / "tls.crt", *sign, "-extfile", pki / "webhook.ext")
    METRICS.mkdir(parents=True, exist_ok=True)
    for name in ("tls.crt", "tls.key"):
        shutil.copy(folder / name, METRICS)
    return base64.b64encode((pki / "ca.crt").read_bytes()).decode()


def start(state: Path, call: Any) -> int:
    """Starts it on the cluster of `state`; `call(method, path, body)` is its administrator. Gives the process id."""
    components = sources()
    for file in sorted((components / "crd/bases").glob("*.yaml")):
        crd = yaml.safe_load(file.read_text())
        for version in crd["spec"]["versions"]:
            version["served"] = version["storage"]
        crd["spec"].pop("conversion", None)
        call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    authority, webhook, health = certificate(state / "pki"), free_port(), free_port()
    (state / "kueue.yaml").write_text(
        CONFIGURATION.format(webhook=webhook, health=health, folder=state / "pki/webhook")
    )
    group = "/apis/kueue.x-k8s.io/v1beta2"
    wait("Kueue's kinds", lambda: "workloads" in [kind["name"] for kind in call("GET", group)["resources"]])
    time.sleep(2)  # the list of all kinds, which is what Kueue asks for, comes a moment later
    os.environ["KUBECONFIG"] = str(state / "admin.kubeconfig")
    processes = Processes(state)
    gates = "--feature-gates=VisibilityOnDemand=false"
    processes.spawn("kueue", binary(), "--config", state / "kueue.yaml", gates, "--zap-log-level=1")
    for document in yaml.safe_load_all((components / "webhook/manifests.yaml").read_text()):
        call("POST", _home(document), _by_url(document, f"https://127.0.0.1:{webhook}", authority))
    queue = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"}}
    wait("Kueue", lambda: call("POST", queue, flavor).get("metadata", {}).get("name") == "default", 60)
    time.sleep(2)  # its caches
    return processes.pids["kueue"]


def _home(document: dict[str, Any]) -> str:
    return f"/apis/admissionregistration.k8s.io/v1/{document['kind'].lower()}s"


def _by_url(document: dict[str, Any], base: str, authority: str) -> dict[str, Any]:
    """Only the webhooks of Kueue's own kinds and of Jobs, by URL."""
    hooks = []
    for hook in document["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        if "kueue-x-k8s-io" in path or "batch-v1-job" in path:
            hooks.append(hook | {"clientConfig": {"url": base + path, "caBundle": authority}})
    return document | {"webhooks": hooks, "metadata": {"name": "kueue-" + document["metadata"]["name"]}}
