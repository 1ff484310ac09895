"""The shared test cluster (tests/cluster/kit), and the service account that deploy/helm creates for a portal on it."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import secrets
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from ssl import create_default_context
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
KIT = ROOT / "tests/cluster/kit"
CHART = ROOT / "deploy/helm/gpu-quota-portal"


def kit(*arguments: str, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KIT, *arguments], capture_output=True, text=True, timeout=timeout)


def tool(name: str) -> Path:
    """One of the programs that the kit builds."""
    path = Path(kit("path-of-cache").stdout.strip()) / "bin" / name
    if not path.exists():
        cannot("the test cluster is not built here: `tests/cluster/kit build` builds it, and Helm")
    return path


def rendered(release: str, *arguments: str) -> list[dict[str, Any]]:
    """The objects of the chart, rendered by `helm template`."""
    command = [str(tool("helm")), "template", release, str(CHART), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def cannot(reason: str) -> None:
    """Skips the test; in CI a test that cannot run is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Admin:
    """The cluster's administrator. Uses only the standard library, so that drivers do not test themselves."""

    def __init__(self, info: dict[str, Any]) -> None:
        config = yaml.safe_load(Path(info["kubeconfig"]).read_text())
        self.server: str = info["server"]
        self.state = Path(info["state"])
        self.ca = Path(config["clusters"][0]["cluster"]["certificate-authority"])
        user = config["users"][0]["user"]
        self.tls = create_default_context(cafile=str(self.ca))
        self.tls.load_cert_chain(user["client-certificate"], user["client-key"])

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", user: str = ""
    ) -> Any:
        """The server's response: an object, or a Status with the error. `user`: impersonated, in the group `researchers`, which
        may edit objects in namespaces."""
        impersonation = {"Impersonate-User": user, "Impersonate-Group": "researchers"} if user else {}
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type, **impersonation},
        )
        try:
            with urllib.request.urlopen(request, timeout=15, context=self.tls) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            if not text.startswith("{"):  # plain text, for a path that is not served yet
                return {"kind": "Status", "status": "Failure", "code": error.code, "message": text}
            return json.loads(text)

    def path_of(self, document: dict[str, Any]) -> str:
        group = document["apiVersion"]
        base = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        plural = re.sub("(?<=[^aeiou])ys$", "ies", re.sub("s$", "se", document["kind"].lower()) + "s")
        namespace = document["metadata"].get("namespace")
        home = f"{base}/namespaces/{namespace}/{plural}" if namespace else f"{base}/{plural}"
        return f"{home}/{document['metadata']['name']}"

    def apply(self, document: dict[str, Any], *, options: str = "") -> None:
        """Server-side apply. `options`: added to the query, such as "dryRun=All"."""
        path = f"{self.path_of(document)}?fieldManager=tests&force=true&{options}"
        response = self.call("PATCH", path, document, "application/apply-patch+yaml")
        assert response["kind"] == document["kind"], response

    def serve(self, *kinds: str) -> None:
        """Installs the CustomResourceDefinitions of these kinds, from the modules that own them."""
        for file in tool("definitions").iterdir():
            document = yaml.safe_load(file.read_text())
            if document["spec"]["names"]["kind"] not in kinds:
                continue
            self.apply(document)
            end = time.monotonic() + 30
            while not self._established(document):
                assert time.monotonic() < end, f"{file.name} is not served"
                time.sleep(0.1)

    def _established(self, document: dict[str, Any]) -> bool:
        definition = self.call("GET", self.path_of(document))
        # A new definition has "conditions": null until the server has handled it.
        conditions = definition.get("status", {}).get("conditions") or []
        served = [each["name"] for each in document["spec"]["versions"] if each["served"]]
        if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return False
        listed = self.call("GET", f"/apis/{document['spec']['group']}/{served[0]}")
        return document["spec"]["names"]["plural"] in {each["name"] for each in listed.get("resources", [])}

    @contextlib.contextmanager
    def account(self, rules: list[Any] | None = None) -> Iterator[str]:
        """A kubeconfig of the service account of deploy/helm, with exactly the rights of rights/cluster.yaml (or `rules`). Its
        names are unique: other users of the cluster may have another version of the chart."""
        own = unique("gpu-quota-portal")
        documents: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": own}}]
        documents += rendered(own, "--namespace", own, "--set", "mode=access")
        for document in documents:
            if document["kind"] == "ClusterRole" and rules is not None:
                document["rules"] = rules
            if document["kind"] in ("ServiceAccount", "Secret"):
                document["metadata"]["namespace"] = own
            self.apply(document)
        path = f"/api/v1/namespaces/{own}/serviceaccounts/{own}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200},
        }
        yield self.kubeconfig({"token": self.call("POST", path, request)["status"]["token"]})
        for document in documents:
            if not document["metadata"].get("namespace"):
                self.call("DELETE", self.path_of(document))

    def kubeconfig(self, user: dict[str, str], server: str = "") -> str:
        authority = base64.b64encode(self.ca.read_bytes()).decode()
        cluster = {"server": server or self.server, "certificate-authority-data": authority}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "portal", "user": user}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "portal"}}],
                "current-context": "test",
            }
        )


@contextlib.contextmanager
def shared() -> Iterator[dict[str, Any]]:
    """The running cluster, started if necessary. If it was started for tests, the last of all workers and test runs that use it
    stops it."""
    home = Path(kit("path-of-cache").stdout.strip()).parent
    home.mkdir(parents=True, exist_ok=True)
    with (home / "tests-users.lock").open("w") as users:
        with _alone(home):
            info = _running_or_started(home)
            fcntl.flock(users, fcntl.LOCK_SH)
        yield info
        with _alone(home):
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if (home / "tests-cluster").exists() and (home / "tests-cluster").read_text() == info["state"]:
                kit("stop")


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    with (home / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _running_or_started(home: Path, timeout: float = 100) -> dict[str, Any]:
    running = kit("status")
    if running.returncode == 0 and json.loads(running.stdout)["real_node"]:
        return dict(json.loads(running.stdout))
    if not (Path(kit("path-of-cache").stdout.strip()) / "bin").exists():
        cannot("the test cluster is not built here: `make cluster` builds and starts it")
    if os.geteuid():
        cannot("the test cluster's real node needs root")
    done = kit("start", "--real-node", timeout=timeout)
    if done.returncode:
        pytest.fail(f"the test cluster does not start: {done.stderr[-2000:]}")
    info = dict(json.loads(done.stdout))
    (home / "tests-cluster").write_text(info["state"])
    return info


def unique(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(3)}"


if __name__ == "__main__":  # CI starts it before the tests: on a busy machine a start takes longer than a test may
    home = Path(kit("path-of-cache").stdout.strip()).parent
    with _alone(home):
        _running_or_started(home, timeout=900)
