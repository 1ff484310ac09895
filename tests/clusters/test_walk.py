"""The main path on Kubernetes: submitted workloads run in real pods, are recalled and resume."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from portal.access import Actor
from portal.infra.crypt import encrypt
from quotas.models import Card, Claim, ClaimState, Cluster, ClusterKind, LedgerEntry, Pool, Quota
from tests import builders as make
from tests.clients import program
from tests.clusters import realcluster
from tests.clusters.realcluster import Admin
from tests.workloads.conftest import Bed
from tests.workloads.reconciler.test_main_path import CHECKPOINTS, FOREVER, log_of
from workloads import actions
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import tokens_of
from workloads.models import Attempt, Image, Workload
from workloads.nodes import inventory
from workloads.reconciler import namespaces
from workloads.requests.as_api_call import manifest_of

pytestmark = pytest.mark.cluster


class PodBed(Bed):
    """The same departments, on four cards of the test cluster's real node, whose kubelet shares two cores with
    everything else that is tested: its patience only bounds a failure."""

    patience = 90

    def program(self, text: str) -> tuple[str, ...]:
        return ("python3", "-u", "-c", text)

    def describe(self) -> object:
        return super().describe(), driver_for(self.cluster).observe()

    def pod(self, workload: Workload) -> str:
        attempt = workload.attempts.latest("number")
        return f"/api/v1/namespaces/{attempt.namespace}/pods/{attempt.run_name}"


@pytest.fixture
def bed(transactional_db: None, admin: Admin, portal_account: str, tmp_path: Path) -> Iterator[PodBed]:
    name = realcluster.unique("walk")
    options = {"storage_class": "local", "image_pull_policy": "Never", "namespace_prefix": f"{name}-",
               "files_image": "test.local/python:3", "ready_probe_seconds": 1}  # fmt: skip
    cluster = Cluster.objects.create(
        name=name, kind=ClusterKind.KUBERNETES, connection=encrypt(portal_account), options=options
    )
    inventory.refresh(cluster)
    pool = Pool.objects.get(product="Pretended-GPU")
    Card.objects.filter(pool=pool, index__gte=4).delete()
    Pool.objects.filter(pk=pool.pk).update(notice=1, grace=5, nominal=4)
    pool.refresh_from_db()
    vision, nlp = make.department("vision"), make.department("nlp")
    make.quota(vision, pool, 2)
    make.quota(nlp, pool, 2)
    image = Image.objects.create(name="test.local/python:3", title="Python")
    yield PodBed(cluster, pool, vision, nlp, make.member(vision), make.member(nlp), image, tmp_path)
    driver = driver_for(cluster)
    for run in driver.observe():
        with contextlib.suppress(Exception):
            driver.stop(run.ref, 0)
            driver.remove(run.ref)
    for department in (vision, nlp):
        admin.call("DELETE", f"/api/v1/namespaces/{name}-{department.slug}")


SMALL = {"cpu_milli": 100, "memory_mib": 128}


def test_output_and_exit_code_of_a_job_are_recorded_and_outlive_the_pod(bed: PodBed, admin: Admin) -> None:
    text = "import os; print(len(os.environ['NVIDIA_VISIBLE_DEVICES'].split(','))); raise SystemExit(7)"
    job = bed.submit(bed.alice, bed.vision, text, cards=2, **SMALL)
    bed.until(lambda: bed.state(job) == "failed")
    attempt = job.attempts.get()
    assert (job.exit_code, job.reason, attempt.node) == (7, "Error", "real-0")
    bed.until(lambda: Attempt.objects.get().removed_at is not None)
    assert admin.call("GET", bed.pod(job))["code"] == 404
    assert log_of(attempt) == "2\n"
    assert Claim.objects.get().state == ClaimState.RELEASED


def test_owner_reclaims_lent_cards_and_the_borrower_resumes_from_its_checkpoint(bed: PodBed) -> None:
    borrower = bed.submit(bed.bob, bed.nlp, CHECKPOINTS, cards=4, **SMALL)
    bed.until(lambda: bed.state(borrower) == "running")
    bed.until(lambda: "from 0" in log_of(borrower.attempts.get()))
    owner = bed.submit(bed.alice, bed.vision, FOREVER, cards=2, **SMALL)
    bed.until(lambda: borrower.attempts.get(number=1).recalled_at is not None)  # the state itself may last one second
    bed.until(lambda: bed.state(owner) == "running")
    assert bed.state(borrower) == "queued"
    first, second = borrower.attempts.order_by("number")
    assert (first.outcome, second.number) == ("recalled", 2)
    actions.cancel(actor=Actor(bed.alice), workload=owner)
    bed.until(lambda: bed.state(owner) == "cancelled")
    Claim.objects.filter(pk=second.claim_id).update(backoff_until=None)
    bed.until(lambda: bed.state(borrower) == "running")
    second.refresh_from_db()
    bed.until(lambda: log_of(second).startswith("from "))
    assert int(log_of(second).split()[1]) > 0
    assert log_of(first) == "from 0\n"


def test_deleted_pod_is_lost_not_failed_and_its_workload_is_requeued(bed: PodBed, admin: Admin) -> None:
    job = bed.submit(bed.alice, bed.vision, FOREVER, **SMALL)
    bed.until(lambda: bed.state(job) == "running")
    response = admin.call("DELETE", f"{bed.pod(job)}?gracePeriodSeconds=1")
    assert response["metadata"]["deletionTimestamp"], response
    bed.until(lambda: job.attempts.count() >= 2 and bed.state(job) == "running")
    assert job.attempts.order_by("number")[0].outcome == "lost"
    assert LedgerEntry.objects.filter(ended_at=None).count() == 1


def test_pod_of_the_portal_without_an_attempt_is_stopped_and_removed(bed: PodBed, admin: Admin) -> None:
    job = bed.submit(bed.alice, bed.vision, FOREVER, **SMALL)
    bed.until(lambda: bed.state(job) == "running")
    path = bed.pod(job)
    Attempt.objects.filter(workload=job).update(submission_id="s-of-an-older-backup", run_name="w-other-1")

    def gone() -> bool:
        return bool(admin.call("GET", path).get("code") == 404)

    bed.until(gone)


def test_pipeline_submits_follows_and_reads_the_log_by_api(bed: PodBed) -> None:
    ci = program(bed.alice, bed.vision, ("read", "submit"))
    body = {
        "name": "nightly", "pool": bed.pool.slug, "image": bed.image.name, "units_per_pod": 2, "env": {"EPOCHS": "3"},
        "command": ["python3", "-c", "import os; print('epochs', os.environ['EPOCHS']); raise SystemExit(3)"], "memory_mib": 128,
    }  # fmt: skip
    response = ci.post("/api/v1/departments/vision/workloads/", body, headers={"Idempotency-Key": "night-1"})
    assert response.status_code == 202, response.json()
    url = response["Location"]
    bed.until(lambda: ci.get(url).json()["state"] == "failed")
    assert ci.get(url).json()["exit_code"] == 3
    assert ci.get(f"{url}logs/").content == b"epochs 3\n"


def test_missing_image_fails_the_workload_and_releases_its_cards(bed: PodBed, admin: Admin) -> None:
    Cluster.objects.update(options=bed.cluster.options | {"give_up_after": 4})
    bed.image = Image.objects.create(name="test.local/absent:9", title="Absent")
    job = bed.submit(bed.alice, bed.vision, "pass", cards=2, **SMALL)
    bed.until(lambda: job.attempts.get().reason.startswith("ErrImage"))
    page = Client()
    page.force_login(bed.alice)
    assert "test.local/absent:9" in page.get(f"/d/vision/workloads/{job.public_id}/").content.decode()
    bed.until(lambda: bed.state(job) == "failed")
    assert (job.reason.startswith("ErrImage"), job.exit_code) == (True, None)
    assert Claim.objects.get().state == ClaimState.RELEASED
    text = page.get(f"/d/vision/workloads/{job.public_id}/").content.decode()
    assert "Check its name and tag" in text
    bed.until(lambda: admin.call("GET", bed.pod(job)).get("code") == 404)


SAYS_READY = """
import os, time
while not open(os.environ["PORTAL_RECLAIM_AT_FILE"]).read().strip(): time.sleep(0.1)
open(os.environ["PORTAL_READY_FILE"], "w").close()
time.sleep(3600)
"""


@pytest.mark.timeout(300)
def test_ready_file_shortens_the_notice(bed: PodBed) -> None:
    Pool.objects.filter(pk=bed.pool.pk).update(notice=3600)
    bed.pool.refresh_from_db()
    borrower = bed.submit(bed.bob, bed.nlp, SAYS_READY, cards=4, **SMALL)
    bed.until(lambda: bed.state(borrower) == "running")
    owner = bed.submit(bed.alice, bed.vision, FOREVER, cards=2, **SMALL)
    bed.until(lambda: bed.state(owner) == "running", seconds=240)  # the kubelet shows a notice within a minute or so
    first = borrower.attempts.get(number=1)
    assert first.ready_at is not None
    assert first.finished_at < first.reclaim_at


def test_secrets_reach_the_container_but_are_in_no_pod_manifest(bed: PodBed, admin: Admin) -> None:
    text = "import os, time; print(len(os.environ['KEY']), len(os.environ['PORTAL_READY_TOKEN']), flush=True); time.sleep(60)"
    job = bed.submit(bed.alice, bed.vision, text, secret_env={"KEY": "do-not-show-this"}, **SMALL)
    bed.until(lambda: bed.state(job) == "running")
    attempt = job.attempts.get()
    bed.until(lambda: log_of(attempt) == "16 43\n")
    pod = json.dumps(admin.call("GET", bed.pod(job)))
    assert "do-not-show-this" not in pod
    secret = f"/api/v1/namespaces/{attempt.namespace}/secrets/{attempt.run_name}"
    assert admin.call("GET", secret)["metadata"]["ownerReferences"][0]["name"] == attempt.run_name
    shown = manifest_of(Attempt.objects.select_related("workload__pool", "cluster").get())
    assert "do-not-show-this" not in shown
    assert tokens_of(attempt)["ready"] not in shown
    actions.cancel(actor=Actor(bed.alice), workload=job)
    bed.until(lambda: bed.state(job) == "cancelled")
    bed.until(lambda: admin.call("GET", secret).get("code") == 404)


def test_file_uploaded_in_the_form_reaches_the_job_and_its_result_can_be_downloaded(bed: PodBed) -> None:
    page = Client()
    page.force_login(bed.alice)
    text = "open('twice.txt', 'w').write(open('data.txt').read() * 2)"
    form = {
        "name": "with-data", "kind": "job", "pool": bed.pool.slug, "units_per_pod": "1", "image": bed.image.name,
        "command": f'python3 -c "{text}"', "cpu": "0.1", "memory_mib": "128 MiB",
        "files": SimpleUploadedFile("data.txt", b"abc"),
    }  # fmt: skip
    response = page.post("/d/vision/workloads/new/", form)
    assert response.status_code == 302, response.content.decode()
    job = Workload.objects.get()
    bed.until(lambda: bed.state(job) == "succeeded", seconds=60)
    bed.until(lambda: Attempt.objects.get().removed_at is not None)
    api = program(bed.alice, bed.vision, ("read",))
    url = f"/api/v1/workloads/{job.public_id}/files/"
    assert [each["name"] for each in api.get(url).json()["results"]] == ["data.txt", "twice.txt"]
    assert b"".join(api.get(f"{url}twice.txt").streaming_content) == b"abcabc"
    tab = page.get(f"/d/vision/workloads/{job.public_id}/?tab=files").content.decode()
    assert "twice.txt" in tab
    download = page.get(f"/d/vision/workloads/{job.public_id}/files/download/?path=twice.txt")
    assert (download["Content-Length"], b"".join(download.streaming_content)) == ("6", b"abcabc")


def test_cordoned_node_is_held_back_in_the_inventory(bed: PodBed, admin: Admin) -> None:
    tolerated = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]  # the taint of every simulated node here
    Cluster.objects.update(options=bed.cluster.options | {"tolerations": tolerated})
    bed.cluster.refresh_from_db()
    node: dict[str, Any] = {"spec": {"unschedulable": True}}
    path, merge = "/api/v1/nodes/kai-a100-80", "application/merge-patch+json"
    try:
        admin.call("PATCH", path, node, merge)
        inventory.refresh(bed.cluster)
        assert bed.cluster.nodes.get(name="kai-a100-80").held_back == "cordoned"
    finally:
        admin.call("PATCH", path, {"spec": {"unschedulable": None}}, merge)
    inventory.refresh(bed.cluster)
    assert bed.cluster.nodes.get(name="kai-a100-80").held_back == ""


def test_raised_quota_admits_the_next_run_at_once_and_a_lowered_one_keeps_running_pods(
    bed: PodBed, admin: Admin
) -> None:
    quota_path = f"/api/v1/namespaces/{bed.cluster.options['namespace_prefix']}vision/resourcequotas/gpu-quota-portal"

    def gpu_limit() -> str:
        return str(admin.call("GET", quota_path)["spec"]["hard"]["requests.nvidia.com/gpu"])

    for pool in Pool.objects.exclude(pk=bed.pool.pk):  # without a quota row it could borrow, also in HAMi's pools
        for department in (bed.vision, bed.nlp):
            make.quota(department, pool, 0, borrow_limit=0)
    Quota.objects.update(borrow_limit=0)
    Quota.objects.filter(pool=bed.pool).update(guaranteed=1)
    namespaces.keep_homes(bed.cluster, driver_for(bed.cluster))
    assert gpu_limit() == "1"
    mine = Quota.objects.filter(department=bed.vision, pool=bed.pool)
    mine.update(guaranteed=2)
    job = bed.submit(bed.alice, bed.vision, FOREVER, cards=2, **SMALL)
    bed.until(lambda: bed.state(job) == "running", seconds=100)
    assert gpu_limit() == "2"
    mine.update(guaranteed=1)
    namespaces.keep_homes(bed.cluster, driver_for(bed.cluster))
    assert gpu_limit() == "2"  # exactly what it holds
    assert bed.state(job) == "running"
