"""etcd, kube-apiserver, kube-scheduler, kube-controller-manager and KWOK, on loopback only."""

from __future__ import annotations

import json
import re
import ssl
import urllib.request
from pathlib import Path
from typing import Any

from processes import Processes, free_port, sh, wait

HERE = Path(__file__).resolve().parent
USERS = {
    "admin": "/O=system:masters/CN=admin",
    "kwok": "/O=system:masters/CN=kwok",
    "kubelet": "/O=system:masters/CN=kubelet",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
}


def make_certificates(d: Path) -> None:
    d.mkdir(parents=True)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    ca, ca_key = d / "ca.crt", d / "ca.key"
    sh("openssl", "req", "-x509", *key, "-keyout", ca_key, "-out", ca, "-days", "30", "-subj", "/CN=testcluster-ca")

    def leaf(name: str, subject: str, extensions: str) -> None:
        (d / f"{name}.ext").write_text(extensions)
        sh("openssl", "req", "-new", *key, "-keyout", d / f"{name}.key", "-out", d / f"{name}.csr", "-subj", subject)
        sign = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "30", "-extfile", d / f"{name}.ext")
        sh("openssl", "x509", "-req", "-in", d / f"{name}.csr", "-out", d / f"{name}.crt", *sign)

    names = "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.96.0.1"
    leaf("apiserver", "/CN=kube-apiserver", f"extendedKeyUsage=serverAuth\nsubjectAltName={names}\n")
    for name, subject in USERS.items():
        leaf(name, subject, "extendedKeyUsage=clientAuth\n")
    sh("openssl", "genrsa", "-out", d / "sa.key", "2048")
    sh("openssl", "rsa", "-in", d / "sa.key", "-pubout", "-out", d / "sa.pub")


class ControlPlane:
    """Simulated nodes renew their leases four times in `lease` seconds: with the default of 40, 625 nodes make 62 renewals a
    second."""

    def __init__(self, binaries: Path, processes: Processes, lease: int = 40) -> None:
        self.lease = lease
        self.bin, self.processes, self.state = binaries, processes, processes.state
        self.pki = self.state / "pki"
        self.seconds: dict[str, float] = {}

    def kubeconfig(self, user: str) -> Path:
        path, d = self.state / f"{user}.kubeconfig", self.pki
        name = "testcluster"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.server, "certificate-authority": f"{d}/ca.crt"}}],
            "users": [
                {"name": user, "user": {"client-certificate": f"{d}/{user}.crt", "client-key": f"{d}/{user}.key"}}
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        }
        path.write_text(json.dumps(config))
        return path

    def connect(self, server: str) -> None:
        """Sets the API server that `call` uses, as the administrator."""
        self.server = server
        self.tls = ssl.create_default_context(cafile=f"{self.pki}/ca.crt")
        self.tls.load_cert_chain(f"{self.pki}/admin.crt", f"{self.pki}/admin.key")

    def call(self, path: str, method: str = "GET", body: Any = None, content_type: str = "application/json") -> bytes:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.server + path, method=method, data=data, headers={"Content-Type": content_type}
        )
        return bytes(urllib.request.urlopen(request, timeout=5, context=self.tls).read())

    def start(self) -> None:
        make_certificates(self.pki)
        etcd = self._etcd()
        self._apiserver(etcd)
        d = self.pki
        more = (
            f"--root-ca-file={d}/ca.crt",
            f"--service-account-private-key-file={d}/sa.key",
            "--use-service-account-credentials=true",
            f"--node-monitor-grace-period={self.lease + 10}s",  # exceeds the lease as much as by default
        )
        for name, extra in (("kube-scheduler", ()), ("kube-controller-manager", more)):
            config = self.kubeconfig(name)
            self.processes.spawn(
                name,
                self.bin / name,
                f"--kubeconfig={config}",
                f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}",
                "--bind-address=127.0.0.1",
                f"--secure-port={free_port()}",
                "--leader-elect=false",
                "--kube-api-qps=5000",  # a test would measure the default, 20
                "--kube-api-burst=10000",
                *extra,
            )
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.seconds["default service account"] = wait("default service account", lambda: self.call(account))
        self._kwok()
        self.kubeconfig("admin")

    def _etcd(self) -> str:
        client, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        self.processes.spawn(
            "etcd",
            self.bin / "etcd",
            f"--data-dir={self.state}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--quota-backend-bytes=8589934592",
        )
        self.seconds["etcd"] = wait("etcd", lambda: urllib.request.urlopen(f"{client}/health", timeout=1).status == 200)
        return client

    def _apiserver(self, etcd: str) -> None:
        d, port = self.pki, free_port()
        self.processes.spawn(
            "kube-apiserver",
            self.bin / "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={d}/apiserver.crt",
            f"--tls-private-key-file={d}/apiserver.key",
            f"--client-ca-file={d}/ca.crt",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={d}/sa.pub",
            f"--service-account-signing-key-file={d}/sa.key",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={d}/admin.crt",
            f"--kubelet-client-key={d}/admin.key",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
        )
        self.connect(f"https://127.0.0.1:{port}")
        self.seconds["kube-apiserver"] = wait("kube-apiserver", lambda: self.call("/readyz") == b"ok")

    def _kwok(self) -> None:
        """Runs the nodes annotated kwok.x-k8s.io/node=fake; annotations on their pods determine the pods' life cycle."""
        config, port = self.state / "kwok-stages.yaml", free_port()
        config.write_text((HERE / "kwok-stages.yaml").read_text().replace("@STATE@", str(self.state)))
        (self.state / "podlog.txt").write_text(
            "".join(f"2026-01-01T00:00:0{i}.000000000Z stdout F epoch {i} loss {1 / (i + 1):.3f}\n" for i in range(10))
        )
        self.processes.spawn(
            "kwok",
            self.bin / "kwok",
            f"--kubeconfig={self.kubeconfig('kwok')}",
            f"--config={config}",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            f"--node-lease-duration-seconds={self.lease}",
            "--cidr=10.244.0.0/16",
            "--node-ip=127.0.0.1",
            f"--node-port={port}",
            f"--server-address=127.0.0.1:{port}",
            f"--tls-cert-file={self.pki}/apiserver.crt",
            f"--tls-private-key-file={self.pki}/apiserver.key",
        )

    def add_gpu_nodes(self) -> None:
        """The simulated nodes of data/kwok_gpu_nodes.yaml, one for each way in which a cluster offers GPUs."""
        homes = {"Node": "/api/v1/nodes", "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices"}
        for document in re.split(r"^---$", (HERE / "data/kwok_gpu_nodes.yaml").read_text(), flags=re.M):
            if kind := re.search(r"^kind: (\w+)$", document, flags=re.M):
                self.call(homes[kind[1]], "POST", document.encode(), "application/yaml")

    def add_many_nodes(self, count: int, cards: int) -> None:
        """Simulated nodes kwok-0, kwok-1, … with whole cards of one product."""
        for number in range(count):
            self.call("/api/v1/nodes", "POST", simulated_node(f"kwok-{number}", cards))


def simulated_node(name: str, cards: int, product: str = "Pretended-GPU") -> dict[str, Any]:
    has = {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": str(cards)}
    labels = {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": str(cards),
        "kubernetes.io/hostname": name,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": has, "allocatable": has},
    }
