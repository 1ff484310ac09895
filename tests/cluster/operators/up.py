"""Kueue and operators of training jobs as plain processes on a cluster of the kit. Kinds and webhooks are those of their own
modules; the webhooks are called by URL instead of through a service. A binary is built into the kit's cache on first use;
`python up.py` builds all.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from devcluster import alone, cache_root  # noqa: E402
from processes import Processes, free_port, sh, wait  # noqa: E402

Json = dict[str, Any]
Call = Callable[[str, str, Any], Json]
CERTIFICATE = "k8s-webhook-server/serving-certs"  # the default path below TMPDIR
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
METRICS = Path("/etc/kueue/metrics/certs")  # Kueue exits without a certificate there, though no metrics are served
KUEUE = """apiVersion: config.kueue.x-k8s.io/v1beta2
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
JOBSET = """apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
health: {{healthProbeBindAddress: "127.0.0.1:{health}"}}
metrics: {{bindAddress: "0", certDir: {folder}}}
webhook: {{host: 127.0.0.1, port: {webhook}, certDir: {folder}}}
leaderElection: {{leaderElect: false}}
internalCertManagement: {{enable: false}}
"""
TRAINER = """apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
health: {{healthProbeBindAddress: "127.0.0.1:{health}"}}
metrics: {{bindAddress: "0", secureServing: false}}
webhook: {{host: 127.0.0.1, port: {webhook}}}
leaderElection: {{leaderElect: false}}
certManagement: {{enable: false}}
"""


@dataclass(frozen=True)
class Operator:
    """`package`: its main package in `module`, whose version is pinned in the folder `built`. `kinds` and `webhooks`: where the
    module has the definitions of its kinds and its webhooks; only webhooks whose path contains one of `called` are installed.
    `configuration` and `arguments` have the placeholders {config} for the file of the former, {kubeconfig}, {health} and
    {webhook} for ports, {folder} for the webhooks' certificate."""

    name: str
    module: str
    package: str
    kinds: str
    arguments: tuple[str, ...]
    configuration: str = ""
    webhooks: str = ""
    called: tuple[str, ...] = ()
    built: str = "common"
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        return HERE / self.built

    def binary(self) -> Path:
        """Built from the module's pinned versions unless the cache has it: 20 s with a warm Go cache, minutes without."""
        digest = hashlib.sha256(b"".join((self.folder / file).read_bytes() for file in ("go.mod", "go.sum")))
        target = cache_root() / f"{self.name}-{digest.hexdigest()[:12]}" / self.name
        with alone(f"build-{self.name}"):
            if not target.exists():
                if not shutil.which("go"):
                    raise SystemExit(f"missing: Go 1.26 or newer (https://go.dev/dl/), which builds {self.name}")
                fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-trimpath -mod=readonly"}
                command = ["go", "build", "-ldflags", "-s -w", "-o", str(target), self.module + self.package]
                subprocess.run(command, cwd=self.folder, env=os.environ | fixed, check=True, stdout=sys.stderr)
        return target

    def sources(self) -> Path:
        """The module's own files, in the Go module cache."""
        command = ["go", "mod", "download", "-json", self.module]
        told = subprocess.run(command, cwd=self.folder, capture_output=True, check=True).stdout
        return Path(json.loads(told)["Dir"])

    def start(self, state: Path, call: Call) -> None:
        """Starts it on the cluster of `state`; `call(method, path, body)` acts as its administrator."""
        program, sources = self.binary(), self.sources()
        _define(sorted(sources.glob(self.kinds)), call)
        words = {"kubeconfig": state / "admin.kubeconfig", "health": free_port(), "webhook": free_port(),
                 "folder": state / "pki" / CERTIFICATE, "config": state / f"{self.name}.yaml"}  # fmt: skip
        authority = certificate(state / "pki") if self.webhooks else ""
        (state / f"{self.name}.yaml").write_text(self.configuration.format(**words))
        given = {"KUBECONFIG": str(words["kubeconfig"]), "TMPDIR": str(state / "pki"), **dict(self.environment)}
        arguments = [each.format(**words) for each in self.arguments]
        Processes(state).spawn(self.name, program, *arguments, environment=given)
        if self.webhooks:
            for document in yaml.safe_load_all((sources / self.webhooks).read_text()):
                call(
                    "POST", _home(document), self._by_url(document, f"https://127.0.0.1:{words['webhook']}", authority)
                )

    def stop(self, state: Path, call: Call) -> None:
        """Stops it. Its kinds and their objects stay."""
        Processes(state).kill(self.name)
        if self.webhooks:
            for document in yaml.safe_load_all((self.sources() / self.webhooks).read_text()):
                call("DELETE", f"{_home(document)}/{self.name}-{document['metadata']['name']}", None)

    def _by_url(self, document: Json, base: str, authority: str) -> Json:
        hooks = []
        for hook in document["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            if any(word in path for word in self.called):
                hooks.append(hook | {"clientConfig": {"url": base + path, "caBundle": authority}})
        return document | {"webhooks": hooks, "metadata": {"name": f"{self.name}-{document['metadata']['name']}"}}


def _define(files: list[Path], call: Call) -> None:
    """Creates the kinds, served only in the version that is stored."""
    for file in files:
        kind = yaml.safe_load(file.read_text())
        if kind.get("kind") != "CustomResourceDefinition":
            continue
        for version in kind["spec"]["versions"]:
            version["served"] = version["storage"]
        kind["spec"].pop("conversion", None)
        call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind)
        group, names = kind["spec"]["group"], kind["spec"]["names"]
        stored = next(version["name"] for version in kind["spec"]["versions"] if version["storage"])

        def served(path: str = f"/apis/{group}/{stored}", plural: str = names["plural"]) -> bool:
            return plural in {each["name"] for each in call("GET", path, None)["resources"]}

        wait(names["kind"], served)
    time.sleep(2)  # operators query the list of all kinds, which is updated a moment later


def certificate(pki: Path) -> str:
    """Creates the webhooks' certificate, signed by the cluster's certificate authority; returns that authority in base64."""
    folder = pki / CERTIFICATE
    if not folder.exists():
        folder.mkdir(parents=True)
        (pki / "webhook.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n")
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        request = pki / "webhook.csr"
        sh("openssl", "req", "-new", *key, "-keyout", folder / "tls.key", "-out", request, "-subj", "/CN=webhooks")
        sign = ("-CA", pki / "ca.crt", "-CAkey", pki / "ca.key", "-CAcreateserial", "-days", "30")
        sh(
            "openssl",
            "x509",
            "-req",
            "-in",
            request,
            "-out",
            folder / "tls.crt",
            *sign,
            "-extfile",
            pki / "webhook.ext",
        )
    METRICS.mkdir(parents=True, exist_ok=True)
    for name in ("tls.crt", "tls.key"):
        shutil.copy(folder / name, METRICS)
    return base64.b64encode((pki / "ca.crt").read_bytes()).decode()


def _home(document: Json) -> str:
    return f"{ADMISSION}/{document['kind'].lower()}s"


WEBHOOKS, KINDS = "config/components/webhook/manifests.yaml", "config/components/crd/bases/*.yaml"
CONFIGURED = ("--config", "{config}")
OPERATORS = {operator.name: operator for operator in (
    Operator("kueue", "sigs.k8s.io/kueue", "/cmd/kueue", KINDS,
             (*CONFIGURED, "--feature-gates=VisibilityOnDemand=false", "--zap-log-level=1"), KUEUE, WEBHOOKS,
             ("kueue-x-k8s-io", "batch-v1-job")),
    Operator("jobset", "sigs.k8s.io/jobset", "", KINDS, CONFIGURED, JOBSET, WEBHOOKS, ("jobset-x-k8s-io",)),
    Operator("trainer", "github.com/kubeflow/trainer/v2", "/cmd/trainer-controller-manager", "manifests/base/crds/*.yaml",
             CONFIGURED, TRAINER, "manifests/base/webhook/manifests.yaml", ("trainer-kubeflow-org",)),
    Operator("mpi", "github.com/kubeflow/mpi-operator", "/cmd/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml",
             ("-kubeConfig={kubeconfig}", "-lock-namespace=default")),
    Operator("kuberay", "github.com/ray-project/kuberay/ray-operator", "", "config/crd/bases/*.yaml",
             ("--metrics-addr=0", "--health-probe-bind-address=127.0.0.1:{health}", "--enable-leader-election=false"),
             built="kuberay",  # needs older Kubernetes libraries than the others
             # The tests' pods do not run Ray, so worker pods must not wait for it.
             environment=(("ENABLE_INIT_CONTAINER_INJECTION", "false"), ("ENABLE_PROBES_INJECTION", "false"))),
)}  # fmt: skip


def start_kueue(state: Path, call: Call) -> None:
    """Starts Kueue with one ResourceFlavor called `default`; returns when that is accepted."""
    call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    OPERATORS["kueue"].start(state, call)
    path = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"}}

    def accepts() -> bool:
        answer = call("POST", path, flavor)  # the cluster may have the flavor of a run that was killed
        return answer.get("metadata", {}).get("name") == "default" or answer.get("reason") == "AlreadyExists"

    wait("Kueue", accepts, 60)
    time.sleep(2)  # its caches


if __name__ == "__main__":
    for operator in OPERATORS.values():
        operator.binary()
