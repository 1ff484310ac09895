"""Distributed jobs and services: submitted by API and form, refused with the faulty field, run on the embedded cluster."""

from __future__ import annotations

import html
from typing import Any

import pytest
import yaml
from django.test import Client
from django.urls import reverse

from portal.access import Actor
from portal.models import Department, User
from quotas.models import Claim, Pool
from tests import builders as make
from tests.clients import person
from tests.workloads.conftest import Bed
from tests.workloads.embedded.test_gangs import MEET, SERVE
from tests.workloads.reconciler.test_main_path import CHECKPOINTS, FOREVER, log_of
from workloads import actions
from workloads.files.logs import read_log
from workloads.models import Image, Preset, Workload
from workloads.runtime.setups import Setup

URL = "/api/v1/departments/vision/workloads/"
GANG: dict[str, Any] = {
    "kind": "distributed", "name": "ddp", "pool": "a100", "image": "python:3.11", "command": ["torchrun", "train.py"],
    "pods": 2, "units_per_pod": 2, "setup": {"template": "torch", "max_restarts": 3},
}  # fmt: skip
SERVICE: dict[str, Any] = {
    "kind": "service", "name": "model", "pool": "a100", "image": "python:3.11", "units_per_pod": 1,
    "command": ["python", "serve.py"], "setup": {"port": 8000, "ready_path": "/healthz"},
}  # fmt: skip


@pytest.fixture
def pool(db: None) -> Pool:
    return make.pool("a100", cards=8, nodes=2)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 8)
    make.quota(vision, make.pool("t4", unit="MiB", units_per_card=15360, sharing="memory"), 15360)
    Image.objects.create(name="python:3.11", title="Python")
    return vision


class TestApi:
    @pytest.mark.parametrize("body", [GANG, SERVICE], ids=["distributed", "service"])
    def test_response_and_rerun_repeat_the_requested_setup(self, alice: User, body: dict[str, Any]) -> None:
        client = person(alice)
        created = client.post(URL, body).json()
        assert {name: created["setup"][name] for name in body["setup"]} == body["setup"]
        assert created["pods"] == body.get("pods", 1)
        assert created["units"] == body["units_per_pod"] * created["pods"]
        again = client.post(f"/api/v1/workloads/{created['id']}/rerun/").json()
        assert (again["setup"], again["pods"], again["kind"]) == (created["setup"], created["pods"], created["kind"])

    def test_a_gang_claims_all_its_pods_at_once(self, alice: User, pool: Pool) -> None:
        pool.group.cluster.nodes.update(domain="rack-1")
        person(alice).post(URL, GANG | {"setup": {"template": "torch", "same_domain": True}})
        claim = Claim.objects.get()
        assert (claim.pods, claim.units_per_pod, claim.same_domain) == (2, 2, True)

    def test_request_body_overrides_parts_of_the_presets_setup(self, alice: User, pool: Pool) -> None:
        Preset.objects.create(
            slug="two-ranks", title="Two ranks", kind="distributed", pool=pool, pods=2, image=Image.objects.get(),
            command=["python", "x.py"], setup={"template": "torch", "max_restarts": 1},
        )  # fmt: skip
        created = person(alice).post(URL, {"preset": "two-ranks", "setup": {"max_restarts": 5}}).json()
        assert (created["pods"], created["setup"]["template"], created["setup"]["max_restarts"]) == (2, "torch", 5)

    @pytest.mark.parametrize(
        ("changes", "field", "words"),
        [
            ({"pods": 1}, "pods", "at least 2 pods"),
            ({"pods": 513, "units_per_pod": 1}, "pods", "At most 512"),
            ({"setup": {}}, "setup.template", "Choose a template: "),
            ({"setup": {"template": "tensorflow-ps"}}, "setup.parameter_servers", "at least 1 parameter server"),
            ({"setup": {"template": "tensorflow-ps", "parameter_servers": 1}}, "pods", "2 pods are not enough"),
            ({"pool": "t4", "units_per_pod": 1024}, "pool", "NCCL does not allow two ranks on one device"),
            ({"setup": {"template": "torch", "rdma": 1}}, "setup.rdma", "offers no RDMA"),
            ({"setup": {"template": "torch", "port": 80}}, "setup.port", "has no field port"),
            ({"setup": {"template": "torch", "shm_mib": 4096}, "memory_mib": 2048}, "setup.shm_mib", "2048 MiB"),
            ({"env": {"MASTER_ADDR": "me"}}, "env", "MASTER_ADDR is set by the template"),
            ({"command": []}, "command", "the command"),
            (SERVICE | {"setup": {}}, "setup.port", "Enter the port"),
            (SERVICE | {"setup": {"port": 1, "ready_path": "x"}}, "setup.ready_path", "begin with"),
            (SERVICE | {"pods": 2}, "pods", "can only have one pod"),
            ({"kind": "job"}, "pods", "can only have one pod"),
            ({"setup": {"template": "horovod"}}, "setup.template", "not a valid choice"),
            ({"setup": {"ports": 1}}, "setup.ports", "Unknown field"),
        ],
    )  # fmt: skip
    def test_invalid_request_is_refused_with_its_field(
        self, alice: User, changes: dict[str, Any], field: str, words: str
    ) -> None:
        response = person(alice).post(URL, GANG | changes)
        assert response.status_code == 422
        faults = {each["attr"]: each["detail"] for each in response.json()["errors"]}
        assert words in faults.get(field, ""), faults
        assert not Workload.objects.exists()


def form(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "distributed", "name": "ddp", "pool": "a100", "units_per_pod": "2", "image": "python:3.11", "pods": "2",
        "template": "torch", "command": "torchrun train.py", "cpu": "2", "memory_mib": "8 GiB", "max_restarts": "2",
        "port": "8000", "ready_path": "/left-over",
    } | changes  # fmt: skip


class TestForm:
    def client(self, user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    def test_form_uses_only_the_fields_of_its_kind(self, alice: User) -> None:
        response = self.client(alice).post(reverse("workloads:new", args=["vision"]), form())
        assert response.status_code == 302, response.content.decode()
        workload = Workload.objects.get()
        assert (workload.pods, workload.settings) == (2, Setup(template="torch", max_restarts=2))

    def test_form_for_a_service_creates_a_service_of_one_pod(self, alice: User) -> None:
        fields = form(kind="service", units_per_pod="1", ready_path="")
        assert self.client(alice).post(reverse("workloads:new", args=["vision"]), fields).status_code == 302
        workload = Workload.objects.get()
        assert (workload.pods, workload.settings) == (1, Setup(port=8000))

    def test_refused_form_shows_the_fault_beside_its_field(self, alice: User) -> None:
        response = self.client(alice).post(reverse("workloads:new", args=["vision"]), form(pods="1"))
        assert response.status_code == 422
        assert "A distributed job has at least 2 pods" in response.content.decode()
        assert 'id="id_pods_error"' in response.content.decode()

    def test_form_for_a_clone_starts_with_the_same_setup(self, alice: User) -> None:
        client = self.client(alice)
        client.post(reverse("workloads:new", args=["vision"]), form(template="mpi"))
        page = client.get(reverse("workloads:new", args=["vision"]), {"from": Workload.objects.get().public_id})
        initial = page.context["form"].initial
        assert (initial["pods"], initial["template"], initial["max_restarts"]) == (2, "mpi", 2)


class TestPages:
    def client(self, user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    def test_verdict_shows_the_variables_of_each_rank(self, alice: User) -> None:
        page = self.client(alice).post(reverse("workloads:verdict", args=["vision"]), form(template="tensorflow"))
        text = html.unescape(page.content.decode())
        assert "Starts now" in text
        assert 'TF_CONFIG={"cluster": {"chief": ["127.0.0.1:29500"]' in text
        assert "This is an embedded cluster" in text

    def test_verdict_on_kubernetes_shows_all_objects_and_rank_patches_but_no_secret(
        self, alice: User, pool: Pool
    ) -> None:
        cluster = pool.group.cluster
        cluster.kind, cluster.options = "kubernetes", {"access_mode": "ReadWriteMany"}
        cluster.save()
        fields = form(secret_env="HF_TOKEN=hunter2")
        page = self.client(alice).post(reverse("workloads:verdict", args=["vision"]), fields)
        assert "hunter2" not in page.content.decode()
        objects = list(yaml.safe_load_all(page.context["preview"].yaml))
        assert [each.get("kind") for each in objects] == ["Job", "Service", None, None]
        job = objects[0]["spec"]
        assert (job["completions"], job["backoffLimitPerIndex"], job["podReplacementPolicy"]) == (2, 0, "Failed")
        assert objects[3]["metadata"]["annotations"]["gpu-quota-portal/rank.RANK"] == "1"
        names = {each["name"] for each in job["template"]["spec"]["containers"][0]["env"]}
        assert {"MASTER_ADDR", "PET_NNODES", "RANK", "HF_TOKEN"} <= names

    def test_ranks_on_several_nodes_need_a_volume_that_several_nodes_can_mount(self, alice: User, pool: Pool) -> None:
        cluster = pool.group.cluster
        cluster.kind = "kubernetes"
        cluster.save()
        response = person(alice).post(URL, GANG)
        assert response.status_code == 422
        assert "ReadWriteMany" in response.json()["errors"][0]["detail"]

    def test_job_can_be_exported_for_other_operators(self, alice: User) -> None:
        body = GANG | {"env": {"KEY": {"secret": "hunter2"}}}
        created = person(alice).post(URL, body).json()
        url = f"/api/v1/workloads/{created['id']}/exports/"
        exported = person(alice).get(f"{url}pytorchjob/")
        assert yaml.safe_load(exported.content)["kind"] == "PyTorchJob"
        assert b"hunter2" not in exported.content
        refused = person(alice).get(f"{url}tfjob/")
        assert (refused.status_code, refused.json()["code"]) == (404, "no_such_export")
        client = self.client(alice)
        file = client.get(reverse("workloads:export", args=["vision", created["id"], "jobset"]))
        assert file.headers["Content-Disposition"] == 'attachment; filename="ddp-jobset.yaml"'
        page = client.get(reverse("workloads:detail", args=["vision", created["id"]]), {"tab": "spec"})
        assert "pytorchjob/" in page.content.decode()


def gang(bed: Bed, program: str, **changes: Any) -> Workload:
    options: dict[str, Any] = {"kind": "distributed", "pods": 2, "setup": Setup(template="torch")} | changes
    return bed.submit(bed.alice, bed.vision, program, **options)


class TestRun:
    def test_two_ranks_communicate_and_each_has_its_own_log_and_state(self, bed: Bed) -> None:
        work = gang(bed, MEET)
        bed.until(lambda: bed.state(work) == "succeeded")
        attempt = work.attempts.get()
        assert [read_log(attempt, rank=rank).data for rank in (0, 1)] == [
            b"heard from rank 1\n",
            b"heard from the master\n",
        ]
        ranks = person(bed.alice).get(f"/api/v1/workloads/{work.public_id}/").json()["attempts"][0]["ranks"]
        assert [(rank["role"], rank["phase"], rank["exit_code"]) for rank in ranks] == [
            ("master 0", "succeeded", 0),
            ("worker 0", "succeeded", 0),
        ]
        assert len({card for rank in ranks for card in rank["cards"]}) == 2
        logs = person(bed.alice).get(f"/api/v1/workloads/{work.public_id}/logs/", {"rank": 1})
        assert logs.content == b"heard from the master\n"
        client = Client()
        client.force_login(bed.alice)
        page = client.get(reverse("workloads:detail", args=["vision", work.public_id])).content.decode()
        assert all(text in page for text in ('data-rank="1"', "master 0", "worker 0", 'name="rank"'))
        piece = client.get(reverse("workloads:log", args=["vision", work.public_id]), {"rank": "1"})
        assert piece.content == b"heard from the master\n"

    def test_failed_rank_restarts_the_gang_up_to_its_limit_and_then_fails_it(self, bed: Bed) -> None:
        fails = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\nwhile True: time.sleep(0.1)"
        work = gang(bed, fails, setup=Setup(template="torch", max_restarts=1))
        bed.until(lambda: bed.state(work) == "failed")
        assert [(a.outcome, a.exit_code) for a in work.attempts.order_by("number")] == [("failed", 3), ("failed", 3)]
        assert (work.restarts, work.reclaims, work.exit_code) == (1, 0, 3)
        ranks = work.attempts.get(number=2).ranks
        assert [(rank["exit_code"], rank["reason"]) for rank in ranks] == [(143, "Stopped"), (3, "Error")]

    def test_recalled_gang_saves_on_every_rank_and_resumes_in_the_next_attempt(self, bed: Bed) -> None:
        program = "import os\nos.chdir(os.environ['PORTAL_WORKDIR'])\nos.makedirs(f\"r{os.environ['RANK']}\", exist_ok=True)\n"
        program += "os.chdir(f\"r{os.environ['RANK']}\")\n" + CHECKPOINTS
        work = bed.submit(
            bed.bob, bed.nlp, program, cards=2, kind="distributed", pods=2, setup=Setup(template="generic")
        )
        bed.until(lambda: bed.state(work) == "running")
        bed.until(lambda: all(read_log(work.attempts.get(), rank=rank).data for rank in (0, 1)))
        owner = bed.submit(bed.alice, bed.vision, FOREVER, cards=2)
        bed.until(lambda: bed.state(owner) == "running")
        first, second = work.attempts.order_by("number")
        assert (bed.state(work), first.outcome, len(first.ranks)) == ("queued", "recalled", 2)
        actions.cancel(actor=Actor(bed.alice), workload=owner)
        bed.until(lambda: bed.state(owner) == "cancelled")
        Claim.objects.filter(pk=second.claim_id).update(backoff_until=None)
        bed.until(lambda: bed.state(work) == "running")
        second.refresh_from_db()
        for rank in (0, 1):
            bed.until(lambda rank=rank: read_log(second, rank=rank).data.startswith(b"from "))  # type: ignore[misc]
            assert int(read_log(second, rank=rank).data.split()[1]) > 0

    def test_service_is_shown_as_ready_and_runs_until_cancelled(self, bed: Bed) -> None:
        work = bed.submit(bed.alice, bed.vision, SERVE, kind="service", setup=Setup(port=8000))
        bed.until(lambda: bed.state(work) == "running" and work.attempts.get().ranks[0]["ready"] is True)
        client = Client()
        client.force_login(bed.alice)
        page = client.get(reverse("workloads:detail", args=["vision", work.public_id])).content.decode()
        assert all(text in page for text in ("The service responds.", "Open service", "All members of Vision"))
        actions.cancel(actor=Actor(bed.alice), workload=work)
        bed.until(lambda: bed.state(work) == "cancelled")
        assert log_of(work.attempts.get()) is not None

    def test_readiness_probe_reads_the_whole_response(self, bed: Bed) -> None:
        """Python's own server logs a traceback for clients that close the connection early."""
        program = "import http.server as s, os\nwhere = os.environ['PORTAL_ADDRESS'], int(os.environ['PORTAL_PORT'])\n"
        program += "s.ThreadingHTTPServer(where, s.SimpleHTTPRequestHandler).serve_forever()"
        work = bed.submit(bed.alice, bed.vision, program, kind="service", setup=Setup(port=8000, ready_path="/"))
        bed.until(lambda: bed.state(work) == "running" and work.attempts.get().ranks[0]["ready"] is True)
        bed.until(lambda: read_log(work.attempts.get()).data.count(b"GET / ") > 2)
        assert b"Traceback" not in read_log(work.attempts.get()).data
