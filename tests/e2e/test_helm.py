"""deploy/helm on a real node, as docs/operations.md describes: installed, signed in to, used, upgraded, removed.
Images are the kit's: this checkout's portal, and Debian's PostgreSQL and Redis in place of the official images."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from playwright.sync_api import expect

from tests.clusters.realcluster import CHART, Admin, cannot, kit, shared, tool, unique
from tests.e2e.conftest import Person
from tests.e2e.installation import eventually
from tests.servers import free_port

pytestmark = pytest.mark.timeout(600)
PASSWORD = "correct horse battery staple"
RELEASE = "gpu-quota-portal"


@dataclass
class Release:
    admin: Admin
    namespace: str
    values: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def run(self, program: str, *arguments: str, given: str = "") -> str:
        config = f"--kubeconfig={self.admin.state / 'admin.kubeconfig'}"
        command = [tool(program), config, f"--namespace={self.namespace}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, input=given)
        assert done.returncode == 0, done.stderr[-3000:] + self.told()
        return done.stdout

    def helm(self, verb: str, *more: str) -> str:
        """Runs install or upgrade, and waits until everything is ready."""
        chart = (RELEASE, str(CHART), "--values", str(self.values))
        return self.run("helm", verb, *chart, "--wait", "--wait-for-jobs", "--timeout", "240s", *more)

    def get(self, kinds: str, *more: str) -> list[dict[str, Any]]:
        return list(json.loads(self.run("kubectl", "get", kinds, "--output=json", *more))["items"])

    def shell(self, code: str) -> str:
        """The output of `manage.py shell` in the web's pod."""
        code = f"from workloads.models import Workload; {code}"
        command = ["--container", "portal", "--", "python", "manage.py", "shell", "--no-imports", "-c", code]
        return self.run("kubectl", "exec", f"deployment/{RELEASE}-web", *command).strip()

    def ended(self, job: str) -> str:
        """The log of a Job that has succeeded."""
        self.run("kubectl", "wait", f"job/{job}", "--for=condition=complete", "--timeout=150s")
        return self.run("kubectl", "logs", f"job/{job}", "--container=portal")

    def told(self) -> str:
        """Pods, warnings and logs, for the message of a failure."""
        config = f"--kubeconfig={self.admin.state / 'admin.kubeconfig'}"
        parts = []
        logs = ["logs", "--all-containers", "--prefix", "--tail=8", "--max-log-requests=20"]
        logs.append(f"--selector=app.kubernetes.io/instance={RELEASE}")
        for question in (["get", "pods"], ["events", "--types=Warning"], logs):
            command = [tool("kubectl"), config, f"--namespace={self.namespace}", *question]
            parts.append(subprocess.run(command, capture_output=True, text=True).stdout[-4000:])
        return "\n".join(parts)

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Makes the release reachable by `kubectl port-forward`."""
        config = f"--kubeconfig={self.admin.state / 'admin.kubeconfig'}"
        command = [tool("kubectl"), config, f"--namespace={self.namespace}", "port-forward", f"service/{RELEASE}-web"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen([*command, f"{self.port}:80"], **quiet) as forward:
            try:
                eventually(self.answers, 20)
                yield
            finally:
                forward.terminate()

    def answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200
        return False


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with shared() as info:
        for image in ("servers", "portal"):
            brought = kit("bring", image, timeout=300)
            if brought.returncode:
                cannot(brought.stderr)
        name, port = unique("helm"), free_port()
        values = {
            "url": f"http://localhost:{port}",
            "image": {"repository": "test.local/portal", "tag": "1", "pullPolicy": "Never"},
            "database": {"trial": True, "trialImage": "test.local/servers:1", "storage": {"className": "local"}},
            "redis": {"trial": True, "trialImage": "test.local/servers:1"},
            "nodeSelector": {"testcluster/real": "true"},
            "web": {"replicas": 1, "processes": 1},
            "worker": {"replicas": 1, "processes": 2},
        }
        file = tmp_path_factory.mktemp("release") / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        made = Release(Admin(info), name, file, port)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        made.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        try:
            yield made
        finally:
            with contextlib.suppress(AssertionError):
                made.run("helm", "uninstall", RELEASE, "--wait")
            for namespace in (name, f"{name}-vision"):
                made.admin.call("DELETE", f"/api/v1/namespaces/{namespace}")


def test_new_release_can_be_set_up_and_runs_a_workload(release: Release, chromium: Any) -> None:
    notes = release.helm("install")
    assert f"exec --stdin --tty deployment/{RELEASE}-web" in notes
    bootstrap = ["--container", "portal", "--", "python", "manage.py", "bootstrap", "root", "--password-file", "-"]
    release.run("kubectl", "exec", "--stdin", f"deployment/{RELEASE}-web", *bootstrap, given=PASSWORD + "\n")
    with release.reached():
        root = Person(chromium, release.url, "root", PASSWORD)
        furnish(root, release)
        page = root.go("/d/vision/workloads/new/")
        page.fill("#id_name", "hello")
        page.fill("#id_command", "python3 -c 'print(6 * 7, \"is the answer\")'")
        expect(page.locator("#verdict .verdict-headline")).to_have_text(re.compile("^Starts now"))
        page.get_by_role("button", name="Submit").click()
        expect(page.locator("#now[data-state=succeeded]")).to_be_visible(timeout=60_000)
        expect(page.locator("#log")).to_contain_text("42 is the answer")
        assert root.complaints() == []
        root.context.close()


def furnish(root: Person, release: Release) -> None:
    """Does what the notes tell an operator to do: adds this cluster, an image, a department and its quota."""
    options = {
        "storage_class": "local", "image_pull_policy": "Never", "namespace_prefix": f"{release.namespace}-",
        "portal_namespace": release.namespace,
    }  # fmt: skip
    page = root.go("/operator/clusters/")
    page.fill("#id_name", "here")
    page.fill("#id_options", json.dumps(options))
    page.get_by_role("button", name="Test and add").click()
    expect(page.locator("main tbody").first).to_contain_text("here")
    page = root.go("/operator/images/new/")
    page.fill("#id_name", "test.local/python:3")
    page.fill("#id_title", "Python")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("main")).to_contain_text("test.local/python:3")
    page = root.go("/operator/departments/")
    page.fill("#id_slug", "vision")
    page.fill("#id_name", "Computer Vision")
    page.get_by_role("button", name="Create").click()
    page.locator("tr", has_text="vision").get_by_role("link", name="Quotas").click()
    pool = page.locator("tr", has_text="Pretended-GPU")
    expect(page.locator("main")).to_contain_text("Quotas of Computer Vision")
    eventually(lambda: page.reload() and pool.count(), 60)  # the inventory comes every 15 s
    pool.get_by_role("link", name="Set").click()
    page.fill("#id_guaranteed", "2")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("tr", has_text="Pretended-GPU").first).to_contain_text("2 cards")


def test_upgrade_changes_the_setting_and_keeps_keys_and_data(release: Release) -> None:
    before = {each["metadata"]["name"]: each for each in release.get("secret,pod,job")}
    release.helm("upgrade", "--set", "settings.CURRENCY=EUR")
    after = {each["metadata"]["name"]: each for each in release.get("secret,pod,job")}
    keys = f"{RELEASE}-keys"
    assert after[keys]["data"] == before[keys]["data"]
    [job] = [each for each in after.values() if each["kind"] == "Job"]
    assert job["metadata"]["name"] not in before, "migrated again, by a Job of its own"
    pod = f"{RELEASE}-database-0"
    assert after[pod]["metadata"]["uid"] == before[pod]["metadata"]["uid"], "the database was left alone"
    with release.reached():
        page = httpx.get(f"{release.url}/login/", trust_env=False)
        assert page.status_code == 200
    asked = "from django.conf import settings; print(settings.CURRENCY, *Workload.objects.values_list('name', 'state'))"
    assert release.shell(asked) == "EUR ('hello', 'succeeded')"


def test_backup_of_the_cronjob_can_be_restored_from_its_volume(release: Release) -> None:
    """As docs/operations.md describes: with the processes stopped, a separate Job replaces the data by the backup."""
    release.helm(
        "upgrade", "--set", "settings.CURRENCY=EUR", "--set", "backup.enabled=true",
        "--set", "backup.storage.className=local",
    )  # fmt: skip
    cronjob = f"cronjob/{RELEASE}-backup"
    release.run("kubectl", "create", "job", "backup-now", f"--from={cronjob}")
    said = release.ended("backup-now")
    [file] = re.findall(r"^(/backup/gpu-quota-portal-\S+\.backup): \d+ bytes", said, re.MULTILINE)

    release.shell("Workload.objects.update(name='written after the backup')")
    release.run("kubectl", "scale", "deployment", "--replicas=0", f"--selector=app.kubernetes.io/instance={RELEASE}")
    eventually(lambda: len(release.get("pod", "--field-selector=status.phase=Running")) == 2, 180)  # database, Redis
    job = json.loads(
        release.run("kubectl", "create", "job", "restore", f"--from={cronjob}", "--dry-run=client", "-o=json")
    )
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "manage.py", "restore", "--force", file]
    release.run("kubectl", "create", "--filename=-", given=json.dumps(job))
    release.ended("restore")
    release.helm("upgrade", "--reuse-values", "--set", "web.replicas=1")
    assert release.shell("print(*Workload.objects.values_list('name', 'state'))") == "('hello', 'succeeded')"
    acts = "from portal.models import AuditEntry; print(*AuditEntry.objects.filter(action__startswith='backup.')"
    assert release.shell(f"{acts}.order_by('pk').values_list('action', flat=True))") == "backup.restored"


def test_uninstall_keeps_only_data_and_keys(release: Release) -> None:
    kinds = "all,configmap,secret,serviceaccount,networkpolicy,poddisruptionbudget,pvc,role,rolebinding"
    cluster = "clusterrole,clusterrolebinding"
    selector = f"--selector=app.kubernetes.io/instance={RELEASE}"
    assert len(release.get(kinds, selector)) > 20
    release.run("helm", "uninstall", RELEASE, "--wait", "--timeout", "90s")
    end = time.monotonic() + 30
    left: set[tuple[str, str]] = set()
    while time.monotonic() < end:
        left = {(each["kind"], each["metadata"]["name"]) for each in release.get(kinds, selector)}
        if len(left) == 3:
            break
        time.sleep(0.5)
    volumes = {("PersistentVolumeClaim", name) for name in (f"data-{RELEASE}-database-0", f"{RELEASE}-backup")}
    assert left == {*volumes, ("Secret", f"{RELEASE}-keys")}
    mine = [each for each in release.get(cluster, selector) if release.namespace in each["metadata"]["name"]]
    assert mine == []
