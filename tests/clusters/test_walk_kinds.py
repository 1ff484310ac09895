"""Distributed jobs and services through the whole portal, in pods that really run."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from portal.access import Actor
from quotas.models import Claim, LedgerEntry, Pool
from tests.clients import program
from tests.clusters import realcluster
from tests.clusters.realcluster import Admin
from tests.clusters.test_gangs import MEET, SERVE
from tests.clusters.test_walk import SMALL, PodBed, bed  # noqa: F401 a fixture
from tests.workloads.reconciler.test_main_path import FOREVER
from workloads import actions
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import ref_of
from workloads.files.logs import read_log
from workloads.models import Attempt, Image, Workload
from workloads.runtime.setups import Setup

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
SAVES = """
import os, pathlib, signal, sys, time
saved = pathlib.Path(f"checkpoint-{os.environ['RANK']}.txt")
step = int(saved.read_text()) if saved.exists() else 0
print("from", step, flush=True)
def save(*_):
    saved.write_text(str(step)); print("saved", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, save)
while True:
    step += 1
    time.sleep(0.01)
"""
MEGABYTE = """
from mpi4py import MPI
world = MPI.COMM_WORLD
mine, other = bytes([world.rank]) * 2**20, bytearray(2**20)
world.Sendrecv(mine, 1 - world.rank, recvbuf=other, source=1 - world.rank)
said = world.allreduce([(world.rank, set(other), MPI.Get_processor_name())])
print(world.rank, "of", world.size, *sorted(said), flush=True)
"""


def gang(bed: PodBed, program: str, template: str = "torch", **fields: Any) -> Workload:  # noqa: F811
    setup = Setup(template=template, max_restarts=fields.pop("max_restarts", 0))
    return bed.submit(bed.alice, bed.vision, program, kind="distributed", pods=2, setup=setup, **SMALL | fields)


def log_of(attempt: Attempt, rank: int) -> str:
    return read_log(attempt, rank=rank).data.decode()


@pytest.mark.parametrize("template", ["torch", "tensorflow"])
def test_two_pods_communicate_by_name(bed: PodBed, admin: Admin, template: str) -> None:  # noqa: F811
    work = gang(bed, MEET, template)
    bed.until(lambda: bed.state(work) == "succeeded", 240)
    attempt = work.attempts.get()
    assert [log_of(attempt, rank) for rank in (0, 1)] == ["['rank 1']\n", "welcome\n"]
    assert [(rank["phase"], rank["node"]) for rank in attempt.ranks] == [("succeeded", "real-0")] * 2
    bed.until(lambda: Attempt.objects.get().removed_at is not None)
    assert log_of(attempt, 1) == "welcome\n"

    def gone() -> bool:
        path = f"/apis/batch/v1/namespaces/{attempt.namespace}/jobs/{attempt.run_name}"
        return bool(admin.call("GET", path).get("code") == 404)

    bed.until(gone)


def test_mpirun_starts_a_rank_in_another_pod_without_ssh_and_they_communicate(bed: PodBed) -> None:  # noqa: F811
    brought = realcluster.kit("bring", "openmpi", timeout=600)
    assert brought.returncode == 0, brought.stderr
    Image.objects.create(name=brought.stdout.strip(), title="Open MPI")
    ci = program(bed.alice, bed.vision, ("read", "submit"))
    run = f"\"$PORTAL_MPI\" mpirun python3 -c '{MEGABYTE}'"
    body = {
        "name": "ring", "kind": "distributed", "pool": bed.pool.slug, "image": brought.stdout.strip(), "pods": 2,
        "setup": {"template": "mpi"}, "units_per_pod": 1, "command": ["sh", "-c", run], "cpu": 0.1, "memory_mib": 256,
    }  # fmt: skip
    response = ci.post("/api/v1/departments/vision/workloads/", body)
    assert response.status_code == 202, response.json()
    url = response["Location"]
    bed.until(lambda: ci.get(url).json()["state"] in ("succeeded", "failed"), 240)
    log = ci.get(f"{url}logs/").content.decode()
    assert ci.get(url).json()["state"] == "succeeded", log
    pods = [f"{Attempt.objects.get().run_name}-{rank}" for rank in (0, 1)]
    expected = f"(0, {{1}}, '{pods[0]}') (1, {{0}}, '{pods[1]}')"
    printed = sorted(line for line in log.splitlines() if " of 2 " in line)  # others are Open MPI's warnings
    assert printed == [f"0 of 2 {expected}", f"1 of 2 {expected}"]


def test_failed_rank_stops_the_others_and_the_gang_restarts(bed: PodBed) -> None:  # noqa: F811
    program = f"import os, sys\nif os.environ['RANK'] == '1': print('no'); sys.exit(3)\n{FOREVER}"
    work = gang(bed, program, max_restarts=1)
    bed.until(lambda: bed.state(work) == "failed", 400)
    assert [(each.outcome, each.exit_code) for each in work.attempts.order_by("number")] == [("failed", 3)] * 2
    last = work.attempts.get(number=2)
    assert [(rank["exit_code"], rank["reason"]) for rank in last.ranks] == [(143, "Stopped"), (3, "Error")]
    assert [log_of(last, rank) for rank in (0, 1)] == ["up\n", "no\n"]
    assert not LedgerEntry.objects.filter(ended_at=None).exists()


def test_recalled_gang_saves_on_every_rank_and_resumes_in_the_next_attempt(bed: PodBed) -> None:  # noqa: F811
    setup = Setup(template="torch")
    work = bed.submit(bed.bob, bed.nlp, SAVES, cards=2, kind="distributed", pods=2, setup=setup, **SMALL)
    bed.until(lambda: bed.state(work) == "running", 200)
    bed.until(lambda: all("from 0" in log_of(work.attempts.get(), rank) for rank in (0, 1)))
    owner = bed.submit(bed.alice, bed.vision, FOREVER, cards=2, **SMALL)
    bed.until(lambda: work.attempts.get(number=1).recalled_at is not None)  # the state itself may last one second
    bed.until(lambda: bed.state(owner) == "running", 200)
    first, second = work.attempts.order_by("number")
    assert (bed.state(work), first.outcome) == ("queued", "recalled")
    assert [log_of(first, rank) for rank in (0, 1)] == ["from 0\nsaved\n"] * 2
    assert [rank["exit_code"] for rank in first.ranks] == [0, 0]
    actions.cancel(actor=Actor(bed.alice), workload=owner)
    bed.until(lambda: bed.state(owner) == "cancelled")
    Claim.objects.filter(pk=second.claim_id).update(backoff_until=None)
    bed.until(lambda: bed.state(work) == "running", 200)
    second.refresh_from_db()
    for rank in (0, 1):
        bed.until(lambda rank=rank: log_of(second, rank).startswith("from "))  # type: ignore[misc]
        assert int(log_of(second, rank).split()[1]) > 0


def test_deletion_of_one_pod_requeues_the_whole_gang(bed: PodBed, admin: Admin) -> None:  # noqa: F811
    work = gang(bed, FOREVER)
    bed.until(lambda: bed.state(work) == "running", 200)
    attempt = work.attempts.get()
    selector = f"gpu-quota-portal%2Fsubmission={attempt.submission_id}"
    found = admin.call("GET", f"/api/v1/namespaces/{attempt.namespace}/pods?labelSelector={selector}")["items"]
    admin.call(
        "DELETE", f"/api/v1/namespaces/{attempt.namespace}/pods/{found[0]['metadata']['name']}?gracePeriodSeconds=1"
    )
    bed.until(lambda: work.attempts.count() >= 2 and bed.state(work) == "running", 240)
    assert work.attempts.get(number=1).outcome == "lost"


def test_service_responds_becomes_ready_and_ends_when_stopped(bed: PodBed) -> None:  # noqa: F811
    setup = Setup(port=8080, ready_path="/healthz")
    work = bed.submit(bed.alice, bed.vision, SERVE, kind="service", setup=setup, **SMALL)
    bed.until(lambda: bed.state(work) == "running" and work.attempts.get().ranks[0]["ready"] is True, 200)
    attempt = work.attempts.get()
    endpoint = driver_for(attempt.cluster).endpoint(ref_of(attempt))
    assert endpoint is not None
    assert httpx.get(f"http://{endpoint[0]}:{endpoint[1]}/", trust_env=False).text == "here"
    actions.cancel(actor=Actor(bed.alice), workload=work)
    bed.until(lambda: bed.state(work) == "cancelled", 200)
    assert "GET /healthz" in log_of(work.attempts.get(), 0)


SERVES_UNTIL_NOTICE = f"""
import os, threading, time
def leave():
    while not open(os.environ["PORTAL_RECLAIM_AT_FILE"]).read().strip(): time.sleep(0.1)
    open(os.environ["PORTAL_READY_FILE"], "w").close()
threading.Thread(target=leave, daemon=True).start()
{SERVE}"""


def test_ready_file_of_a_service_shortens_its_notice(bed: PodBed) -> None:  # noqa: F811
    Pool.objects.filter(pk=bed.pool.pk).update(notice=3600)
    bed.pool.refresh_from_db()
    setup = Setup(port=8080)
    borrower = bed.submit(bed.bob, bed.nlp, SERVES_UNTIL_NOTICE, cards=4, kind="service", setup=setup, **SMALL)
    bed.until(lambda: bed.state(borrower) == "running" and borrower.attempts.get().ranks[0]["ready"] is True, 200)
    owner = bed.submit(bed.alice, bed.vision, FOREVER, cards=2, **SMALL)
    bed.until(lambda: bed.state(owner) == "running", 240)  # the kubelet shows a notice within a minute or so
    first = borrower.attempts.get(number=1)
    assert first.outcome == "recalled"
    assert first.ready_at is not None
    assert first.finished_at < first.reclaim_at
