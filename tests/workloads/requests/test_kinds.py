"""Distributed jobs and services: asked for by API and form, refused with the field, run on the embedded cluster."""

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


class TestAsked:
    @pytest.mark.parametrize("body", [GANG, SERVICE], ids=["distributed", "service"])
    def test_what_was_asked_for_is_told_again_and_runs_again_alike(self, alice: User, body: dict[str, Any]) -> None:
        client = person(alice)
        told = client.post(URL, body).json()
        assert {name: told["setup"][name] for name in body["setup"]} == body["setup"]
        assert told["pods"] == body.get("pods", 1)
        assert told["units"] == body["units_per_pod"] * told["pods"]
        again = client.post(f"/api/v1/workloads/{told['id']}/rerun/").json()
        assert (again["setup"], again["pods"], again["kind"]) == (told["setup"], told["pods"], told["kind"])

    def test_a_gang_claims_all_its_pods_at_once(self, alice: User, pool: Pool) -> None:
        pool.group.cluster.nodes.update(domain="rack-1")
        person(alice).post(URL, GANG | {"setup": {"template": "torch", "same_domain": True}})
        claim = Claim.objects.get()
        assert (claim.pods, claim.units_per_pod, claim.same_domain) == (2, 2, True)

    def test_a_preset_gives_the_whole_setup_and_a_body_changes_parts_of_it(self, alice: User, pool: Pool) -> None:
        Preset.objects.create(
            slug="two-ranks", title="Two ranks", kind="distributed", pool=pool, pods=2, image=Image.objects.get(),
            command=["python", "x.py"], setup={"template": "torch", "max_restarts": 1},
        )  # fmt: skip
        told = person(alice).post(URL, {"preset": "two-ranks", "setup": {"max_restarts": 5}}).json()
        assert (told["pods"], told["setup"]["template"], told["setup"]["max_restarts"]) == (2, "torch", 5)

    @pytest.mark.parametrize(
        ("changes", "field", "words"),
        [
            ({"pods": 1}, "pods", "at least 2 pods"),
            ({"pods": 513, "units_per_pod": 1}, "pods", "At most 512"),
            ({"setup": {}}, "setup.template", "There is no template"),
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
    def test_what_cannot_be_meant_is_refused_with_its_field(
        self, alice: User, changes: dict[str, Any], field: str, words: str
    ) -> None:
        answer = person(alice).post(URL, GANG | changes)
        assert answer.status_code == 422
        faults = {each["attr"]: each["detail"] for each in answer.json()["errors"]}
        assert words in faults.get(field, ""), faults
        assert not Workload.objects.exists()


def form(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "distributed", "name": "ddp", "pool": "a100", "units_per_pod": "2", "image": "python:3.11", "pods": "2",
        "template": "torch", "command": "torchrun train.py", "cpu": "2", "memory_mib": "8 GiB", "max_restarts": "2",
        "port": "8000", "ready_path": "/left-over",
    } | changes  # fmt: skip


class TestForm:
    def client(self, who: User) -> Client:
        client = Client()
        client.force_login(who)
        return client

    def test_takes_only_what_its_kind_has(self, alice: User) -> None:
        answer = self.client(alice).post(reverse("workloads:new", args=["vision"]), form())
        assert answer.status_code == 302, answer.content.decode()
        workload = Workload.objects.get()
        assert (workload.pods, workload.settings) == (2, Setup(template="torch", max_restarts=2))

    def test_of_a_service_makes_a_service_of_one_pod(self, alice: User) -> None:
        asked = form(kind="service", units_per_pod="1", ready_path="")
        assert self.client(alice).post(reverse("workloads:new", args=["vision"]), asked).status_code == 302
        workload = Workload.objects.get()
        assert (workload.pods, workload.settings) == (1, Setup(port=8000))

    def test_comes_back_with_the_fault_beside_its_field(self, alice: User) -> None:
        answer = self.client(alice).post(reverse("workloads:new", args=["vision"]), form(pods="1"))
        assert answer.status_code == 422
        assert "A distributed job has at least 2 pods" in answer.content.decode()
        assert 'id="id_pods_error"' in answer.content.decode()

    def test_of_a_clone_begins_with_the_same_setup(self, alice: User) -> None:
        client = self.client(alice)
        client.post(reverse("workloads:new", args=["vision"]), form(template="mpi"))
        page = client.get(reverse("workloads:new", args=["vision"]), {"from": Workload.objects.get().public_id})
        started = page.context["form"].initial
        assert (started["pods"], started["template"], started["max_restarts"]) == (2, "mpi", 2)


class TestPages:
    def client(self, who: User) -> Client:
        client = Client()
        client.force_login(who)
        return client

    def test_the_verdict_shows_what_each_rank_will_be_told(self, alice: User) -> None:
        page = self.client(alice).post(reverse("workloads:verdict", args=["vision"]), form(template="tensorflow"))
        text = html.unescape(page.content.decode())
        assert "Starts now" in text
        assert 'TF_CONFIG={"cluster": {"chief": ["127.0.0.1:29500"]' in text
        assert "This is an embedded cluster" in text

    def test_on_kubernetes_it_shows_every_object_and_each_ranks_patch_and_no_secret(
        self, alice: User, pool: Pool
    ) -> None:
        cluster = pool.group.cluster
        cluster.kind, cluster.options = "kubernetes", {"access_mode": "ReadWriteMany"}
        cluster.save()
        asked = form(secret_env="HF_TOKEN=hunter2")
        page = self.client(alice).post(reverse("workloads:verdict", args=["vision"]), asked)
        assert "hunter2" not in page.content.decode()
        objects = list(yaml.safe_load_all(page.context["preview"].yaml))
        assert [each.get("kind") for each in objects] == ["Job", "Service", None, None]
        job = objects[0]["spec"]
        assert (job["completions"], job["backoffLimitPerIndex"], job["podReplacementPolicy"]) == (2, 0, "Failed")
        assert objects[3]["metadata"]["annotations"]["gpu-quota-portal/rank.RANK"] == "1"
        names = {each["name"] for each in job["template"]["spec"]["containers"][0]["env"]}
        assert {"MASTER_ADDR", "PET_NNODES", "RANK", "HF_TOKEN"} <= names

    def test_ranks_over_several_nodes_need_a_volume_that_several_can_mount(self, alice: User, pool: Pool) -> None:
        cluster = pool.group.cluster
        cluster.kind = "kubernetes"
        cluster.save()
        answer = person(alice).post(URL, GANG)
        assert answer.status_code == 422
        assert "ReadWriteMany" in answer.json()["errors"][0]["detail"]

    def test_the_same_job_is_given_in_the_shapes_of_other_operators(self, alice: User) -> None:
        asked = GANG | {"env": {"KEY": {"secret": "hunter2"}}}
        told = person(alice).post(URL, asked).json()
        url = f"/api/v1/workloads/{told['id']}/exports/"
        made = person(alice).get(f"{url}pytorchjob/")
        assert yaml.safe_load(made.content)["kind"] == "PyTorchJob"
        assert b"hunter2" not in made.content
        wrong = person(alice).get(f"{url}tfjob/")
        assert (wrong.status_code, wrong.json()["code"]) == (404, "no_such_export")
        client = self.client(alice)
        file = client.get(reverse("workloads:export", args=["vision", told["id"], "jobset"]))
        assert file.headers["Content-Disposition"] == 'attachment; filename="ddp-jobset.yaml"'
        page = client.get(reverse("workloads:detail", args=["vision", told["id"]]), {"tab": "spec"})
        assert "pytorchjob/" in page.content.decode()


def gang(bed: Bed, program: str, **changes: Any) -> Workload:
    options: dict[str, Any] = {"kind": "distributed", "pods": 2, "setup": Setup(template="torch")} | changes
    return bed.submit(bed.alice, bed.vision, program, **options)


class TestRun:
    def test_two_ranks_meet_and_each_has_its_log_and_state(self, bed: Bed) -> None:
        work = gang(bed, MEET)
        bed.until(lambda: bed.state(work) == "succeeded")
        attempt = work.attempts.get()
        assert [read_log(attempt, rank=rank).data for rank in (0, 1)] == [
            b"heard from rank 1\n",
            b"heard from the master\n",
        ]
        told = person(bed.alice).get(f"/api/v1/workloads/{work.public_id}/").json()["attempts"][0]["ranks"]
        assert [(rank["role"], rank["phase"], rank["exit_code"]) for rank in told] == [
            ("master 0", "succeeded", 0),
            ("worker 0", "succeeded", 0),
        ]
        assert len({card for rank in told for card in rank["cards"]}) == 2
        logs = person(bed.alice).get(f"/api/v1/workloads/{work.public_id}/logs/", {"rank": 1})
        assert logs.content == b"heard from the master\n"
        client = Client()
        client.force_login(bed.alice)
        page = client.get(reverse("workloads:detail", args=["vision", work.public_id])).content.decode()
        assert all(text in page for text in ('data-rank="1"', "master 0", "worker 0", 'name="rank"'))
        piece = client.get(reverse("workloads:log", args=["vision", work.public_id]), {"rank": "1"})
        assert piece.content == b"heard from the master\n"

    def test_a_failed_rank_fails_all_or_all_begin_again_as_often_as_was_asked(self, bed: Bed) -> None:
        fails = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\nwhile True: time.sleep(0.1)"
        work = gang(bed, fails, setup=Setup(template="torch", max_restarts=1))
        bed.until(lambda: bed.state(work) == "failed")
        assert [(a.outcome, a.exit_code) for a in work.attempts.order_by("number")] == [("failed", 3), ("failed", 3)]
        assert (work.restarts, work.reclaims, work.exit_code) == (1, 0, 3)
        ranks = work.attempts.get(number=2).ranks
        assert [(rank["exit_code"], rank["reason"]) for rank in ranks] == [(143, "Stopped"), (3, "Error")]

    def test_a_recalled_gang_saves_on_every_rank_and_resumes_as_the_next_attempt(self, bed: Bed) -> None:
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

    def test_a_service_says_when_it_is_ready_and_ends_only_when_told(self, bed: Bed) -> None:
        work = bed.submit(bed.alice, bed.vision, SERVE, kind="service", setup=Setup(port=8000))
        bed.until(lambda: bed.state(work) == "running" and work.attempts.get().ranks[0]["ready"] is True)
        client = Client()
        client.force_login(bed.alice)
        page = client.get(reverse("workloads:detail", args=["vision", work.public_id])).content.decode()
        assert all(text in page for text in ("The service responds.", "Open service", "All members of Vision"))
        actions.cancel(actor=Actor(bed.alice), workload=work)
        bed.until(lambda: bed.state(work) == "cancelled")
        assert log_of(work.attempts.get()) is not None

    def test_who_asks_a_service_whether_it_is_ready_hears_its_answer_out(self, bed: Bed) -> None:
        """Python's own server writes down whoever breaks off."""
        program = "import http.server as s, os\nwhere = os.environ['PORTAL_ADDRESS'], int(os.environ['PORTAL_PORT'])\n"
        program += "s.ThreadingHTTPServer(where, s.SimpleHTTPRequestHandler).serve_forever()"
        work = bed.submit(bed.alice, bed.vision, program, kind="service", setup=Setup(port=8000, ready_path="/"))
        bed.until(lambda: bed.state(work) == "running" and work.attempts.get().ranks[0]["ready"] is True)
        bed.until(lambda: read_log(work.attempts.get()).data.count(b"GET / ") > 2)
        assert b"Traceback" not in read_log(work.attempts.get()).data
